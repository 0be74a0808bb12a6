// The master over simulated hybrid-parallel jobs of 64 ranks, eight a node (benchmarks/c4d_jobs runs many and
// larger ones, with seeds of their own).
#include "benchmarks/job_trial.h"
#include "gtest/gtest.h"

namespace c4::benchmarks {
namespace {

using jobsim::FaultKind;

class Jobs : public ::testing::TestWithParam<FaultKind> {};

TEST_P(Jobs, TheFaultIsNamedAndNothingElse) {
  for (uint64_t seed = 500; seed < 504; ++seed) {
    const jobsim::Shape shape = DrawShape(64, seed);
    const JobTrial trial = RunJobTrial(shape, GetParam(), seed);
    EXPECT_TRUE(trial.right) << "seed " << seed << "\n" << trial.told;
    EXPECT_EQ(trial.wrong, 0U) << "seed " << seed << "\n" << trial.told;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Jobs,
                         ::testing::Values(FaultKind::kSpin, FaultKind::kDataLoader, FaultKind::kKill,
                                           FaultKind::kStop, FaultKind::kStuckInside, FaultKind::kSlowGpu,
                                           FaultKind::kSlowNode, FaultKind::kSlowTensor),
                         [](const auto& instance) {
                           std::string name = jobsim::FaultName(instance.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(JobsWithoutAFault, ConfirmNothing) {
  for (uint64_t seed = 600; seed < 604; ++seed) {
    jobsim::Shape shape = DrawShape(64, seed);
    shape.checkpoint_steps = 25;
    shape.checkpoint_ns = 40'000'000'000;
    const JobTrial trial = RunJobTrial(shape, FaultKind::kNone, seed, 300);
    EXPECT_EQ(trial.wrong, 0U) << "seed " << seed << "\n" << trial.told;
  }
}

}  // namespace
}  // namespace c4::benchmarks
