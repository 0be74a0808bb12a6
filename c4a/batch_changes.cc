#include "c4a/batch_changes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace c4::agent {
namespace {

using Column64 = google::protobuf::RepeatedField<uint64_t>;
using Column32 = google::protobuf::RepeatedField<uint32_t>;

// Ticks become nanoseconds by a relation that is measured again and again: two ages of one moment differ a
// bit.
constexpr int64_t kSameNs = 1'000'000;

// A moment by its age, where it is another one than before; 0: it is the same.
uint64_t NewAge(int64_t before_ns, int64_t now_ns, int64_t elapsed_ns) {
  if (now_ns >= before_ns + elapsed_ns - kSameNs) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(1, now_ns));
}

template <typename Column>
void DropZeroes(Column* column) {
  if (std::all_of(column->begin(), column->end(), [](auto value) { return value == 0; })) column->Clear();
}

bool IsSame(const v1::OperationInfo& a, const v1::OperationInfo& b) {
  return a.function() == b.function() && a.data_type() == b.data_type() && a.reduction() == b.reduction() &&
         a.root() == b.root() && a.count() == b.count();
}

bool IsSame(const v1::ProcessId& a, const v1::ProcessId& b) {
  return a.pid() == b.pid() && a.start_time_ticks() == b.start_time_ticks() && a.boot_id() == b.boot_id() &&
         a.host() == b.host();
}

bool Grew(const v1::Counter& a, const v1::Counter& b) {
  return b.count() >= a.count();
}

// It is the same one, in the same state, and only its counters have grown.
bool GoesOn(const v1::CommunicatorState& a, const v1::CommunicatorState& b) {
  return a.communicator_id() == b.communicator_id() && a.parent_id() == b.parent_id() &&
         a.rank() == b.rank() && a.rank_count() == b.rank_count() && a.phase() == b.phase() &&
         a.engine() == b.engine() && a.seen() == b.seen() && a.name() == b.name() &&
         a.has_gave_up() == b.has_gave_up() && Grew(a.called(), b.called()) &&
         Grew(a.started(), b.started()) && Grew(a.finished(), b.finished()) &&
         Grew(a.p2p_called(), b.p2p_called()) && Grew(a.p2p_started(), b.p2p_started()) &&
         Grew(a.p2p_finished(), b.p2p_finished());
}

bool GoesOn(const v1::ConnectionState& a, const v1::ConnectionState& b) {
  return b.wanted_messages() >= a.wanted_messages() && b.granted_messages() >= a.granted_messages() &&
         b.done_messages() >= a.done_messages() && b.first_waits() >= a.first_waits() &&
         b.first_wait_sum_ns() >= a.first_wait_sum_ns();
}

bool GoesOn(const v1::QueuePairState& a, const v1::QueuePairState& b) {
  return a.communicator_id() == b.communicator_id() && a.rank() == b.rank() && a.peer() == b.peer() &&
         a.direction() == b.direction() && a.channel() == b.channel() && a.index() == b.index() &&
         a.transport() == b.transport() && a.queue_pair_number() == b.queue_pair_number() &&
         a.peer_queue_pair_number() == b.peer_queue_pair_number() && a.phase() == b.phase() &&
         a.error() == b.error() && a.fences() == b.fences() && a.dead() == b.dead() &&
         a.local() == b.local() && a.remote() == b.remote() && a.has_connection() == b.has_connection() &&
         GoesOn(a.connection(), b.connection()) && a.latency_histogram_size() <= b.latency_histogram_size() &&
         b.posted_messages() >= a.posted_messages() && b.posted_bytes() >= a.posted_bytes() &&
         b.completed_messages() >= a.completed_messages() && b.completed_bytes() >= a.completed_bytes() &&
         b.moved_bytes() >= a.moved_bytes();
}

bool GoesOn(const v1::ProcessReport& a, const v1::ProcessReport& b) {
  const auto both = [](const auto& x, const auto& y) { return GoesOn(x, y); };
  return a.job() == b.job() && a.job_provisional() == b.job_provisional() &&
         a.incarnation() == b.incarnation() && a.rank_label() == b.rank_label() &&
         a.world_label() == b.world_label() && a.program() == b.program() && a.ended() == b.ended() &&
         a.has_owner_uid() == b.has_owner_uid() && a.owner_uid() == b.owner_uid() && a.level() == b.level() &&
         a.has_worker() == b.has_worker() &&
         a.worker().SerializeAsString() == b.worker().SerializeAsString() &&
         std::equal(a.communicators().begin(), a.communicators().end(), b.communicators().begin(),
                    b.communicators().end(), both) &&
         std::equal(a.queue_pairs().begin(), a.queue_pairs().end(), b.queue_pairs().begin(),
                    b.queue_pairs().end(), both);
}

// The columns of the communicators of one process.
class CommunicatorColumns {
 public:
  CommunicatorColumns(const v1::ProcessReport& next, v1::ProcessChanges* changes)
      : process_(changes), to_(changes->mutable_communicators()) {
    for (const v1::OperationSummary& summary : next.operations()) {
      if (summary.function() == v1::FUNCTION_SEND || summary.function() == v1::FUNCTION_RECV) continue;
      Times& times = times_[summary.communicator_id()];
      times.operations += summary.operations();
      times.ns += summary.duration_sum_ns();
    }
  }

  void Add(int place, const v1::CommunicatorState& a, const v1::CommunicatorState& b) {
    const bool same =
        !Moved(a.called(), b.called()) && !Moved(a.started(), b.started()) &&
        !Moved(a.finished(), b.finished()) && !Moved(a.p2p_called(), b.p2p_called()) &&
        !Moved(a.p2p_started(), b.p2p_started()) && !Moved(a.p2p_finished(), b.p2p_finished()) &&
        IsSame(a.last_called(), b.last_called()) && IsSame(a.last_started(), b.last_started()) &&
        IsSame(a.last_p2p_called(), b.last_p2p_called()) &&
        IsSame(a.last_p2p_started(), b.last_p2p_started());
    // Of several ranks of one communicator the first one has them (telemetry_decode.cc).
    Times times;
    if (const auto at = times_.find(b.communicator_id()); at != times_.end()) {
      times = std::exchange(at->second, Times());
    }
    if (same && times.operations == 0) return;
    to_->add_timed(times.operations);
    to_->add_timed_ns(times.ns);
    to_->add_places(static_cast<uint32_t>(place));
    AddCounter(a.called(), b.called(), to_->mutable_called(), to_->mutable_called_age_ns());
    AddCounter(a.started(), b.started(), to_->mutable_started(), to_->mutable_started_age_ns());
    AddCounter(a.finished(), b.finished(), to_->mutable_finished(), to_->mutable_finished_age_ns());
    AddCounter(a.p2p_called(), b.p2p_called(), to_->mutable_p2p_called(), to_->mutable_p2p_called_age_ns());
    AddCounter(a.p2p_started(), b.p2p_started(), to_->mutable_p2p_started(),
               to_->mutable_p2p_started_age_ns());
    AddCounter(a.p2p_finished(), b.p2p_finished(), to_->mutable_p2p_finished(),
               to_->mutable_p2p_finished_age_ns());
    AddOperation(a.last_called(), b.last_called(), to_->mutable_last_called());
    AddOperation(a.last_started(), b.last_started(), to_->mutable_last_started());
    AddOperation(a.last_p2p_called(), b.last_p2p_called(), to_->mutable_last_p2p_called());
    AddOperation(a.last_p2p_started(), b.last_p2p_started(), to_->mutable_last_p2p_started());
  }

  void End() {
    for (Column64* column :
         {to_->mutable_called(), to_->mutable_started(), to_->mutable_finished(), to_->mutable_p2p_called(),
          to_->mutable_p2p_started(), to_->mutable_p2p_finished(), to_->mutable_called_age_ns(),
          to_->mutable_started_age_ns(), to_->mutable_finished_age_ns(), to_->mutable_p2p_called_age_ns(),
          to_->mutable_p2p_started_age_ns(), to_->mutable_p2p_finished_age_ns(), to_->mutable_timed(),
          to_->mutable_timed_ns()}) {
      DropZeroes(column);
    }
    for (Column32* column : {to_->mutable_last_called(), to_->mutable_last_started(),
                             to_->mutable_last_p2p_called(), to_->mutable_last_p2p_started()}) {
      DropZeroes(column);
    }
    if (to_->places().empty()) process_->clear_communicators();
  }

 private:
  struct Times {
    uint64_t operations = 0;
    uint64_t ns = 0;
  };

  static bool Moved(const v1::Counter& a, const v1::Counter& b) { return a.count() != b.count(); }

  void AddCounter(const v1::Counter& a, const v1::Counter& b, Column64* more, Column64* age_ns) const {
    more->Add(b.count() - a.count());
    age_ns->Add(Moved(a, b) ? static_cast<uint64_t>(std::max<int64_t>(1, b.age_ns())) : 0);
  }

  void AddOperation(const v1::OperationInfo& a, const v1::OperationInfo& b, Column32* column) {
    if (IsSame(a, b)) {
      column->Add(0);
      return;
    }
    auto* const known = process_->mutable_operations();
    int place = 0;
    while (place < known->size() && !IsSame(known->Get(place), b)) ++place;
    if (place == known->size()) *known->Add() = b;
    column->Add(static_cast<uint32_t>(place + 1));
  }

  v1::ProcessChanges* const process_;
  v1::CommunicatorChanges* const to_;
  std::unordered_map<uint64_t, Times> times_;  // of collectives, by communicator
};

// The same of its queue pairs.
class QueuePairColumns {
 public:
  QueuePairColumns(int64_t elapsed_ns, v1::ProcessChanges* changes)
      : elapsed_ns_(elapsed_ns), process_(changes), to_(changes->mutable_queue_pairs()) {}

  void Add(int place, const v1::QueuePairState& a, const v1::QueuePairState& b) {
    const uint64_t post_ns = NewAge(a.last_post_age_ns(), b.last_post_age_ns(), elapsed_ns_);
    const uint64_t progress_ns = NewAge(a.last_progress_age_ns(), b.last_progress_age_ns(), elapsed_ns_);
    const uint64_t heard_ns = HeardAge(a.last_heard_age_ns(), b.last_heard_age_ns());
    const v1::ConnectionState& x = a.connection();
    const v1::ConnectionState& y = b.connection();
    const bool posted = b.posted_messages() != a.posted_messages() || b.posted_bytes() != a.posted_bytes();
    const bool moved = b.moved_bytes() != a.moved_bytes();
    const bool same =
        !posted && !moved && b.completed_messages() == a.completed_messages() &&
        b.completed_bytes() == a.completed_bytes() && y.wanted_messages() == x.wanted_messages() &&
        y.granted_messages() == x.granted_messages() && y.done_messages() == x.done_messages() &&
        y.first_waits() == x.first_waits() && y.first_wait_sum_ns() == x.first_wait_sum_ns() &&
        (b.posted_messages() == 0 || post_ns == 0) && (b.moved_bytes() == 0 || progress_ns == 0) &&
        (b.last_heard_age_ns() == 0 || heard_ns == 0);
    if (same) return;
    const int row = to_->places_size();
    to_->add_places(static_cast<uint32_t>(place));
    to_->add_posted_messages(b.posted_messages() - a.posted_messages());
    to_->add_posted_bytes(b.posted_bytes() - a.posted_bytes());
    to_->add_completed_messages(b.completed_messages() - a.completed_messages());
    to_->add_completed_bytes(b.completed_bytes() - a.completed_bytes());
    to_->add_moved_bytes(b.moved_bytes() - a.moved_bytes());
    to_->add_last_post_age_ns(posted && post_ns == 0 ? OfNow(b.last_post_age_ns()) : post_ns);
    to_->add_last_progress_age_ns(moved && progress_ns == 0 ? OfNow(b.last_progress_age_ns()) : progress_ns);
    to_->add_last_heard_age_ns(heard_ns);
    to_->add_wanted_messages(y.wanted_messages() - x.wanted_messages());
    to_->add_granted_messages(y.granted_messages() - x.granted_messages());
    to_->add_done_messages(y.done_messages() - x.done_messages());
    to_->add_first_waits(y.first_waits() - x.first_waits());
    to_->add_first_wait_sum_ns(y.first_wait_sum_ns() - x.first_wait_sum_ns());
    for (int i = 0; i < b.latency_histogram_size(); ++i) {
      // Counts wrap at 32 bits; a difference does not care.
      const uint32_t before = i < a.latency_histogram_size() ? a.latency_histogram(i) : 0;
      const uint32_t more = b.latency_histogram(i) - before;
      if (more == 0) continue;
      to_->add_latencies(static_cast<uint32_t>(row - last_row_));
      to_->add_latencies(static_cast<uint32_t>(i));
      to_->add_latencies(more);
      last_row_ = row;
    }
  }

  void End() {
    for (Column64* column :
         {to_->mutable_posted_messages(), to_->mutable_posted_bytes(), to_->mutable_completed_messages(),
          to_->mutable_completed_bytes(), to_->mutable_moved_bytes(), to_->mutable_last_post_age_ns(),
          to_->mutable_last_progress_age_ns(), to_->mutable_last_heard_age_ns(),
          to_->mutable_wanted_messages(), to_->mutable_granted_messages(), to_->mutable_done_messages(),
          to_->mutable_first_waits(), to_->mutable_first_wait_sum_ns()}) {
      DropZeroes(column);
    }
    if (to_->places().empty()) process_->clear_queue_pairs();
  }

 private:
  // 0 says of an end that nothing was ever heard of it: that does not age.
  uint64_t HeardAge(int64_t before_ns, int64_t now_ns) const {
    if (now_ns == 0) return 0;
    return before_ns == 0 ? OfNow(now_ns) : NewAge(before_ns, now_ns, elapsed_ns_);
  }
  static uint64_t OfNow(int64_t age_ns) { return static_cast<uint64_t>(std::max<int64_t>(1, age_ns)); }

  const int64_t elapsed_ns_;
  v1::ProcessChanges* const process_;
  v1::QueuePairChanges* const to_;
  int last_row_ = 0;
};

// What is new: all that has ended, and the changes where one of them is another one than before.
void AddIterations(const v1::ProcessReport& base, const v1::ProcessReport& next, v1::ProcessChanges* to) {
  const v1::ProcessIterations& now = next.iterations();
  const bool same = std::equal(base.iterations().changes().begin(), base.iterations().changes().end(),
                               now.changes().begin(), now.changes().end(),
                               [](const v1::IterationChange& a, const v1::IterationChange& b) {
                                 return a.number() == b.number() && a.stage() == b.stage() &&
                                        a.began_ns() == b.began_ns() && a.after_s() == b.after_s();
                               });
  if (now.ended().empty() && now.left_out() == 0 && same) return;
  *to->mutable_iterations() = now;
  if (same) to->mutable_iterations()->clear_changes();
}

void FillChanges(const v1::ProcessReport& base, const v1::ProcessReport& next, int64_t elapsed_ns,
                 v1::ProcessChanges* changes) {
  if (!GoesOn(base, next)) {
    *changes->mutable_whole() = next;
    return;
  }
  *changes->mutable_health() = next.health();
  changes->set_in_operation_ns(next.in_operation_ns());
  changes->set_operations_finished(next.operations_finished());
  AddIterations(base, next, changes);
  CommunicatorColumns communicators(next, changes);
  for (int i = 0; i < next.communicators_size(); ++i) {
    communicators.Add(i, base.communicators(i), next.communicators(i));
  }
  communicators.End();
  QueuePairColumns queue_pairs(elapsed_ns, changes);
  for (int i = 0; i < next.queue_pairs_size(); ++i) {
    queue_pairs.Add(i, base.queue_pairs(i), next.queue_pairs(i));
  }
  queue_pairs.End();
}

}  // namespace

std::optional<v1::TelemetryBatch> ChangesSince(const v1::TelemetryBatch& base, v1::TelemetryBatch* next) {
  const bool same = std::equal(
      base.processes().begin(), base.processes().end(), next->processes().begin(), next->processes().end(),
      [](const auto& a, const auto& b) { return IsSame(a.process(), b.process()) && !b.has_profile(); });
  const int64_t elapsed_ns = next->monotonic_ns() - base.monotonic_ns();
  if (!same || elapsed_ns < 0) return std::nullopt;
  // Everything else that a batch says, whatever that is.
  google::protobuf::RepeatedPtrField<v1::ProcessReport> processes;
  processes.Swap(next->mutable_processes());
  v1::TelemetryBatch batch = *next;
  processes.Swap(next->mutable_processes());
  batch.set_base(base.sequence());
  for (int i = 0; i < next->processes_size(); ++i) {
    FillChanges(base.processes(i), next->processes(i), elapsed_ns, batch.add_changes());
  }
  return batch;
}

}  // namespace c4::agent
