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

// With paths known faults of links are right as the link alone; all else is as without.
TEST_P(DiagnoseTest, AsAcceptedWithPaths) {
  const auto [fault, seed] = GetParam();
  const TrialResult result = RunTrial(fault, {}, seed, /*paths_known=*/true);
  if (!result.applicable) GTEST_SKIP() << "no queue pair takes that link";
  EXPECT_TRUE(result.found) << result.told;
  EXPECT_FALSE(result.ambiguous) << result.told;
  EXPECT_EQ(result.wrong, 0U) << result.told;
  EXPECT_TRUE(result.cleared) << result.told;
}

// A NIC most of whose queue pairs take the slow link was named beside the link, before the paths told.
TEST(DiagnoseLinks, ALinkIsNotHeldAgainstItsNics) {
  TrainingShape shape;
  shape.data = 6;
  shape.pipeline = 1;
  shape.queue_pairs = 2;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    for (const Fault fault : {Fault::kSlowLink, Fault::kCutLink}) {
      const TrialResult result = RunTrial(fault, shape, seed, /*paths_known=*/true);
      if (!result.applicable) continue;
      EXPECT_TRUE(result.found) << FaultName(fault) << " seed " << seed << "\n" << result.told;
      EXPECT_EQ(result.wrong, 0U) << FaultName(fault) << " seed " << seed << "\n" << result.told;
    }
  }
}

// Nothing was ever usual for it but to be slow.
TEST(DiagnoseFromTheStart, ARankThatWasAlwaysSlowIsNamed) {
  TrainingShape shape;
  shape.from_start = true;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    shape.pipeline = 1 + static_cast<uint32_t>(seed % 3);
    const TrialResult result = RunTrial(Fault::kSlowRank, shape, seed);
    EXPECT_TRUE(result.found) << "seed " << seed << "\n" << result.told;
    EXPECT_EQ(result.wrong, 0U) << "seed " << seed << "\n" << result.told;
    EXPECT_TRUE(result.cleared) << "seed " << seed << "\n" << result.told;
  }
}

// Neighbours in a pipeline that wait for what the lost node would have sent seem to wait for each other.
TEST(DiagnoseLostNode, WhoeverWaitsWithoutItIsNotInADeadlock) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    TrainingShape shape;
    shape.pipeline = 3;
    shape.data = 3 + static_cast<uint32_t>(seed % 4);
    const TrialResult result = RunTrial(Fault::kLostNode, shape, seed);
    EXPECT_TRUE(result.found) << "seed " << seed << "\n" << result.told;
    EXPECT_EQ(result.wrong, 0U) << "seed " << seed << "\n" << result.told;
    EXPECT_TRUE(result.cleared) << "seed " << seed << "\n" << result.told;
  }
}

// A link that the transport went around is named, once, and forgotten when it is healed.
TEST(DiagnoseFences, ADeadLinkIsNamedThoughTheJobGoesOn) {
  for (const bool steered : {true, false}) {
    TrainingShape shape;
    shape.fail_over = true;
    shape.steered = steered;
    shape.spines = 4;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const TrialResult result = RunTrial(Fault::kCutLink, shape, seed, /*paths_known=*/true);
      if (!result.applicable) continue;
      EXPECT_TRUE(result.found) << "seed " << seed << " steered " << steered << "\n" << result.told;
      EXPECT_EQ(result.wrong, 0U) << "seed " << seed << " steered " << steered << "\n" << result.told;
      EXPECT_TRUE(result.cleared) << "seed " << seed << " steered " << steered << "\n" << result.told;
    }
  }
}

// Fences under congestion: one here and there, all of a receiver, half of a link's. Never an alarm, with
// paths and without.
TEST(DiagnoseFences, HiccupsAreNobodysFault) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    TrainingShape shape;
    shape.fail_over = true;
    shape.spines = 2 + static_cast<uint32_t>(seed % 3);
    const TrialResult result = RunTrial(Fault::kHiccups, shape, seed, seed % 2 == 0);
    EXPECT_EQ(result.wrong, 0U) << "seed " << seed << "\n" << result.told;
    EXPECT_TRUE(result.cleared) << "seed " << seed << "\n" << result.told;
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
