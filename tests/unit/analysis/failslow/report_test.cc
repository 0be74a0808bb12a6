#include "analysis/failslow/report.h"

#include <cmath>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace c4::failslow {
namespace {

SeriesReport SlowAfter50() {
  SeriesReport report = {.title = "a<b.txt", .times_s = std::vector<double>(100, 1)};
  std::fill(report.times_s.begin() + 50, report.times_s.end(), 2);
  report.times_s[7] = std::nan("");
  report.changes = {{.iteration = 50, .before_s = 1, .after_s = 2, .told_at = 52}};
  return report;
}

TEST(SeriesReport, JsonSaysWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(SeriesJson(SlowAfter50()));
  EXPECT_TRUE(json["period"].is_null());
  EXPECT_EQ(json["iterations"], 100);
  EXPECT_EQ(json["changes"][0]["iteration"], 50);
  EXPECT_EQ(json["changes"][0]["before_s"], 1.0);
  EXPECT_EQ(json["changes"][0]["after_s"], 2.0);
  EXPECT_TRUE(nlohmann::json::parse(SeriesJson({}))["median_s"].is_null());
}

TEST(SeriesReport, TextFitsItsColumns) {
  const std::string text = SeriesText(SlowAfter50(), 80);
  EXPECT_NE(text.find("iteration 50: 1 s -> 2 s, 100 % slower"), std::string::npos) << text;
  size_t columns = 0;
  for (const char c : text) {
    if (c == '\n') columns = 0;
    if (c != '\n' && (static_cast<unsigned char>(c) & 0xc0) != 0x80) ++columns;
    ASSERT_LE(columns, 80u);
  }
}

TEST(SeriesReport, DrawingIsWellFormedAndDarkOnADarkPage) {
  const std::string svg = SeriesSvg(SlowAfter50());
  EXPECT_EQ(svg.find("<svg"), 0u);
  EXPECT_NE(svg.find("a&lt;b.txt"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("class=\"limit\""), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(SeriesSvg({}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace c4::failslow
