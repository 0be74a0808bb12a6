#include "analysis/mitigation/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::mitigation {
namespace {

using testing::HasSubstr;

constexpr char kStored[] = R"({"title": "a < b", "runs": [
  {"name": "without", "iterations": [{"at_s": 1, "ms": 100}, {"at_s": 2, "ms": 200}],
   "events": [{"from_s": 1, "until_s": 2, "what": "rank 2 & more"}]},
  {"name": "with", "mitigated": true, "iterations": [{"at_s": 1, "ms": 100}, {"at_s": 2, "ms": 120}],
   "actions": [{"at_s": 1.5, "strategy": "S2", "kind": "act", "why": "it costs 1 < 2"},
               {"at_s": 1.8, "strategy": "S2", "kind": "step-back"}]}]})";

TEST(MitigationTimeline, IsReadFromAStoredRun) {
  const auto timeline = ParseTimeline(kStored);
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_EQ(timeline->runs.size(), 2u);
  EXPECT_FALSE(timeline->runs[0].mitigated);
  EXPECT_TRUE(timeline->runs[1].mitigated);
  EXPECT_EQ(timeline->runs[0].iterations[1].ms, 200);
  EXPECT_EQ(timeline->runs[0].events[0].what, "rank 2 & more");
  EXPECT_EQ(timeline->runs[1].actions[0].why, "it costs 1 < 2");
}

TEST(MitigationTimeline, IsDrawnWithEventsAndActions) {
  const std::string svg = TimelineSvg(*ParseTimeline(kStored));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("<title>rank 2 &amp; more</title>"));
  EXPECT_THAT(svg, HasSubstr("S2 act: it costs 1 &lt; 2"));
  EXPECT_THAT(svg, HasSubstr(">S2 back</text>"));
  // Half of 2 s is in the middle of the axis; 100 ms are half as high as 200.
  const size_t line = svg.find("<polyline");
  ASSERT_NE(line, std::string::npos);
  double x1 = 0;
  double y1 = 0;
  double x2 = 0;
  double y2 = 0;
  ASSERT_EQ(sscanf(svg.c_str() + svg.find("points=\"", line), "points=\"%lf,%lf %lf,%lf", &x1, &y1, &x2, &y2),
            4);
  EXPECT_EQ(x1, 60 + 440);
  EXPECT_EQ(x2, 60 + 880);
  EXPECT_LT(y2, y1);
}

TEST(MitigationTimeline, WhatIsNoStoredRunIsRefusedWithASentence) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "no stored run"},
      {"[]", "no stored run"},
      {R"({"runs": []})", "no stored run"},
      {R"({"runs": [{"iterations": []}]})", "a run is an object with a \"name\""},
      {R"({"runs": [{"name": "x"}]})", "run x has no \"iterations\""},
      {R"({"runs": [{"name": "x", "iterations": [{"at_s": 1, "ms": 0}]}]})", "iteration 0 (from 0)"},
      {R"({"runs": [{"name": "x", "iterations": [{"at_s": 1, "ms": 5}], "events": [{"from_s": 3, "until_s": 1,
          "what": "y"}]}]})",
       "event 0 (from 0)"},
      {R"({"runs": [{"name": "x", "iterations": [{"at_s": 1, "ms": 5}], "actions": [{"at_s": -1}]}]})",
       "action 0 (from 0)"},
  };
  for (const auto& [text, sentence] : wrong) {
    const auto parsed = ParseTimeline(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace c4::mitigation
