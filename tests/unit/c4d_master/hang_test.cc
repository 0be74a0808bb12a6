// The hang detector on synthetic jobs. The culprit is tried at every rank: a detector that reads it from
// the waiting ranks, or from its position in the ring, fails here.
#include "c4d_master/detectors/hang.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 4;
constexpr uint64_t kOther = 0xB22;
const HangThresholds kThresholds;

std::vector<Finding> Detect(const FakeJob& job) {
  return DetectHangs(job.Snapshot(), kThresholds);
}

std::vector<uint32_t> AllBut(uint32_t rank) {
  std::vector<uint32_t> ranks;
  for (uint32_t other = 0; other < kRanks; ++other) {
    if (other != rank) ranks.push_back(other);
  }
  return ranks;
}

class HangOfRankTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  void ExpectBlamed(const FakeJob& job, const std::string& confirmed_by) const {
    const std::vector<Finding> findings = Detect(job);
    ASSERT_THAT(findings, SizeIs(1));
    const Finding& finding = findings[0];
    EXPECT_EQ(finding.rank, static_cast<int32_t>(GetParam()));
    EXPECT_EQ(finding.culprit.pid, 1000 + GetParam());
    EXPECT_EQ(finding.host, "host" + std::to_string(GetParam()));
    EXPECT_EQ(finding.waiting, AllBut(GetParam()));
    EXPECT_EQ(finding.communicator_id, kWorld);
    EXPECT_EQ(finding.operation, 410U);
    EXPECT_EQ(finding.confirmed_by, confirmed_by);
  }
};

TEST_P(HangOfRankTest, AbsentIsSuspectedAfterTwoSeconds) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  job.Advance(1999 * kMillisecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
  job.Advance(kMillisecondNs);
  ExpectBlamed(job, "");
}

TEST_P(HangOfRankTest, AbsentWithoutProgressIsConfirmed) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  job.SetIdle(GetParam());
  job.Advance(9 * kSecondNs);
  ExpectBlamed(job, "");
  job.Advance(kSecondNs);
  ExpectBlamed(job, "no-progress");
}

TEST_P(HangOfRankTest, AbsentButBusyIsConfirmedPastTheLimit) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  job.Advance(119 * kSecondNs);
  ExpectBlamed(job, "");
  job.Advance(kSecondNs);
  ExpectBlamed(job, "past-limit");
}

// A checkpoint that is written for minutes, and packed for one more.
TEST_P(HangOfRankTest, WhoReadsOrWritesHasItsTimeAnew) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  for (int i = 0; i < 50; ++i) {
    job.Advance(10 * kSecondNs);
    job.process(GetParam()).health.last_io_at_ns = job.now_ns();
    ExpectBlamed(job, "");
  }
  job.Advance(119 * kSecondNs);
  ExpectBlamed(job, "");
  job.Advance(kSecondNs);
  ExpectBlamed(job, "past-limit");
}

TEST_P(HangOfRankTest, WhoReadsOrWritesForEverIsConfirmedPastItsOwnLimit) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  for (int i = 0; i < 89; ++i) {
    job.Advance(10 * kSecondNs);
    job.process(GetParam()).health.last_io_at_ns = job.now_ns();
  }
  ExpectBlamed(job, "");
  job.Advance(10 * kSecondNs);
  ExpectBlamed(job, "past-limit");
}

// SIGSTOP lands inside the collective most of the time: all have entered, nobody is absent.
TEST_P(HangOfRankTest, StoppedInsideTheOperation) {
  FakeJob job(kRanks);
  job.Complete(410);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.SetState(GetParam(), ProcessState::kStopped);
  job.Advance(1999 * kMillisecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
  job.Advance(kMillisecondNs);
  ExpectBlamed(job, "stopped");
}

TEST_P(HangOfRankTest, StoppedBetweenOperations) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.SetState(GetParam(), ProcessState::kStopped);
  job.Advance(kSecondNs);
  job.EnterAllBut(GetParam());
  job.Advance(2 * kSecondNs);
  ExpectBlamed(job, "stopped");
}

TEST_P(HangOfRankTest, StoppedAfterTheCallBeforeTheStart) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.EnterAllBut(GetParam());
  job.Call(GetParam());
  job.SetState(GetParam(), ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  ExpectBlamed(job, "stopped");
}

TEST_P(HangOfRankTest, TracedAndDead) {
  for (const auto& [state, by] :
       {std::pair(ProcessState::kTraced, "traced"), std::pair(ProcessState::kZombie, "gone"),
        std::pair(ProcessState::kGone, "gone")}) {
    FakeJob job(kRanks);
    job.Complete(410);
    for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
    job.SetState(GetParam(), state);
    job.Advance(2 * kSecondNs);
    ExpectBlamed(job, by);
  }
}

// The predecessor has finished its part early: it neither waits nor is it to blame.
TEST_P(HangOfRankTest, WhoFinishedEarlyIsLeftOut) {
  const uint32_t early = (GetParam() + 1) % kRanks;
  FakeJob job(kRanks);
  job.Complete(410);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.Finish(early);
  job.SetState(GetParam(), ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, static_cast<int32_t>(GetParam()));
  std::vector<uint32_t> expected = AllBut(GetParam());
  std::erase(expected, early);
  EXPECT_EQ(findings[0].waiting, expected);
}

// Ranks 4 and GetParam() share a second communicator; GetParam() waits there for 4 and is absent from the
// first one because of that.
TEST_P(HangOfRankTest, WhoWaitsElsewhereIsNotToBlame) {
  FakeJob job(kRanks + 1);
  for (uint32_t rank = 0; rank <= kRanks; ++rank) job.process(rank).communicators.clear();
  job.AddCommunicator(kWorld, {0, 1, 2, 3});
  job.AddCommunicator(kOther, {GetParam(), 4});
  job.Complete(20);
  job.Complete(30, kOther);
  job.Enter(GetParam(), kOther);
  job.EnterAllBut(GetParam());
  job.SetIdle(4);
  job.Advance(3 * kSecondNs);
  std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 4);
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(findings[0].communicator_id, kOther);
  EXPECT_EQ(findings[0].operation, 30U);
  EXPECT_THAT(findings[0].communicators, ElementsAre(kWorld, kOther));

  // Inside the operation, stopped: the same.
  job.Enter(4, kOther);
  job.SetState(4, ProcessState::kStopped);
  job.Advance(3 * kSecondNs);
  findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 4);
  EXPECT_EQ(findings[0].confirmed_by, "stopped");

  // Nothing is known of rank 4: its state cannot be judged, and nobody else is blamed in its place.
  job.Silence("host4");
  job.Advance(4 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
}

TEST_P(HangOfRankTest, StaleAgentIsNotAStaleRank) {
  FakeJob job(kRanks);
  job.Complete(410);
  job.Silence("host" + std::to_string(GetParam()));
  job.Advance(kMillisecondNs);
  job.EnterAllBut(GetParam());  // so did the silent one, for all that is known
  for (int i = 0; i < 300; ++i) {
    job.Advance(100 * kMillisecondNs);
    ASSERT_THAT(Detect(job), IsEmpty()) << "after " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EachRank, HangOfRankTest, ::testing::Range(0U, kRanks));

TEST(HangTest, EverybodyIdleInComputation) {
  FakeJob job(kRanks);
  job.Complete(50);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.SetIdle(rank);
  job.Advance(500 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
}

TEST(HangTest, AllInsideAndAllCanRunIsAnotherSyndrome) {
  FakeJob job(kRanks);
  job.Complete(50);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.Advance(500 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
}

TEST(HangTest, AJobThatIsSuspendedAsAWholeDoesNotHang) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.SetState(rank, ProcessState::kStopped);
  job.Advance(500 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
}

TEST(HangTest, TwoStoppedRanksAreTwoFindings) {
  FakeJob job(kRanks);
  job.Complete(50);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.SetState(1, ProcessState::kStopped);
  job.SetState(3, ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  EXPECT_THAT(Detect(job),
              ElementsAre(AllOf(Field(&Finding::rank, 1), Field(&Finding::waiting, ElementsAre(0, 2))),
                          AllOf(Field(&Finding::rank, 3), Field(&Finding::waiting, ElementsAre(0, 2)))));
}

// One is stopped inside, another has yet to come: the others wait for both.
TEST(HangTest, AbsentAndStoppedAreBothToBlame) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(0);
  job.SetState(3, ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].rank, 0);
  EXPECT_EQ(findings[0].confirmed_by, "");
  EXPECT_EQ(findings[1].rank, 3);
  EXPECT_EQ(findings[1].confirmed_by, "stopped");
}

TEST(HangTest, MovingBytesAreSlowNotHung) {
  FakeJob job(kRanks);
  job.Complete(50);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.SetState(2, ProcessState::kStopped);
  job.membership(3).queue_pairs.push_back({.peer = 0, .sends = true});
  QueuePair& queue_pair = job.membership(3).queue_pairs[0];
  for (int i = 0; i < 50; ++i) {
    queue_pair.moved_bytes += 1000;
    queue_pair.last_progress_at_ns = job.now_ns();
    job.Advance(kSecondNs);
    ASSERT_THAT(Detect(job), IsEmpty());
  }
  job.Advance(kSecondNs);
  EXPECT_THAT(Detect(job), SizeIs(1));
}

TEST(HangTest, WhoIsBusyInAnotherCommunicatorIsLateNotHung) {
  FakeJob job(kRanks);
  job.AddCommunicator(kOther, {2});
  job.Complete(50);
  job.EnterAllBut(2);
  for (int i = 0; i < 119; ++i) {
    job.Complete(1, kOther, kSecondNs);
    ASSERT_THAT(Detect(job), IsEmpty()) << i;
  }
  job.Complete(1, kOther, kSecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
}

TEST(HangTest, WhoIsStoppedHasNoOtherWork) {
  FakeJob job(kRanks);
  job.AddCommunicator(kOther, {2});
  job.Complete(50);
  job.EnterAllBut(2);
  job.Complete(10, kOther, kSecondNs);
  ASSERT_THAT(Detect(job), IsEmpty());
  job.SetState(2, ProcessState::kStopped);
  EXPECT_THAT(Detect(job), SizeIs(1));  // the others have waited for long enough
}

// Rank 2 was through with the operation when it was stopped: nobody waits for it there.
TEST(HangTest, WhoIsStoppedAfterItsPartIsNotToBlame) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(1);
  job.Finish(2);
  job.SetState(2, ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  EXPECT_THAT(Detect(job), ElementsAre(Field(&Finding::rank, 1)));
}

// It is inside an operation of a communicator that cannot be judged as well: it waits for nobody there.
TEST(HangTest, WhoIsStoppedWaitsNowhere) {
  FakeJob job(kRanks);
  job.AddCommunicator(kOther, {2, 3});
  job.membership(3, kOther).phase = Phase::kInit;
  job.process(3).ended = true;
  job.membership(3).phase = Phase::kReady;
  job.Complete(50);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.Enter(2, kOther);
  job.SetState(2, ProcessState::kStopped);
  job.Advance(2 * kSecondNs);
  EXPECT_THAT(Detect(job), ElementsAre(Field(&Finding::rank, 2)));
}

// A process that has left holds up neither the judgement nor the clock.
TEST(HangTest, SilenceOfAHostThatAllHaveLeft) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.process(0).ended = true;
  job.Silence("host0");
  for (const uint32_t rank : {1U, 2U, 3U}) job.Enter(rank);
  job.SetState(2, ProcessState::kStopped);
  job.Advance(10 * kSecondNs);
  EXPECT_THAT(Detect(job), ElementsAre(Field(&Finding::rank, 2)));
}

TEST(HangTest, OrderlyEnd) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(2);
  job.process(2).ended = true;
  job.SetState(2, ProcessState::kGone);
  job.Advance(100 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.membership(rank).phase = Phase::kDestroyed;
  EXPECT_THAT(Detect(job), IsEmpty());
}

TEST(HangTest, IncompleteAndUnreadyCommunicatorsAreNotJudged) {
  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(2);
  job.Advance(10 * kSecondNs);
  ASSERT_THAT(Detect(job), SizeIs(1));
  job.membership(1).phase = Phase::kFailed;
  EXPECT_THAT(Detect(job), IsEmpty());
  job.membership(1).phase = Phase::kInit;
  EXPECT_THAT(Detect(job), IsEmpty());
  job.membership(1).phase = Phase::kReady;
  ASSERT_THAT(Detect(job), SizeIs(1));
  job.hosts()["host1"].processes.clear();
  EXPECT_THAT(Detect(job), IsEmpty());
}

// One rank that is not monitored, or one agent that is silent, must not blind for all others.
TEST(HangTest, WhoCannotRunIsToBlameAlsoWhereNotAllAreKnown) {
  for (const bool unmonitored : {true, false}) {
    FakeJob job(kRanks);
    job.Complete(50);
    if (unmonitored) {
      job.hosts()["host1"].processes.clear();
    } else {
      job.Silence("host1");
    }
    job.Advance(4 * kSecondNs);
    job.EnterAllBut(2);
    job.SetState(2, ProcessState::kStopped);
    job.Advance(10 * kSecondNs);
    const std::vector<Finding> findings = Detect(job);
    ASSERT_THAT(findings, SizeIs(1)) << unmonitored;
    EXPECT_EQ(findings[0].rank, 2);
    EXPECT_EQ(findings[0].confirmed_by, "stopped");
    // It may wait for the unknown one.
    job.SetState(2, ProcessState::kSleeping);
    EXPECT_THAT(Detect(job), IsEmpty()) << unmonitored;
    // A silent agent's last word is no fact.
    if (!unmonitored) job.SetState(1, ProcessState::kStopped);
    EXPECT_THAT(Detect(job), IsEmpty()) << unmonitored;
  }
}

// It waits for its peers in another communicator's set-up: held up, not holding up.
TEST(HangTest, WhoJoinsAnotherCommunicatorIsNotToBlame) {
  FakeJob job(kRanks);
  job.AddCommunicator(kOther, {2, 3});
  job.membership(2, kOther).phase = Phase::kInit;
  job.Complete(50);
  job.EnterAllBut(2);
  job.Advance(10 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
}

// Process 2 is rank 2 and rank 3 of the communicator, and has called for rank 2 only: it waits for itself.
TEST(HangTest, OneProcessWithTwoRanks) {
  FakeJob job(3);
  for (uint32_t rank = 0; rank < 3; ++rank) job.membership(rank).rank_count = 4;
  job.Complete(20);
  Membership second = job.membership(2);
  second.rank = 3;
  job.process(2).communicators.push_back(second);
  for (uint32_t rank = 0; rank < 3; ++rank) job.Enter(rank);
  job.Advance(2 * kSecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].culprit.pid, 1002U);
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 1));
  EXPECT_EQ(findings[0].operation, 20U);
}

}  // namespace
}  // namespace c4::c4d
