// Who is late: against what is usual for it, and from the start, against the others.
#include "c4d_master/detectors/late_rank.h"

#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

constexpr double kMs = 1e6;

// As it is for four seconds, and usual where that is known: one that has `own_ms` of `cycle_ms` for itself
// and waits `wait_ms`.
Late Rank(uint32_t process, double own_ms, double usual_ms, double cycle_ms = 10, double wait_ms = 4) {
  Late late;
  late.process = process;
  late.own.recent_ns = own_ms * kMs;
  late.own.usual_ns = usual_ms * kMs;
  late.own.cycle_ns = cycle_ms * kMs;
  late.own.first_wait_ns = wait_ms * kMs;
  late.own.slices = 4;
  late.own.seen = 40;
  late.ratio = usual_ms > 0 ? own_ms / usual_ms : 0;
  return late;
}

TEST(LateRank, OneThatWasAlwaysSlowIsHeldAgainstTheOthers) {
  const std::vector<Late> ranks = {Rank(0, 8, 8, 10, 0.5), Rank(1, 2, 2), Rank(2, 2, 2), Rank(3, 3, 3)};
  const std::optional<Late> late = FindLate(ranks, {});
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->process, 0U);
  EXPECT_TRUE(late->from_start);
  std::vector<Late> young = ranks;
  for (Late& rank : young) rank.own.seen = 20;
  EXPECT_FALSE(FindLate(young, {}).has_value()) << "the first half minute may be like that";
}

TEST(LateRank, WhatHasGrownComesFirst) {
  const std::vector<Late> ranks = {Rank(2, 8, 2, 10, 0.5), Rank(0, 7, 7, 10, 0.5), Rank(1, 2, 2)};
  const std::optional<Late> late = FindLate(ranks, {});
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->process, 2U);
  EXPECT_FALSE(late->from_start);
}

TEST(LateRank, ASpellIsNotFromTheStart) {
  // Too short for its growth to count, for the next has grown as well.
  EXPECT_FALSE(
      FindLate({Rank(0, 8, 2, 10, 0.5), Rank(1, 3, 1), Rank(2, 2, 2), Rank(3, 2, 2)}, {}).has_value());
}

TEST(LateRank, WhoDoesFewerOperationsIsNot) {
  // Rank 0 takes part in half of them: twice the time for each, and no more of all.
  EXPECT_FALSE(FindLate({Rank(0, 8, 8, 20, 8), Rank(1, 4, 4), Rank(2, 4, 4), Rank(3, 4, 4)}, {}).has_value());
}

TEST(LateRank, WhoIsNotWaitedForIsNot) {
  // The others are held up by their network, and it has no part in that.
  EXPECT_FALSE(
      FindLate({Rank(0, 8, 8, 10, 2), Rank(1, 2, 2, 10, 1), Rank(2, 2, 2, 10, 1), Rank(3, 2, 2, 10, 1)}, {})
          .has_value());
}

TEST(LateRank, WhatIsNotMeasuredIsNot) {
  // No operation of rank 0 is seen from inside.
  EXPECT_FALSE(
      FindLate({Rank(0, 10, 10, 10, 0), Rank(1, 2, 2), Rank(2, 2, 2), Rank(3, 2, 2)}, {}).has_value());
}

TEST(LateRank, ALittleOfTheTimeIsNot) {
  // Twice everybody else's, and a tenth of the time in all.
  EXPECT_FALSE(FindLate({Rank(0, 2, 2, 10, 1), Rank(1, 1, 1), Rank(2, 1, 1), Rank(3, 1, 1)}, {}).has_value());
}

}  // namespace
}  // namespace c4::c4d
