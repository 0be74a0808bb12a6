// A tensor group of which one member calls its collectives late.
#include "c4d_master/smon/group_waits.h"

#include <gtest/gtest.h>

#include "c4/v1/telemetry.pb.h"

namespace c4::c4d {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kGroup = 77;

// Four ranks of one worker in one step of 100 ms: ten collectives 10 ms apart, to which each rank comes when
// `called_ms` says.
class Group {
 public:
  explicit Group(int ranks) {
    profile_.nodes = {{"node0", {{0, 100}}}, {"node1", {{0, 100}}}};
    for (int rank = 0; rank < ranks; ++rank) {
      ProfiledProcess& process = profile_.processes[{"boot", static_cast<uint32_t>(rank), 1}];
      process.rank = rank;
      process.worker = DeclaredWorker{.tp_rank = rank, .tp_size = ranks};
      process.communicators[kGroup] = {static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks), false,
                                       false};
      process.marks.push_back({.began_ns = 0, .ended_ns = 100 * kMs, .step = 4, .kind = MarkKind::kStep});
      for (int i = 0; i < 10; ++i) Call(rank, i * 10 * kMs);
    }
  }

  ProfiledProcess& Rank(int rank) { return profile_.processes[{"boot", static_cast<uint32_t>(rank), 1}]; }
  Profile& profile() { return profile_; }

  void Call(int rank, int64_t called_ns) {
    Rank(rank).operations.push_back({.communicator_id = kGroup,
                                     .called_ns = called_ns,
                                     .started_ns = called_ns,
                                     .ended_ns = called_ns + kMs,
                                     .function = v1::FUNCTION_ALL_REDUCE});
  }

  GroupWaits Waits() {
    std::vector<const ProfiledProcess*> members;
    for (const auto& [key, process] : profile_.processes) members.push_back(&process);
    return {profile_, FindRoles(profile_), members, Rank(0)};
  }

 private:
  Profile profile_;
};

TEST(GroupWaits, NamesTheMemberThatComesLastAndHowLongTheOthersWait) {
  Group group(4);
  for (CommunicationSpan& operation : group.Rank(2).operations) operation.called_ns += 3 * kMs;
  const GroupWaits waits = group.Waits();
  EXPECT_EQ(waits.lagging(), 2);
  EXPECT_EQ(waits.Waited_ns(0, 100 * kMs), 30 * kMs);
  EXPECT_EQ(waits.Waited_ns(15 * kMs, 35 * kMs), 6 * kMs);  // those of 20 and 30 ms
  EXPECT_EQ(waits.Waited_ns(100 * kMs, 200 * kMs), 0);
}

TEST(GroupWaits, TheRankThatStandsForTheGroupMayBeTheLateOne) {
  Group group(2);
  for (CommunicationSpan& operation : group.Rank(0).operations) operation.called_ns += 2 * kMs;
  EXPECT_EQ(group.Waits().lagging(), 0);
  EXPECT_EQ(group.Waits().Waited_ns(0, 100 * kMs), 20 * kMs);
}

// Now one is the last, now another: that is nobody's.
TEST(GroupWaits, WhatChanceGivesToAllCountsForNobody) {
  Group group(2);
  for (int i = 0; i < 10; ++i) group.Rank(i % 2).operations[static_cast<size_t>(i)].called_ns += 2 * kMs;
  EXPECT_EQ(group.Waits().Waited_ns(0, 100 * kMs), 0);
}

TEST(GroupWaits, RecordsThatWereLostAreComparedWithNobody) {
  Group group(2);
  for (CommunicationSpan& operation : group.Rank(1).operations) operation.called_ns += 2 * kMs;
  group.Rank(1).operations.erase(group.Rank(1).operations.begin());
  EXPECT_EQ(group.Waits().lagging(), -1);
  EXPECT_EQ(group.Waits().Waited_ns(0, 100 * kMs), 0);
}

TEST(GroupWaits, ClocksOfNodesArePutBesideEachOther) {
  Group group(2);
  group.profile().nodes[1].clocks[0].offset_ns = -500 * kMs;
  ProfiledProcess& other = group.Rank(1);
  other.node = 1;
  for (CommunicationSpan& operation : other.operations) operation.called_ns += 504 * kMs;
  for (MarkedSpan& mark : other.marks) {
    mark.began_ns += 500 * kMs;
    mark.ended_ns += 510 * kMs;
  }
  EXPECT_EQ(group.Waits().lagging(), 1);
  EXPECT_EQ(group.Waits().Waited_ns(0, 100 * kMs), 40 * kMs);
}

TEST(GroupWaits, AWorkerWithoutAGroupWaitsForNobody) {
  EXPECT_EQ(Group(1).Waits().lagging(), -1);
}

}  // namespace
}  // namespace c4::c4d
