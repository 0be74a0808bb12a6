// `c4 demo` as a whole: right in every phase, and nothing left behind when it is interrupted.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cli/base/process.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;

// Over loopback, which needs no rights; `make demo` plays the whole of it.
TEST(DemoTest, IsRightAndSaysSo) {
  const ScratchDir scratch;
  const std::string report = scratch.path() + "/report.json";
  const CommandResult result =
      RunC4({"demo", "--loopback", "--json", report}, {"C4_RUN_DIR=" + scratch.path()}, Seconds(150));
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, testing::HasSubstr("ALL RIGHT"));

  std::ifstream file(report);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["false_alarms"], 0);
  ASSERT_EQ(json["phases"].size(), 4U);
  for (const Json& phase : json["phases"]) EXPECT_EQ(phase["correct"], true) << phase.dump(2);
  EXPECT_TRUE(json["phases"][0]["verdicts"].empty());
  EXPECT_LE(json["phases"][1]["onset_to_verdict_s"], 5.0);
  EXPECT_EQ(json["phases"][1]["verdicts"][0]["syndrome"], "non-communication hang");
  EXPECT_EQ(json["phases"][2]["verdicts"][0]["syndrome"], "mismatch");
  EXPECT_EQ(json["phases"][3]["verdicts"][0]["syndrome"], "crash");
}

TEST(DemoTest, AnInterruptCleansUp) {
  const ScratchDir scratch;
  Process demo({Binary("c4"), "demo", "--loopback"},
               {"PATH=/usr/bin:/bin", "C4_RUN_DIR=" + scratch.path() + "/run"}, scratch.path() + "/demo");
  ASSERT_TRUE(
      Eventually(Seconds(20), [&] { return demo.Output().find("ranks at work") != std::string::npos; }))
      << demo.Output() << demo.Errors();
  const std::vector<pid_t> processes = cli::ChildrenOf(demo.pid());
  EXPECT_GE(processes.size(), 10U) << "eight ranks, agent and master";
  demo.Signal(SIGINT);
  ASSERT_TRUE(demo.Wait(Seconds(15)));
  EXPECT_EQ(demo.exit_code(), 128 + SIGINT);
  for (const pid_t pid : processes) EXPECT_FALSE(cli::ReadProcessStat(pid).has_value()) << pid;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(scratch.path() + "/run")) {
    EXPECT_EQ(entry.path().filename(), "masters") << "left behind: " << entry.path();
  }
}

}  // namespace
}  // namespace c4::service_test
