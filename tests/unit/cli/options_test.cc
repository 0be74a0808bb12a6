#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "cli/exit_codes.h"

namespace c4::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  bool flag = false;
  std::string text = "default";
  int whole = 4;
  double seconds = 0;
  std::vector<std::string> command;

  std::optional<int> Parse(const Arguments& arguments, bool with_command = false) {
    Options options("test", "what it does");
    options.Flag("--flag", &flag, "a flag");
    options.Text("--text", &text, "T", "a text");
    options.Whole("-n,--whole", &whole, 1, 8, "a number");
    options.Seconds("--seconds", &seconds, 0, 10, "a time");
    if (with_command) options.Command(&command, "PROGRAM ARGS...");
    return options.Parse(arguments);
  }
};

TEST(OptionsTest, FillsWhatIsNamedAndKeepsTheRest) {
  Values values;
  EXPECT_EQ(values.Parse({"--flag", "-n", "7", "--seconds=2.5"}), std::nullopt);
  EXPECT_TRUE(values.flag);
  EXPECT_EQ(values.whole, 7);
  EXPECT_EQ(values.seconds, 2.5);
  EXPECT_EQ(values.text, "default");
}

TEST(OptionsTest, LeavesTheProgramsOwnOptionsAlone) {
  Values values;
  EXPECT_EQ(values.Parse({"-n", "2", "--", "train", "--flag", "-n", "9", "--"}, true), std::nullopt);
  EXPECT_FALSE(values.flag);
  EXPECT_EQ(values.whole, 2);
  EXPECT_THAT(values.command, ElementsAre("train", "--flag", "-n", "9", "--"));
}

TEST(OptionsTest, RefusesWhatItDoesNotKnow) {
  for (const Arguments& arguments :
       {Arguments{"--nothing"}, Arguments{"word"}, Arguments{"-n", "9"}, Arguments{"-n", "x"},
        Arguments{"-n"}, Arguments{"--seconds", "-1"}, Arguments{"--", "train"}}) {
    Values values;
    testing::internal::CaptureStderr();
    EXPECT_EQ(values.Parse(arguments), kExitUsage) << arguments.front();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("c4 test --help")) << arguments.front();
  }
}

TEST(OptionsTest, HelpIsNoError) {
  Values values;
  testing::internal::CaptureStdout();
  EXPECT_EQ(values.Parse({"--help"}, true), kExitOk);
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("c4 test [OPTIONS] -- PROGRAM ARGS..."));
  EXPECT_THAT(help, HasSubstr("  -n, --whole N         a number (1 to 8; default 4)\n"));
  EXPECT_THAT(help, HasSubstr("a text (default default)"));
}

TEST(OptionsTest, HelpSaysWordsGroupsAndKeepsToItsWidth) {
  std::string file, master;
  Options options("test", "what it does");
  options.Group("how to reach it");
  options.Text("--master", &master, "HOST:PORT", std::string(30, 'x') + " " + std::string(60, 'y'),
               "C4_TEST_MASTER");
  options.Group("");
  bool flag = false;
  options.Flag("--flag", &flag, "a flag");
  options.Word("FILE", &file, "a file");
  options.Epilogue("the end\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(options.Parse({"--help"}), kExitOk);
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("usage: c4 test [OPTIONS] FILE\n"));
  EXPECT_LT(help.find("--flag"), help.find("how to reach it:"));
  EXPECT_THAT(help, HasSubstr("C4_TEST_MASTER)"));
  EXPECT_THAT(help, ::testing::EndsWith("the end\n"));
  for (const absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(OptionsTest, VersionNeedsNoWords) {
  std::string file;
  Options options("test", "what it does");
  options.Word("FILE", &file, "a file");
  testing::internal::CaptureStdout();
  EXPECT_EQ(options.Parse({"--version"}), kExitOk);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), ::testing::StartsWith("c4 "));
}

}  // namespace
}  // namespace c4::cli
