#include "tests/unit/c4d_master/fake_job.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "wire/segment.h"

namespace c4::c4d {
namespace {

v1::Counter* Encode(const Counter& counter, int64_t now_ns, v1::Counter* result) {
  result->set_count(counter.count);
  if (counter.count != 0) result->set_age_ns(now_ns - counter.last_at_ns);
  return result;
}

void Encode(const OperationInfo& info, v1::OperationInfo* result) {
  result->set_function(static_cast<v1::Function>(info.function));
  result->set_data_type(info.data_type);
  result->set_reduction(info.reduction);
  result->set_root(info.root);
  result->set_count(info.count);
}

void Encode(const Membership& membership, int64_t now_ns, v1::ProcessReport* report) {
  v1::CommunicatorState* state = report->add_communicators();
  state->set_communicator_id(membership.communicator_id);
  state->set_rank(membership.rank);
  state->set_rank_count(membership.rank_count);
  state->set_phase(static_cast<v1::Phase>(membership.phase));
  state->set_name(membership.name);
  Encode(membership.called, now_ns, state->mutable_called());
  Encode(membership.called, now_ns, state->mutable_enqueued());
  Encode(membership.started, now_ns, state->mutable_started());
  Encode(membership.finished, now_ns, state->mutable_finished());
  Encode(membership.last_called, state->mutable_last_called());
  Encode(membership.last_started, state->mutable_last_started());
  if (membership.vendor) state->set_engine(wire::kEngineVendor);
  if (membership.sees_kernels) state->set_seen(wire::kSeesKernels);
  for (const QueuePair& queue_pair : membership.queue_pairs) {
    v1::QueuePairState* item = report->add_queue_pairs();
    item->set_communicator_id(membership.communicator_id);
    item->set_rank(membership.rank);
    item->set_peer(queue_pair.peer);
    item->set_direction(queue_pair.sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
    item->set_posted_messages(queue_pair.posted_messages);
    item->set_posted_bytes(queue_pair.posted_bytes);
    item->set_completed_messages(queue_pair.completed_messages);
    item->set_completed_bytes(queue_pair.completed_bytes);
    item->set_moved_bytes(queue_pair.moved_bytes);
    if (queue_pair.moved_bytes != 0) item->set_last_progress_age_ns(now_ns - queue_pair.last_progress_at_ns);
    if (queue_pair.last_post_at_ns != kNever) item->set_last_post_age_ns(now_ns - queue_pair.last_post_at_ns);
    item->set_local(queue_pair.local);
    item->set_remote(queue_pair.remote);
    if (queue_pair.latency != LatencyHistogram()) {
      item->mutable_latency_histogram()->Add(queue_pair.latency.begin(), queue_pair.latency.end());
    }
    if (!queue_pair.connection.known) continue;
    item->mutable_connection()->set_wanted_messages(queue_pair.connection.wanted);
    item->mutable_connection()->set_granted_messages(queue_pair.connection.granted);
    item->mutable_connection()->set_done_messages(queue_pair.connection.done);
  }
}

}  // namespace

FakeJob::FakeJob(uint32_t ranks, uint32_t ranks_per_host, std::string name)
    : name_(std::move(name)), ranks_per_host_(ranks_per_host) {
  std::vector<uint32_t> all;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(rank);
    Host& host = host_of(rank);
    host.agent_epoch = 7;
    host.as_of_ns = now_ns_;
    host.agent_version = "0.1.0";
    Process process;
    process.key = {"00112233445566778899aabbccddeeff", 1000 + rank, 50 + rank};
    process.program = "trainer";
    process.rank = static_cast<int32_t>(rank);
    process.first_seen_at_ns = now_ns_;
    process.health.state = ProcessState::kSleeping;
    process.health.state_since_at_ns = now_ns_;
    process.health.last_progress_at_ns = now_ns_;
    host.processes.push_back(std::move(process));
  }
  AddCommunicator(kWorld, all);
}

void FakeJob::Advance(int64_t ns) {
  now_ns_ += ns;
  for (auto& [name, host] : hosts_) {
    if (silent_[name]) continue;
    host.as_of_ns = now_ns_;
    for (Process& process : host.processes) {
      if (CannotRun(process.health.state) || idle_[process.key.pid - 1000]) continue;
      process.health.last_progress_at_ns = now_ns_;
      process.health.cpu_ns += static_cast<uint64_t>(ns / 2);
    }
  }
}

void FakeJob::AddCommunicator(uint64_t id, const std::vector<uint32_t>& ranks) {
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    Membership membership;
    membership.communicator_id = id;
    membership.rank = i;
    membership.rank_count = static_cast<uint32_t>(ranks.size());
    membership.phase = Phase::kReady;
    process(ranks[i]).communicators.push_back(std::move(membership));
  }
}

Host& FakeJob::host_of(uint32_t rank) {
  const std::string name = "host" + std::to_string(rank / ranks_per_host_);
  Host& host = hosts_[name];
  host.name = name;
  return host;
}

Process& FakeJob::process(uint32_t rank) {
  for (Process& process : host_of(rank).processes) {
    if (process.key.pid == 1000 + rank) return process;
  }
  std::fprintf(stderr, "FakeJob: no rank %u\n", rank);
  std::abort();
}

Membership& FakeJob::membership(uint32_t rank, uint64_t communicator) {
  for (Membership& membership : process(rank).communicators) {
    if (membership.communicator_id == communicator) return membership;
  }
  std::fprintf(stderr, "FakeJob: rank %u is not in that communicator\n", rank);
  std::abort();
}

void FakeJob::Call(uint32_t rank, uint64_t communicator) {
  Membership& m = membership(rank, communicator);
  m.called = {m.called.count + 1, now_ns_};
  m.last_called = {.function = 1, .data_type = 7, .reduction = 0, .root = -1, .count = 1048576};
}

void FakeJob::Start(uint32_t rank, uint64_t communicator) {
  Membership& m = membership(rank, communicator);
  m.started = {m.started.count + 1, now_ns_};
  m.last_started = m.last_called;
}

void FakeJob::Finish(uint32_t rank, uint64_t communicator) {
  Membership& m = membership(rank, communicator);
  m.finished = {m.finished.count + 1, now_ns_};
}

void FakeJob::Enter(uint32_t rank, uint64_t communicator) {
  Call(rank, communicator);
  Start(rank, communicator);
}

std::vector<uint32_t> FakeJob::RanksOf(uint64_t communicator) {
  std::vector<uint32_t> ranks;
  for (const auto& [name, host] : hosts_) {
    for (const Process& process : host.processes) {
      for (const Membership& membership : process.communicators) {
        if (membership.communicator_id == communicator) ranks.push_back(process.key.pid - 1000);
      }
    }
  }
  return ranks;
}

void FakeJob::EnterAllBut(uint32_t except, uint64_t communicator) {
  for (const uint32_t rank : RanksOf(communicator)) {
    if (rank != except) Enter(rank, communicator);
  }
}

void FakeJob::Complete(uint64_t count, uint64_t communicator, int64_t each_ns) {
  const std::vector<uint32_t> ranks = RanksOf(communicator);
  for (uint64_t i = 0; i < count; ++i) {
    for (const uint32_t rank : ranks) Enter(rank, communicator);
    Advance(each_ns);
    for (const uint32_t rank : ranks) Finish(rank, communicator);
  }
}

void FakeJob::SetState(uint32_t rank, ProcessState state) {
  Health& health = process(rank).health;
  health.state = state;
  health.state_since_at_ns = now_ns_;
  health.wait_channel = state == ProcessState::kStopped ? "do_signal_stop" : "";
}

JobSnapshot FakeJob::Snapshot(int64_t longest_standstill_ns) const {
  JobSnapshot snapshot = Snapshot();
  for (Communicator& communicator : snapshot.communicators) {
    communicator.longest_standstill_ns = longest_standstill_ns;
  }
  return snapshot;
}

v1::TelemetryBatch FakeJob::Batch(const std::string& name, int64_t clock_offset_ns) {
  const Host& host = hosts_.at(name);
  v1::TelemetryBatch batch;
  batch.set_host(name);
  batch.set_agent_epoch(host.agent_epoch);
  batch.set_sequence(++sequence_[name]);
  batch.set_monotonic_ns(host.as_of_ns - clock_offset_ns);
  batch.set_unix_ns(host.as_of_ns + kUnixOffsetNs);
  batch.set_agent_version(host.agent_version);
  for (const Process& process : host.processes) {
    v1::ProcessReport* report = batch.add_processes();
    report->mutable_process()->set_host(name);
    report->mutable_process()->set_boot_id(process.key.boot_id);
    report->mutable_process()->set_pid(process.key.pid);
    report->mutable_process()->set_start_time_ticks(process.key.start_time_ticks);
    report->set_job(name_);
    report->set_incarnation(process.incarnation);
    report->set_rank_label(process.rank);
    report->set_world_label(-1);
    report->set_program(process.program);
    report->set_ended(process.ended);
    v1::ProcessHealth* health = report->mutable_health();
    health->set_state(static_cast<v1::ProcessState>(process.health.state));
    health->set_state_age_ns(host.as_of_ns - process.health.state_since_at_ns);
    health->set_wait_channel(process.health.wait_channel);
    health->set_cpu_ns(process.health.cpu_ns);
    health->set_progress_age_ns(host.as_of_ns - process.health.last_progress_at_ns);
    for (const Membership& membership : process.communicators) Encode(membership, host.as_of_ns, report);
  }
  return batch;
}

}  // namespace c4::c4d
