// Jobs of many shapes whose truth is known: the analysis finds what was injected, and how much it cost.
#include "benchmarks/synthetic_job.h"

#include <cmath>
#include <gtest/gtest.h>

#include "analysis/whatif/analysis.h"

namespace c4::benchmarks {
namespace {

struct Analysed {
  double truth = 1;
  whatif::Job job;
  whatif::Analysis analysis;
};

Analysed Analyse(const SyntheticJob& synthetic) {
  const ExecutedJob executed = Execute(synthetic);
  Analysed analysed;
  analysed.truth = executed.step_time_s / Execute(Healthy(synthetic)).step_time_s;
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(executed.records, {});
  EXPECT_TRUE(trace.ok()) << trace.status();
  absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  EXPECT_TRUE(job.ok()) << job.status();
  analysed.job = *std::move(job);
  absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(analysed.job, 2);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  analysed.analysis = *std::move(analysis);
  return analysed;
}

// The factor of one slow worker that makes the job slower by `slowdown`.
double FactorFor(SyntheticJob job, double slowdown) {
  const double healthy_s = Execute(Healthy(job)).step_time_s;
  double low = 1;
  double high = 4;
  for (int i = 0; i < 20; ++i) {
    job.slow_factor = (low + high) / 2;
    (Execute(job).step_time_s < slowdown * healthy_s ? low : high) = job.slow_factor;
  }
  return (low + high) / 2;
}

TEST(SyntheticJob, SlowdownOfASlowWorkerIsFoundWithinThreePercent) {
  for (const double slowdown : {1.16, 1.40, 2.03}) {
    SyntheticJob synthetic;
    synthetic.shape = {.dp_size = 16, .pp_size = 4, .micro_batches = 8, .steps = 3};
    synthetic.slow_dp = 5;
    synthetic.slow_stage = 1;
    synthetic.slow_factor = FactorFor(synthetic, slowdown);
    const Analysed found = Analyse(synthetic);
    EXPECT_NEAR(found.truth, slowdown, 1e-3);
    EXPECT_NEAR(found.analysis.slowdown / found.truth, 1, 0.03) << slowdown;
    EXPECT_LT(found.analysis.discrepancy, 1e-3);
    const int rank = found.job.trace.ranks[found.analysis.slowest_workers.front()];
    EXPECT_EQ(rank, 1 * 16 + 5);
    EXPECT_GT(*found.analysis.m_w.removed, 0.9);
  }
}

struct Case {
  JobShape shape;
  bool gc = true;
};

class Shapes : public testing::TestWithParam<Case> {};

// The graph is right when the replay of the recorded durations takes as long as the execution.
TEST_P(Shapes, ReplayTakesAsLongAsTheJob) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SyntheticJob synthetic;
    synthetic.shape = GetParam().shape;
    synthetic.record_gc = GetParam().gc;
    synthetic.seed = seed;
    synthetic.noise = 0.1;
    synthetic.sequence_spread = 0.2;
    synthetic.slow_dp = synthetic.slow_stage = 0;
    synthetic.slow_factor = 1.5;
    const Analysed found = Analyse(synthetic);
    EXPECT_TRUE(found.job.trace.notes.empty()) << found.job.trace.notes.front();
    EXPECT_LT(found.analysis.discrepancy, 2e-3);
    EXPECT_GE(found.analysis.slowdown, 0.999);
    for (const double slowdown : found.analysis.slowdown_by_step) EXPECT_TRUE(std::isfinite(slowdown));
  }
}

INSTANTIATE_TEST_SUITE_P(OfJobs, Shapes,
                         testing::Values(Case{{1, 1, 1, 1, 1}}, Case{{1, 1, 1, 4, 3}}, Case{{4, 1, 1, 4, 3}},
                                         Case{{1, 4, 1, 6, 3}}, Case{{2, 2, 1, 2, 1}}, Case{{3, 2, 1, 1, 4}},
                                         Case{{2, 8, 1, 16, 2}}, Case{{2, 4, 1, 3, 2}}, Case{{2, 2, 2, 4, 3}},
                                         Case{{3, 4, 2, 8, 2}}, Case{{2, 4, 3, 8, 2}},
                                         Case{{2, 4, 1, 8, 2}, false}));

TEST(SyntheticJob, KeepingAndFixingAddUp) {
  SyntheticJob synthetic;
  synthetic.shape = {.dp_size = 4, .pp_size = 4, .micro_batches = 4, .steps = 2};
  synthetic.last_stage_factor = 2;
  const Analysed found = Analyse(synthetic);
  EXPECT_NEAR(*found.analysis.m_s.removed, 1, 0.35);
  EXPECT_GT(found.analysis.by_stage[3].overall, found.analysis.by_stage[1].overall);
  // Everything chosen is the recorded job; nothing chosen the ideal one.
  const whatif::Answer all =
      Ask(found.job, found.analysis, whatif::Scenario::Chosen::kKeep, {whatif::Selection{}}, 1);
  EXPECT_DOUBLE_EQ(all.step_time_s, found.analysis.step_time_s);
  const whatif::Answer none =
      Ask(found.job, found.analysis, whatif::Scenario::Chosen::kFix, {whatif::Selection{}}, 1);
  EXPECT_DOUBLE_EQ(none.step_time_s, found.analysis.step_time_ideal_s);
}

TEST(SyntheticJob, ThreadsChangeNothing) {
  SyntheticJob synthetic;
  synthetic.shape = {.dp_size = 8, .pp_size = 4, .micro_batches = 4, .steps = 3};
  synthetic.sequence_spread = 0.3;
  const ExecutedJob executed = Execute(synthetic);
  const whatif::Job job = *whatif::MakeJob(*whatif::BuildTrace(executed.records, {}));
  const whatif::Analysis one = *whatif::Analyse(job, 1);
  const whatif::Analysis many = *whatif::Analyse(job, 4);
  EXPECT_EQ(one.slowdown, many.slowdown);
  EXPECT_EQ(one.by_worker_approx, many.by_worker_approx);
  for (size_t i = 0; i < one.by_worker.size(); ++i)
    EXPECT_EQ(one.by_worker[i].by_step, many.by_worker[i].by_step);
}

}  // namespace
}  // namespace c4::benchmarks
