// A stopped rank is named, and only it: each in turn, inside an operation and between two of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "cli/exit_codes.h"
#include "service/address.h"
#include "service/directory.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

constexpr int kRanks = 4;
// A promise of the product.
constexpr Seconds kSuspectLimit(5);

class StoppedRankTest : public testing::Test {
 protected:
  // Stops `rank`, by then known to be at `pid`, and follows the verdicts until one is confirmed.
  Json StopAndAwait(RunningJob& job, int rank, pid_t pid) {
    const auto onset = Clock::now();
    EXPECT_EQ(kill(pid, SIGSTOP), 0);
    Json verdict;
    Seconds suspected(0);
    const bool confirmed = Eventually(Seconds(15), [&] {
      for (const Json& open : RunningJob::Open(job.Verdicts())) {
        EXPECT_EQ(open["culprit"]["rank"], rank) << open.dump(2);
        if (suspected == Seconds(0)) suspected = Clock::now() - onset;
        verdict = open;
        if (open["state"] == "confirmed") return true;
      }
      return false;
    });
    EXPECT_TRUE(confirmed) << "rank " << rank << " was stopped; the last verdict: " << verdict.dump(2);
    EXPECT_GT(suspected, Seconds(0));
    EXPECT_LE(suspected, kSuspectLimit);
    if (confirmed) CheckVerdict(verdict, rank, pid);
    return verdict;
  }

  static void CheckVerdict(const Json& verdict, int rank, pid_t pid) {
    SCOPED_TRACE(verdict.dump(2));
    EXPECT_EQ(verdict["syndrome"], "non-communication hang");
    EXPECT_EQ(verdict["culprit"]["kind"], "rank");
    EXPECT_EQ(verdict["culprit"]["rank"], rank);
    EXPECT_EQ(verdict["culprit"]["pid"], pid);
    EXPECT_EQ(verdict["culprit"]["host"], service::HostName());
    EXPECT_EQ(verdict["culprit"]["process_state"], "stopped");
    EXPECT_EQ(verdict["confirmed_by"], "stopped");
    EXPECT_FALSE(verdict["evidence"].empty());
    EXPECT_FALSE(verdict["suggested_action"].get<std::string>().empty());
    std::vector<int> others;
    for (int other = 0; other < kRanks; ++other) {
      if (other != rank) others.push_back(other);
    }
    EXPECT_EQ(verdict["waiting"].get<std::vector<int>>(), others);
  }

  // Lets it go on; the verdict is cleared and the job works.
  void ResumeAndAwait(RunningJob& job, pid_t pid) {
    const uint64_t before = job.LeastFinished();
    EXPECT_EQ(kill(pid, SIGCONT), 0);
    EXPECT_TRUE(Eventually(Seconds(8), [&] { return RunningJob::Open(job.Verdicts()).empty(); }))
        << job.Verdicts().dump(2);
    EXPECT_TRUE(Eventually(Seconds(5), [&] { return job.LeastFinished() > before + 5; }));
  }
};

// Fails if the culprit were read from the ranks that wait, or were always the same.
TEST_F(StoppedRankTest, EachRankInTurnIsTheOneNamed) {
  RunningJob job(kRanks, {},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  for (int rank = 0; rank < kRanks && !HasFailure(); ++rank) {
    SCOPED_TRACE(rank);
    const pid_t pid = job.Counters(rank).pid;
    ASSERT_GT(pid, 0);
    StopAndAwait(job, rank, pid);
    ResumeAndAwait(job, pid);
  }
  // No other verdict came and went between our looks.
  std::vector<int> named;
  for (const Json& verdict : job.Verdicts()) named.push_back(verdict["culprit"]["rank"]);
  EXPECT_THAT(named, testing::ElementsAre(0, 1, 2, 3)) << job.Verdicts().dump(2);
}

TEST_F(StoppedRankTest, ARankStoppedBetweenTwoOperationsIsNamed) {
  RunningJob job(kRanks, {},
                 {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "--pause-ms", "400"});
  ASSERT_TRUE(job.AwaitAtWork(3, Seconds(20)));
  constexpr int kRank = 1;
  const pid_t pid = job.Counters(kRank).pid;
  ASSERT_GT(pid, 0);
  // Its counters say whether the stop hit the pause: as many operations finished as were called.
  bool between = false;
  for (int attempt = 0; attempt < 20 && !between; ++attempt) {
    const uint64_t finished = job.Counters(kRank).finished;
    ASSERT_TRUE(Eventually(Seconds(5), [&] { return job.Counters(kRank).finished > finished; }));
    kill(pid, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const RankCounters counters = job.Counters(kRank);
    between = counters.called == counters.finished;
    if (!between) kill(pid, SIGCONT);
  }
  ASSERT_TRUE(between);
  StopAndAwait(job, kRank, pid);
  const RankCounters counters = job.Counters(kRank);
  EXPECT_EQ(counters.called, counters.finished) << "it was not between two operations";
  ResumeAndAwait(job, pid);
}

TEST_F(StoppedRankTest, UnderMutualTlsItIsNamedToItsOwnerAndTheMasterHearsNobodyInClear) {
  RunningJob job(kRanks, {"--tls", "--c4p"},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const pid_t pid = job.Counters(2).pid;
  StopAndAwait(job, 2, pid);
  ResumeAndAwait(job, pid);
  const CommandResult paths = RunC4({"topology", "--run-dir", job.base_dir()});
  EXPECT_EQ(paths.exit_code, 0) << paths.errors;

  const auto entries = service::MasterDirectory(job.base_dir() + "/masters").List();
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2U);
  for (const service::MasterEntry& entry : *entries) {
    const bool paths_asked = entry.job == service::kPathMasterName;
    const CommandResult in_clear =
        RunC4({paths_asked ? "topology" : "verdicts", paths_asked ? "--path-master" : "--master",
               entry.address, "--key-file", entry.key_file});
    EXPECT_EQ(in_clear.exit_code, cli::kExitUnreachable) << in_clear.output;
    EXPECT_THAT(in_clear.errors, testing::HasSubstr("asks for TLS"));
  }
}

TEST_F(StoppedRankTest, VerdictsTellTheStateByTheirExitCode) {
  RunningJob job(kRanks, {"--job", "exit-codes"},
                 {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  const std::vector<std::string> ask = {"verdicts", "--run-dir", job.base_dir(), "--job", "exit-codes"};
  CommandResult result = RunC4(ask);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, testing::HasSubstr("job exit-codes: no open verdict"));

  // Started before the fault, ended by the end of the job.
  const ScratchDir scratch;
  Process watch({Binary("c4"), "verdicts", "--watch", "--json", "--run-dir", job.base_dir()}, {},
                scratch.path() + "/watch");
  const pid_t pid = job.Counters(3).pid;
  StopAndAwait(job, 3, pid);
  result = RunC4(ask);
  EXPECT_EQ(result.exit_code, 2) << result.errors;
  EXPECT_THAT(result.output, testing::HasSubstr("rank 3 (pid " + std::to_string(pid)));
  ResumeAndAwait(job, pid);
  EXPECT_EQ(RunC4(ask).exit_code, 0);

  job.launcher().Signal(SIGTERM);
  ASSERT_TRUE(job.launcher().Wait(Seconds(15)));
  EXPECT_EQ(job.launcher().exit_code(), 128 + SIGTERM);
  ASSERT_TRUE(watch.Wait(Seconds(20))) << "--watch goes on after the job's end";
  EXPECT_EQ(watch.exit_code(), 0) << watch.Errors();
  std::vector<std::string> states;
  std::istringstream lines(watch.Output());
  for (std::string line; std::getline(lines, line);) {
    const Json verdict = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(verdict.is_object()) << line;
    EXPECT_EQ(verdict["culprit"]["rank"], 3);
    if (states.empty() || states.back() != verdict["state"]) states.push_back(verdict["state"]);
  }
  ASSERT_FALSE(states.empty());
  EXPECT_EQ(states.back(), "cleared");
  EXPECT_THAT(states, testing::Contains("confirmed"));
}

}  // namespace
}  // namespace c4::service_test
