// What `c4 iterations JOB` shows of what a master knows.
#include "cli/verbs/job_iterations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "cli/text/screen.h"

namespace c4::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::GetIterationsReply Slower() {
  v1::GetIterationsReply reply;
  reply.set_job("night");
  reply.set_unix_ns(1'700'000'200'000'000'000);
  reply.set_rank(0);
  for (uint64_t i = 0; i < 120; ++i) {
    v1::SeriesIteration* const item = reply.add_iterations();
    item->set_number(1000 + i);
    item->set_began_unix_ns(1'700'000'000'000'000'000 + static_cast<int64_t>(i) * 1'000'000'000);
    const bool evaluation = i >= 40 && i < 50;
    item->set_shape(evaluation ? 2 : 1);
    item->set_duration_s(evaluation ? 0.2 : i < 80 ? 1 : 1.4);
  }
  v1::SeriesChange* const change = reply.add_changes();
  change->set_iteration(1080);
  change->set_at_unix_ns(1'700'000'080'000'000'000);
  change->set_before_s(1);
  change->set_after_s(1.4);
  change->set_ranks(16);
  change->set_confirmed(true);
  change->set_job_wide(true);
  v1::SeriesChange* const of_one = reply.add_changes();
  of_one->set_iteration(1090);
  of_one->set_before_s(1.4);
  of_one->set_after_s(1.1);
  of_one->set_ranks(1);
  for (int rank = 0; rank < 16; ++rank) {
    v1::RankIterationsStatus* const item = reply.add_ranks();
    item->set_rank(rank);
    item->set_host("host" + std::to_string(rank));
    item->set_calls(852);
    item->set_newest_s(1.4);
  }
  return reply;
}

TEST(JobIterations, FitsTheTerminalAndSaysWhatHasHappened) {
  const std::string text = JobIterationsText(Slower(), 80);
  EXPECT_THAT(text, HasSubstr("job night, rank 0 of 16"));
  EXPECT_THAT(text, HasSubstr("an iteration has 852 calls"));
  EXPECT_THAT(text, HasSubstr("110 iterations"));
  EXPECT_THAT(text, HasSubstr("1 s -> 1.4 s, 40 % slower"));
  EXPECT_THAT(text, HasSubstr("16 ranks"));
  EXPECT_THAT(text, HasSubstr("`c4 verdicts`"));
  EXPECT_THAT(text, Not(HasSubstr("suspected")));
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    EXPECT_LE(TextColumns(std::string(line)), 80u) << line;
}

TEST(JobIterations, AnEvaluationIsNoPartOfTheSeries) {
  const failslow::SeriesReport report = ReportOf(Slower());
  EXPECT_THAT(report.times_s, SizeIs(110));
  ASSERT_THAT(report.changes, SizeIs(1)) << "of one rank alone nothing is drawn";
  EXPECT_EQ(report.changes[0].iteration, 70u) << "of those that are drawn";
}

TEST(JobIterations, MarksStandBesideTheCalls) {
  v1::GetIterationsReply reply = Slower();
  reply.mutable_ranks(0)->set_marked(9);
  reply.mutable_ranks(0)->set_marked_newest_s(1.0);
  reply.mutable_ranks(0)->set_calls_newest_s(1.004);
  EXPECT_THAT(JobIterationsText(reply, 80), HasSubstr("own marks 1 s, by its calls 1.004 s (+0.4 %)"));
}

TEST(JobIterations, OfAJobThatTellsNothing) {
  v1::GetIterationsReply reply;
  reply.set_job("night");
  reply.set_rank(-1);
  EXPECT_THAT(JobIterationsText(reply, 80), HasSubstr("no iteration is known yet"));
  const auto json = nlohmann::json::parse(JobIterationsJson(reply));
  EXPECT_EQ(json["rank"], -1);
  EXPECT_TRUE(json["median_s"].is_null());
  EXPECT_THAT(json["changes"], IsEmpty());
}

// A change that lies before what is still kept.
TEST(JobIterations, WhatIsOlderThanTheSeriesIsNotDrawn) {
  v1::GetIterationsReply reply = Slower();
  reply.mutable_changes(0)->set_iteration(3);
  EXPECT_THAT(ReportOf(reply).changes, IsEmpty());
}

TEST(JobIterations, JsonHoldsEverything) {
  const auto json = nlohmann::json::parse(JobIterationsJson(Slower()));
  EXPECT_EQ(json["period"], 852);
  EXPECT_THAT(json["times"], SizeIs(120));
  EXPECT_THAT(json["ranks"], SizeIs(16));
  ASSERT_THAT(json["changes"], SizeIs(2));
  EXPECT_EQ(json["changes"][0]["iteration"], 1080);
  EXPECT_EQ(json["changes"][0]["job_wide"], true);
  EXPECT_EQ(json["times"][45]["shape"], 2);
  EXPECT_TRUE(json["ranks"][0]["marked_newest_s"].is_null());
}

}  // namespace
}  // namespace c4::cli
