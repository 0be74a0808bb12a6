#include "benchmarks/synthetic_job.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <random>

namespace c4::benchmarks {
namespace {

using whatif::OperationType;

constexpr double kNotYet = -1;
constexpr double kNoOperation_s = 2e-6;  // what a profiler records of a transfer that is none
constexpr double kLayernorm_s = 40e-6;
constexpr double kClip_s = 0.005;
constexpr double kEmbedding_s = 0.010;
constexpr double kOptimizer_s = 0.040;

struct Compute {
  bool forward = true;
  int chunk = 0;
  int micro_batch = 0;
  int index = 0;  // among those of its direction
  double duration_s = 0;
  double start_s = kNotYet;
  double end_s = kNotYet;
};

// Which computations a stage runs, in order: one forward, one backward, after a warm-up; with several chunks
// interleaved in groups of as many micro-batches as there are stages.
std::vector<Compute> Schedule(const JobShape& shape, int stage) {
  const int total = shape.micro_batches * shape.chunks;
  const int warm_up = std::min(
      total, shape.chunks == 1 ? shape.pp_size - stage - 1
                               : (shape.pp_size - stage - 1) * 2 + (shape.chunks - 1) * shape.pp_size);
  const auto make = [&shape](bool forward, int index) {
    Compute compute;
    compute.forward = forward;
    compute.index = index;
    const int group = shape.pp_size * shape.chunks;
    const int within = index % group;
    const int chunk = within / shape.pp_size;
    compute.chunk = shape.chunks == 1 ? 0 : (forward ? chunk : shape.chunks - 1 - chunk);
    compute.micro_batch = shape.chunks == 1 ? index : index / group * shape.pp_size + within % shape.pp_size;
    return compute;
  };
  std::vector<Compute> order;
  for (int i = 0; i < warm_up; ++i) order.push_back(make(true, i));
  for (int i = warm_up; i < total; ++i) {
    order.push_back(make(true, i));
    order.push_back(make(false, i - warm_up));
  }
  for (int i = total - warm_up; i < total; ++i) order.push_back(make(false, i));
  return order;
}

// One end of the transfers of one direction at one stage.
struct Ends {
  std::vector<double> start_s;  // by index of the computation
  std::vector<double> end_s;
  std::vector<double> transfer_s;
};

struct Stage {
  std::vector<Compute> order;
  std::vector<size_t> place[2];  // [backward?][index]: into order
  size_t next = 0;
  Ends send[2];
  Ends recv[2];
};

class Pipeline {
 public:
  Pipeline(const JobShape& shape, std::vector<Stage>* stages) : shape_(shape), stages_(*stages) {}

  void Run(const std::vector<double>& begin_s) {
    begin_s_ = &begin_s;
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < shape_.pp_size; ++stage) {
        while (Step(stage)) moved = true;
      }
    }
    for ([[maybe_unused]] const Stage& stage : stages_) assert(stage.next == stage.order.size());
  }

  int GlobalChunk(int stage, int chunk) const { return chunk * shape_.pp_size + stage; }
  bool Receives(int stage, const Compute& compute) const {
    const int chunk = GlobalChunk(stage, compute.chunk);
    return compute.forward ? chunk > 0 : chunk < shape_.pp_size * shape_.chunks - 1;
  }
  bool Sends(int stage, const Compute& compute) const {
    const int chunk = GlobalChunk(stage, compute.chunk);
    return compute.forward ? chunk < shape_.pp_size * shape_.chunks - 1 : chunk > 0;
  }

 private:
  // Runs the stage's next computation, if what it needs is there.
  bool Step(int number) {
    Stage& stage = stages_[static_cast<size_t>(number)];
    if (stage.next == stage.order.size()) return false;
    Compute& compute = stage.order[stage.next];
    const size_t way = compute.forward ? 0 : 1;
    const auto index = static_cast<size_t>(compute.index);
    double ready_s =
        stage.next > 0 ? stage.order[stage.next - 1].end_s : (*begin_s_)[static_cast<size_t>(number)];
    Ends& recv = stage.recv[way];
    if (recv.start_s[index] == kNotYet) recv.start_s[index] = PostReceive(number, compute);
    if (Receives(number, compute)) {
      const int from = (number + (compute.forward ? -1 : 1) + shape_.pp_size) % shape_.pp_size;
      const int sender = SenderIndex(number, compute, from);
      const Ends& send = stages_[static_cast<size_t>(from)].send[way];
      const double sent_s = send.start_s[static_cast<size_t>(sender)];
      if (sent_s == kNotYet) return false;
      const double both_s = std::max(sent_s, recv.start_s[index]);
      recv.end_s[index] = both_s + recv.transfer_s[index];
      stages_[static_cast<size_t>(from)].send[way].end_s[static_cast<size_t>(sender)] =
          both_s + send.transfer_s[static_cast<size_t>(sender)];
      ready_s = std::max(ready_s, recv.end_s[index]);
    } else {
      recv.end_s[index] = recv.start_s[index] + kNoOperation_s;
    }
    compute.start_s = ready_s;
    compute.end_s = compute.start_s + compute.duration_s;
    stage.send[way].start_s[index] = compute.end_s;
    if (!Sends(number, compute)) stage.send[way].end_s[index] = compute.end_s + kNoOperation_s;
    ++stage.next;
    return true;
  }

  // A receive is posted when the computation before it in its direction is over; the first of the backward
  // pass behind the second last forward computation before it.
  double PostReceive(int number, const Compute& compute) const {
    const Stage& stage = stages_[static_cast<size_t>(number)];
    const size_t way = compute.forward ? 0 : 1;
    if (compute.index > 0) {
      const auto last = static_cast<size_t>(compute.index - 1);
      return std::max(stage.order[stage.place[way][last]].end_s, stage.recv[way].end_s[last]);
    }
    if (compute.forward || stage.next < 2)
      return compute.forward ? 0 : (*begin_s_)[static_cast<size_t>(number)];
    return stage.order[stage.next - 2].end_s;
  }

  int SenderIndex(int number, const Compute& compute, int from) const {
    const int sender_chunk =
        (GlobalChunk(number, compute.chunk) + (compute.forward ? -1 : 1)) / shape_.pp_size;
    const Stage& stage = stages_[static_cast<size_t>(from)];
    for (const Compute& other : stage.order) {
      if (other.forward == compute.forward && other.chunk == sender_chunk &&
          other.micro_batch == compute.micro_batch) {
        return other.index;
      }
    }
    assert(false);
    return 0;
  }

  const JobShape& shape_;
  std::vector<Stage>& stages_;
  const std::vector<double>* begin_s_ = nullptr;
};

class Executor {
 public:
  explicit Executor(const SyntheticJob& job) : job_(job), random_(job.seed) {}

  ExecutedJob Run() {
    double sum_s = 0;
    for (int step = 0; step < job_.shape.steps; ++step) sum_s += Step(step);
    executed_.step_time_s = sum_s / job_.shape.steps;
    return std::move(executed_);
  }

 private:
  using Workers = std::vector<std::vector<double>>;  // [dp][stage]

  double Noisy(double seconds, double noise) {
    return seconds * std::max(0.5, 1 + noise * std::normal_distribution<double>()(random_));
  }

  double Uniform() { return std::uniform_real_distribution<double>()(random_); }

  Workers Zero() const {
    return Workers(static_cast<size_t>(job_.shape.dp_size),
                   std::vector<double>(static_cast<size_t>(job_.shape.pp_size)));
  }

  // The draws of a job do not depend on what is injected, so that the healthy one has the same.
  void Draw(int dp, int number, Stage* stage, const std::vector<double>& work) {
    const bool slow = dp == job_.slow_dp && number == job_.slow_stage;
    const int last_chunk = job_.shape.pp_size * job_.shape.chunks - 1;
    const bool collects = Uniform() < job_.gc_probability;
    const auto collected = static_cast<int>(Uniform() * job_.shape.micro_batches * job_.shape.chunks);
    const double pause_s = job_.gc_pause_s * (0.7 + 0.6 * Uniform());
    for (Compute& compute : stage->order) {
      double seconds = Noisy(compute.forward ? job_.forward_s : job_.backward_s, job_.noise);
      seconds *= work[static_cast<size_t>(compute.micro_batch)];
      if (slow) seconds *= job_.slow_factor;
      if (compute.chunk * job_.shape.pp_size + number == last_chunk) {
        seconds *= compute.forward ? job_.last_stage_factor : std::sqrt(job_.last_stage_factor);
      }
      // A collection stops the program that launches kernels: the forward computation takes longer.
      if (collects && compute.forward && compute.index == collected) seconds += pause_s;
      compute.duration_s = seconds;
    }
    const auto total = static_cast<size_t>(job_.shape.micro_batches * job_.shape.chunks);
    for (const int way : {0, 1}) {
      stage->place[way].resize(total);
      for (Ends* ends : {&stage->send[way], &stage->recv[way]}) {
        ends->start_s.assign(total, kNotYet);
        ends->end_s.assign(total, kNotYet);
        for (size_t i = 0; i < total; ++i) {
          const bool affected =
              job_.slow_stage < 0 || (number == job_.slow_stage && dp == std::max(0, job_.slow_dp));
          const double factor = affected ? job_.slow_transfer_factor : 1;
          ends->transfer_s.push_back(Noisy(job_.transfer_s, 0.1) * factor);
        }
      }
    }
    for (size_t i = 0; i < stage->order.size(); ++i) {
      const Compute& compute = stage->order[i];
      stage->place[compute.forward ? 0 : 1][static_cast<size_t>(compute.index)] = i;
    }
  }

  double Step(int step) {
    const auto dp_size = static_cast<size_t>(job_.shape.dp_size);
    const auto pp_size = static_cast<size_t>(job_.shape.pp_size);
    begin_s_ = 10.0 * step;
    step_ = step;
    Workers launch = Zero();
    for (auto& of_dp : launch) {
      for (double& delay_s : of_dp) delay_s = 2 * job_.launch_delay_s * Uniform();
    }
    launch.front().front() = 0;  // a step begins with its first operation
    Workers ready = Collective(OperationType::kParamsAllGather, launch, job_.collective_s);
    Workers last = Zero();
    for (size_t dp = 0; dp < dp_size; ++dp) {
      std::vector<double> work(static_cast<size_t>(job_.shape.micro_batches));
      for (double& one : work) {
        one = std::exp(job_.sequence_spread * std::normal_distribution<double>()(random_));
      }
      std::vector<Stage> stages(pp_size);
      for (size_t stage = 0; stage < pp_size; ++stage) {
        stages[stage].order = Schedule(job_.shape, static_cast<int>(stage));
        Draw(static_cast<int>(dp), static_cast<int>(stage), &stages[stage], work);
      }
      Pipeline pipeline(job_.shape, &stages);
      pipeline.Run(ready[dp]);
      for (size_t stage = 0; stage < pp_size; ++stage) {
        RecordPipeline(static_cast<int>(dp), static_cast<int>(stage), stages[stage], pipeline);
        last[dp][stage] = stages[stage].order.back().end_s;
      }
    }
    return Finish(last);
  }

  // After the last computation.
  double Finish(Workers ready) {
    for (size_t dp = 0; dp < ready.size(); ++dp) {
      for (size_t stage = 0; stage < ready[dp].size(); ++stage) {
        if (job_.record_gc) Record(OperationType::kGc, dp, stage, 0, ready[dp][stage], ready[dp][stage]);
        const double end_s = ready[dp][stage] + kLayernorm_s;
        Record(OperationType::kLayernormGradsAllReduce, dp, stage, 0, ready[dp][stage], end_s);
        ready[dp][stage] = end_s;
      }
      const double begin_s = std::max(ready[dp].front(), ready[dp].back());
      std::vector<double*> ends = {&ready[dp].front()};
      if (ready[dp].size() > 1) ends.push_back(&ready[dp].back());
      for (double* end : ends) {
        const double end_s = begin_s + Noisy(kEmbedding_s, 0.02);
        Record(OperationType::kEmbeddingGradsAllReduce, dp, end == ends.front() ? 0 : ready[dp].size() - 1, 0,
               *end, end_s);
        *end = end_s;
      }
    }
    ready = Collective(OperationType::kGradsReduceScatter, ready, 2 * job_.collective_s);
    double latest_s = 0;
    for (const auto& of_dp : ready)
      latest_s = std::max(latest_s, *std::max_element(of_dp.begin(), of_dp.end()));
    double end_s = 0;
    for (size_t dp = 0; dp < ready.size(); ++dp) {
      for (size_t stage = 0; stage < ready[dp].size(); ++stage) {
        const double clipped_s = latest_s + Noisy(kClip_s, 0.02);
        Record(OperationType::kOptimizerClipMainGrad, dp, stage, 0, ready[dp][stage], clipped_s);
        const double done_s = clipped_s + Noisy(kOptimizer_s, 0.01);
        Record(OperationType::kOptimizer, dp, stage, 0, clipped_s, done_s);
        end_s = std::max(end_s, done_s);
      }
    }
    return end_s;
  }

  // All data-parallel ranks of a stage.
  Workers Collective(OperationType type, const Workers& start, double seconds) {
    Workers end = start;
    for (size_t stage = 0; stage < start.front().size(); ++stage) {
      double latest_s = 0;
      for (const auto& of_dp : start) latest_s = std::max(latest_s, of_dp[stage]);
      for (size_t dp = 0; dp < start.size(); ++dp) {
        end[dp][stage] = latest_s + Noisy(seconds, 0.02) * job_.slow_collective_factor;
        Record(type, dp, stage, 0, start[dp][stage], end[dp][stage], 0);
      }
    }
    return end;
  }

  void RecordPipeline(int dp, int number, const Stage& stage, const Pipeline& pipeline) {
    for (const Compute& compute : stage.order) {
      const auto at_dp = static_cast<size_t>(dp);
      const auto at_stage = static_cast<size_t>(number);
      Record(compute.forward ? OperationType::kForwardCompute : OperationType::kBackwardCompute, at_dp,
             at_stage, compute.index, compute.start_s, compute.end_s, compute.chunk, compute.micro_batch,
             pipeline.GlobalChunk(number, compute.chunk));
    }
    // Without virtual stages what has no partner is not recorded; with them it is.
    for (const int way : {0, 1}) {
      const bool forward = way == 0;
      const Compute& any = stage.order[stage.place[way].front()];
      const bool virtual_stages = job_.shape.chunks > 1;
      if (virtual_stages || pipeline.Receives(number, any)) {
        RecordEnds(forward ? OperationType::kForwardRecv : OperationType::kBackwardRecv, dp, number,
                   stage.recv[way]);
      }
      if (virtual_stages || pipeline.Sends(number, any)) {
        RecordEnds(forward ? OperationType::kForwardSend : OperationType::kBackwardSend, dp, number,
                   stage.send[way]);
      }
    }
  }

  void RecordEnds(OperationType type, int dp, int stage, const Ends& ends) {
    for (size_t i = 0; i < ends.start_s.size(); ++i) {
      Record(type, static_cast<size_t>(dp), static_cast<size_t>(stage), static_cast<int>(i), ends.start_s[i],
             ends.end_s[i]);
    }
  }

  void Record(OperationType type, size_t dp, size_t stage, int sequence, double start_s, double end_s,
              int chunk = -1, int micro_batch = -1, int global_chunk = -1) {
    whatif::OperationRecord record;
    record.start_s = begin_s_ + start_s;
    record.duration_s = static_cast<float>(end_s - start_s);
    record.step = step_;
    record.line = static_cast<uint32_t>(executed_.records.size() + 2);
    record.rank = static_cast<int32_t>(stage * static_cast<size_t>(job_.shape.dp_size) + dp);
    record.sequence = sequence;
    record.micro_batch = micro_batch;
    record.chunk = static_cast<int16_t>(chunk);
    record.global_chunk = static_cast<int16_t>(global_chunk);
    record.dp_rank = static_cast<uint16_t>(dp);
    record.stage = static_cast<uint16_t>(stage) & 0xfff;
    record.type = static_cast<uint16_t>(type) & 0xf;
    executed_.records.Add(record);
  }

  const SyntheticJob& job_;
  std::mt19937_64 random_;
  ExecutedJob executed_;
  double begin_s_ = 0;
  int step_ = 0;
};

}  // namespace

ExecutedJob Execute(const SyntheticJob& job) {
  return Executor(job).Run();
}

SyntheticJob Healthy(SyntheticJob job) {
  const SyntheticJob nothing;
  job.slow_factor = job.last_stage_factor = job.slow_transfer_factor = job.slow_collective_factor = 1;
  job.sequence_spread = nothing.sequence_spread;
  job.gc_pause_s = nothing.gc_pause_s;
  job.gc_probability = nothing.gc_probability;
  job.launch_delay_s = nothing.launch_delay_s;
  return job;
}

}  // namespace c4::benchmarks
