// What ended a job whose launcher is quicker than the master's look: the ranks run again, as their next
// incarnation, when the last state of the former one comes in.
#include <algorithm>
#include <csignal>

#include "c4d_master/detectors/crash.h"
#include "c4d_master/rhythm.h"
#include "c4d_master/verdicts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
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

// A job that goes on with half of its ranks: nobody takes over the others.
TEST_F(RestartedJobTest, RanksThatTheJobGoesOnWithoutAreNotMissed) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.Enter(rank);
  EndAll(Phase::kReady);
  Pass(kSecondNs);
  for (const uint32_t rank : {0, 1}) {
    StartAgain(rank);
    Process& next = job_.host_of(rank).processes.back();
    next.incarnation = 0;  // launchers count from 0 again
    next.first_seen_at_ns = job_.now_ns() + kSecondNs;
    next.communicators[0].rank_count = 2;
  }
  EXPECT_THAT(DetectCrashes(Snapshot(), {}), SizeIs(1)) << "their end is news";
  Pass(2 * kReplacedNs);
  const JobSnapshot snapshot = Snapshot();
  for (const ProcessRef& ref : snapshot.processes) {
    EXPECT_EQ(ref.superseded, ref.process->health.state == ProcessState::kGone);
  }
  EXPECT_THAT(DetectCrashes(snapshot, {}), IsEmpty());
}

// A job is ended from outside and begins again, rank after rank: those that nobody has taken over yet did not
// die alone.
TEST_F(RestartedJobTest, RanksThatAreStartedLastAreNoCrash) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.Enter(rank);
  EndAll(Phase::kReady);
  Pass(kSecondNs);
  for (uint32_t rank = 0; rank + 1 < kRanks; ++rank) {
    StartAgain(rank);
    job_.host_of(rank).processes.back().first_seen_at_ns = job_.now_ns();
  }
  Pass(2 * kReplacedNs);
  for (const Finding& finding : DetectCrashes(Snapshot(), {})) EXPECT_EQ(finding.confirmed_by, "");
}

// A rank that dies before it joins anything has a successor like any other, and a helper with its number is
// none.
TEST_F(RestartedJobTest, ARankThatHadJoinedNothingIsTakenOver) {
  EndAll(Phase::kReady);
  Pass(kSecondNs);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    StartAgain(rank);
    job_.host_of(rank).processes.back().first_seen_at_ns = job_.now_ns() + kSecondNs;
  }
  job_.host_of(2).processes.front().communicators.clear();
  job_.host_of(3).processes.back().communicators.clear();
  Pass(2 * kReplacedNs);
  const JobSnapshot snapshot = Snapshot();
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.process->rank == 3) continue;
    EXPECT_EQ(ref.superseded, ref.process->incarnation == 0) << ref.process->rank;
  }
}

// A rank of the next life dies before the end of the former one is old news.
TEST_F(RestartedJobTest, ALossOfTheNextLifeIsTheNews) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) job_.Enter(rank);
  EndAll(Phase::kReady);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    StartAgain(rank);
    job_.host_of(rank).processes.back().first_seen_at_ns = job_.now_ns() + kSecondNs / 20;
  }
  Pass(kSecondNs);
  const auto lose = [this](uint32_t rank) {
    Process& lost = job_.host_of(rank).processes.back();
    lost.health.state = ProcessState::kGone;
    lost.health.state_since_at_ns = job_.now_ns() + passed_ns_;
    lost.health.exit_status = SIGKILL;
  };
  lose(0);
  Pass(kSecondNs / 2);
  std::vector<Finding> findings = DetectCrashes(Snapshot(), {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].culprit, job_.host_of(0).processes.back().key);
  EXPECT_EQ(findings[0].confirmed_by, "gone");
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    job_.host_of(rank).processes.back().communicators[0].phase = Phase::kFailed;
    lose(rank);
    job_.host_of(rank).processes.back().health.exit_status = 1 << 8;
  }
  Pass(kSecondNs);
  findings = DetectCrashes(Snapshot(), {});
  ASSERT_THAT(findings, SizeIs(1)) << "nor when the others have died of it";
  EXPECT_EQ(findings[0].culprit, job_.host_of(0).processes.back().key);
}

// Somebody else's process of the job says nothing of it, nor does one that came before its end.
TEST_F(RestartedJobTest, RanksThatNobodyCameAfterAreMissed) {
  EndAll(Phase::kReady);
  StartAgain(0);
  job_.host_of(0).processes.back().first_seen_at_ns = job_.now_ns() - 1;
  Pass(2 * kReplacedNs);
  const JobSnapshot snapshot = Snapshot();
  for (const ProcessRef& ref : snapshot.processes) {
    EXPECT_EQ(ref.superseded, ref.process->rank == 0 && ref.process->incarnation == 0);
  }
}

class CrashTest : public ::testing::Test {
 protected:
  explicit CrashTest(uint32_t ranks = 8) : job_(ranks) { job_.Complete(20); }

  void Kill(std::initializer_list<uint32_t> ranks) {
    for (const uint32_t rank : ranks) job_.SetState(rank, ProcessState::kGone);
  }
  std::vector<Finding> Detect() const { return DetectCrashes(job_.Snapshot(), {}); }

  FakeJob job_;
};

TEST_F(CrashTest, OneOfManyIsNamed) {
  for (uint32_t rank = 0; rank < 8; ++rank) job_.Enter(rank);
  Kill({3});
  job_.Advance(kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 3);
  EXPECT_EQ(findings[0].confirmed_by, "gone");
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 1, 2, 4, 5, 6, 7));
}

// Who is ended from outside may be the first of the whole job: it is certain when the others have outlived
// it.
TEST_F(CrashTest, ANodeWhoseRanksAllEndIsNotCertainAtOnce) {
  for (uint32_t rank = 0; rank < 8; ++rank) job_.Enter(rank);
  Kill({2, 3});
  job_.Advance(kSecondNs / 2);
  for (const Finding& finding : Detect()) EXPECT_EQ(finding.confirmed_by, "") << finding.rank;
  job_.Advance(2 * kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(2));
  for (const Finding& finding : findings) EXPECT_EQ(finding.confirmed_by, "gone");
}

// The launcher ends the rest at once: who died first is the one to look at.
TEST_F(CrashTest, WhoDiedBeforeTheRestOfTheJobIsSuspected) {
  for (uint32_t rank = 0; rank < 8; ++rank) job_.Enter(rank);
  Kill({3});
  job_.Advance(kSecondNs / 2);
  Kill({0, 1, 2, 4, 5, 6, 7});
  job_.Advance(kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kRank);
  EXPECT_EQ(findings[0].rank, 3);
  EXPECT_EQ(findings[0].culprit.pid, 1003U);
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
}

TEST_F(CrashTest, MostAtOnceAreAmbiguousAndTheLivingWait) {
  for (uint32_t rank = 0; rank < 8; ++rank) job_.Enter(rank);
  Kill({1, 2, 3, 4, 5});
  job_.Advance(kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCrash);
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 6, 7));
  EXPECT_EQ(findings[0].communicator_id, kWorld);
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty()) << "whoever ends a job from outside does the same";
}

TEST_F(CrashTest, AllAtOnceAreAmbiguous) {
  Kill({0, 1, 2, 3, 4, 5, 6, 7});
  job_.Advance(kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].candidates, SizeIs(8));
  EXPECT_THAT(findings[0].waiting, IsEmpty());
}

TEST_F(CrashTest, AnEndAfterTheLastCommunicatorIsNone) {
  for (uint32_t rank = 0; rank < 8; ++rank) job_.membership(rank).phase = Phase::kDestroyed;
  Kill({0, 1, 2, 3, 4, 5, 6, 7});
  job_.Advance(kSecondNs);
  EXPECT_THAT(Detect(), IsEmpty());
}

// The first look may find one of the dead, the next one all.
TEST_F(CrashTest, OneDeathThatWasToldOfStaysTheVerdict) {
  Verdicts verdicts("job", 1);
  Kill({3});
  job_.Advance(20 * kMillisecondNs);
  verdicts.Update(Detect(), job_.Snapshot(), job_.now());
  Kill({0, 1, 2, 4, 5, 6, 7});
  job_.Advance(kSecondNs);
  EXPECT_THAT(verdicts.Update(Detect(), job_.Snapshot(), job_.now()), IsEmpty());
  ASSERT_THAT(verdicts.List(true), SizeIs(1));
  EXPECT_EQ(verdicts.List(true)[0].culprit().rank(), 3);
}

TEST_F(CrashTest, AmbiguousOnesAreOverOnceTheirRanksRunAgain) {
  Verdicts verdicts("job", 1);
  Kill({0, 1, 2, 3, 4, 5, 6, 7});
  job_.Advance(kSecondNs);
  EXPECT_THAT(verdicts.Update(Detect(), job_.Snapshot(), job_.now()), SizeIs(1));
  EXPECT_EQ(verdicts.CountOpen(v1::VERDICT_STATE_SUSPECTED), 1U);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    Process& process = job_.process(rank);
    process.key.start_time_ticks += 1000;
    process.incarnation = 1;
    job_.SetState(rank, ProcessState::kRunning);
  }
  job_.Advance(kSecondNs);
  EXPECT_THAT(verdicts.Update(Detect(), job_.Snapshot(), job_.now()), SizeIs(1));
  EXPECT_EQ(verdicts.CountOpen(v1::VERDICT_STATE_SUSPECTED), 0U);
}

// Half of a job of two, and a job of one: nobody is left to miss them.
class SmallCrashTest : public CrashTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  SmallCrashTest() : CrashTest(GetParam()) {}
};

TEST_P(SmallCrashTest, AreToldOf) {
  for (uint32_t rank = 0; rank < GetParam(); ++rank) Kill({rank});
  job_.Advance(kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Jobs, SmallCrashTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace c4::c4d
