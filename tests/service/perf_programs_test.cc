// The measuring programs as a user starts them: ranks as processes and as threads, and results that are
// right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

CommandResult RunPerf(int processes, const std::string& program, const std::vector<std::string>& options) {
  std::vector<std::string> command = {"run",          "-n", std::to_string(processes),
                                      "--no-monitor", "--", Binary(program)};
  command.insert(command.end(), options.begin(), options.end());
  return RunC4(command, {}, Seconds(60));
}

TEST(PerfProgramsTest, AllReduce) {
  const CommandResult result =
      RunPerf(3, "all_reduce_perf", {"-b", "0", "-e", "1M", "-i", "349521", "-n", "3", "-c", "2", "-m", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("3 ranks"));
  EXPECT_THAT(result.output, HasSubstr("Out of bounds values : 0 OK"));
}

TEST(PerfProgramsTest, ThreadsAreRanks) {
  const CommandResult result =
      RunPerf(2, "all_reduce_perf", {"-t", "2", "-b", "8", "-e", "64K", "-f", "8", "-n", "3", "-z", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("4 ranks"));
  EXPECT_THAT(result.output, HasSubstr("Out of bounds values : 0 OK"));
}

TEST(PerfProgramsTest, SendAndReceiveOfEveryType) {
  const CommandResult result =
      RunPerf(3, "sendrecv_perf", {"-d", "all", "-b", "1K", "-e", "64K", "-f", "8", "-n", "3", "-a", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("f8e5m2    none      -1"));
  EXPECT_THAT(result.output, HasSubstr("Out of bounds values : 0 OK"));
}

TEST(PerfProgramsTest, ARootThatIsNone) {
  const CommandResult result = RunPerf(2, "broadcast_perf", {"-r", "2"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.errors, HasSubstr("there is no rank 2 among 2: give one from 0 to 1"));
}

}  // namespace
}  // namespace c4::service_test
