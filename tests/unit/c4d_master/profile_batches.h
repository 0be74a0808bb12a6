// A hybrid-parallel job as its agents would tell of it at the fine level: stages x data-parallel ranks, one
// process each, some micro-batches forward and backward, a reduction of gradients, an optimizer. Tests change
// what they need before they take the batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_state.h"

namespace c4::c4d {

struct ProfiledShape {
  int dp_size = 2;
  int pp_size = 2;
  int tp_size = 1;
  int micro_batches = 2;
  int steps = 3;
  int ranks_per_host = 100;
  int slow_rank = -1;  // computes twice as long
};

class ProfiledFake {
 public:
  static constexpr int64_t kMs = 1'000'000;
  static constexpr int64_t kNodeNs = 1000 * kSecondNs;  // node's clock when the job starts
  static constexpr uint64_t kPipeline = 1000;           // + dp * tp_size + tp
  static constexpr uint64_t kData = 2000;               // + stage * tp_size + tp
  static constexpr uint64_t kTensor = 3000;             // + stage * dp_size + dp
  static constexpr uint64_t kWorld = 9;

  explicit ProfiledFake(const ProfiledShape& shape) : shape_(shape) {
    for (int rank = 0; rank < World(); ++rank) MakeProcess(rank);
    for (int step = 0; step < shape.steps; ++step) RunStep(step);
  }

  int World() const { return shape_.dp_size * shape_.pp_size * shape_.tp_size; }
  // Ranks count tensor ranks first, then stages, then data-parallel ranks.
  int Tensor(int rank) const { return rank % shape_.tp_size; }
  int Stage(int rank) const { return rank / shape_.tp_size % shape_.pp_size; }
  int Dp(int rank) const { return rank / shape_.tp_size / shape_.pp_size; }

  v1::ProcessReport& report(int rank) { return reports_[static_cast<size_t>(rank)]; }
  std::vector<v1::ProcessReport>& reports() { return reports_; }

  // One batch for each host, whose clock is behind the master's by `offsets_ns` of that host.
  std::vector<v1::TelemetryBatch> Batches(const std::map<int, int64_t>& offsets_ns = {},
                                          int64_t error_ns = 1000) const {
    std::vector<v1::TelemetryBatch> batches;
    for (size_t rank = 0; rank < reports_.size(); ++rank) {
      const int host = static_cast<int>(rank) / shape_.ranks_per_host;
      const auto found = offsets_ns.find(host);
      const int64_t offset_ns = found == offsets_ns.end() ? 0 : found->second;
      if (static_cast<size_t>(host) == batches.size()) {
        v1::TelemetryBatch& batch = batches.emplace_back();
        batch.set_host("node" + std::to_string(host));
        batch.set_agent_epoch(7);
        batch.set_sequence(1);
        batch.set_monotonic_ns(kNodeNs + 100 * kSecondNs - offset_ns);
        if (error_ns >= 0) {
          batch.mutable_clock()->set_offset_ns(offset_ns);
          batch.mutable_clock()->set_error_ns(error_ns);
        }
      }
      v1::ProcessReport shifted = reports_[rank];
      for (v1::ProfiledOperation& operation : *shifted.mutable_profile()->mutable_operations()) {
        operation.set_called_ns(operation.called_ns() - offset_ns);
      }
      for (v1::ProfiledMark& mark : *shifted.mutable_profile()->mutable_marks()) {
        mark.set_began_ns(mark.began_ns() - offset_ns);
      }
      *batches.back().add_processes() = std::move(shifted);
    }
    return batches;
  }

  void Mark(int rank, v1::MarkKind kind, int64_t began_ns, int64_t ended_ns, int micro_batch = -1,
            int64_t step = -1, int chunk = -1) {
    v1::ProfiledMark* mark = report(rank).mutable_profile()->add_marks();
    mark->set_kind(kind);
    mark->set_began_ns(began_ns);
    mark->set_lasted_ns(static_cast<uint64_t>(ended_ns - began_ns));
    mark->set_micro_batch(micro_batch);
    mark->set_step(step);
    mark->set_chunk(chunk);
  }

  void Operate(int rank, v1::Function function, uint64_t communicator, int root, int64_t began_ns,
               int64_t ended_ns) {
    v1::ProfiledOperation* operation = report(rank).mutable_profile()->add_operations();
    operation->set_communicator_id(communicator);
    operation->mutable_info()->set_function(function);
    operation->mutable_info()->set_root(root);
    operation->mutable_info()->set_count(1024);
    operation->mutable_info()->set_data_type(7);
    operation->set_called_ns(began_ns);
    operation->set_started_for_ns(static_cast<uint64_t>(ended_ns - began_ns));
  }

  // When step `step` begins, on a clock that all hosts would share.
  static int64_t StepNs(int step) { return kNodeNs + step * 200 * kMs; }

 private:
  void Join(int rank, uint64_t id, int rank_in_it, int count) {
    v1::CommunicatorState* state = report(rank).add_communicators();
    state->set_communicator_id(id);
    state->set_rank(static_cast<uint32_t>(rank_in_it));
    state->set_rank_count(static_cast<uint32_t>(count));
    state->set_phase(v1::PHASE_READY);
    state->set_engine(1);
  }

  void MakeProcess(int rank) {
    v1::ProcessReport& report = reports_.emplace_back();
    report.mutable_process()->set_host("node");
    report.mutable_process()->set_boot_id("boot");
    report.mutable_process()->set_pid(static_cast<uint32_t>(100 + rank));
    report.mutable_process()->set_start_time_ticks(5);
    report.set_job("job-1");
    report.set_rank_label(rank);
    report.set_world_label(World());
    report.mutable_health()->set_state(v1::PROCESS_STATE_RUNNING);
    report.set_level(v1::RECORD_LEVEL_FINE);
    v1::WorkerPlace* worker = report.mutable_worker();
    worker->set_dp_rank(static_cast<uint32_t>(Dp(rank)));
    worker->set_stage(static_cast<uint32_t>(Stage(rank)));
    worker->set_tp_rank(static_cast<uint32_t>(Tensor(rank)));
    worker->set_dp_size(static_cast<uint32_t>(shape_.dp_size));
    worker->set_pp_size(static_cast<uint32_t>(shape_.pp_size));
    worker->set_tp_size(static_cast<uint32_t>(shape_.tp_size));
    worker->set_cp_size(1);
    worker->set_vpp_size(1);
    Join(rank, kWorld, rank, World());
    Join(rank, Pipeline(rank), Stage(rank), shape_.pp_size);
    Join(rank, Data(rank), Dp(rank), shape_.dp_size);
    if (shape_.tp_size > 1) {
      const int group = Stage(rank) * shape_.dp_size + Dp(rank);
      Join(rank, kTensor + static_cast<uint64_t>(group), Tensor(rank), shape_.tp_size);
    }
  }

  uint64_t Pipeline(int rank) const {
    return kPipeline + static_cast<uint64_t>(Dp(rank) * shape_.tp_size + Tensor(rank));
  }
  uint64_t Data(int rank) const {
    return kData + static_cast<uint64_t>(Stage(rank) * shape_.tp_size + Tensor(rank));
  }

  // As a pipeline runs: a computation begins when its input is there and its worker is free. A transfer takes
  // 1 ms from the moment that both ends are there.
  void RunStep(int step) {
    const int last = shape_.pp_size - 1;
    std::vector<int64_t> free_ns(static_cast<size_t>(World()), StepNs(step) + kMs);
    for (const bool forward : {true, false}) {
      for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
        for (int at = 0; at <= last; ++at) {
          const int stage = forward ? at : last - at;
          for (int rank = 0; rank < World(); ++rank) {
            if (Stage(rank) == stage) Compute(rank, forward, micro_batch, &free_ns);
          }
        }
      }
    }
    for (int stage = 0; stage <= last; ++stage) {
      int64_t ready_ns = 0;
      for (int rank = 0; rank < World(); ++rank) {
        if (Stage(rank) == stage) ready_ns = std::max(ready_ns, free_ns[static_cast<size_t>(rank)]);
      }
      for (int rank = 0; rank < World(); ++rank) {
        if (Stage(rank) != stage) continue;
        const int64_t done_ns = ready_ns + 2 * kMs;
        if (shape_.dp_size > 1) {
          Operate(rank, v1::FUNCTION_ALL_REDUCE, Data(rank), -1, free_ns[static_cast<size_t>(rank)], done_ns);
        }
        Mark(rank, v1::MARK_KIND_OPTIMIZER, done_ns, done_ns + kMs);
        Mark(rank, v1::MARK_KIND_STEP, StepNs(step), done_ns + 2 * kMs, -1, step);
      }
    }
  }

  // Receives (from a stage that has sent already), computes, and makes the send known to the next stage.
  void Compute(int rank, bool forward, int micro_batch, std::vector<int64_t>* free_ns) {
    int64_t& free = (*free_ns)[static_cast<size_t>(rank)];
    const int from = Stage(rank) + (forward ? -1 : 1);
    if (from >= 0 && from < shape_.pp_size) {
      const int sender = rank + (forward ? -1 : 1) * shape_.tp_size;
      const int64_t sent_ns = sent_ns_[{sender, forward, micro_batch}];
      const int64_t arrived_ns = std::max(sent_ns, free) + kMs;
      Operate(sender, v1::FUNCTION_SEND, Pipeline(rank), Stage(rank), sent_ns, arrived_ns);
      Operate(rank, v1::FUNCTION_RECV, Pipeline(rank), from, free, arrived_ns);
      free = arrived_ns;
    }
    const int64_t lasts_ns = (forward ? 5 : 10) * kMs * (rank == shape_.slow_rank ? 2 : 1);
    Mark(rank, forward ? v1::MARK_KIND_FORWARD_COMPUTE : v1::MARK_KIND_BACKWARD_COMPUTE, free,
         free + lasts_ns, micro_batch);
    if (shape_.tp_size > 1) {
      const int group = Stage(rank) * shape_.dp_size + Dp(rank);
      Operate(rank, v1::FUNCTION_ALL_REDUCE, kTensor + static_cast<uint64_t>(group), -1, free + kMs,
              free + 2 * kMs);
    }
    free += lasts_ns;
    sent_ns_[{rank, forward, micro_batch}] = free;
  }

  const ProfiledShape shape_;
  std::vector<v1::ProcessReport> reports_;
  std::map<std::tuple<int, bool, int>, int64_t> sent_ns_;
};

}  // namespace c4::c4d
