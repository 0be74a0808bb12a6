#include "c4d_master/telemetry_changes.h"

#include <map>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/queue_pair_sums.h"
#include "c4d_master/telemetry_decode.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using Column64 = google::protobuf::RepeatedField<uint64_t>;
using Column32 = google::protobuf::RepeatedField<uint32_t>;

template <typename Column>
bool HasRows(const Column& column, int rows) {
  return column.empty() || column.size() == rows;
}

bool Ascend(const Column32& places) {
  for (int i = 1; i < places.size(); ++i) {
    if (places[i] <= places[i - 1]) return false;
  }
  return true;
}

bool IsInOrder(const v1::CommunicatorChanges& changes, int operations) {
  const int rows = changes.places_size();
  for (const Column64* column :
       {&changes.called(), &changes.started(), &changes.finished(), &changes.p2p_called(),
        &changes.p2p_started(), &changes.p2p_finished(), &changes.called_age_ns(), &changes.started_age_ns(),
        &changes.finished_age_ns(), &changes.p2p_called_age_ns(), &changes.p2p_started_age_ns(),
        &changes.p2p_finished_age_ns(), &changes.timed(), &changes.timed_ns()}) {
    if (!HasRows(*column, rows)) return false;
  }
  for (const Column32* column : {&changes.last_called(), &changes.last_started(), &changes.last_p2p_called(),
                                 &changes.last_p2p_started()}) {
    if (!HasRows(*column, rows)) return false;
    for (const uint32_t operation : *column) {
      if (operation > static_cast<uint32_t>(operations)) return false;
    }
  }
  return Ascend(changes.places());
}

bool IsInOrder(const v1::QueuePairChanges& changes) {
  const int rows = changes.places_size();
  for (const Column64* column :
       {&changes.posted_messages(), &changes.posted_bytes(), &changes.completed_messages(),
        &changes.completed_bytes(), &changes.moved_bytes(), &changes.last_post_age_ns(),
        &changes.last_progress_age_ns(), &changes.last_heard_age_ns(), &changes.wanted_messages(),
        &changes.granted_messages(), &changes.done_messages(), &changes.first_waits(),
        &changes.first_wait_sum_ns()}) {
    if (!HasRows(*column, rows)) return false;
  }
  const Column32& latencies = changes.latencies();
  if (latencies.size() % 3 != 0) return false;
  uint64_t row = 0;
  for (int i = 0; i < latencies.size(); i += 3) {
    row += latencies[i];
    if (row >= static_cast<uint64_t>(rows) || latencies[i + 1] >= kLatencyBuckets) return false;
  }
  return Ascend(changes.places());
}

// A value of a column, 0 where that is left out.
template <typename Column>
auto At(const Column& column, int row) {
  return column.empty() ? typename Column::value_type(0) : column[row];
}

void Step(uint64_t more, uint64_t age_ns, const BatchTimes& times, Counter* counter) {
  counter->count += more;
  if (age_ns != 0 && counter->count != 0) counter->last_at_ns = times.Ago(static_cast<int64_t>(age_ns));
}

void Apply(const v1::ProcessChanges& process, const BatchTimes& times, int row, Membership* membership) {
  const v1::CommunicatorChanges& from = process.communicators();
  Step(At(from.called(), row), At(from.called_age_ns(), row), times, &membership->called);
  Step(At(from.started(), row), At(from.started_age_ns(), row), times, &membership->started);
  Step(At(from.finished(), row), At(from.finished_age_ns(), row), times, &membership->finished);
  Step(At(from.p2p_called(), row), At(from.p2p_called_age_ns(), row), times, &membership->p2p_called);
  Step(At(from.p2p_started(), row), At(from.p2p_started_age_ns(), row), times, &membership->p2p_started);
  Step(At(from.p2p_finished(), row), At(from.p2p_finished_age_ns(), row), times, &membership->p2p_finished);
  membership->timed = At(from.timed(), row);
  membership->timed_ns = At(from.timed_ns(), row);
  const auto set = [&](const Column32& column, OperationInfo* info) {
    const uint32_t place = At(column, row);
    if (place != 0) *info = DecodeOperation(process.operations(static_cast<int>(place) - 1));
  };
  set(from.last_called(), &membership->last_called);
  set(from.last_started(), &membership->last_started);
  set(from.last_p2p_called(), &membership->last_p2p_called);
  set(from.last_p2p_started(), &membership->last_p2p_started);
}

void Apply(const v1::QueuePairChanges& from, const BatchTimes& times, int row, QueuePair* to) {
  const auto at = [&](uint64_t age_ns, int64_t* moment_ns) {
    if (age_ns != 0) *moment_ns = times.Ago(static_cast<int64_t>(age_ns));
  };
  to->posted_messages += At(from.posted_messages(), row);
  to->posted_bytes += At(from.posted_bytes(), row);
  to->completed_messages += At(from.completed_messages(), row);
  to->completed_bytes += At(from.completed_bytes(), row);
  to->moved_bytes += At(from.moved_bytes(), row);
  if (to->posted_messages != 0) at(At(from.last_post_age_ns(), row), &to->last_post_at_ns);
  if (to->moved_bytes != 0) at(At(from.last_progress_age_ns(), row), &to->last_progress_at_ns);
  at(At(from.last_heard_age_ns(), row), &to->last_heard_at_ns);
  if (!to->connection.known) return;
  to->connection.wanted += At(from.wanted_messages(), row);
  to->connection.granted += At(from.granted_messages(), row);
  to->connection.done += At(from.done_messages(), row);
  to->connection.first_waits += At(from.first_waits(), row);
  to->connection.first_wait_sum_ns += At(from.first_wait_sum_ns(), row);
}

}  // namespace

std::optional<QueuePairPlaces> PlacesOf(const v1::ProcessReport& report, const Process& process) {
  if (static_cast<size_t>(report.communicators_size()) != process.communicators.size()) return std::nullopt;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> owners;
  for (uint32_t i = 0; i < process.communicators.size(); ++i) {
    owners[{process.communicators[i].communicator_id, process.communicators[i].rank}] = i;
  }
  std::vector<uint32_t> counts(process.communicators.size());
  QueuePairPlaces places;
  places.reserve(static_cast<size_t>(report.queue_pairs_size()));
  for (const v1::QueuePairState& state : report.queue_pairs()) {
    const auto owner = owners.find({state.communicator_id(), state.rank()});
    if (owner == owners.end()) return std::nullopt;
    places.emplace_back(owner->second, counts[owner->second]++);
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != process.communicators[i].queue_pairs.size()) return std::nullopt;
  }
  return places;
}

absl::Status CheckChanges(const v1::TelemetryBatch& batch) {
  if (batch.base() == 0 && batch.changes().empty()) return absl::OkStatus();
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(service::Concat("the batch of ", CutText(batch.host()), " ", what));
  };
  if (batch.base() == 0 || !batch.processes().empty()) return bad("is neither whole nor made of changes");
  for (const v1::ProcessChanges& changes : batch.changes()) {
    if (changes.has_whole()) continue;
    if (!IsInOrder(changes.communicators(), changes.operations_size()) || !IsInOrder(changes.queue_pairs())) {
      return bad("says its changes in columns that do not fit each other");
    }
  }
  return absl::OkStatus();
}

bool Fit(const v1::ProcessChanges& changes, const Process& process, const QueuePairPlaces& places) {
  if (changes.has_whole()) {
    const v1::ProcessId& id = changes.whole().process();
    return id.boot_id() == process.key.boot_id && id.pid() == process.key.pid &&
           id.start_time_ticks() == process.key.start_time_ticks;
  }
  const auto within = [](const Column32& column, size_t size) {
    return column.empty() || column[column.size() - 1] < size;  // they ascend
  };
  return within(changes.communicators().places(), process.communicators.size()) &&
         within(changes.queue_pairs().places(), places.size());
}

void Apply(const v1::ProcessChanges& changes, const BatchTimes& times, const QueuePairPlaces& places,
           Process* process) {
  process->health = DecodeHealth(changes.health(), times);
  process->in_operation_ns = changes.in_operation_ns();
  process->operations_finished = changes.operations_finished();
  const Column32& communicators = changes.communicators().places();
  for (Membership& membership : process->communicators) membership.timed = membership.timed_ns = 0;
  for (int row = 0; row < communicators.size(); ++row) {
    Membership& membership = process->communicators[communicators[row]];
    const bool summed = membership.summed_at_revision == membership.revision;
    ++membership.revision;
    if (summed) membership.summed_at_revision = membership.revision;
    Apply(changes, times, row, &membership);
  }
  const v1::QueuePairChanges& from = changes.queue_pairs();
  const auto queue_pair = [&](int row) -> QueuePair& {
    const auto [owner, place] = places[from.places(row)];
    return process->communicators[owner].queue_pairs[place];
  };
  // Those of one communicator come one after the other.
  Membership* owner = nullptr;
  for (int row = 0; row < from.places_size(); ++row) {
    Membership* const of_row = &process->communicators[places[from.places(row)].first];
    if (of_row != owner) {
      if (owner != nullptr) AddUp(owner);
      owner = of_row;
      ++owner->revision;
    }
    Apply(from, times, row, &queue_pair(row));
  }
  if (owner != nullptr) AddUp(owner);
  int row = 0;
  for (int i = 0; i < from.latencies_size(); i += 3) {
    row += static_cast<int>(from.latencies(i));
    queue_pair(row).latency[from.latencies(i + 1)] += from.latencies(i + 2);
  }
}

}  // namespace c4::c4d
