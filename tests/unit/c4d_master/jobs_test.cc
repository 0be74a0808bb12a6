// The master over simulated hybrid-parallel jobs of about 64 ranks (benchmarks/c4d_jobs runs many and larger
// ones, with seeds of their own): the kinds of faults that it is right about.
#include "benchmarks/job_trial.h"
#include "gtest/gtest.h"

namespace c4::benchmarks {
namespace {

using jobsim::FaultKind;

class Jobs : public ::testing::TestWithParam<FaultKind> {};

TEST_P(Jobs, TheFaultIsNamedAndNothingElse) {
  for (uint64_t seed = 500; seed < 503; ++seed) {
    jobsim::Shape shape;
    jobsim::Fault fault;
    DrawTrial(64, GetParam(), seed, &shape, &fault);
    const JobTrial trial = RunJobTrial(shape, fault, seed);
    EXPECT_TRUE(trial.right) << "seed " << seed << "\n" << trial.told;
    EXPECT_EQ(trial.wrong, 0U) << "seed " << seed << "\n" << trial.told;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Jobs,
                         ::testing::Values(FaultKind::kSpin, FaultKind::kDataLoader, FaultKind::kKill,
                                           FaultKind::kStop, FaultKind::kStuckInside, FaultKind::kSlowGpu,
                                           FaultKind::kSlowNode, FaultKind::kSlowTensor,
                                           FaultKind::kAgentRestart, FaultKind::kAgentStall,
                                           FaultKind::kClockStep),
                         [](const auto& instance) {
                           std::string name(jobsim::FaultName(instance.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace c4::benchmarks
