#include "fabric/jobsim/telemetry.h"

#include <algorithm>
#include <string>

#include "wire/segment.h"

namespace c4::jobsim {
namespace {

constexpr uint32_t kFirstPid = 1000;
constexpr uint64_t kMessageBytes = 32 << 20;
constexpr uint32_t kVendorTransport = 4;
// The threads of the vendor's engine and of frameworks look around once in a while, whatever the program
// does.
constexpr int64_t kTickNs = 1'000'000'000;
constexpr int64_t kTickCpuNs = 2'000'000;
constexpr int64_t kClockTickNs = 10'000'000;  // as fine as the kernel tells of processor time

static_assert(static_cast<int>(agent::ProcessState::kGone) == v1::PROCESS_STATE_GONE);

}  // namespace

Agents::Agents(const Shape& shape, const Fault& fault, Physics* physics, int64_t start_ns,
               int64_t start_unix_ns)
    : shape_(shape),
      fault_(fault),
      physics_(physics),
      start_ns_(start_ns),
      start_unix_ns_(start_unix_ns),
      ranks_(shape.ranks()) {
  for (uint32_t i = 0; i < physics_->groups().size(); ++i) {
    for (const uint32_t rank : physics_->groups()[i].ranks) ranks_[rank].members[i];
  }
}

void Agents::Apply(uint32_t rank, int64_t at_ns) {
  Rank& state = ranks_[rank];
  for (const Event& event : physics_->Take(rank, at_ns)) {
    Member& member = state.members[event.group];
    const auto count = [&event](Count* counter) {
      ++counter->count;
      counter->last_ns = event.at_ns;
    };
    Connection* connection = physics_->groups()[event.group].point_to_point
                                 ? &member.connections[{event.peer, event.sends}]
                                 : nullptr;
    switch (event.kind) {
      case EventKind::kCalled:
        count(&member.called);
        member.sends_last = event.sends;
        break;
      case EventKind::kStarted:
        count(&member.started);
        if (connection != nullptr) count(&connection->wanted);
        ++state.started;
        state.last_started_ns = event.at_ns;
        break;
      case EventKind::kFinished:
        count(&member.finished);
        if (connection != nullptr) count(&connection->done);
        // One kernel of a stream at a time: the one that began last is the one that ended.
        state.inside_ns += static_cast<uint64_t>(event.at_ns - state.last_started_ns);
        ++state.finished;
        break;
    }
  }
}

agent::ProcessInfo Agents::Look(uint32_t rank, int64_t at_ns) const {
  const int64_t busy_ns = std::min({at_ns, physics_->ends_ns(rank), physics_->idle_from_ns(rank)});
  int64_t cpu_ns = busy_ns;
  agent::ProcessInfo info;
  info.stat.state = 'R';
  if (at_ns >= physics_->ends_ns(rank)) {
    info.stat.state = 'T';
  } else if (at_ns >= physics_->idle_from_ns(rank)) {
    info.stat.state = 'S';
    if (shape_.engine == Engine::kVendor) cpu_ns += (at_ns - busy_ns) / kTickNs * kTickCpuNs;
  } else if (physics_->Writes(rank, at_ns)) {
    info.stat.state = 'D';
  }
  info.cpu_ns = static_cast<uint64_t>(cpu_ns / kClockTickNs * kClockTickNs);
  return info;
}

void Agents::AddHealth(uint32_t rank, int64_t at_ns, v1::ProcessHealth* health) const {
  const agent::ProcessHealth& seen = ranks_[rank].health.health();
  health->set_state(static_cast<v1::ProcessState>(static_cast<int>(seen.state)));
  health->set_state_age_ns(at_ns - seen.state_since_ns);
  health->set_cpu_ns(seen.cpu_ns);
  health->set_progress_age_ns(at_ns - seen.progress_ns);
}

void Agents::AddMember(uint32_t group_index, uint32_t rank, const Member& member, int64_t at_ns,
                       v1::ProcessReport* report) const {
  const Group& group = physics_->groups()[group_index];
  const auto own =
      static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin());
  v1::CommunicatorState* state = report->add_communicators();
  state->set_communicator_id(group.id);
  state->set_rank(own);
  state->set_rank_count(static_cast<uint32_t>(group.ranks.size()));
  state->set_phase(v1::PHASE_READY);
  state->set_phase_age_ns(at_ns);
  state->set_name(group.name);
  if (shape_.engine == Engine::kVendor) {
    state->set_engine(wire::kEngineVendor);
    state->set_seen(wire::kSeesEvents | wire::kSeesKernels);
  }
  const auto fill = [at_ns](v1::Counter* counter, const Count& count) {
    counter->set_count(count.count);
    counter->set_age_ns(count.count == 0 ? 0 : at_ns - count.last_ns);
  };
  const bool p2p = group.point_to_point;
  fill(p2p ? state->mutable_p2p_called() : state->mutable_called(), member.called);
  fill(p2p ? state->mutable_p2p_started() : state->mutable_started(), member.started);
  fill(p2p ? state->mutable_p2p_finished() : state->mutable_finished(), member.finished);
  v1::OperationInfo info;
  info.set_function(!p2p                ? v1::FUNCTION_ALL_REDUCE
                    : member.sends_last ? v1::FUNCTION_SEND
                                        : v1::FUNCTION_RECV);
  info.set_data_type(9);
  info.set_root(-1);
  info.set_count(kMessageBytes / 2);
  if (member.called.count > 0)
    *(p2p ? state->mutable_last_p2p_called() : state->mutable_last_called()) = info;
  if (member.started.count > 0) {
    *(p2p ? state->mutable_last_p2p_started() : state->mutable_last_started()) = info;
  }
  for (const auto& [with, connection] : member.connections) {
    v1::QueuePairState* item = report->add_queue_pairs();
    item->set_communicator_id(group.id);
    item->set_rank(own);
    item->set_peer(with.first);
    item->set_direction(with.second ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    item->set_phase(v1::PHASE_READY);
    item->set_transport(kVendorTransport);
    item->set_posted_messages(connection.wanted.count);
    item->set_posted_bytes(connection.wanted.count * kMessageBytes);
    item->set_completed_messages(connection.done.count);
    item->set_completed_bytes(connection.done.count * kMessageBytes);
    item->set_moved_bytes(connection.done.count * kMessageBytes);
    item->set_last_post_age_ns(at_ns - connection.wanted.last_ns);
    item->set_last_progress_age_ns(at_ns - connection.done.last_ns);
    v1::ConnectionState* whole = item->mutable_connection();
    whole->set_wanted_messages(connection.wanted.count);
    whole->set_granted_messages(connection.wanted.count);
    whole->set_done_messages(connection.done.count);
  }
}

void Agents::AddProcess(uint32_t rank, int64_t at_ns, v1::TelemetryBatch* batch) const {
  const Rank& state = ranks_[rank];
  v1::ProcessReport* report = batch->add_processes();
  report->mutable_process()->set_host(batch->host());
  report->mutable_process()->set_boot_id("00112233445566778899aabbccddeeff");
  report->mutable_process()->set_pid(kFirstPid + rank);
  report->mutable_process()->set_start_time_ticks(50);
  report->set_job("job");
  report->set_rank_label(static_cast<int32_t>(rank));
  report->set_world_label(static_cast<int32_t>(shape_.ranks()));
  report->set_program("trainer");
  AddHealth(rank, at_ns, report->mutable_health());
  const bool inside = state.started > state.finished;
  report->set_in_operation_ns(state.inside_ns +
                              static_cast<uint64_t>(inside ? at_ns - state.last_started_ns : 0));
  report->set_operations_finished(state.finished);
  for (const auto& [group, member] : state.members) AddMember(group, rank, member, at_ns, report);
}

std::vector<v1::TelemetryBatch> Agents::Report(int64_t at_ns) {
  physics_->Advance(at_ns);
  ++sequence_;
  std::vector<v1::TelemetryBatch> batches(shape_.nodes());
  for (uint32_t node = 0; node < batches.size(); ++node) {
    v1::TelemetryBatch& batch = batches[node];
    batch.set_host("node" + std::to_string(node));
    batch.set_agent_epoch(7);
    batch.set_sequence(sequence_);
    batch.set_monotonic_ns(start_ns_ + at_ns);
    batch.set_unix_ns(start_unix_ns_ + at_ns);
    batch.set_agent_version("0.1.0");
  }
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Apply(rank, at_ns);
    const bool gone = fault_.kind == FaultKind::kKill && at_ns >= physics_->ends_ns(rank);
    if (gone) {
      ranks_[rank].health.Gone(at_ns);
    } else {
      ranks_[rank].health.Update(Look(rank, at_ns), at_ns);
    }
    AddProcess(rank, at_ns, &batches[shape_.node(rank)]);
  }
  return batches;
}

}  // namespace c4::jobsim
