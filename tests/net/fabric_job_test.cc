// Jobs in an emulated fabric, started and broken as a user would: `c4 run --fabric`, `c4 inject`, the same
// without the rights for it, and with the launcher killed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "fabric/emulator/cgroup.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/inject/injector.h"
#include "fabric/inject/job_view.h"
#include "tests/service/harness.h"

namespace c4::net_test {
namespace {

using service_test::Binary;
using service_test::CommandResult;
using service_test::Eventually;
using service_test::Json;
using service_test::Process;
using service_test::RunC4;
using service_test::RunningJob;
using service_test::ScratchDir;
using service_test::Seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FabricJobTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
  }
  // Fabrics that `c4 run` made for itself.
  static std::vector<std::string> JobFabrics() {
    std::vector<std::string> names;
    for (const std::string& name : fabric::Fabric::Names()) {
      if (name.starts_with("j")) names.push_back(name);
    }
    return names;
  }
  static std::vector<std::string> Trainer() {
    return {Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-N", "0", "-n", "5", "--pause-ms", "5"};
  }
};

TEST_F(FabricJobTest, RanksRunOnTheirHosts) {
  const ScratchDir scratch;
  const CommandResult result = RunC4(
      {"run", "-n", "4", "--no-monitor", "--run-dir", scratch.path(), "--fabric", "2x2x1", "--", "sh", "-c",
       ("echo rank $RANK on $(hostname) local $LOCAL_RANK of $LOCAL_WORLD_SIZE, $NCCL_COMM_ID "
        "$NCCL_SOCKET_IFNAME $(basename $C4_RUN_DIR)")});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("rank 0 on host0 local 0 of 2, 10.0.0.2:"));
  EXPECT_THAT(result.output, HasSubstr("rank 3 on host1 local 1 of 2, 10.0.0.2:"));
  EXPECT_THAT(result.output, HasSubstr(" =eth0 host1"));
  EXPECT_THAT(JobFabrics(), IsEmpty());
}

TEST_F(FabricJobTest, AFailedJobIsStartedAgain) {
  const ScratchDir scratch;
  const CommandResult result =
      RunC4({"run", "-n", "2", "--no-monitor", "--run-dir", scratch.path(), "--fabric", "2x1x1", "--restarts",
             "5", "--", "sh", "-c", "echo incarnation $C4_INCARNATION; test $C4_INCARNATION = 2"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("incarnation 2"));
  EXPECT_THAT(result.output, testing::Not(HasSubstr("incarnation 3")));
}

TEST_F(FabricJobTest, AKilledLauncherLeavesNothing) {
  const ScratchDir scratch;
  const std::string output = scratch.path() + "/out";
  Process launcher({Binary("c4"), "run", "-n", "2", "--run-dir", scratch.path(), "--fabric", "2x2x1", "--",
                    "sh", "-c", "setsid sleep 4321 & sleep 4322"},
                   {absl::StrCat("PATH=", getenv("PATH"))}, output);
  const std::string name = absl::StrCat("j", launcher.pid());
  // On each host a shell, and two that sleep, and the agents.
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return fabric::FabricProcesses(name).size() == 8; }))
      << fabric::FabricProcesses(name).size();
  const std::vector<int> pids = fabric::FabricProcesses(name);
  launcher.Signal(SIGKILL);
  EXPECT_TRUE(Eventually(Seconds(10), [] { return JobFabrics().empty(); }));
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(fabric::CpuHierarchy(), "/c4-", name)));
  for (const int pid : pids) {
    const std::string status = fabric::ReadText(absl::StrCat("/proc/", pid, "/status"));
    EXPECT_TRUE(status.empty() || status.find("State:\tZ") != std::string::npos) << pid << "\n" << status;
  }
}

TEST_F(FabricJobTest, AFaultIsInjectedAndTheMonitorSeesIt) {
  RunningJob job(4, {"--fabric", "2x2x2"}, Trainer());
  ASSERT_TRUE(job.AwaitAtWork(20, Seconds(20)));
  EXPECT_GT(job.DaemonPid("c4p_master"), 0) << "on a fabric paths are chosen, and links named, by default";
  const ScratchDir scratch;
  const std::string plan_path = scratch.path() + "/plan.jsonl";
  const CommandResult cut = RunC4({"inject", "cut", "--seed", "5", "--for", "0.3", "--json", "--plan",
                                   plan_path, "--run-dir", job.base_dir()});
  ASSERT_EQ(cut.exit_code, 0) << cut.errors;
  const Json line = Json::parse(cut.output.substr(0, cut.output.find('\n')));
  EXPECT_EQ(line["kind"], "cut");
  ASSERT_THAT(line["links"], SizeIs(1));
  EXPECT_THAT(line["target"].get<std::string>(), HasSubstr("-spine"));
  bool carries_data = false;
  for (const Json& flow : line["flows"]) {
    EXPECT_TRUE(flow["data"].get<bool>() || flow["acks"].get<bool>());
    EXPECT_GE(flow["from_rank"], 0);
    EXPECT_GE(flow["to_rank"], 0);
    carries_data |= flow["data"].get<bool>();
  }
  EXPECT_TRUE(carries_data) << "the seed has to choose a link with data";

  const CommandResult stop =
      RunC4({"inject", "stop", "rank2", "--plan", plan_path, "--run-dir", job.base_dir()});
  ASSERT_EQ(stop.exit_code, 0) << stop.errors;
  // Beside it, only what lost its path to the cut may be suspected for a while, and that the job is slower by
  // it.
  const auto confirmed = [&job] {
    std::vector<Json> open = RunningJob::Open(job.Verdicts());
    std::erase_if(open, [](const Json& verdict) {
      return (verdict["syndrome"] == "path lost" || verdict["syndrome"] == "fail-slow") &&
             verdict["state"] == "suspected";
    });
    return open;
  };
  EXPECT_TRUE(Eventually(Seconds(8), [&] {
    const std::vector<Json> open = confirmed();
    return open.size() == 1 && open[0]["culprit"]["rank"] == 2 && open[0]["culprit"]["host"] == "host2" &&
           open[0]["state"] == "confirmed";
  })) << job.Verdicts().dump(2);
  const CommandResult heal = RunC4({"inject", "heal", "--plan", plan_path, "--run-dir", job.base_dir()});
  EXPECT_EQ(heal.exit_code, 0) << heal.errors;
  EXPECT_TRUE(Eventually(Seconds(8), [&] { return confirmed().empty(); }));
  // All of it stands in the plan: the cut, its end, the stop, what was healed.
  const std::string plan = fabric::ReadText(plan_path);
  EXPECT_EQ(std::count(plan.begin(), plan.end(), '\n'), 4) << plan;
}

TEST_F(FabricJobTest, WithoutAPathMasterWhereNoneIsWanted) {
  RunningJob job(2, {"--fabric", "2x2x1", "--no-c4p"}, Trainer());
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  EXPECT_LE(job.DaemonPid("c4p_master"), 0);
  EXPECT_GT(job.DaemonPid("c4d_master"), 0);
}

TEST_F(FabricJobTest, OverLoopbackProcessesCanBeMetAndLinksCannot) {
  RunningJob job(2, {}, Trainer());
  ASSERT_TRUE(job.AwaitAtWork(5, Seconds(20)));
  const CommandResult cut = RunC4({"inject", "cut", "leaf0-spine0", "--run-dir", job.base_dir()});
  EXPECT_EQ(cut.exit_code, cli::kExitFailed);
  EXPECT_THAT(cut.errors, HasSubstr("--fabric"));
  const CommandResult mismatch = RunC4({"inject", "mismatch", "rank0", "--run-dir", job.base_dir()});
  EXPECT_EQ(mismatch.exit_code, cli::kExitFailed);
  EXPECT_THAT(mismatch.errors, HasSubstr("SIGUSR2"));
  const CommandResult jitter =
      RunC4({"inject", "jitter", "--for", "0.5", "--seed", "3", "--no-plan", "--run-dir", job.base_dir()});
  EXPECT_EQ(jitter.exit_code, 0) << jitter.errors;
  const uint64_t finished = job.LeastFinished();
  EXPECT_TRUE(Eventually(Seconds(5), [&] { return job.LeastFinished() > finished; })) << "it has to go on";
}

TEST_F(FabricJobTest, WithoutRightsItSaysSoAndRunsOverLoopback) {
  const ScratchDir scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
  const auto as_nobody = [&](const std::vector<std::string>& arguments, const std::string& output) {
    std::vector<std::string> command = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                        Binary("c4")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    auto process =
        std::make_unique<Process>(command, std::vector<std::string>{absl::StrCat("PATH=", getenv("PATH"))},
                                  scratch.path() + "/" + output);
    EXPECT_TRUE(process->Wait(Seconds(20)));
    return process;
  };
  const auto version = as_nobody({"--version"}, "version");
  if (version->exit_code() != 0) GTEST_SKIP() << "nobody may not read the build: " << version->Errors();
  const auto up = as_nobody({"fabric", "up", "2x2x1", "--name", "ntnone"}, "up");
  EXPECT_EQ(up->exit_code(), cli::kExitNoRights);
  EXPECT_THAT(up->Errors(), HasSubstr("sudo"));
  const auto run = as_nobody({"run", "-n", "2", "--no-monitor", "--run-dir", scratch.path() + "/run",
                              "--fabric", "2x2x1", "--", "sh", "-c", "echo $NCCL_SOCKET_IFNAME"},
                             "run");
  EXPECT_EQ(run->exit_code(), 0) << run->Errors();
  EXPECT_EQ(run->Output(), "lo\nlo\n");
  EXPECT_THAT(run->Errors(), HasSubstr("over loopback"));
}

}  // namespace
}  // namespace c4::net_test
