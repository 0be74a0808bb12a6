// Every fault of the table of accepted verdicts, and what must not be one, against the whole logic of the
// master in simulated time. benchmarks/c4d_accuracy_synthetic does the same a thousand times.
#include "gtest/gtest.h"
#include "tests/support/fault_trial.h"

namespace c4::simulation {
namespace {

class DiagnoseTest : public ::testing::TestWithParam<std::tuple<Fault, uint64_t>> {};

TEST_P(DiagnoseTest, AsAccepted) {
  const auto [fault, seed] = GetParam();
  const TrialResult result = RunTrial(fault, {}, seed);
  if (!result.applicable) GTEST_SKIP() << "no queue pair takes that link";
  EXPECT_TRUE(result.found) << result.told;
  EXPECT_EQ(result.wrong, 0U) << result.told;
  EXPECT_TRUE(result.cleared) << result.told;
}

// Small chunks that wait for a busy receiver are as slow on a good day as all are over a slow NIC: they must
// not speak for it. And what is left of it in the windows, once it is healed, is not a verdict of its own.
TEST(DiagnoseBusyReceivers, DoNotHideASlowNic) {
  TrainingShape shape;
  shape.paused = 0.2;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const TrialResult result = RunTrial(Fault::kSlowNic, shape, seed);
    EXPECT_TRUE(result.found) << "seed " << seed << "\n" << result.told;
    EXPECT_EQ(result.wrong, 0U) << "seed " << seed << "\n" << result.told;
    EXPECT_TRUE(result.cleared) << "seed " << seed << "\n" << result.told;
  }
}

TEST(DiagnoseBusyReceivers, AreNobodysFault) {
  TrainingShape shape;
  shape.paused = 0.2;
  for (const Fault fault : {Fault::kNone, Fault::kEvaluation, Fault::kJitter}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const TrialResult result = RunTrial(fault, shape, seed);
      EXPECT_EQ(result.wrong, 0U) << FaultName(fault) << " seed " << seed << "\n" << result.told;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    EachFault, DiagnoseTest,
    ::testing::Combine(::testing::Values(Fault::kNone, Fault::kStop, Fault::kKill, Fault::kMismatch,
                                         Fault::kCutLink, Fault::kCutNic, Fault::kSlowLink, Fault::kSlowNic,
                                         Fault::kSlowRank, Fault::kLostNode, Fault::kCheckpoint,
                                         Fault::kEvaluation, Fault::kAgentSilent, Fault::kJitter),
                       ::testing::Values(1, 2, 3)),
    [](const auto& test) {
      std::string name = FaultName(std::get<0>(test.param));
      for (char& c : name) c = c == '-' ? '_' : c;
      return name + "_" + std::to_string(std::get<1>(test.param));
    });

}  // namespace
}  // namespace c4::simulation
