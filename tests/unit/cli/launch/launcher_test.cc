#include "cli/launch/launcher.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <signal.h>
#include <unistd.h>

#include "cli/base/process.h"
#include "cli/exit_codes.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() { fs::remove_all(base_); }
  ~LauncherTest() override {
    EXPECT_THAT(ChildrenOf(getpid()), IsEmpty()) << "something was left running";
    fs::remove_all(base_);
  }

  absl::StatusOr<std::unique_ptr<Launcher>> Start(int ranks, const std::string& script) {
    LaunchOptions options;
    options.ranks = ranks;
    options.base_dir = base_;
    options.monitor = false;
    options.grace_s = grace_s_;
    options.timeout_s = timeout_s_;
    options.command = {"sh", "-c", script};
    return Launcher::Start(std::move(options), [this](const std::string& text) { reports_.push_back(text); });
  }

  // Runs the job to its end; its exit code.
  int Run(int ranks, const std::string& script) {
    const auto launcher = Start(ranks, script);
    EXPECT_TRUE(launcher.ok()) << launcher.status();
    if (!launcher.ok()) return -1;
    run_dir_ = (*launcher)->plan().run_dir;
    while ((*launcher)->Poll(milliseconds(1000))) {
    }
    EXPECT_FALSE(fs::exists(run_dir_)) << "the run directory is still there";
    return (*launcher)->outcome().exit_code;
  }

  std::string FileText(const std::string& name) const {
    std::ifstream file(base_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const std::string base_ = testing::TempDir() + "/c4_launcher_test_" + std::to_string(getpid());
  std::string run_dir_;
  double grace_s_ = 0;
  double timeout_s_ = 0;
  std::vector<std::string> reports_;
};

TEST_F(LauncherTest, EveryRankKnowsItsPlace) {
  EXPECT_EQ(Run(3, "echo $RANK $WORLD_SIZE $C4_RUN_DIR > $C4_RUN_DIR/../out-$RANK"), 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(FileText("out-" + std::to_string(rank)), std::to_string(rank) + " 3 " + run_dir_ + "\n");
  }
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LauncherTest, AFailedRankEndsTheOthersAndGivesItsCode) {
  const auto start = Launcher::Clock::now();
  EXPECT_EQ(Run(3, "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 60"), 7);
  EXPECT_LT(Launcher::Clock::now() - start, std::chrono::seconds(4));
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("rank 1 exited with code 7")));
}

TEST_F(LauncherTest, AKilledRankIsNamedWithItsSignal) {
  EXPECT_EQ(Run(2, "if [ $RANK = 1 ]; then kill -KILL $$; fi; exec sleep 60"), 128 + SIGKILL);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("rank 1 was ended by signal 9 (SIGKILL)")));
}

TEST_F(LauncherTest, AStoppedRankIsEndedWithoutDelay) {
  // SIGTERM would only be pending.
  const auto start = Launcher::Clock::now();
  EXPECT_EQ(Run(2, "if [ $RANK = 1 ]; then sleep 0.1; exit 3; fi; kill -STOP $$"), 3);
  EXPECT_LT(Launcher::Clock::now() - start, std::chrono::seconds(4));
}

TEST_F(LauncherTest, HelpersOfRanksAreEndedToo) {
  // One stays in the rank's group, one makes a session of its own; the fixture checks that both are gone.
  EXPECT_EQ(Run(1, "sleep 60 & setsid sleep 60 & sleep 0.05"), 0);
}

TEST_F(LauncherTest, TheOthersMayEndByThemselvesInTheGraceTime) {
  grace_s_ = 10;
  EXPECT_EQ(Run(2, "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.15; echo done > $C4_RUN_DIR/../out; exit 4"),
            3);
  EXPECT_EQ(FileText("out"), "done\n");
}

TEST_F(LauncherTest, TheTimeLimitEndsTheJob) {
  timeout_s_ = 0.1;
  EXPECT_EQ(Run(2, "exec sleep 60"), kExitTimeout);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("--timeout")));
}

TEST_F(LauncherTest, ASignalIsHandedOnAndEndsTheJob) {
  const auto launcher = Start(2,
                              "trap 'echo $RANK > $C4_RUN_DIR/../trapped-$RANK; exit 0' INT; "
                              "touch $C4_RUN_DIR/../ready-$RANK; while :; do sleep 0.02; done");
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  while (!fs::exists(base_ + "/ready-0") || !fs::exists(base_ + "/ready-1")) {
    ASSERT_TRUE((*launcher)->Poll(milliseconds(20)));
  }
  kill(getpid(), SIGINT);
  while ((*launcher)->Poll(milliseconds(1000))) {
  }
  EXPECT_TRUE((*launcher)->interrupted());
  EXPECT_EQ((*launcher)->outcome().exit_code, 128 + SIGINT);
  EXPECT_EQ(FileText("trapped-0"), "0\n");
  EXPECT_EQ(FileText("trapped-1"), "1\n");
}

TEST_F(LauncherTest, DestructionEndsEverything) {
  {
    const auto launcher = Start(2, "exec sleep 60");
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    EXPECT_NE((*launcher)->RankPid(1), 0);
    EXPECT_EQ((*launcher)->RankPid(2), 0);
    EXPECT_FALSE((*launcher)->SignalRank(2, SIGSTOP).ok());
    EXPECT_TRUE((*launcher)->SignalRank(1, SIGSTOP).ok());
  }
  EXPECT_THAT(ChildrenOf(getpid()), IsEmpty());
}

TEST_F(LauncherTest, AMissingProgramIsAnErrorBeforeAnythingStarts) {
  LaunchOptions options;
  options.ranks = 2;
  options.base_dir = base_;
  options.command = {"no-such-program-of-c4"};
  const absl::Status status = Launcher::Start(std::move(options), [this](const std::string& text) {
                                reports_.push_back(text);
                              }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(LauncherTest, WithoutDaemonsTheJobRunsWithOneWarning) {
  LaunchOptions options;
  options.ranks = 2;
  options.base_dir = base_;
  options.command = {"true"};
  // This test's own folder holds no c4a.
  const auto launcher =
      Launcher::Start(std::move(options), [this](const std::string& text) { reports_.push_back(text); });
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  EXPECT_FALSE((*launcher)->monitored());
  while ((*launcher)->Poll(milliseconds(1000))) {
  }
  EXPECT_EQ((*launcher)->outcome().exit_code, 0);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("warning")));
}

TEST_F(LauncherTest, WithoutARunDirectoryTheJobRunsWithOneWarning) {
  std::ofstream(base_) << "a file where the directory should be";
  LaunchOptions options;
  options.ranks = 1;
  options.base_dir = base_;
  options.command = {"true"};
  const auto launcher =
      Launcher::Start(std::move(options), [this](const std::string& text) { reports_.push_back(text); });
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  while ((*launcher)->Poll(milliseconds(1000))) {
  }
  EXPECT_EQ((*launcher)->outcome().exit_code, 0);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("--run-dir")));
}

}  // namespace
}  // namespace c4::cli
