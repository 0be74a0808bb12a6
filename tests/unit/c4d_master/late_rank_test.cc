// Who is late: against what is usual for it, and from the start, against the others.
#include "c4d_master/detectors/late_rank.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

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

// Steps have phases: a stage that fills its pipeline computes more between its operations, each time.
TEST(LateRank, APartOfEachStepThatTakesAsLongIsNot) {
  std::vector<Late> ranks = {Rank(2, 8, 2, 10, 0.5), Rank(0, 2, 2), Rank(1, 2, 2), Rank(3, 2, 2)};
  ranks[0].own.usual_high_ns = 7 * kMs;
  EXPECT_FALSE(FindLate(ranks, {}).has_value());
  ranks[0].own.usual_high_ns = 5 * kMs;
  EXPECT_TRUE(FindLate(ranks, {}).has_value());
}

TEST(LateRank, WhomOnePauseMadeLateIsNotForCertain) {
  EXPECT_FALSE(IsLateBesidesAPause({.recent_ns = 2.2 * kMs, .usual_ns = 2 * kMs}, {}));
  EXPECT_TRUE(IsLateBesidesAPause({.recent_ns = 5 * kMs, .usual_ns = 2 * kMs}, {}));
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

// Sixteen ranks, four a node; those that are named take five times what is usual for them.
class LateGroups : public ::testing::Test {
 protected:
  LateGroups() : job_(16, 4) {}

  // `known`: of so many ranks, from the first, it is known what is usual.
  std::vector<LateGroup> Find(const std::vector<uint32_t>& late, double factor = 5, int32_t known = 16) {
    const JobSnapshot snapshot = job_.Snapshot();
    std::vector<Late> ranks;
    for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
      const auto rank = static_cast<uint32_t>(snapshot.processes[i].process->rank);
      const bool is_late = std::find(late.begin(), late.end(), rank) != late.end();
      const double usual_ms = static_cast<int32_t>(rank) < known ? 2 : 0;
      ranks.push_back(Rank(i, is_late ? factor * 2 : 2.0 + 0.01 * rank, usual_ms, 12));
    }
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const Late& a, const Late& b) { return a.ratio > b.ratio; });
    std::vector<LateGroup> groups = FindLateGroups(snapshot, ranks, {});
    for (const LateGroup& group : groups) {
      const Finding finding = DescribeLateGroup(snapshot, group, ranks);
      EXPECT_EQ(finding.syndrome, Syndrome::kNonCommunicationSlow);
      EXPECT_EQ(finding.kind, group.kind);
      EXPECT_FALSE(finding.evidence.empty());
      EXPECT_FALSE(finding.suggested_action.empty());
      for (const Late& rank : group.ranks) ranks_.push_back(snapshot.processes[rank.process].process->rank);
    }
    std::sort(ranks_.begin(), ranks_.end());
    return groups;
  }

  FakeJob job_;
  std::vector<int32_t> ranks_;  // that were named
};

TEST_F(LateGroups, ANodeWhoseRanksAreAllLateIsNamed) {
  const std::vector<LateGroup> groups = Find({4, 5, 6, 7});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].kind, CulpritKind::kNode);
  EXPECT_EQ(groups[0].host, "host1");
  EXPECT_EQ(ranks_, (std::vector<int32_t>{4, 5, 6, 7}));
}

TEST_F(LateGroups, TwoNodesAreTwo) {
  const std::vector<LateGroup> groups = Find({0, 1, 2, 3, 12, 13, 14, 15});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].kind, CulpritKind::kNode);
  EXPECT_EQ(groups[1].kind, CulpritKind::kNode);
  EXPECT_NE(groups[0].host, groups[1].host);
}

TEST_F(LateGroups, AGroupAcrossNodesGivesCandidates) {
  job_.AddCommunicator(0xC33, {0, 4, 8, 12});
  const std::vector<LateGroup> groups = Find({0, 4, 8, 12});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].kind, CulpritKind::kAmbiguous);
  EXPECT_EQ(groups[0].communicator_id, 0xC33U);
}

TEST_F(LateGroups, AFewHereAndThereAreNamedOneByOne) {
  const std::vector<LateGroup> groups = Find({1, 6, 11});
  ASSERT_EQ(groups.size(), 3U);
  for (const LateGroup& group : groups) EXPECT_EQ(group.kind, CulpritKind::kRank);
  EXPECT_EQ(ranks_, (std::vector<int32_t>{1, 6, 11}));
}

TEST_F(LateGroups, ManyHereAndThereSayNothing) {
  EXPECT_TRUE(Find({0, 1, 5, 6, 9, 13, 14}).empty());
}

TEST_F(LateGroups, MoreThanHalfOfTheJobIsTheJob) {
  EXPECT_TRUE(Find({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).empty());
}

TEST_F(LateGroups, OneIsNoGroup) {
  EXPECT_TRUE(Find({3}).empty());
}

// After a restart everybody warms up, and only some have taken over what was usual for their place.
TEST_F(LateGroups, RanksOfWhichNothingIsKnownAreNotWell) {
  EXPECT_TRUE(Find({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 5, 4).empty());
  EXPECT_TRUE(Find({0, 1, 2, 3}, 5, 4).empty());
  EXPECT_EQ(Find({0, 1, 2, 3}, 5, 8).size(), 1U);
}

TEST_F(LateGroups, ALittleIsNot) {
  EXPECT_TRUE(Find({4, 5, 6, 7}, 1.5).empty());
}

}  // namespace
}  // namespace c4::c4d
