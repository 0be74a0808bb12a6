// Programs that wait for each operation: a job that is executed here by such a program's rules, with all that
// it does between its operations, is replayed exactly; and what one rank does there is found.
#include "analysis/whatif/own_time.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "absl/strings/str_join.h"
#include "analysis/whatif/analysis.h"
#include "analysis/whatif/causes.h"

namespace c4::whatif {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Shape {
  int dp_size = 2;
  int pp_size = 2;
  int micro_batches = 4;
  int steps = 12;
  int busy_dp = -1;  // with busy_stage: a worker that does something between its operations
  int busy_stage = -1;
  double busy_s = 0;
  bool collects = false;
  bool says_so = true;  // that it waits
};

// GPipe on processors: forward in order, backward in reverse, then gradients and the optimizer.
class Program {
 public:
  explicit Program(const Shape& shape) : shape_(shape), random_(7) {}

  TraceRecords Run() {
    clock_.assign(Worker(shape_.dp_size, 0), 0);
    clock_.resize(static_cast<size_t>(shape_.dp_size * shape_.pp_size));
    for (step_ = 0; step_ < shape_.steps; ++step_) RunStep();
    return std::move(records_);
  }

 private:
  size_t Worker(int dp, int stage) const { return static_cast<size_t>(stage * shape_.dp_size + dp); }
  double& Clock(int dp, int stage) { return clock_[Worker(dp, stage)]; }
  double Noise(double seconds) { return seconds * std::uniform_real_distribution<double>(0.8, 1.2)(random_); }

  void Add(int dp, int stage, OperationType type, double start_s, double end_s, int micro_batch = -1) {
    OperationRecord record;
    record.start_s = start_s;
    record.duration_s = static_cast<float>(end_s - start_s);
    record.step = step_;
    record.rank = static_cast<int32_t>(Worker(dp, stage));
    record.micro_batch = micro_batch;
    record.dp_rank = static_cast<uint16_t>(dp);
    record.stage = static_cast<uint16_t>(stage) & 0xfff;
    record.type = static_cast<uint16_t>(type) & 0xf;
    records_.Add(record);
  }

  void Prepare(int dp, int stage) {
    Clock(dp, stage) += Noise(stage == 0 ? 0.003 : 0.001);
    if (dp == shape_.busy_dp && stage == shape_.busy_stage) Clock(dp, stage) += shape_.busy_s;
  }

  void Compute(int dp, int stage, OperationType type, int micro_batch) {
    Prepare(dp, stage);
    const double start_s = Clock(dp, stage);
    Clock(dp, stage) += Noise(type == OperationType::kForwardCompute ? 0.01 : 0.02);
    Add(dp, stage, type, start_s, Clock(dp, stage), micro_batch);
  }

  // Both ends wait.
  void Transfer(int dp, int from, int to, bool forward) {
    const double end_s = std::max(Clock(dp, from), Clock(dp, to)) + 0.001;
    Add(dp, from, forward ? OperationType::kForwardSend : OperationType::kBackwardSend, Clock(dp, from),
        end_s);
    Add(dp, to, forward ? OperationType::kForwardRecv : OperationType::kBackwardRecv, Clock(dp, to), end_s);
    Clock(dp, from) = Clock(dp, to) = end_s;
  }

  void RunStep() {
    for (int dp = 0; dp < shape_.dp_size; ++dp) {
      for (int stage = 0; stage < shape_.pp_size; ++stage) {
        const double now_s = Clock(dp, stage);
        if (shape_.says_so) Add(dp, stage, OperationType::kOwnTime, now_s, now_s);
      }
      for (int i = 0; i < shape_.micro_batches; ++i) {
        for (int stage = 0; stage < shape_.pp_size; ++stage) {
          if (stage > 0) Transfer(dp, stage - 1, stage, true);
          Compute(dp, stage, OperationType::kForwardCompute, i);
        }
      }
      for (int i = shape_.micro_batches; i-- > 0;) {
        for (int stage = shape_.pp_size; stage-- > 0;) {
          if (stage + 1 < shape_.pp_size) Transfer(dp, stage + 1, stage, false);
          Compute(dp, stage, OperationType::kBackwardCompute, i);
        }
      }
    }
    for (int stage = 0; stage < shape_.pp_size; ++stage) {
      double last_s = 0;
      for (int dp = 0; dp < shape_.dp_size; ++dp) {
        if (shape_.collects && (step_ + dp) % 3 == 0) {
          Add(dp, stage, OperationType::kGc, Clock(dp, stage), Clock(dp, stage) + 0.004);
          Clock(dp, stage) += 0.004;
        }
        Clock(dp, stage) += 0.0005;
        last_s = std::max(last_s, Clock(dp, stage));
      }
      for (int dp = 0; dp < shape_.dp_size; ++dp) {
        // Each rank has its result a little earlier or later.
        const double end_s = last_s + Noise(0.005);
        Add(dp, stage, OperationType::kGradsReduceScatter, Clock(dp, stage), end_s);
        Add(dp, stage, OperationType::kOptimizer, end_s, end_s + 0.002);
        Clock(dp, stage) = end_s + 0.002;
      }
    }
  }

  const Shape shape_;
  std::mt19937 random_;
  std::vector<double> clock_;
  int step_ = 0;
  TraceRecords records_;
};

struct Analysed {
  Job job;
  Analysis analysis;
  Causes causes;
};

Analysed Analyse(const Shape& shape) {
  absl::StatusOr<Trace> trace = BuildTrace(Program(shape).Run(), {});
  EXPECT_TRUE(trace.ok()) << trace.status();
  absl::StatusOr<Job> job = MakeJob(*std::move(trace));
  EXPECT_TRUE(job.ok()) << job.status();
  absl::StatusOr<Analysis> analysis = Analyse(*job, 1);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  Causes causes = FindCauses(*job, *analysis, 1);
  return {*std::move(job), *std::move(analysis), std::move(causes)};
}

std::vector<int> Blamed(const Causes& causes) {
  for (const Cause& cause : causes.causes) {
    if (cause.kind == CauseKind::kWorker) return cause.ranks;
  }
  return {};
}

// Without it neither what lies between operations nor the waiting of a send is in the replay.
TEST(OwnTime, TheReplayOfAProgramThatWaitsIsExact) {
  for (const Shape& shape : {Shape{}, Shape{.dp_size = 1, .pp_size = 3}, Shape{.dp_size = 4, .pp_size = 1},
                             Shape{.dp_size = 3, .pp_size = 4, .micro_batches = 6, .collects = true}}) {
    EXPECT_LT(Analyse(shape).analysis.discrepancy, 0.002) << shape.dp_size << " x " << shape.pp_size;
    Shape silent = shape;
    silent.says_so = false;
    EXPECT_GT(Analyse(silent).analysis.discrepancy, 0.05) << shape.dp_size << " x " << shape.pp_size;
  }
}

TEST(OwnTime, StandsBeforeEachOperationAndWaitsForTheOneBefore) {
  const Analysed analysed = Analyse(Shape{.dp_size = 1, .pp_size = 2, .micro_batches = 1});
  const Trace& trace = analysed.job.trace;
  std::vector<const char*> order;
  for (const uint32_t operation : trace.program[0])
    order.push_back(OperationName(trace.operations[operation].type));
  EXPECT_EQ(absl::StrJoin(order, " "),
            "forward-compute forward-send backward-recv backward-compute grads-reduce-scatter optimizer");
  for (size_t i = 1; i < order.size(); ++i)
    EXPECT_THAT(trace.program_needs[0][i], ElementsAre(trace.program[0][i - 1])) << order[i];
  EXPECT_TRUE(trace.program_needs[0][0].empty());
  EXPECT_NEAR(trace.duration_s[trace.Find(0, OperationType::kOwnTime, 0) * trace.lanes()], 0.003, 0.0007);
}

TEST(OwnTime, AWorkerThatDoesMoreBetweenItsOperationsIsNamed) {
  const Analysed analysed = Analyse(Shape{.dp_size = 3, .busy_dp = 2, .busy_stage = 1, .busy_s = 0.03});
  EXPECT_THAT(Blamed(analysed.causes), ElementsAre(5));
  EXPECT_THAT(analysed.causes.causes.front().evidence, HasSubstr("between its operations"));
  // What is quoted is what fixing it says, and that is what the job takes without it.
  const double healthy_s = Analyse(Shape{.dp_size = 3}).analysis.step_time_s;
  EXPECT_NEAR(analysed.causes.causes.front().gains.front().answer.step_time_s, healthy_s, 0.02 * healthy_s);
  EXPECT_THAT(Blamed(Analyse(Shape{.dp_size = 3}).causes), ElementsAre());
}

// Ranks that are alike share a lane, but where steps are chosen: both have to give the same.
TEST(OwnTime, ChosenStepsAreReplayedAsAllAre) {
  const Analysed analysed = Analyse(Shape{.dp_size = 4, .pp_size = 3});
  std::vector<size_t> all;
  for (size_t step = 0; step < analysed.job.trace.steps.size(); ++step) all.push_back(step);
  for (const Scenario::Chosen mode : {Scenario::Chosen::kKeep, Scenario::Chosen::kFix}) {
    Selection worker = Selection::Worker(2, 1);
    const double at_once_s = Ask(analysed.job, analysed.analysis, mode, {worker}, 2).step_time_s;
    worker.steps = all;
    Selection none = worker;
    none.types = 0;
    none.steps = {1};  // so that the steps are not alike
    const double by_steps_s = Ask(analysed.job, analysed.analysis, mode, {worker, none}, 2).step_time_s;
    EXPECT_NEAR(by_steps_s, at_once_s, 1e-9);
  }
}

// A send that nobody waits for, as of a message that is sent ahead.
TEST(OwnTime, ASendThatEndsLaterHoldsNobodyUp) {
  TraceRecords records = Program(Shape{.dp_size = 1}).Run();
  TraceRecords changed;
  for (size_t i = 0; i < records.size(); ++i) {
    OperationRecord record = records[i];
    if (IsSend(static_cast<OperationType>(record.type))) record.duration_s += 0.0095F;
    if (IsRecv(static_cast<OperationType>(record.type))) record.duration_s += 0;
    changed.Add(record);
  }
  const absl::StatusOr<Trace> trace = BuildTrace(changed, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (size_t stage = 0; stage < trace->program.size(); ++stage) {
    for (size_t i = 0; i < trace->program[stage].size(); ++i) {
      const TemplateOperation& next = trace->operations[trace->program[stage][i]];
      if (next.type != OperationType::kForwardCompute) continue;
      for (const uint32_t need : trace->program_needs[stage][i])
        EXPECT_FALSE(IsSend(trace->operations[need].type)) << stage << " " << i;
    }
  }
}

TEST(OwnTime, WhereOneStageDoesNotSayItNothingIsAdded) {
  TraceRecords records = Program(Shape{}).Run();
  TraceRecords changed;
  for (size_t i = 0; i < records.size(); ++i) {
    const bool dropped =
        records[i].type == static_cast<uint16_t>(OperationType::kOwnTime) && records[i].stage == 1;
    if (!dropped) changed.Add(records[i]);
  }
  const absl::StatusOr<Trace> trace = BuildTrace(changed, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_FALSE(trace->has_own_time());
}

// Lag of a member of the tensor group: it, not the rank that stands for the group, is to blame.
TEST(OwnTime, TheMemberThatItsGroupWaitsForIsNamed) {
  TraceRecords records = Program(Shape{}).Run();
  TraceRecords changed;
  for (size_t i = 0; i < records.size(); ++i) {
    OperationRecord record = records[i];
    record.rank *= 2;  // of each group of two the first
    const bool lags = record.rank == 6 && IsCompute(static_cast<OperationType>(record.type));
    changed.Add(record, lags ? record.duration_s / 4 : 0);
  }
  changed.AddMember(6, 1, 1);
  changed.AddMember(7, 1, 1);
  changed.SetLagging(1, 1, 7);
  absl::StatusOr<Trace> trace = BuildTrace(changed, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  const absl::StatusOr<Job> job = MakeJob(*std::move(trace));
  ASSERT_TRUE(job.ok()) << job.status();
  const ComputeParts parts(*job);
  ASSERT_EQ(parts.slow_workers().size(), 1U);
  EXPECT_EQ(parts.slow_workers().front().rank, 7);
  EXPECT_NEAR(parts.slow_workers().front().factor, 4.0 / 3, 0.01);
}

}  // namespace
}  // namespace c4::whatif
