// A rank that is killed: the others get ncclRemoteError, the launcher says which rank it was, nothing stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <signal.h>
#include <sstream>

#include "cli/base/process.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

bool Ended(pid_t pid) {
  const std::optional<cli::ProcessStat> stat = cli::ReadProcessStat(pid);
  return !stat.has_value() || stat->state == 'Z';
}

TEST(KilledRankTest, TheOthersFailWithinFiveSecondsAndTheLauncherNamesIt) {
  constexpr int kRanks = 4;
  constexpr int kVictim = 2;
  // The launcher's own patience is longer than the promise that is tested here.
  RunningJob job(kRanks, {"--grace", "15"},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const std::vector<RankCounters> ranks = job.Counters();
  const std::vector<pid_t> processes = job.Processes();
  ASSERT_GE(processes.size(), kRanks + 2U) << "ranks, agent and master";

  const auto killed = Clock::now();
  ASSERT_EQ(kill(ranks[kVictim].pid, SIGKILL), 0);
  for (const RankCounters& rank : ranks) {
    EXPECT_TRUE(Eventually(Seconds(5) - (Clock::now() - killed), [&] { return Ended(rank.pid); }))
        << "pid " << rank.pid << " still waits for the dead rank";
  }
  ASSERT_TRUE(job.launcher().Wait(Seconds(10)));
  EXPECT_EQ(job.launcher().exit_code(), 128 + SIGKILL);
  const std::string errors = job.launcher().Errors();
  EXPECT_THAT(errors, HasSubstr("rank 2 was ended by signal 9 (SIGKILL)"));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_THAT(errors, HasSubstr("rank " + std::to_string(rank) + ", pid"));
  }
  EXPECT_THAT(errors, HasSubstr("remote")) << "the others did not fail with ncclRemoteError";
  for (const pid_t pid : processes) EXPECT_TRUE(Ended(pid)) << pid;
  EXPECT_TRUE(job.RunDirIsClean());
}

// All ranks are gone half a second later, and with them what the job would be watched for: the launcher asks
// first.
TEST(KilledRankTest, TheVerdictComesBeforeTheExitStatuses) {
  constexpr int kVictim = 2;
  RunningJob job(4, {}, {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const pid_t victim = job.Counters(kVictim).pid;
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  ASSERT_TRUE(job.launcher().Wait(Seconds(15)));
  EXPECT_EQ(job.launcher().exit_code(), 128 + SIGKILL);
  const std::string errors = job.launcher().Errors();
  const size_t verdict = errors.find("CONFIRMED crash: rank 2 (pid " + std::to_string(victim));
  const size_t statuses =
      errors.find("rank 2 was ended by signal 9 (SIGKILL); ranks 0, 1, 3 exited with code");
  ASSERT_NE(verdict, std::string::npos) << errors;
  ASSERT_NE(statuses, std::string::npos) << errors;
  EXPECT_LT(verdict, statuses);
  EXPECT_TRUE(job.RunDirIsClean());
}

// Each survivor warns once, though several of its communicators fail and later calls on them do, and says
// which rank of which job it is; who died stands there as a process.
TEST(KilledRankTest, WarningsComeOncePerProcessAndNameJobAndRank) {
  constexpr int kRanks = 8;
  RunningJob job(kRanks, {"--job", "night"}, {Binary("hybrid_trainer"), "--seconds", "60"});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));  // of the world: one in ten iterations
  const pid_t victim = job.Counters(3).pid;
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  ASSERT_TRUE(job.launcher().Wait(Seconds(15)));
  const std::string errors = job.launcher().Errors();
  std::map<std::string, int> warnings;  // by rank
  bool victim_named = false;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("] C4 WARN ");
    if (line.find(" C4 WARN ") == std::string::npos) continue;
    const size_t who = line.find(" [job night, rank ");
    ASSERT_NE(at, std::string::npos) << line;
    ASSERT_NE(who, std::string::npos) << line;
    ++warnings[line.substr(who, at - who)];
    victim_named = victim_named || line.find("(pid " + std::to_string(victim) + " at ") != std::string::npos;
  }
  EXPECT_LE(warnings.size(), kRanks - 1U) << errors;
  EXPECT_GE(warnings.size(), 3U) << errors;  // who had to do with the victim
  for (const auto& [rank, count] : warnings) EXPECT_EQ(count, 1) << rank << "\n" << errors;
  EXPECT_TRUE(victim_named) << errors;
}

// The morning after: launcher, master and run directory are gone.
TEST(KilledRankTest, WhatTheMasterSaidOutlivesTheJob) {
  RunningJob job(4, {"--job", "night"},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  ASSERT_EQ(kill(job.Counters(2).pid, SIGKILL), 0);
  ASSERT_TRUE(job.launcher().Wait(Seconds(15)));
  const std::string told = job.launcher().Errors();
  EXPECT_THAT(told, HasSubstr("the evidence: c4 verdicts --job night -v"));
  EXPECT_TRUE(job.RunDirIsClean());

  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--log-dir", job.log_root()});
    return RunC4(words);
  };
  const CommandResult jobs = ask({"jobs"});
  EXPECT_THAT(jobs.output, testing::AllOf(HasSubstr("night"), HasSubstr("ended"), HasSubstr("rank 2")));
  const CommandResult verdicts = ask({"verdicts", "--job", "night", "--run-dir", job.base_dir()});
  EXPECT_THAT(verdicts.output, testing::AllOf(HasSubstr("job night ended at"), HasSubstr("crash: rank 2")))
      << verdicts.errors;
  const CommandResult status = ask({"status", "--job", "night", "--run-dir", job.base_dir()});
  EXPECT_EQ(status.exit_code, 0) << status.errors;
  EXPECT_THAT(status.output, testing::AllOf(HasSubstr("job night ended at"), HasSubstr("4 ranks")));
  EXPECT_NE(ask({"verdicts", "--job", "other", "--run-dir", job.base_dir()}).exit_code, 0);
}

TEST(KilledRankTest, AProgramThatTheMasterNeverSawIsNotWaitedFor) {
  const ScratchDir scratch;
  const auto start = Clock::now();
  const CommandResult result =
      RunC4({"run", "-n", "2", "--run-dir", scratch.path(), "--", "sh", "-c", "sleep 1; kill -9 $$"});
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_LT(Clock::now() - start, Seconds(5)) << result.errors;
}

TEST(KilledRankTest, AStoppedPeerDoesNotKeepTheJobAlive) {
  RunningJob job(3, {}, {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  const std::vector<RankCounters> ranks = job.Counters();
  kill(ranks[0].pid, SIGSTOP);
  kill(ranks[1].pid, SIGKILL);
  ASSERT_TRUE(job.launcher().Wait(Seconds(10)));
  EXPECT_EQ(job.launcher().exit_code(), 128 + SIGKILL);
  EXPECT_THAT(job.launcher().Errors(), HasSubstr("rank 1 was ended by signal 9"));
}

TEST(KilledRankTest, AKilledLauncherLeavesNoProcess) {
  RunningJob job(3, {}, {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  const std::vector<pid_t> processes = job.Processes();
  kill(job.Counters(0).pid, SIGSTOP);
  job.launcher().Signal(SIGKILL);
  ASSERT_TRUE(job.launcher().Wait(Seconds(5)));
  for (const pid_t pid : processes) {
    EXPECT_TRUE(Eventually(Seconds(5), [&] { return Ended(pid); })) << pid;
  }
  EXPECT_TRUE(Eventually(Seconds(2), [&] { return job.MasterEntry().empty(); }))
      << "the master left its entry behind";
  // The next launcher removes what it could not.
  const CommandResult next =
      RunC4({"run", "-n", "1", "--no-monitor", "--run-dir", job.base_dir(), "--", "true"});
  EXPECT_EQ(next.exit_code, 0) << next.errors;
  EXPECT_TRUE(job.RunDirIsClean());
}

}  // namespace
}  // namespace c4::service_test
