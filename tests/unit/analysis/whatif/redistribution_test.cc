#include "analysis/whatif/redistribution.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace c4::whatif {
namespace {

TEST(DealOut, LongestFirstIntoTheLeast) {
  const std::vector<double> work = {1, 7, 3, 5, 4, 4};
  EXPECT_EQ(DealOut(work, 2, 0), (std::vector<size_t>{0, 0, 1, 1, 1, 0}));
  // Room for three each.
  const std::vector<double> skewed = {10, 1, 1, 1, 1, 1};
  const std::vector<size_t> bins = DealOut(skewed, 2, 3);
  EXPECT_EQ(std::count(bins.begin(), bins.end(), 0), 3);
}

TEST(Redistribute, BalancesLongTailedBatches) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> length(6.5, 1.2);
    std::vector<uint32_t> tokens(512);
    for (uint32_t& count : tokens) count = static_cast<uint32_t>(std::clamp(length(random), 16.0, 8192.0));
    const SequenceCost cost = {.per_token = 1, .per_token_squared = 1e-4};
    const std::vector<Place> places = Redistribute(tokens, 8, 4, cost, 0);
    std::vector<double> ranks(8);
    std::vector<double> in_turn(8);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(places[i].dp_rank >= 0 && places[i].dp_rank < 8);
      ASSERT_TRUE(places[i].micro_batch >= 0 && places[i].micro_batch < 4);
      ranks[static_cast<size_t>(places[i].dp_rank)] += cost.Of(tokens[i]);
      in_turn[i % 8] += cost.Of(tokens[i]);
    }
    const double mean = std::accumulate(ranks.begin(), ranks.end(), 0.0) / 8;
    EXPECT_LT(*std::max_element(ranks.begin(), ranks.end()) / mean, 1.01);
    EXPECT_LT(*std::max_element(ranks.begin(), ranks.end()),
              *std::max_element(in_turn.begin(), in_turn.end()));
  }
}

TEST(Redistribute, KeepsToTheRoomOfAMicroBatchAndLosesNothing) {
  const std::vector<uint32_t> tokens(16, 100);
  std::vector<int> held(4);
  for (const Place& place : Redistribute(tokens, 2, 2, {}, 400))
    ++held[static_cast<size_t>(place.dp_rank) * 2 + static_cast<size_t>(place.micro_batch)];
  EXPECT_EQ(held, (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(Redistribute(tokens, 2, 2, {}, 50).size(), 16U);
  EXPECT_TRUE(Redistribute({}, 2, 2, {}, 50).empty());
}

}  // namespace
}  // namespace c4::whatif
