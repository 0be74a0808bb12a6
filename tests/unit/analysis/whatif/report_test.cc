// What is told of an analysis, and drawings of what was kept of it.
#include "analysis/whatif/report.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/whatif/cause_texts.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report_reader.h"
#include "benchmarks/synthetic_job.h"

namespace c4::whatif {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    benchmarks::SyntheticJob made_up;
    made_up.slow_dp = 2;
    made_up.slow_stage = 1;
    made_up.slow_factor = 1.5;
    const benchmarks::ExecutedJob executed = benchmarks::Execute(made_up);
    absl::StatusOr<Trace> trace = BuildTrace(executed.records, {.name = "a<b"});
    ASSERT_TRUE(trace.ok()) << trace.status();
    absl::StatusOr<Job> job = MakeJob(*std::move(trace));
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    const absl::StatusOr<Analysis> analysis = Analyse(job_, 1);
    ASSERT_TRUE(analysis.ok()) << analysis.status();
    analysis_ = *analysis;
    causes_ = FindCauses(job_, analysis_, 1);
    json_ = ReportJson({job_, analysis_, causes_, {}}, -1);
  }

  Job job_;
  Analysis analysis_;
  Causes causes_;
  std::string json_;
};

TEST_F(ReportTest, DrawingsFromWhatWasKeptAreThoseOfTheAnalysis) {
  EXPECT_THAT(json_, Not(HasSubstr("\n")));
  const auto map = ReadWorkerMap(json_, std::nullopt);
  ASSERT_TRUE(map.ok()) << map.status();
  const std::string svg = HeatmapSvg(*map);
  EXPECT_EQ(svg, HeatmapSvg(MapOf(job_, analysis_)));
  EXPECT_EQ(Count(svg, "<title>"), 16U);
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
}

TEST_F(ReportTest, TheMapOfAStepIsOfThatStep) {
  const int32_t step = job_.trace.steps[3];
  const auto map = ReadWorkerMap(json_, step);
  ASSERT_TRUE(map.ok()) << map.status();
  for (int stage = 0; stage < 4; ++stage) {
    for (int dp = 0; dp < 4; ++dp) {
      const double expected = std::min(analysis_.by_dp[static_cast<size_t>(dp)].by_step[3],
                                       analysis_.by_stage[static_cast<size_t>(stage)].by_step[3]);
      EXPECT_DOUBLE_EQ(map->slowdown[job_.trace.Worker(dp, stage)], expected);
      EXPECT_EQ(map->ranks[job_.trace.Worker(dp, stage)], job_.trace.Rank(dp, stage));
    }
  }
  EXPECT_THAT(HeatmapSvg(*map), Not(HasSubstr("alone")));
  EXPECT_TRUE(absl::IsNotFound(ReadWorkerMap(json_, 4711).status()));
}

TEST_F(ReportTest, StepsInTheirOrder) {
  const auto steps = ReadSteps(json_);
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->size(), job_.trace.steps.size());
  for (size_t i = 0; i < steps->size(); ++i) {
    EXPECT_EQ((*steps)[i].step, job_.trace.steps[i]);
    EXPECT_DOUBLE_EQ((*steps)[i].slowdown, analysis_.slowdown_by_step[i]);
  }
  EXPECT_EQ(Count(StepsSvg("t", *steps), "<title>step "), steps->size());
}

TEST_F(ReportTest, WhatIsNoReportIsRefused) {
  nlohmann::json fewer = nlohmann::json::parse(json_);
  fewer["job"]["dp_size"] = 1000;
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string("{}"), fewer.dump(),
                                  json_.substr(0, json_.size() / 2)}) {
    EXPECT_TRUE(absl::IsDataLoss(ReadWorkerMap(text, std::nullopt).status())) << text.substr(0, 60);
  }
  EXPECT_TRUE(absl::IsDataLoss(ReadSteps("{\"slowdown_by_step\":{\"x\":1}}").status()));
}

// A report that somebody acts upon: doubt first, and no advice then; no gain below nothing, none above all.
TEST_F(ReportTest, DoubtStandsFirstAndAdvisesNothing) {
  const std::string sure = ReportText({job_, analysis_, causes_, {}});
  EXPECT_THAT(sure, HasSubstr("           -> "));
  EXPECT_THAT(sure, Not(HasSubstr("DOUBTFUL")));
  analysis_.discrepancy = 0.16;
  const std::string doubtful = ReportText({job_, analysis_, causes_, {}});
  EXPECT_LT(doubtful.find("DOUBTFUL: the replay of what was recorded is 16.0 % off"),
            doubtful.find("Stragglers waste"));
  EXPECT_THAT(doubtful, Not(HasSubstr("-> ")));
}

TEST_F(ReportTest, SharesAreSharesAndOfAHealthyJobThereAreNone) {
  analysis_.m_w.removed = 1.219;
  analysis_.m_s.removed = -0.07;
  const std::string text = ReportText({job_, analysis_, causes_, {}});
  EXPECT_THAT(text, HasSubstr("workers regains all of what is lost (M_W)"));
  EXPECT_THAT(text, HasSubstr("the last stage regains nothing (M_S)"));
  analysis_.slowdown = 1.02;
  EXPECT_THAT(ReportText({job_, analysis_, {}, {}}), Not(HasSubstr("regains")));
}

TEST(AdviceTest, EachSlowWorkerIsQuotedWithTheGainOfFixingItAlone) {
  benchmarks::SyntheticJob made_up;
  made_up.slow_dp = 2;
  made_up.slow_stage = 0;
  made_up.shape.dp_size = 8;
  made_up.shape.pp_size = 1;
  made_up.slow_factor = 1.6;
  const benchmarks::ExecutedJob executed = benchmarks::Execute(made_up);
  TraceRecords records;
  for (size_t i = 0; i < executed.records.size(); ++i) {
    OperationRecord record = executed.records[i];
    if (record.dp_rank == 5 && IsCompute(static_cast<OperationType>(record.type))) record.duration_s *= 1.3F;
    records.Add(record);
  }
  absl::StatusOr<Trace> trace = BuildTrace(records, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  const absl::StatusOr<Job> job = MakeJob(*std::move(trace));
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Analysis> analysis = Analyse(*job, 1);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  const auto faster = [&](const std::vector<Selection>& chosen) {
    const double percent = 100 * (Ask(*job, *analysis, Scenario::Chosen::kFix, chosen, 1).speedup - 1);
    if (percent < 0.25) return std::string("no faster");
    return absl::StrFormat("%.*f %% faster", percent < 10 ? 2 : 1, percent);
  };
  const Selection one = Selection::Worker(2, 0);
  const Selection other = Selection::Worker(5, 0);
  ASSERT_NE(faster({one}), faster({one, other}));
  const Causes causes = FindCauses(*job, *analysis, 1);
  const auto worker = std::find_if(causes.causes.begin(), causes.causes.end(),
                                   [](const Cause& cause) { return cause.kind == CauseKind::kWorker; });
  ASSERT_NE(worker, causes.causes.end());
  for (const auto& [rank, gain] :
       {std::pair(job->trace.Rank(2, 0), faster({one})), std::pair(job->trace.Rank(5, 0), faster({other}))}) {
    EXPECT_THAT(worker->advice, HasSubstr(absl::StrFormat("rank %d: %s", rank, gain)));
  }
  EXPECT_THAT(worker->advice, HasSubstr("of all 2 together: " + faster({one, other})));
  ASSERT_EQ(worker->gains.size(), 3U);
  EXPECT_EQ(worker->gains[2].fix.size(), 2U);
}

absl::StatusOr<Job> Overlapping() {
  benchmarks::SyntheticJob made_up;
  made_up.slow_dp = 1;
  made_up.slow_stage = 2;
  made_up.slow_factor = 1.4;
  made_up.last_stage_factor = 1.6;
  absl::StatusOr<Trace> trace = BuildTrace(benchmarks::Execute(made_up).records, {});
  return trace.ok() ? MakeJob(*std::move(trace)) : trace.status();
}

// Each gain is what --fix says, and all together is not the sum.
TEST(AdviceTest, EveryGainIsWhatAskingForItSays) {
  const absl::StatusOr<Job> job = Overlapping();
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Analysis> analysis = Analyse(*job, 1);
  ASSERT_TRUE(analysis.ok()) << analysis.status();
  const Causes causes = FindCauses(*job, *analysis, 1);
  ASSERT_EQ(causes.causes.size(), 2U);
  const Remedies remedies(*job);
  double sum = 0;
  for (const Cause& cause : causes.causes) {
    EXPECT_DOUBLE_EQ(remedies.StepTime_s({{}, CauseBit(cause.kind)}, 1), cause.step_time_s);
    EXPECT_THAT(cause.advice, HasSubstr(GainText(cause.gains.back().percent())));
    sum += cause.gains.back().percent();
  }
  const Answer together =
      remedies.Ask(*analysis, {{Selection::Worker(1, 2)}, CauseBit(CauseKind::kStageImbalance)}, 1);
  EXPECT_DOUBLE_EQ(causes.together.answer.speedup, together.speedup);
  EXPECT_GT(std::abs(sum - causes.together.percent()), 0.5);
  EXPECT_EQ(causes.together.fix.size(), 2U);
  const std::string text = ReportText({*job, *analysis, causes, {}, true});
  EXPECT_THAT(text, HasSubstr("All of this together: " + GainText(causes.together.percent())));
  EXPECT_THAT(text, HasSubstr("% once the others are fixed)"));
  EXPECT_THAT(text, HasSubstr("Why not\n"));
  EXPECT_THAT(text, HasSubstr("  pauses: no forward computation takes a quarter longer"));
  const nlohmann::json json = nlohmann::json::parse(ReportJson({*job, *analysis, causes, {}}));
  EXPECT_DOUBLE_EQ(json["gain_together"]["speedup"].get<double>(), together.speedup);
  EXPECT_EQ(json["causes"].size() + json["causes_left_out"].size(), kCauseKinds);
}

TEST(RemediesTest, WordsOfCausesAreUnderstoodBothWays) {
  for (uint32_t i = 0; i <= kCauseKinds; ++i) {
    const uint32_t bit = uint32_t{1} << i;
    EXPECT_EQ(ParseCause(CauseWord(bit)), bit);
  }
  EXPECT_FALSE(ParseCause("gremlins").has_value());
}

TEST(DrawingsTest, ALifeOfAnyLength) {
  EXPECT_THAT(LifeSvg("job", {}), HasSubstr("</svg>"));
  EXPECT_EQ(Count(LifeSvg("job", {{5'000'000'000, 1.3, false}}), "<circle"), 1U);
  const std::string svg = LifeSvg("job", {{0, 1, false}, {86'400'000'000'000, 9.5, true}});
  EXPECT_THAT(svg, HasSubstr("1970-01-02 00:00:00 UTC: 9.500, doubtful"));
  // Along the axis the clock, and each date once.
  EXPECT_EQ(Count(svg, ">03:00:00<"), 1U);
  EXPECT_EQ(Count(svg, ">1970-01-01<"), 1U);
  EXPECT_EQ(Count(svg, ">1970-01-02<"), 1U);
  EXPECT_THAT(svg, HasSubstr("points=\"60,200 960,"));
  EXPECT_THAT(StepsSvg("none", {}), HasSubstr("</svg>"));
}

TEST(DrawingsTest, AMapHasAScaleNumbersAndItsWholeTitle) {
  WorkerMap map;
  map.title = std::string(300, 'j') + " slow-down 1.4; by worker";
  map.dp_size = 2;
  map.pp_size = 1;
  map.ranks = {0, 4};
  map.slowdown = {1.02, 1.4};
  const std::string svg = HeatmapSvg(map);
  EXPECT_THAT(svg, AllOf(HasSubstr(">1.02<"), HasSubstr(">1.40<")));
  EXPECT_THAT(svg, AllOf(HasSubstr(">1.00<"), HasSubstr(">1.25<"), HasSubstr(">1.50 and more<")));
  // The title's lines: none is wider than the picture, nothing is lost.
  EXPECT_EQ(Count(svg, "j"), 300U + Count(HeatmapSvg({"", 2, 1, {0, 4}, {1.02, 1.4}, {}}), "j"));
  EXPECT_THAT(svg, HasSubstr("slow-down 1.4; by worker</text>"));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(svg, '\n'))) {
    EXPECT_LE(Count(line, "j"), 51U) << line;
  }
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  map.dp_size = 100;
  map.ranks.assign(100, 0);
  map.slowdown.assign(100, 1.44);
  EXPECT_THAT(HeatmapSvg(map), Not(HasSubstr(">1.44<"))) << "no room";
}

}  // namespace
}  // namespace c4::whatif
