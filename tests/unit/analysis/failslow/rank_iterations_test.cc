// A rank's iterations and their changes from its calls: training with evaluations, gaps, clocks that jump.
#include "analysis/failslow/rank_iterations.h"

#include <gtest/gtest.h>

namespace c4::failslow {
namespace {

constexpr int64_t kMsNs = 1'000'000;

class Rank : public testing::Test {
 protected:
  // One iteration of so many different calls.
  void Iterate(int64_t duration_ns, int calls = 24, uint64_t kind = 0) {
    for (int i = 0; i < calls; ++i) {
      rank_.Call(kind * 1000 + static_cast<uint64_t>(i % 7 == 3 ? 3 : i), now_ns_ + i * duration_ns / calls);
    }
    now_ns_ += duration_ns;
  }
  void Iterate(int count, int64_t duration_ns) {
    for (int i = 0; i < count; ++i) Iterate(duration_ns + (i % 3 - 1) * kMsNs / 10);
  }
  const IterationChange& last() const { return rank_.changes().back(); }

  RankIterations rank_;
  int64_t now_ns_ = 1'000'000 * kMsNs;
};

TEST_F(Rank, IterationsHaveTheirTimes) {
  Iterate(20, 100 * kMsNs);
  const std::vector<RankIteration> told = rank_.Take();
  ASSERT_GE(told.size(), 18u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].number, i);
    EXPECT_EQ(told[i].calls, 24u);
    EXPECT_EQ(told[i].shape, 1u);
    EXPECT_NEAR(static_cast<double>(told[i].duration_ns), 100e6, 0.3e6);
  }
  EXPECT_TRUE(rank_.Take().empty());
  EXPECT_TRUE(rank_.changes().empty());
  EXPECT_LT(rank_.MemoryBytes(), size_t{1} << 20);
}

TEST_F(Rank, OnsetAndReliefWithTheirMoments) {
  Iterate(40, 100 * kMsNs);
  const int64_t onset_ns = now_ns_;
  Iterate(4, 130 * kMsNs);
  ASSERT_EQ(rank_.changes().size(), 1u);
  EXPECT_EQ(last().stage, ChangeStage::kSuspected);
  EXPECT_EQ(last().number, 1u);
  Iterate(26, 130 * kMsNs);
  ASSERT_EQ(rank_.changes().size(), 1u);
  EXPECT_EQ(last().stage, ChangeStage::kConfirmed);
  EXPECT_NEAR(last().before_s, 0.1, 0.002);
  EXPECT_NEAR(last().after_s, 0.13, 0.002);
  EXPECT_NEAR(static_cast<double>(last().at_ns - onset_ns), 0, 131e6);
  Iterate(30, 100 * kMsNs);
  ASSERT_EQ(rank_.changes().size(), 2u);
  EXPECT_EQ(last().number, 2u);
  EXPECT_NEAR(last().after_s, 0.1, 0.002);
}

TEST_F(Rank, EvaluationsAndCheckpointsAreNoChange) {
  for (int round = 0; round < 6; ++round) {
    Iterate(30, 100 * kMsNs);
    Iterate(3000 * kMsNs);  // a checkpoint
    Iterate(25, 100 * kMsNs);
    for (int i = 0; i < 20; ++i) Iterate(40 * kMsNs, 40, 1);
  }
  EXPECT_TRUE(rank_.changes().empty());
  EXPECT_GT(rank_.iterations(), 6u * 50);
}

// A trainer whose calls were not seen for a while: the time without them is no iteration.
TEST_F(Rank, MissingCallsAreNoLongIteration) {
  Iterate(40, 100 * kMsNs);
  (void)rank_.Take();
  rank_.Gap();
  now_ns_ += 7000 * kMsNs;
  Iterate(40, 100 * kMsNs);
  for (const RankIteration& iteration : rank_.Take()) {
    EXPECT_LT(iteration.duration_ns, 200 * kMsNs) << iteration.number;
  }
  EXPECT_TRUE(rank_.changes().empty());
}

TEST_F(Rank, AClockThatJumpsIsNoChange) {
  Iterate(40, 100 * kMsNs);
  now_ns_ -= 50'000 * kMsNs;
  Iterate(40, 100 * kMsNs);
  now_ns_ += 90'000 * kMsNs;
  Iterate(40, 100 * kMsNs);
  EXPECT_TRUE(rank_.changes().empty());
}

TEST_F(Rank, CallsWithoutAPeriodTellNothing) {
  uint64_t chance = 1;
  for (int i = 0; i < 20'000; ++i) {
    chance = chance * 6364136223846793005ull + 1442695040888963407ull;
    rank_.Call(chance >> 33, now_ns_ += kMsNs);
  }
  EXPECT_TRUE(rank_.Take().empty());
  EXPECT_LT(rank_.MemoryBytes(), size_t{1} << 20);
}

// Shapes without end, as of a program that never settles: bounded.
TEST_F(Rank, ManyShapesTakeBoundedMemory) {
  for (int shape = 0; shape < 40; ++shape) {
    for (int i = 0; i < 30; ++i) Iterate(50 * kMsNs, 20 + shape, static_cast<uint64_t>(shape));
  }
  EXPECT_LT(rank_.MemoryBytes(), size_t{1} << 20);
  EXPECT_LE(rank_.Take().size(), RankIterations::kUntaken);
}

}  // namespace
}  // namespace c4::failslow
