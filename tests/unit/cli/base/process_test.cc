#include "cli/base/process.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace c4::cli {
namespace {

using ::testing::HasSubstr;

struct Ran {
  int wait_status = -1;
  std::string output;
};

// Runs a shell script to its end with its output in a pipe.
Ran RunShell(const std::string& script) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  SpawnRequest request = {"sh", {"-c", script}, OwnEnvironment()};
  request.stdout_fd = request.stderr_fd = ends[1];
  const absl::StatusOr<pid_t> pid = Spawn(request);
  close(ends[1]);
  Ran ran;
  char buffer[4096];
  for (ssize_t count; pid.ok() && (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    ran.output.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  EXPECT_TRUE(pid.ok()) << pid.status();
  if (pid.ok()) waitpid(*pid, &ran.wait_status, 0);
  return ran;
}

TEST(SpawnTest, RunsAProgramAndHandsOnItsCode) {
  const Ran ran = RunShell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(ran.output, "out\nerr\n");
  EXPECT_EQ(ExitCode(ran.wait_status), 7);
  EXPECT_EQ(DescribeExit(ran.wait_status), "exited with code 7");
}

TEST(SpawnTest, SaysWhichSignalEndedIt) {
  const Ran ran = RunShell("kill -KILL $$");
  EXPECT_EQ(ExitCode(ran.wait_status), 137);
  EXPECT_EQ(DescribeExit(ran.wait_status), "was ended by signal 9 (SIGKILL)");
}

TEST(SpawnTest, TheChildLeadsAGroupReadsNothingAndInheritsNoFile) {
  const int leaked = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ASSERT_GE(leaked, 3);
  // Without a pipeline: the shell itself holds the ends of its pipes for a moment.
  const Ran ran = RunShell(
      "read -r line; echo read=$?; n=0; for f in 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do "
      "[ -e /proc/$$/fd/$f ] && n=$((n+1)); done; echo $n; cut -d' ' -f5 /proc/$$/stat; echo $$");
  close(leaked);
  std::istringstream words(ran.output);
  std::string read_code, files, group, pid;
  words >> read_code >> files >> group >> pid;
  EXPECT_EQ(read_code, "read=1") << "its input is not at its end";
  EXPECT_EQ(files, "0") << "descriptors past standard error";
  EXPECT_EQ(group, pid);
}

TEST(SpawnTest, TheChildHasNoSignalBlocked) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const Ran ran = RunShell("grep SigBlk /proc/self/status");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(ran.output, HasSubstr("0000000000000000"));
}

TEST(SpawnTest, TheChildCanBeInterruptedAlsoWhenWeAreInTheBackgroundOfAScript) {
  const auto before = signal(SIGINT, SIG_IGN);
  const Ran ran = RunShell("kill -INT $$; sleep 1");
  signal(SIGINT, before);
  EXPECT_EQ(ExitCode(ran.wait_status), 128 + SIGINT);
}

TEST(SpawnTest, NamesAProgramThatIsNotThere) {
  const SpawnRequest request = {"no-such-program-of-c4", {}, OwnEnvironment()};
  const absl::Status status = Spawn(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-program-of-c4"));
  EXPECT_EQ(Spawn({"/no/such/file", {}, {}}).status().code(), absl::StatusCode::kNotFound);
}

TEST(SpawnTest, NamesAFileThatCannotBeExecuted) {
  const std::string path = testing::TempDir() + "/c4_not_a_program";
  std::ofstream(path) << "words";
  EXPECT_EQ(Spawn({path, {}, {}}).status().code(), absl::StatusCode::kPermissionDenied);
  chmod(path.c_str(), 0755);
  const absl::Status status = Spawn({path, {}, {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("#!"));
  std::filesystem::remove(path);
  EXPECT_EQ(Spawn({"/tmp", {}, {}}).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(ProcessStatTest, ReadsPastAnyName) {
  const std::optional<ProcessStat> stat =
      ParseProcessStat("4711 (a) R 1 (b) T 42 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->state, 'T');
  EXPECT_EQ(stat->parent, 42);
  EXPECT_EQ(stat->group, 4711);
  EXPECT_EQ(stat->start_time_ticks, 98765U);
}

TEST(ProcessStatTest, RefusesWhatIsNone) {
  for (const char* text : {"", "1", "1 (x", "1 (x)", "1 (x) ", "1 (x) R", "1 (x) R y 3",
                           "1 (x) RR 42 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1"}) {
    EXPECT_FALSE(ParseProcessStat(text).has_value()) << text;
  }
}

TEST(ProcessStatTest, SeesAStoppedChild) {
  const absl::StatusOr<pid_t> pid = Spawn({"sleep", {"60"}, OwnEnvironment()});
  ASSERT_TRUE(pid.ok());
  EXPECT_FALSE(IsStopped(*pid));
  EXPECT_THAT(ChildrenOf(getpid()), testing::Contains(*pid));
  kill(*pid, SIGSTOP);
  int status = 0;
  waitpid(*pid, &status, WUNTRACED);
  EXPECT_TRUE(IsStopped(*pid));
  kill(*pid, SIGKILL);
  waitpid(*pid, &status, 0);
  EXPECT_FALSE(ReadProcessStat(*pid).has_value());
}

TEST(EnvironmentValueTest, ComparesWholeNames) {
  const std::vector<std::string> environment = {"AB=1", "A=2", "B"};
  EXPECT_EQ(EnvironmentValue(environment, "A"), "2");
  EXPECT_EQ(EnvironmentValue(environment, "B"), std::nullopt);
  EXPECT_EQ(EnvironmentValue(environment, ""), std::nullopt);
}

}  // namespace
}  // namespace c4::cli
