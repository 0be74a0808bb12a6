// Fail open: without agent and master, or with ones that do not start, the job runs to its end.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sstream>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ShortRun() {
  return {Binary("all_reduce_perf"), "-b", "1K", "-e", "256K", "-f", "4", "-n", "20"};
}

// Lines of the launcher, the library or anybody that are no part of a warning's quotation.
std::vector<std::string> Lines(const std::string& errors) {
  std::vector<std::string> result;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ")) result.push_back(line);
  }
  return result;
}

TEST(UnmonitoredTest, NoMonitorOnRequest) {
  RunningJob job(4, {"--no-monitor"}, ShortRun());
  ASSERT_TRUE(job.launcher().Wait(Seconds(30)));
  EXPECT_EQ(job.launcher().exit_code(), 0);
  EXPECT_THAT(Lines(job.launcher().Errors()), IsEmpty());
  EXPECT_THAT(job.launcher().Output(), HasSubstr("262144")) << "the table of rank 0 is missing";
}

TEST(UnmonitoredTest, NoDaemonsInstalled) {
  // A copy of the launcher with the library and without its siblings.
  const ScratchDir scratch;
  fs::create_directories(scratch.path() + "/bin");
  fs::copy_file(Binary("c4"), scratch.path() + "/bin/c4");
  fs::create_directory_symlink(fs::path(Binary("c4")).parent_path().parent_path() / "lib",
                               scratch.path() + "/lib");
  std::vector<std::string> command = {scratch.path() + "/bin/c4", "run", "-n", "4", "--run-dir",
                                      scratch.path() + "/run",    "--"};
  const std::vector<std::string> program = ShortRun();
  command.insert(command.end(), program.begin(), program.end());
  Process launcher(command, {"PATH=/usr/bin:/bin"}, scratch.path() + "/launcher");
  ASSERT_TRUE(launcher.Wait(Seconds(30)));
  EXPECT_EQ(launcher.exit_code(), 0) << launcher.Errors();
  EXPECT_THAT(Lines(launcher.Errors()), ElementsAre(HasSubstr("warning")));
}

TEST(UnmonitoredTest, DaemonsThatDoNotStayUp) {
  // Both refuse a setting that they do not know.
  RunningJob job(4, {}, ShortRun(), {"C4A_LOG_LEVEL=nonsense", "C4D_LOG_LEVEL=nonsense"});
  ASSERT_TRUE(job.launcher().Wait(Seconds(30)));
  EXPECT_EQ(job.launcher().exit_code(), 0);
  const std::string errors = job.launcher().Errors();
  EXPECT_THAT(errors, HasSubstr("until it stays up"));
  EXPECT_THAT(errors, HasSubstr("nonsense")) << "the last lines of the daemon's log are missing";
  EXPECT_THAT(Lines(errors), ElementsAre(HasSubstr("warning")));
}

TEST(UnmonitoredTest, ARunDirectoryThatCannotBe) {
  std::vector<std::string> command = {"run", "-n", "2", "--run-dir", "/proc/no-such-place", "--"};
  const std::vector<std::string> program = ShortRun();
  command.insert(command.end(), program.begin(), program.end());
  const CommandResult result = RunC4(command);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("/proc/no-such-place"));
}

}  // namespace
}  // namespace c4::service_test
