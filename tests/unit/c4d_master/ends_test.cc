// What ended a job whose launcher is quicker than the master's look: the ranks run again, as their next
// incarnation, when the last state of the former one comes in.
#include <algorithm>

#include "c4d_master/detectors/crash.h"
#include "c4d_master/rhythm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kNewWorld = 0xB22;

class RestartedJobTest : public ::testing::Test {
 protected:
  RestartedJobTest() { job_.Complete(20); }

  // Rank 2 reduces one element fewer than the others.
  void Mismatch() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      job_.Enter(rank);
      if (rank != 2) continue;
      job_.membership(rank).last_called.count -= 1;
      job_.membership(rank).last_started.count -= 1;
    }
  }

  void EndAll(Phase phase) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      job_.membership(rank).phase = phase;
      job_.process(rank).health.state = ProcessState::kGone;
      job_.process(rank).health.state_since_at_ns = job_.now_ns();
    }
  }

  void StartAgain(uint32_t rank) {
    Process next = job_.process(rank);
    next.key.pid += 1000;
    next.key.start_time_ticks += 1000;
    next.incarnation = 1;
    next.health.state = ProcessState::kSleeping;
    Membership membership;
    membership.communicator_id = kNewWorld;
    membership.rank = rank;
    membership.rank_count = kRanks;
    membership.phase = Phase::kReady;
    next.communicators = {membership};
    job_.host_of(rank).processes.push_back(std::move(next));
  }

  void StartAllAgain() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) StartAgain(rank);
  }

  // FakeJob::Advance moves its own ranks only.
  void Pass(int64_t ns) {
    for (auto& [name, host] : job_.hosts()) host.as_of_ns += ns;
    passed_ns_ += ns;
  }
  JobSnapshot Snapshot() const { return Assemble(job_.hosts(), job_.now_ns() + passed_ns_, 3 * kSecondNs); }

  static constexpr uint32_t kRanks = 4;
  FakeJob job_{kRanks};
  int64_t passed_ns_ = 0;
};

TEST_F(RestartedJobTest, AMismatchIsToldOf) {
  Mismatch();
  EndAll(Phase::kFailed);
  StartAllAgain();
  Pass(kSecondNs / 2);
  const JobSnapshot snapshot = Snapshot();
  ASSERT_THAT(snapshot.communicators, SizeIs(1));
  EXPECT_EQ(snapshot.communicators[0].id, kNewWorld);
  ASSERT_THAT(snapshot.former, SizeIs(1));
  const std::vector<Finding> findings = DetectMismatches(snapshot);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].culprit.pid, 1002U);
  EXPECT_EQ(findings[0].confirmed_by, "mismatch");
  EXPECT_THAT(findings[0].waiting, ::testing::ElementsAre(0, 1, 3));
}

TEST_F(RestartedJobTest, AMismatchIsToldOfWhenSomeRunAgain) {
  Mismatch();
  EndAll(Phase::kFailed);
  StartAgain(2);
  StartAgain(3);
  const std::vector<Finding> findings = DetectMismatches(Snapshot());
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 2);
}

TEST_F(RestartedJobTest, WhatEndedLongAgoIsNoNews) {
  Mismatch();
  EndAll(Phase::kFailed);
  StartAllAgain();
  Pass(kReplacedNs + 1);
  const JobSnapshot snapshot = Snapshot();
  EXPECT_THAT(snapshot.former, IsEmpty());
  EXPECT_THAT(DetectMismatches(snapshot), IsEmpty());
}

TEST_F(RestartedJobTest, AnOrderlyEndAndACrashAreNoMismatch) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.Enter(rank);
  EndAll(Phase::kFailed);
  StartAllAgain();
  const JobSnapshot snapshot = Snapshot();
  EXPECT_THAT(snapshot.former, SizeIs(1));
  EXPECT_THAT(DetectMismatches(snapshot), IsEmpty());
}

// Two calls that two ranks each made: only what went well before tells who is right.
TEST_F(RestartedJobTest, WhatWentWellBeforeTellsWhoIsRight) {
  Rhythm rhythm;
  JobSnapshot before = Snapshot();
  rhythm.Observe(&before);
  Mismatch();
  job_.membership(3).last_called.count -= 1;
  job_.membership(3).last_started.count -= 1;
  EndAll(Phase::kFailed);
  StartAllAgain();
  JobSnapshot snapshot = Snapshot();
  rhythm.Observe(&snapshot);
  std::vector<Finding> findings = DetectMismatches(snapshot);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[1].rank, 3);
}

}  // namespace
}  // namespace c4::c4d
