#include "analysis/mitigation/report.h"

#include <gtest/gtest.h>
#include <sstream>

#include <nlohmann/json.hpp>

namespace c4::mitigation {
namespace {

void ExpectFits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(MitigationReport, TellsMicroBatches) {
  const std::vector<double> times_s = {1, 1, 2, 1};
  const auto plan = DistributeMicroBatches(times_s, 32);
  ASSERT_TRUE(plan.ok());
  const auto json = nlohmann::json::parse(MicroBatchJson(*plan));
  EXPECT_EQ(json["micro_batches"], (std::vector<int>{10, 9, 4, 9}));
  EXPECT_EQ(json["iteration_s"], 10);
  EXPECT_EQ(json["even_s"], 16);
  EXPECT_EQ(json["weights"][2], 0.125);
  EXPECT_NEAR(json["ideal_s"].get<double>(), 32 / 3.5, 1e-9);
  const std::string text = MicroBatchText(times_s, *plan);
  EXPECT_NE(text.find("an iteration computes for 10 s; dealt out evenly for 16 s (37.5 % less)"),
            std::string::npos)
      << text;
  ExpectFits(text);
  const std::vector<double> many(100, 0.123456789);
  const std::string long_text = MicroBatchText(many, *DistributeMicroBatches(many, 1'000'000'000));
  EXPECT_NE(long_text.find("... and 68 more groups"), std::string::npos);
  EXPECT_NE(long_text.find("it cannot be bettered"), std::string::npos);
  ExpectFits(long_text);
}

TEST(MitigationReport, TellsPlacements) {
  PlacedJob job;
  job.groups = 2;
  job.places_per_node = 1;
  job.stages.assign(4, {4e-3, 8e-3, 800e6});
  job.micro_batches = {8, 8};
  job.activation_bytes = 20e6;
  job.state_bytes = 6e9;
  job.node_bytes_per_s = 50e9;
  job.inner_bytes_per_s = 450e9;
  EXPECT_NE(PlacementText(job, *FindPlacement(job, UsualPlacement(job))).find("costs nothing"),
            std::string::npos);
  job.slow_links = {{2, 3, 0.05}};
  const auto plan = FindPlacement(job, UsualPlacement(job));
  ASSERT_TRUE(plan.ok());
  const auto json = nlohmann::json::parse(PlacementJson(job, *plan));
  EXPECT_EQ(json["moves"].size(), plan->moves.size());
  EXPECT_EQ(json["moves"][0]["from_place"], plan->moves[0].from_place);
  EXPECT_EQ(json["placement"].size(), 8u);
  EXPECT_GT(json["removed"], 0.5);
  EXPECT_LT(json["after_s"], json["before_s"]);
  const std::string text = PlacementText(job, *plan);
  EXPECT_NE(text.find("of the slow-down go away"), std::string::npos);
  ExpectFits(text);
}

}  // namespace
}  // namespace c4::mitigation
