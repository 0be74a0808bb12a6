// `c4 iterations` as a user calls it: files good and bad, a job that runs, and what cannot be.
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/text/screen.h"
#include "tests/service/harness.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class IterationsTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& content) const {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << content;
    return path;
  }
  static CommandResult Iterations(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "iterations");
    return RunC4(arguments);
  }
  // Times of a job that becomes slower after 60 iterations.
  static std::string Times(const std::string& odd = "") {
    std::string text;
    for (int i = 0; i < 120; ++i) {
      if (i == 30 && !odd.empty()) absl::StrAppend(&text, odd, "\n");
      absl::StrAppend(&text, (i < 60 ? 1.0 : 1.3) + (i % 5) * 0.002, "\n");
    }
    return text;
  }
  // So many iterations of these calls, with times.
  static std::string Calls(int iterations, int calls, double time_s = 0.1) {
    std::string text = "operation,time\n";
    double now_s = 0;
    for (int i = 0; i < iterations; ++i) {
      for (int call = 0; call < calls; ++call) {
        absl::StrAppend(&text, "call", call, ",", now_s, "\n");
        now_s += time_s / calls;
      }
    }
    return text;
  }

  ScratchDir scratch_;
};

TEST_F(IterationsTest, OfAFileOfTimes) {
  const std::string svg = scratch_.path() + "/a.svg";
  const CommandResult json = Iterations({"--times", File("t", Times()), "--json", "--svg", svg});
  ASSERT_EQ(json.exit_code, 0) << json.errors;
  const Json found = Json::parse(json.output);
  EXPECT_TRUE(found["period"].is_null());
  ASSERT_THAT(found["changes"], SizeIs(1));
  EXPECT_EQ(found["changes"][0]["iteration"], 60);
  EXPECT_NEAR(found["changes"][0]["after_s"].get<double>(), 1.3, 0.02);
  std::ifstream drawing(svg);
  std::string line;
  std::getline(drawing, line);
  EXPECT_THAT(line, HasSubstr("<svg"));
  const CommandResult text = Iterations({"--times", File("t", Times())});
  EXPECT_THAT(text.output, HasSubstr("iteration 60: "));
  for (const absl::string_view row : absl::StrSplit(text.output, '\n'))
    EXPECT_LE(cli::TextColumns({row.data(), row.size()}), 80u) << row;
}

TEST_F(IterationsTest, OfAFileOfCalls) {
  const CommandResult json = Iterations({"--calls", File("c", Calls(40, 75)), "--json"});
  ASSERT_EQ(json.exit_code, 0) << json.errors;
  const Json found = Json::parse(json.output);
  EXPECT_EQ(found["period"], 75);
  EXPECT_NEAR(found["median_s"].get<double>(), 0.1, 0.001);
  EXPECT_THAT(found["changes"], SizeIs(0));
}

struct BadFile {
  const char* option;
  std::string content;
  int exit_code;
  const char* message;
  std::vector<std::string> more;
};

TEST_F(IterationsTest, BadFilesAreRefusedInOneSentence) {
  std::string no_period = "operation\n";
  for (int i = 0; i < 400; ++i) absl::StrAppend(&no_period, "x", i * i, "\n");
  const std::vector<BadFile> cases = {
      {"--times", "", 65, "", {}},
      {"--times", "1\n1\nabc\n1\n", 65, "line", {}},
      {"--times", std::string("1\n\0\x01\xff\n", 6), 65, "", {}},
      {"--times", "a,b\n1,2\n1\n", 65, "line", {"--column", "b"}},
      {"--times", "a,b\n1,2\n", 65, "c", {"--column", "c"}},
      {"--times", "a,a\n1,2\n", 65, "a", {"--column", "a"}},
      {"--times", "nan\n-1\n0\ninf\n", 65, "", {}},
      {"--calls", "", 65, "", {}},
      {"--calls", no_period, 65, "no period", {}},
      {"--calls", Calls(1, 60), 65, "no period", {}},
  };
  for (const BadFile& bad : cases) {
    std::vector<std::string> arguments = {bad.option, File("bad", bad.content)};
    arguments.insert(arguments.end(), bad.more.begin(), bad.more.end());
    const CommandResult result = Iterations(arguments);
    EXPECT_EQ(result.exit_code, bad.exit_code) << bad.content.substr(0, 40) << "\n" << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("c4 iterations: "));
    EXPECT_THAT(result.errors, HasSubstr(bad.message));
  }
  EXPECT_EQ(Iterations({"--times", scratch_.path() + "/none"}).exit_code, 66);
  EXPECT_NE(Iterations({"--times", scratch_.path()}).exit_code, 0);
}

TEST_F(IterationsTest, OddTimesArePassedOver) {
  for (const char* odd : {"nan", "inf", "-inf", "0", "-3.5"}) {
    const CommandResult result = Iterations({"--times", File("t", Times(odd)), "--json"});
    ASSERT_EQ(result.exit_code, 0) << odd << result.errors;
    const Json found = Json::parse(result.output);
    ASSERT_THAT(found["changes"], SizeIs(1)) << odd;
    EXPECT_EQ(found["changes"][0]["iteration"], 61) << "it keeps its place in the count";
    EXPECT_THAT(result.errors, HasSubstr("passed over"));
  }
  std::string equal;
  for (int i = 0; i < 200; ++i) equal += "2.5\n";
  EXPECT_THAT(Json::parse(Iterations({"--times", File("t", equal), "--json"}).output)["changes"], SizeIs(0));
  EXPECT_THAT(Iterations({"--times", File("t", "1\n1\n1\n")}).errors, HasSubstr("too few"));
}

TEST_F(IterationsTest, APeriodThatChangesHalfWayIsSaid) {
  std::string calls = Calls(60, 40);
  const std::string others = Calls(40, 55);
  calls += others.substr(others.find('\n') + 1);
  const CommandResult result = Iterations({"--calls", File("c", calls), "--column", "operation", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(Json::parse(result.output)["period"], 40);
  EXPECT_THAT(result.errors, HasSubstr("another period: 55"));
}

TEST_F(IterationsTest, WhatContradictsItselfIsAUsageError) {
  const std::string file = File("t", Times());
  const std::vector<std::vector<std::string>> cases = {
      {"--times", file, "--calls", file},
      {"night", "--times", file},
      {"--job", "night", "--calls", file},
      {"--watch", "--times", file},
      {"night", "--job", "day"},
      {"--column", "a"},
      {"night", "--time-column", "a"},
      {"one", "two"},
      {"--times", file, "--time-unit", "h"},
      {"--times", file, "--column", "a", "--column", "b"},
  };
  for (const auto& arguments : cases) {
    const CommandResult result = Iterations(arguments);
    EXPECT_EQ(result.exit_code, 64) << testing::PrintToString(arguments) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("--help"));
  }
  const CommandResult nobody = Iterations({"night", "--run-dir", scratch_.path()});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_THAT(nobody.errors, HasSubstr("night"));
  EXPECT_EQ(Iterations({"--times", file, "--svg", scratch_.path() + "/no/such/a.svg"}).exit_code, 66);
}

// Iterations of a job that runs, told from its calls; and its own marks beside them while somebody records
// them.
TEST_F(IterationsTest, OfAJobThatRuns) {
  RunningJob job(4, {},
                 {Binary("hybrid_trainer"), "--seconds", "60", "--tensor", "2", "--pipeline", "2", "--width",
                  "64", "--hidden", "64"});
  const auto ask = [&job] {
    const CommandResult asked = Iterations({"--json", "--run-dir", job.base_dir()});
    return asked.exit_code == 0 ? Json::parse(asked.output) : Json::object();
  };
  Json found;
  ASSERT_TRUE(Eventually(Seconds(30), [&] {
    found = ask();
    return found.value("iterations", 0) > 50;
  })) << found.dump(2);
  // A micro-batch has one sum over the tensor group and one transfer each way; gradients need none.
  EXPECT_EQ(found["period"], 16);
  EXPECT_EQ(found["rank"], 0);
  EXPECT_THAT(found["ranks"], SizeIs(4));
  const std::string svg = scratch_.path() + "/job.svg";
  const CommandResult drawn = Iterations({"--run-dir", job.base_dir(), "--svg", svg});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.errors;
  EXPECT_TRUE(std::ifstream(svg).good());
  for (const absl::string_view row : absl::StrSplit(drawn.output, '\n'))
    EXPECT_LE(cli::TextColumns({row.data(), row.size()}), 80u) << row;
  ASSERT_EQ(RunC4({"level", "fine", "--run-dir", job.base_dir()}).exit_code, 0);
  // The newest by its calls and by its marks are not the same to the iteration: on a machine that others use
  // as well they agree as soon as it is as busy for the one as for the other.
  EXPECT_TRUE(Eventually(Seconds(30),
                         [&] {
                           found = ask();
                           if (found["ranks"].empty() || found["ranks"][0].value("marked", 0) <= 20)
                             return false;
                           const double by_calls = found["ranks"][0]["calls_newest_s"];
                           const double by_marks = found["ranks"][0]["marked_newest_s"];
                           return by_calls > 0 && by_calls >= 0.9 * by_marks && by_calls <= 1.5 * by_marks;
                         }))
      << "an iteration by its calls has all that the program marks\n"
      << found["ranks"].dump(2);
}

}  // namespace
}  // namespace c4::service_test
