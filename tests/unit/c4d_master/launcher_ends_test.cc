// Ends that were seen as they passed, where a launcher ends within milliseconds what is left of a broken job.
#include <csignal>
#include <optional>

#include "c4d_master/detectors/crash.h"
#include "c4d_master/verdicts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Ranks whose ends were seen as they passed, eight a host: a launcher ends within milliseconds what is left.
class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() : job_(16, 8) {
    job_.Complete(20);
    for (uint32_t rank = 0; rank < 16; ++rank) job_.Enter(rank);
    begin_ns_ = job_.now_ns();
    for (auto& [name, host] : job_.hosts()) host.clock_error_ns = 2 * kMillisecondNs;
  }

  // `after_ms` the beginning; `status` as wait(2) gives it.
  void End(uint32_t rank, int64_t after_ms, std::optional<int32_t> status) {
    job_.SetState(rank, ProcessState::kGone);
    Health& health = job_.process(rank).health;
    health.exit_at_ns = begin_ns_ + after_ms * kMillisecondNs;
    health.exit_status = status;
  }
  void EndOthers(uint32_t but, int64_t after_ms, int32_t status) {
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if (rank != but) End(rank, after_ms + rank % 8, status);
    }
  }
  // All ends lie within a look of the agents.
  std::vector<Finding> Detect(int64_t after_ns = kSecondNs) {
    job_.Advance(after_ns);
    return DetectCrashes(job_.Snapshot(), {});
  }
  void ExpectNamed(const std::vector<Finding>& findings, int32_t rank) {
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].kind, CulpritKind::kRank);
    EXPECT_EQ(findings[0].rank, rank);
    EXPECT_EQ(findings[0].confirmed_by, "gone");
  }
  static constexpr int32_t kException = 1 << 8;

  FakeJob job_;
  int64_t begin_ns_ = 0;
};

TEST_F(LauncherTest, TheFirstToEndIsNamedThoughAllDieWithinMilliseconds) {
  End(11, 0, kException);
  EndOthers(11, 30, SIGTERM);
  const std::vector<Finding> findings = Detect();
  ExpectNamed(findings, 11);
  EXPECT_THAT(findings[0].waiting, SizeIs(15));
  bool told = false;
  for (const Evidence& evidence : findings[0].evidence) {
    told = told || evidence.text.find("15 were killed by SIGTERM (signal 15)") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

// The kernel takes the largest when memory is short.
TEST_F(LauncherTest, OneThatTheKernelKilledIsNamedAmongThoseThatTheLauncherEnds) {
  End(5, 0, SIGKILL);
  EndOthers(5, 100, SIGTERM);
  ExpectNamed(Detect(), 5);
}

// A launcher that ends the others in the same way: only the kernel's log tells whose end was not its doing.
TEST_F(LauncherTest, TheKernelsLogTellsWhomItKilledForWantOfMemory) {
  End(5, 0, SIGKILL);
  EndOthers(5, 100, SIGKILL);
  std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
  Host& host = job_.host_of(5);
  host.memory_kills = {{1005, begin_ns_ - 3600 * kSecondNs}, {1004, begin_ns_}};
  EXPECT_THAT(Detect(0)[0].confirmed_by, IsEmpty()) << "another process, and one that had its number before";
  host.memory_kills.emplace_back(1005, begin_ns_ - 20 * kMillisecondNs);
  findings = Detect(0);
  ExpectNamed(findings, 5);
  EXPECT_THAT(findings[0].suggested_action, ::testing::HasSubstr("memory"));
}

// A rank that dies as it starts has joined nothing yet; the launcher ends the others because of it.
TEST_F(LauncherTest, OneThatHadJoinedNothingIsNamedWhereTheOthersAreEndedWithIt) {
  job_.process(5).communicators.clear();
  End(5, 0, kException);
  EndOthers(5, 100, SIGTERM);
  const std::vector<Finding> findings = Detect();
  ExpectNamed(findings, 5);
  EXPECT_THAT(findings[0].waiting, SizeIs(15));
}

// A helper with the rank's number, or a rank of a life before: it is not why somebody dies half a minute
// later.
TEST_F(LauncherTest, OneThatHadJoinedNothingDoesNotHideALaterCrash) {
  job_.process(5).communicators.clear();
  End(5, -30'000, std::nullopt);
  End(11, 0, SIGKILL);
  ExpectNamed(Detect(), 11);
}

TEST_F(LauncherTest, AJobThatIsEndedAsAWholeIsNobodysFault) {
  EndOthers(99, 0, SIGTERM);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
}

// The ends of one half are heard before those of the other.
TEST_F(LauncherTest, TheFirstOfManyThatEndAlikeIsNotCertainBeforeTheRestCanHaveFollowed) {
  End(3, 0, SIGTERM);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    if (rank != 3) End(rank, 20 + rank, SIGTERM);
  }
  std::vector<Finding> findings = Detect(400 * kMillisecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
  ExpectNamed(Detect(2 * kSecondNs), 3);  // nobody followed
}

// Ranks of which each reads the end of the others as an error of its own.
TEST_F(LauncherTest, AnExceptionOnAllRanksIsNobodys) {
  EndOthers(99, 0, kException);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
}

TEST_F(LauncherTest, OfTwoThatNobodyCanOrderTheOneWithAFaultOfItsOwnIsNamed) {
  End(3, 0, SIGTERM);
  End(12, 1, SIGSEGV);  // on the other host: its clock may be off by as much
  for (uint32_t rank = 0; rank < 16; ++rank) {
    if (rank != 3 && rank != 12) End(rank, 50, SIGTERM);
  }
  ExpectNamed(Detect(), 12);
}

TEST_F(LauncherTest, OneHostHasOneClock) {
  End(3, 0, SIGKILL);
  End(4, 3, SIGSEGV);
  for (uint32_t rank = 0; rank < 16; ++rank) {
    if (rank != 3 && rank != 4) End(rank, 50, SIGTERM);
  }
  ExpectNamed(Detect(), 3);
}

TEST_F(LauncherTest, VictimsThatLostAPeerAreNotNamed) {
  End(9, 20, SIGSEGV);
  for (uint32_t rank = 0; rank < 16; ++rank) {
    if (rank == 9) continue;
    End(rank, 60, kException);
    job_.membership(rank).phase = Phase::kFailed;
    job_.membership(rank).gave_up = {begin_ns_ + 30 * kMillisecondNs, 6, 9};
  }
  ExpectNamed(Detect(), 9);
}

// Its GPU failed; the watchdog gave the communicator up, and all the others lost it.
TEST_F(LauncherTest, WhoFailedByItselfFirstIsNamedThoughItDiesLast) {
  for (uint32_t rank = 0; rank < 16; ++rank) {
    const bool culprit = rank == 6;
    End(rank, culprit ? 400 : 300, culprit ? SIGABRT : kException);
    job_.membership(rank).phase = Phase::kFailed;
    job_.membership(rank).gave_up = {begin_ns_ + (culprit ? 0 : 100) * kMillisecondNs, culprit ? 1 : 6, -1};
  }
  const std::vector<Finding> findings = Detect();
  ExpectNamed(findings, 6);
  EXPECT_NE(findings[0].suggested_action.find("CUDA"), std::string::npos);
}

// It found its GPU lost, aborted what it had and left; the launcher ended the others.
TEST_F(LauncherTest, WhoAbortsAndLeavesFirstIsNamed) {
  End(6, 40, kException);
  job_.membership(6).phase = Phase::kAborted;
  job_.membership(6).gave_up = {begin_ns_ + 10 * kMillisecondNs, 0, -1};
  EndOthers(6, 60, SIGTERM);
  ExpectNamed(Detect(), 6);
}

// Its watchdog gave up waiting for somebody else, who hangs.
TEST_F(LauncherTest, WhoGivesUpWaitingIsAVictim) {
  begin_ns_ += 600 * kSecondNs;
  job_.Advance(600 * kSecondNs);
  End(6, 40, SIGABRT);
  job_.membership(6).phase = Phase::kAborted;
  job_.membership(6).gave_up = {begin_ns_, 0, -1};
  EXPECT_THAT(Detect(), IsEmpty());
}

// A script that has come to its end, without a word to its communicators, is no crash.
TEST_F(LauncherTest, WhoExitsInOrderHasNotCrashed) {
  End(0, 0, 0);
  End(1, 700, 0);
  EXPECT_THAT(Detect(), IsEmpty());
}

TEST_F(LauncherTest, NothingIsCertainBeforeAllHostsWereHeard) {
  job_.Silence("host1");
  End(3, 30, SIGTERM);
  std::vector<Finding> findings = Detect(50 * kMillisecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty()) << "host1 may yet tell of an earlier end";
  job_.Unsilence("host1");
  End(11, 0, SIGSEGV);
  ExpectNamed(Detect(50 * kMillisecondNs), 11);
}

// Who was not seen to end, and whom nobody waits for, may have come to its end.
TEST(CrashOfTheUnseen, IsNotCertainWhileNobodyWaits) {
  FakeJob job(4);
  job.Complete(20);
  job.SetState(2, ProcessState::kGone);
  job.Advance(kSecondNs);
  std::vector<Finding> findings = DetectCrashes(job.Snapshot(), {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].confirmed_by, IsEmpty());
  job.Enter(1);
  job.Advance(kSecondNs);
  findings = DetectCrashes(job.Snapshot(), {});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "gone");
}

}  // namespace
}  // namespace c4::c4d
