#include "benchmarks/load_agents.h"

namespace c4::benchmarks {
namespace {

constexpr uint64_t kChunkBytes = 256 << 10;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMore = uint64_t{1} << 40;  // communicators from here on are LoadShape::more_communicators
constexpr uint64_t kMoreRanks = 8;

void SetAllReduce(v1::CommunicatorState* state) {
  v1::OperationInfo* info = state->mutable_last_called();
  info->set_function(v1::FUNCTION_ALL_REDUCE);
  info->set_data_type(7);
  info->set_root(-1);
  info->set_count(1 << 20);
  *state->mutable_last_started() = *info;
}

bool IsIdle(uint64_t communicator) {
  return communicator >= kMore && communicator / kMore % 4 != 1;
}

}  // namespace

std::string LoadHostName(uint32_t host) {
  return "node" + std::to_string(host);
}

LoadAgents::LoadAgents(const LoadShape& shape) : shape_(shape), batches_(shape.hosts), randoms_(shape.hosts) {
  const uint32_t ranks = shape.hosts * shape.ranks_per_host;
  const uint32_t stages = shape.hosts >= 16 ? 8 : 1;
  const uint32_t data = shape.hosts / stages;  // hosts a stage
  for (uint32_t host = 0; host < shape.hosts; ++host) {
    v1::TelemetryBatch& batch = batches_[host];
    batch.set_host(LoadHostName(host));
    batch.set_agent_epoch(1);
    batch.set_agent_version("0.1.0");
    for (uint32_t t = 0; t < shape.ranks_per_host; ++t) AddProcess(host, t, ranks, stages, data, &batch);
    randoms_[host] = host + 1;
  }
}

void LoadAgents::Advance(uint32_t host, int64_t now_ns, uint32_t quarters) {
  v1::TelemetryBatch& batch = batches_[host];
  batch.set_sequence(batch.sequence() + 1);
  batch.set_monotonic_ns(now_ns);
  for (v1::ProcessReport& report : *batch.mutable_processes()) {
    report.set_in_operation_ns(report.in_operation_ns() + quarters * 170'000'000ULL);
    report.set_operations_finished(report.operations_finished() + quarters * 12);
    report.mutable_health()->set_cpu_ns(report.health().cpu_ns() + quarters * 200'000'000ULL);
    for (v1::CommunicatorState& state : *report.mutable_communicators()) {
      if (IsIdle(state.communicator_id())) {
        state.set_phase_age_ns(state.phase_age_ns() + quarters * kSecondNs / 4);
        continue;
      }
      const bool pipeline = state.rank_count() <= 8 && state.has_p2p_called();
      for (v1::Counter* counter : {pipeline ? state.mutable_p2p_called() : state.mutable_called(),
                                   pipeline ? state.mutable_p2p_started() : state.mutable_started(),
                                   pipeline ? state.mutable_p2p_finished() : state.mutable_finished()}) {
        counter->set_count(counter->count() + quarters * 4);
        counter->set_age_ns(3'000'000);
      }
    }
    for (v1::QueuePairState& state : *report.mutable_queue_pairs()) {
      state.set_posted_messages(state.posted_messages() + quarters * 4);
      state.set_posted_bytes(state.posted_bytes() + quarters * 4 * kChunkBytes);
      state.set_completed_messages(state.posted_messages());
      state.set_completed_bytes(state.posted_bytes());
      state.set_moved_bytes(state.posted_bytes());
      if (state.latency_histogram_size() != 0) {
        // Scattered over five buckets, as measured latencies are.
        uint64_t& random = randoms_[host];
        for (uint32_t quarter = 0; quarter < quarters; ++quarter) {
          random = random * 6364136223846793005U + 1442695040888963407U;
          for (int chunk = 0; chunk < 4; ++chunk) {
            const int bucket = 10 + static_cast<int>((random >> (20 + 8 * chunk)) % 5);
            state.set_latency_histogram(bucket, state.latency_histogram(bucket) + 1);
          }
        }
      }
      if (state.has_connection()) {
        v1::ConnectionState* connection = state.mutable_connection();
        connection->set_wanted_messages(connection->wanted_messages() + quarters * 4);
        connection->set_granted_messages(connection->wanted_messages());
        connection->set_done_messages(connection->wanted_messages());
        connection->set_first_waits(connection->first_waits() + quarters * 4);
        connection->set_first_wait_sum_ns(connection->first_wait_sum_ns() + quarters * 4'000'000ULL);
      }
    }
  }
}

void LoadAgents::AddProcess(uint32_t host, uint32_t t, uint32_t ranks, uint32_t stages, uint32_t data,
                            v1::TelemetryBatch* batch) {
  const uint32_t rank = host * shape_.ranks_per_host + t;
  v1::ProcessReport* report = batch->add_processes();
  report->mutable_process()->set_host(batch->host());
  report->mutable_process()->set_boot_id("00112233445566778899aabbcc" + std::to_string(100000 + host));
  report->mutable_process()->set_pid(1000 + t);
  report->mutable_process()->set_start_time_ticks(5000);
  report->set_job("load");
  report->set_rank_label(static_cast<int32_t>(rank));
  report->set_world_label(static_cast<int32_t>(ranks));
  report->set_program("trainer");
  report->mutable_health()->set_state(v1::PROCESS_STATE_RUNNING);
  report->mutable_health()->set_state_age_ns(kSecondNs);
  const uint32_t stage = host / data;
  const uint32_t replica = host % data;
  AddRing(0x1, rank, ranks, false, report);                                // everybody
  AddRing(0x1000000 + host, t, shape_.ranks_per_host, false, report);      // tensor parallel
  AddRing(0x2000000 + stage * 0x1000 + t, replica, data, false, report);   // data parallel
  AddRing(0x3000000 + replica * 0x1000 + t, stage, stages, true, report);  // pipeline
  AddMore(rank, ranks, report);
}

void LoadAgents::AddMore(uint32_t rank, uint32_t ranks, v1::ProcessReport* report) const {
  for (uint64_t i = 0; i < shape_.more_communicators; ++i) {
    // Neighbours are so many ranks apart: on one host, or on eight.
    const uint64_t apart = i % 2 == 0 ? 1 : shape_.ranks_per_host;
    const uint64_t first = rank / (apart * kMoreRanks) * (apart * kMoreRanks) + rank % apart;
    if (first + (kMoreRanks - 1) * apart >= ranks) continue;
    v1::CommunicatorState* state = report->add_communicators();
    state->set_communicator_id((i + 1) * kMore + first);
    state->set_rank(static_cast<uint32_t>((rank - first) / apart));
    state->set_rank_count(kMoreRanks);
    state->set_phase(v1::PHASE_READY);
    SetAllReduce(state);
  }
}

void LoadAgents::AddRing(uint64_t id, uint32_t rank, uint32_t count, bool pipeline,
                         v1::ProcessReport* report) {
  if (count < 2) return;
  v1::CommunicatorState* state = report->add_communicators();
  state->set_communicator_id(id);
  state->set_rank(rank);
  state->set_rank_count(count);
  state->set_phase(v1::PHASE_READY);
  if (pipeline) {
    state->mutable_p2p_called()->set_count(0);
    if (rank > 0) AddConnection(id, rank, rank - 1, report);
    if (rank + 1 < count) AddConnection(id, rank, rank + 1, report);
    return;
  }
  SetAllReduce(state);
  AddQueuePairs(id, rank, (rank + 1) % count, true, report);
  AddQueuePairs(id, rank, (rank + count - 1) % count, false, report);
}

// Both directions.
void LoadAgents::AddConnection(uint64_t id, uint32_t rank, uint32_t peer, v1::ProcessReport* report) {
  AddQueuePairs(id, rank, peer, true, report);
  AddQueuePairs(id, rank, peer, false, report);
}

void LoadAgents::AddQueuePairs(uint64_t id, uint32_t rank, uint32_t peer, bool sends,
                               v1::ProcessReport* report) {
  const auto address = [id](uint32_t end, uint32_t port) {
    return "10." + std::to_string(end / 62500) + "." + std::to_string(end / 250 % 250) + "." +
           std::to_string(1 + end % 250) + ":" + std::to_string(20000 + (id % 1000) * 16 + port);
  };
  for (uint32_t index = 0; index < shape_.queue_pairs; ++index) {
    v1::QueuePairState* state = report->add_queue_pairs();
    ++queue_pairs_;
    state->set_communicator_id(id);
    state->set_rank(rank);
    state->set_peer(peer);
    state->set_direction(sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    state->set_index(index);
    state->set_phase(v1::PHASE_READY);
    state->set_local(address(static_cast<uint32_t>(report->rank_label()), index));
    state->set_remote(address(peer, index));
    state->set_last_post_age_ns(3'000'000);
    state->set_last_progress_age_ns(2'000'000);
    if (sends) state->mutable_latency_histogram()->Resize(15, 0);
    if (index == 0) state->mutable_connection()->set_wanted_messages(0);
  }
}

}  // namespace c4::benchmarks
