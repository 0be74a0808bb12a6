#include "traces/iteration_file.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>

namespace c4::traces {
namespace {

absl::StatusOr<IterationTimes> Times(const std::string& text, const TimesOptions& options = {}) {
  return ReadIterationTimes(MemoryBytes(text).get(), options);
}

absl::StatusOr<CallTable> Calls(const std::string& text, const CallsOptions& options = {}) {
  return ReadCalls(MemoryBytes(text).get(), options);
}

void ExpectRefused(const absl::Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status.message();
}

TEST(IterationTimes, OneALineWithOrWithoutAHeader) {
  EXPECT_EQ(Times("1.5\n2\n\n3e-1\n")->times_s, (std::vector<double>{1.5, 2, 0.3}));
  EXPECT_EQ(Times("seconds\r\n1\r\n2")->times_s, (std::vector<double>{1, 2}));
  EXPECT_EQ(Times("5\n", {.seconds_per_unit = 1e-3})->times_s, (std::vector<double>{0.005}));
}

TEST(IterationTimes, AColumnByName) {
  const std::string text = "step,\"t, all\",loss\n1,2.5,9\n2,2.6,8\n";
  EXPECT_EQ(Times(text, {.column = "t, all"})->times_s, (std::vector<double>{2.5, 2.6}));
  ExpectRefused(Times(text).status(), "choose one with --column");
  ExpectRefused(Times(text, {.column = "time"}).status(),
                "there is no column 'time'; there are 'step', 't, all', 'loss'");
  ExpectRefused(Times("a,a\n1,2\n", {.column = "a"}).status(), "2 columns 'a'");
  ExpectRefused(Times("a,b\n1\n", {.column = "a"}).status(), "line 2: it has 1 fields");
}

TEST(IterationTimes, WhatIsNoTimeKeepsItsPlace) {
  const IterationTimes times = *Times("1\nnan\ninf\n0\n-3\n1e300\n2\n");
  ASSERT_EQ(times.times_s.size(), 7u);
  EXPECT_EQ(times.unusable, 5u);
  EXPECT_EQ(times.first_unusable_line, 2u);
  EXPECT_TRUE(std::isnan(times.times_s[3]));
  EXPECT_EQ(times.times_s[6], 2);
}

TEST(IterationTimes, BadFiles) {
  ExpectRefused(Times("").status(), "the file is empty");
  ExpectRefused(Times("\n \n").status(), "the file is empty");
  ExpectRefused(Times("seconds\n").status(), "there is no time of an iteration");
  ExpectRefused(Times("1\ntwo\n").status(), "line 2: 'two' is not a number");
  ExpectRefused(Times("0\nnan\n").status(), "no time in the file is a finite positive number");
  ExpectRefused(Times(std::string("1\n\0\1\2\n", 6)).status(), "line 2: it holds what is no text");
  ExpectRefused(Times("1\n2\n3\n", {.most = 2}).status(), "more than 2 iterations");
}

TEST(Calls, OneTokenALine) {
  const CallTable table = *Calls("AllReduce\nSend\nAllReduce\n");
  ASSERT_EQ(table.columns.size(), 1u);
  EXPECT_EQ(table.calls, 3u);
  EXPECT_EQ(table.columns[0].values[0], table.columns[0].values[2]);
  EXPECT_NE(table.columns[0].values[0], table.columns[0].values[1]);
  EXPECT_TRUE(table.times_s.empty());
}

TEST(Calls, ColumnsThatCannotRepeatAreLeftOut) {
  std::string text = "time,seq,op,comm\n";
  for (int i = 0; i < 20; ++i) {
    text +=
        std::to_string(0.5 * i) + "," + std::to_string(i) + (i % 2 == 0 ? ",AllReduce,dp\n" : ",Send,pp\n");
  }
  const CallTable table = *Calls(text);
  ASSERT_EQ(table.columns.size(), 2u);
  EXPECT_EQ(table.columns[0].name, "op");
  EXPECT_EQ(table.columns[1].name, "comm");
  EXPECT_EQ(table.calls, 20u);
  ASSERT_EQ(table.times_s.size(), 20u);
  EXPECT_EQ(table.times_s[3], 1.5);
  EXPECT_EQ(Calls(text, {.columns = {"comm"}})->columns.size(), 1u);
  ExpectRefused(Calls(text, {.columns = {"size"}}).status(), "there is no column 'size'");
}

TEST(Calls, WithoutAHeaderTheFirstLineIsACall) {
  const CallTable table = *Calls("AllReduce,dp\nSend,pp\nAllReduce,dp\nSend,pp\n");
  EXPECT_EQ(table.calls, 4u);
  EXPECT_EQ(table.columns[0].name, "");
}

TEST(Calls, BadFiles) {
  ExpectRefused(Calls("").status(), "the file is empty");
  ExpectRefused(Calls("time,op\nsoon,Send\n").status(), "line 2: the time is 'soon', not a number");
  ExpectRefused(Calls("a\nb\nc\n", {.most_values = 2}).status(), "more than 2 calls");
}

}  // namespace
}  // namespace c4::traces
