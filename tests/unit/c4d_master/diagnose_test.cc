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
