// The reference trainer: it trains over tensor, pipeline and data groups, notices what would be wrong, and
// fails on every rank when one calls another count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

TEST(TrainerTest, TheLossFallsAndReplicasStayEqual) {
  RunningJob job(8, {}, {Binary("hybrid_trainer"), "--iterations", "31", "--evaluate-every", "10"});
  ASSERT_TRUE(job.launcher().Wait(Seconds(60)));
  EXPECT_EQ(job.launcher().exit_code(), 0) << job.launcher().Errors();
  EXPECT_THAT(job.launcher().Output(), HasSubstr("31 iterations, loss"));
}

TEST(TrainerTest, GroupsOfOneAreLeftOut) {
  RunningJob job(2, {}, {Binary("hybrid_trainer"), "--iterations", "3", "--tensor", "1", "--pipeline", "1"});
  ASSERT_TRUE(job.launcher().Wait(Seconds(30)));
  EXPECT_EQ(job.launcher().exit_code(), 0) << job.launcher().Errors();
}

TEST(TrainerTest, AnotherCountOnOneRankFailsTheJobWithASentence) {
  RunningJob job(8, {}, {Binary("hybrid_trainer"), "--seconds", "60"});
  ASSERT_TRUE(job.AwaitAtWork(4, Seconds(20)));
  ASSERT_EQ(kill(job.Counters(5).pid, SIGUSR2), 0);
  ASSERT_TRUE(job.launcher().Wait(Seconds(20)));
  EXPECT_NE(job.launcher().exit_code(), 0);
  EXPECT_THAT(job.launcher().Errors(), HasSubstr("rank 5: one element fewer"));
  EXPECT_THAT(job.launcher().Errors(), HasSubstr("with different counts or types"));
}

TEST(TrainerTest, RanksThatCannotBeDividedAndOptionsThatDoNotExistAreRefused) {
  const CommandResult divided =
      RunC4({"run", "-n", "3", "--no-monitor", "--", Binary("hybrid_trainer"), "--iterations", "1"});
  EXPECT_EQ(divided.exit_code, 2);
  EXPECT_THAT(divided.errors, HasSubstr("cannot be divided"));
  const CommandResult unknown =
      RunC4({"run", "-n", "1", "--no-monitor", "--", Binary("hybrid_trainer"), "--fast"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("--fast is no option"));
}

}  // namespace
}  // namespace c4::service_test
