// Floods from one client at each door: the rank that stops meanwhile is named in time, and the daemons'
// memory stays within its bound.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <thread>

#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

constexpr Seconds kSuspectLimit(5);
// The job's agent has a run directory of its own somewhere below.
std::string SocketBelow(const std::string& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().filename() == "agent.sock") return entry.path();
  }
  ADD_FAILURE() << "no agent.sock below " << directory;
  return directory;
}

// `command` gets the job, at work, for the target of its attack.
void NamedUnder(const std::function<std::vector<std::string>(const RunningJob&)>& command) {
  RunningJob job(4, {}, {Binary("all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "--pause-ms", "5"});
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  const ScratchDir output;
  Process attacker(command(job), {}, output.path() + "/attacker");
  std::this_thread::sleep_for(Seconds(2));
  const pid_t pid = job.Counters(2).pid;
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const auto onset = Clock::now();
  std::vector<Json> open;
  EXPECT_TRUE(Eventually(kSuspectLimit, [&] { return !(open = RunningJob::Open(job.Verdicts())).empty(); }));
  EXPECT_LE(Seconds(Clock::now() - onset), kSuspectLimit);
  for (const Json& verdict : open) EXPECT_EQ(verdict["culprit"]["rank"], 2) << verdict.dump(2);
  kill(pid, SIGCONT);
  EXPECT_TRUE(attacker.Wait(Seconds(15)));
  EXPECT_EQ(attacker.exit_code(), 0) << attacker.Errors();
  // It got as far as to attack.
  EXPECT_GT(std::strtol(attacker.Output().c_str(), nullptr, 10), 100) << attacker.Output();
  for (const std::string daemon : {"c4d_master", "c4a"}) {
    const size_t peak = PeakKib(job.DaemonPid(daemon));
    EXPECT_GT(peak, 0U) << daemon;
    EXPECT_LT(peak, kDaemonKib) << daemon;
  }
}

TEST(Flood, RapidReset) {
  C4_ATTACK("flood: HTTP/2 rapid reset");
  NamedUnder([](const RunningJob& job) -> std::vector<std::string> {
    return {"/usr/bin/python3", Script("rapid_reset.py"), job.MasterEntry()["address"], "7", "2"};
  });
}

struct HttpKind {
  const char* kind;
  const char* attack;
};

class HttpFlood : public testing::TestWithParam<HttpKind> {};

TEST_P(HttpFlood, OfTheMaster) {
  C4_ATTACK(GetParam().attack);
  NamedUnder([](const RunningJob& job) -> std::vector<std::string> {
    return {"/usr/bin/python3", Script("flood.py"), GetParam().kind, job.MasterEntry()["http_address"], "7"};
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, HttpFlood,
                         testing::Values(HttpKind{"loris", "slow loris: HTTP heads that never end"},
                                         HttpKind{"body", "oversize: a body of 2 GB with GET /healthz"},
                                         HttpKind{"garbage", "garbage: at the master's HTTP port"}),
                         [](const auto& kind) { return std::string(kind.param.kind); });

TEST(Flood, GarbageAtTheMastersGrpc) {
  C4_ATTACK("garbage: at the master's gRPC port");
  NamedUnder([](const RunningJob& job) -> std::vector<std::string> {
    return {"/usr/bin/python3", Script("flood.py"), "garbage", job.MasterEntry()["address"], "7"};
  });
}

TEST(Flood, ControlSocket) {
  C4_ATTACK("flood: 1,500 connections of one user to agent.sock");
  NamedUnder([](const RunningJob& job) -> std::vector<std::string> {
    return {"/usr/bin/python3", Script("flood.py"), "control", SocketBelow(job.base_dir()), "7"};
  });
}

}  // namespace
}  // namespace c4::service_test
