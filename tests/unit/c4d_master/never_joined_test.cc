// Ranks that set a communicator up, and others that are missing in it.
#include "c4d_master/detectors/crash.h"
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

std::vector<Finding> Detect(const FakeJob& job) {
  return DetectNeverJoined(job.Snapshot(), EndThresholds{});
}

// Four ranks, of which the third has yet to come; the others have set the world up since then.
class NeverJoinedTest : public ::testing::Test {
 protected:
  NeverJoinedTest() : job_(4) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      job_.membership(rank).phase = Phase::kInit;
      job_.membership(rank).phase_since_at_ns = job_.now_ns();
    }
    job_.process(2).communicators.clear();
  }

  FakeJob job_;
};

TEST_F(NeverJoinedTest, TheRankThatIsMissingIsSuspectedAndAfterALimitCertain) {
  job_.Advance(9 * kSecondNs);
  EXPECT_THAT(Detect(job_), IsEmpty());
  job_.Advance(2 * kSecondNs);
  std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kNeverJoined);
  EXPECT_EQ(findings[0].kind, CulpritKind::kRank);
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].host, "host2");
  EXPECT_THAT(findings[0].waiting, ElementsAre(0, 1, 3));
  EXPECT_EQ(findings[0].confirmed_by, "");
  EXPECT_THAT(findings[0].evidence[0].text, HasSubstr("wait for 1 of 4 ranks to join communicator"));
  job_.Advance(540 * kSecondNs);
  findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "") << "nodes of one job start minutes apart";
  job_.Advance(60 * kSecondNs);
  findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "past-limit");
}

TEST_F(NeverJoinedTest, WhoCannotComeIsCertainAtOnce) {
  job_.Advance(11 * kSecondNs);
  for (const auto& [state, by] :
       {std::pair(ProcessState::kStopped, "stopped"), std::pair(ProcessState::kTraced, "stopped"),
        std::pair(ProcessState::kGone, "gone"), std::pair(ProcessState::kZombie, "gone")}) {
    job_.SetState(2, state);
    const std::vector<Finding> findings = Detect(job_);
    ASSERT_THAT(findings, SizeIs(1)) << by;
    EXPECT_EQ(findings[0].confirmed_by, by);
  }
}

TEST_F(NeverJoinedTest, WhoDoesNotWorkIsCertainUnlessItIsBlockedInTheKernel) {
  job_.SetIdle(2);
  job_.SetState(2, ProcessState::kSleeping);
  job_.Advance(295 * kSecondNs);
  std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "") << "it may wait for a cache that another fills";
  job_.Advance(10 * kSecondNs);
  findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
  job_.SetState(2, ProcessState::kBlocked);
  findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "");
}

// Its process was never seen: its rank is known all the same, as the job's communicator numbers ranks like
// the job.
TEST_F(NeverJoinedTest, ARankThatWasNeverSeenIsNamed) {
  job_.hosts().erase("host2");
  job_.Advance(11 * kSecondNs);
  const std::vector<Finding> findings = Detect(job_);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].host, "");
}

// Of another communicator any of the processes that are not in it may be the one: candidates.
TEST(NeverJoinedGroupTest, WhereSeveralMayBeMissingTheyAreCandidates) {
  FakeJob job(4);
  job.AddCommunicator(kGroup, {0, 1});
  for (const uint32_t rank : {0U, 1U}) {
    job.membership(rank, kGroup).phase = Phase::kInit;
    job.membership(rank, kGroup).phase_since_at_ns = job.now_ns();
    job.membership(rank, kGroup).rank_count = 3;
    job.membership(rank, kGroup).rank = rank + 1;  // not as the job numbers them
  }
  job.Advance(11 * kSecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, ElementsAre(2, 3));
  EXPECT_EQ(findings[0].confirmed_by, "");
}

TEST(NeverJoinedGroupTest, OfACommunicatorThatIsSetUpNobodyIsMissing) {
  FakeJob job(3);
  job.Advance(200 * kSecondNs);
  EXPECT_THAT(Detect(job), IsEmpty());
  // All are there, and one takes its time.
  job.membership(1).phase = Phase::kInit;
  job.membership(1).phase_since_at_ns = job.now_ns() - 100 * kSecondNs;
  EXPECT_THAT(Detect(job), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
