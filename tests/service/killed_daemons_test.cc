// kill -9 of the agent and of the master in the middle of a run: the job does not notice, both come back and
// pick up where they were.
#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

constexpr int kRanks = 4;

std::vector<std::string> Program() {
  return {Binary("all_reduce_perf"), "-b", "256K", "-e", "256K", "-N", "0", "--pause-ms", "10"};
}

struct Pace {
  double per_second = 0;
  Seconds longest_standstill{0};
};

// How rank 0's count of finished operations moves within `time`.
Pace MeasurePace(const RunningJob& job, Seconds time) {
  const auto start = Clock::now();
  const uint64_t first = job.Counters(0).finished;
  uint64_t last = first;
  auto last_step = start;
  Pace pace;
  while (Clock::now() - start < time) {
    const uint64_t now = job.Counters(0).finished;
    pace.longest_standstill = std::max<Seconds>(pace.longest_standstill, Clock::now() - last_step);
    if (now != last) last_step = Clock::now();
    last = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pace.per_second = static_cast<double>(last - first) / Seconds(Clock::now() - start).count();
  return pace;
}

// The ranks are known to the present master, and by an agent that has just reported.
bool IsWatched(const RunningJob& job) {
  const Json status = job.Status();
  return status["ranks"].size() == kRanks && !status["agents"].empty() &&
         status["agents"][0]["last_batch_age_s"] < 2.0;
}

class KilledDaemonsTest : public testing::Test {
 protected:
  // Kills the daemon and waits until another one is in its place.
  static void KillAndAwait(RunningJob& job, const std::string& name) {
    const pid_t before = job.DaemonPid(name);
    ASSERT_GT(before, 0) << name;
    const Json entry = job.MasterEntry();
    ASSERT_EQ(kill(before, SIGKILL), 0);
    EXPECT_TRUE(Eventually(Seconds(10),
                           [&] {
                             const pid_t now = job.DaemonPid(name);
                             return now > 0 && now != before;
                           }))
        << name << " was not started again";
    if (name == "c4d_master") {
      EXPECT_TRUE(Eventually(Seconds(10), [&] {
        const Json now = job.MasterEntry();
        return now.contains("epoch") && now["epoch"] != entry["epoch"];
      })) << "the new master did not publish itself";
    }
  }

  static void ExpectNamed(RunningJob& job, int rank) {
    const pid_t pid = job.Counters(rank).pid;
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    Json verdicts;
    EXPECT_TRUE(Eventually(Seconds(15), [&] {
      verdicts = RunningJob::Open(job.Verdicts());
      return verdicts.size() == 1 && verdicts[0]["state"] == "confirmed" &&
             verdicts[0]["culprit"]["pid"] == pid;
    })) << verdicts.dump(2);
    kill(pid, SIGCONT);
    EXPECT_TRUE(Eventually(Seconds(8), [&] { return RunningJob::Open(job.Verdicts()).empty(); }));
  }
};

TEST_F(KilledDaemonsTest, TheJobDoesNotNoticeAndAStopAfterwardsIsNamed) {
  RunningJob job(kRanks, {}, Program());
  ASSERT_TRUE(job.AwaitAtWork(50, Seconds(20)));
  const Pace before = MeasurePace(job, Seconds(3));
  ASSERT_GT(before.per_second, 1);
  for (const std::string name : {"c4a", "c4d_master"}) {
    SCOPED_TRACE(name);
    const pid_t victim = job.DaemonPid(name);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    const Pace after = MeasurePace(job, Seconds(3));
    printf("%s killed: %.0f operations/s before, %.0f after, longest standstill %.3f s\n", name.c_str(),
           before.per_second, after.per_second, after.longest_standstill.count());
    EXPECT_GT(after.per_second, 0.6 * before.per_second);
    EXPECT_LT(after.longest_standstill, Seconds(1));
    EXPECT_TRUE(Eventually(Seconds(10), [&] {
      const pid_t now = job.DaemonPid(name);
      return now > 0 && now != victim;
    })) << "it was not started again";
  }
  EXPECT_TRUE(Eventually(Seconds(15), [&] { return IsWatched(job); })) << job.Status().dump(2);
  EXPECT_EQ(RunningJob::Open(job.Verdicts()).size(), 0U) << "a killed daemon was taken for a hang";
  ExpectNamed(job, 2);
}

TEST_F(KilledDaemonsTest, BothAtOnceComeBack) {
  RunningJob job(kRanks, {}, Program());
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const pid_t agent = job.DaemonPid("c4a");
  const pid_t master = job.DaemonPid("c4d_master");
  ASSERT_GT(agent, 0);
  ASSERT_GT(master, 0);
  kill(agent, SIGKILL);
  kill(master, SIGKILL);
  EXPECT_TRUE(Eventually(Seconds(15), [&] {
    return job.DaemonPid("c4a") > 0 && job.DaemonPid("c4a") != agent && job.DaemonPid("c4d_master") > 0 &&
           job.DaemonPid("c4d_master") != master && IsWatched(job);
  })) << job.Status().dump(2);
  ExpectNamed(job, 0);
}

TEST_F(KilledDaemonsTest, AnOpenVerdictOutlivesTheMaster) {
  RunningJob job(kRanks, {}, Program());
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const pid_t pid = job.Counters(1).pid;
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  Json before;
  ASSERT_TRUE(Eventually(Seconds(15), [&] {
    const std::vector<Json> open = RunningJob::Open(job.Verdicts());
    if (!open.empty()) before = open[0];
    return !open.empty() && open[0]["state"] == "confirmed";
  }));
  KillAndAwait(job, "c4d_master");
  ASSERT_TRUE(Eventually(Seconds(15), [&] { return IsWatched(job); })) << job.Status().dump(2);
  // Long enough for a second verdict to come up, if it wrongly did.
  std::this_thread::sleep_for(std::chrono::seconds(4));
  const Json after = job.Verdicts();
  ASSERT_EQ(after.size(), 1U) << after.dump(2);
  EXPECT_EQ(after[0]["id"], before["id"]);
  EXPECT_EQ(after[0]["state"], "confirmed");
  EXPECT_EQ(after[0]["culprit"], before["culprit"]);
  EXPECT_NEAR(after[0]["since_unix_s"].get<double>(), before["since_unix_s"].get<double>(), 1.0);

  kill(pid, SIGCONT);
  EXPECT_TRUE(Eventually(Seconds(8), [&] { return RunningJob::Open(job.Verdicts()).empty(); }));
  const Json cleared = job.Verdicts();
  ASSERT_EQ(cleared.size(), 1U) << cleared.dump(2);
  EXPECT_EQ(cleared[0]["id"], before["id"]);
}

// Each would judge from those agents alone that came to it.
TEST(TwoMastersTest, TheEarlierOneOfAJobStepsDown) {
  const ScratchDir scratch;
  const auto start = [&](const std::string& name) {
    return std::make_unique<Process>(
        std::vector<std::string>{Binary("c4d_master"), "--job", "twice", "--directory",
                                 scratch.path() + "/masters", "--listen", "127.0.0.1:0", "--http-address",
                                 "127.0.0.1:0"},
        std::vector<std::string>(), scratch.path() + "/" + name);
  };
  const auto published = [&] {
    const CommandResult status = RunC4({"status", "--json", "--job", "twice", "--run-dir", scratch.path()});
    const Json json = Json::parse(status.output, nullptr, false);
    return json.is_object() ? json["master_epoch"].get<std::string>() : std::string();
  };
  const auto earlier = start("earlier");
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return !published().empty(); })) << earlier->Errors();
  const std::string epoch = published();
  const auto later = start("later");
  ASSERT_TRUE(earlier->Wait(Seconds(10))) << "it goes on beside the later one";
  EXPECT_EQ(earlier->exit_code(), 0);
  EXPECT_NE(earlier->Errors().find("stepping down"), std::string::npos) << earlier->Errors();
  EXPECT_NE(published(), epoch);
  EXPECT_FALSE(published().empty());
  EXPECT_FALSE(later->Wait(Seconds(3)));
}

}  // namespace
}  // namespace c4::service_test
