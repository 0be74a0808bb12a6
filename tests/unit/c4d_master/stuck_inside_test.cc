// Operations that all have entered and that do not go on; and who is blocked in the kernel.
#include "c4d_master/detectors/diagnose.h"
#include "c4d_master/detectors/hang.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kGroup = 0xB22;

std::vector<Finding> Inside(const FakeJob& job) {
  return DetectStuckInside(job.Snapshot(), HangThresholds{});
}

// Ranks 1 and 2 are in a group of their own, whose operation hangs; the others wait for these.
class StuckInsideTest : public ::testing::Test {
 protected:
  StuckInsideTest() : job_(4) {
    job_.AddCommunicator(kGroup, {1, 2});
    job_.Complete(50);
    job_.Complete(50, kGroup);
    job_.Enter(1, kGroup);
    job_.Enter(2, kGroup);
    job_.Enter(0);
    job_.Enter(3);
  }

  FakeJob job_;
};

TEST_F(StuckInsideTest, ItsMembersAreCandidatesAfterALimit) {
  job_.Advance(29 * kSecondNs);
  EXPECT_THAT(Inside(job_), IsEmpty());
  job_.Advance(2 * kSecondNs);
  std::vector<Finding> findings = Inside(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCommunicationHang);
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, ElementsAre(1, 2));
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(findings[0].communicators, ElementsAre(kWorld, kGroup));
  EXPECT_EQ(findings[0].communicator_id, kGroup);
  EXPECT_EQ(findings[0].operation, 50U);
  EXPECT_EQ(findings[0].confirmed_by, "");
  EXPECT_THAT(findings[0].evidence[0].text, HasSubstr("all 2 ranks of communicator"));
  job_.Advance(90 * kSecondNs);
  findings = Inside(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
  const std::vector<Finding> all = Diagnose(job_.Snapshot(), {}, {}, job_.now_ns(), {});
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].kind, CulpritKind::kAmbiguous);
}

// Rank 1's kernel hangs: it has what it asked for. Rank 2 waits for what it would have sent.
TEST_F(StuckInsideTest, WhoWaitsForNoDataIsNamed) {
  for (const uint32_t rank : {1U, 2U}) {
    QueuePair receives;
    receives.peer = 2 - rank;
    receives.carrier = Carrier::kVendor;
    receives.connection = {true, 108, 108, rank == 1 ? 108U : 100U, 0, 0};
    job_.membership(rank, kGroup).queue_pairs.push_back(receives);
  }
  job_.Advance(31 * kSecondNs);
  std::vector<Finding> findings = Inside(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kNonCommunicationHang);
  EXPECT_EQ(findings[0].kind, CulpritKind::kRank);
  EXPECT_EQ(findings[0].rank, 1);
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 2, 3));
  // Nobody waits for data: nothing tells them apart.
  job_.membership(2, kGroup).queue_pairs[0].connection.done = 108;
  findings = Inside(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].candidates, ElementsAre(1, 2));
}

// A ring of eight ranks, two a host: only the first of a host receives from another one, and the second
// sends. Rank 3 hangs: rank 2, which has all it asked for, hands on to rank 3 by NVLink; rank 4 waits; rank 0
// is held up as well, as nobody takes anything from rank 1.
TEST(StuckInsideRing, WhoShowsNothingOnThatNodeMayBeIt) {
  FakeJob job(8, 2);
  job.Complete(50);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    QueuePair way;
    way.carrier = Carrier::kVendor;
    way.sends = rank % 2 == 1;
    way.peer = way.sends ? (rank + 1) % 8 : (rank + 7) % 8;
    const bool waits = rank == 4 || rank == 6;
    way.connection = {true, 108, 108, waits ? 100U : 108U, 0, 0};
    job.membership(rank).queue_pairs.push_back(way);
    job.Enter(rank);
  }
  job.Advance(31 * kSecondNs);
  const std::vector<Finding> findings = Inside(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, ElementsAre(2, 3));
}

TEST_F(StuckInsideTest, WhatFinishesIsOver) {
  job_.Advance(40 * kSecondNs);
  ASSERT_THAT(Inside(job_), SizeIs(1));
  for (const uint32_t rank : {1U, 2U}) job_.Finish(rank, kGroup);
  EXPECT_THAT(Inside(job_), IsEmpty());
}

TEST_F(StuckInsideTest, WhoCannotRunIsToBlameInItsPlace) {
  job_.SetState(2, ProcessState::kStopped);
  job_.Advance(40 * kSecondNs);
  EXPECT_THAT(Inside(job_), IsEmpty());
  const std::vector<Finding> all = Diagnose(job_.Snapshot(), {}, {}, job_.now_ns(), {});
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].rank, 2);
}

// Somebody who is not seen may be missing in it.
TEST_F(StuckInsideTest, NothingIsToldOfWhatIsNotSeenAsAWhole) {
  job_.Silence("host2");
  job_.Advance(40 * kSecondNs);
  EXPECT_THAT(Inside(job_), IsEmpty());
}

// A communicator that usually stands still for a minute is not suspicious after half of one.
TEST_F(StuckInsideTest, WhatIsUsualIsNot) {
  job_.Advance(130 * kSecondNs);
  const std::vector<Finding> findings = DetectStuckInside(job_.Snapshot(60 * kSecondNs), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "") << "the limit is five times what is usual";
}

// fsync on a network file system: neither CPU time nor I/O moves, and it comes back.
TEST(BlockedTest, WhoIsBlockedInTheKernelIsExcusedUpToTheLimit) {
  FakeJob job(3);
  job.Complete(50);
  job.EnterAllBut(0);
  job.SetIdle(0);
  job.SetState(0, ProcessState::kBlocked);
  job.Advance(15 * kSecondNs);
  std::vector<Finding> findings = DetectHangs(job.Snapshot(), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "");
  job.Advance(880 * kSecondNs);
  findings = DetectHangs(job.Snapshot(), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "");
  job.Advance(6 * kSecondNs);
  findings = DetectHangs(job.Snapshot(), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
  job.SetState(0, ProcessState::kSleeping);
  findings = DetectHangs(job.Snapshot(), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
}

// A checkpoint of many minutes: its rank writes. One that only computes is a hang much earlier.
TEST(BlockedTest, WhoWritesFilesIsGivenAsLong) {
  FakeJob job(3);
  job.Complete(50);
  job.EnterAllBut(0);
  for (int i = 0; i < 10; ++i) {
    job.Advance(60 * kSecondNs);
    job.process(0).health.last_io_at_ns = job.now_ns() - 2 * kSecondNs;
    const std::vector<Finding> findings = DetectHangs(job.Snapshot(), HangThresholds{});
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].confirmed_by, "") << i;
  }
  job.Advance(120 * kSecondNs);  // it has ceased to
  const std::vector<Finding> findings = DetectHangs(job.Snapshot(), HangThresholds{});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
}

}  // namespace
}  // namespace c4::c4d
