#include "analysis/mitigation/micro_batches.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

namespace c4::mitigation {
namespace {

using Counts = std::vector<int64_t>;

std::vector<double> SortedTimes(const std::vector<double>& times_s, const Counts& counts, int stages) {
  std::vector<double> done;
  for (size_t i = 0; i < counts.size(); ++i) done.push_back(GroupTime(times_s[i], counts[i], stages));
  std::sort(done.begin(), done.end(), std::greater<>());
  return done;
}

// All distributions, one after the other: the best one's times, the slowest group first.
void TryAll(const std::vector<double>& times_s, int64_t left, int stages, Counts* counts,
            std::vector<double>* best) {
  if (counts->size() + 1 == times_s.size()) {
    counts->push_back(left);
    std::vector<double> done = SortedTimes(times_s, *counts, stages);
    if (best->empty() || done < *best) *best = std::move(done);
    counts->pop_back();
    return;
  }
  const auto others = static_cast<int64_t>(times_s.size() - counts->size() - 1);
  for (int64_t count = 1; count + others <= left; ++count) {
    counts->push_back(count);
    TryAll(times_s, left - count, stages, counts, best);
    counts->pop_back();
  }
}

std::vector<double> RandomTimes(std::mt19937_64* random, size_t groups) {
  std::vector<double> times_s;
  const auto kind = (*random)() % 4;
  for (size_t i = 0; i < groups; ++i) {
    const double unit = std::uniform_real_distribution<>(0, 1)(*random);
    if (kind == 0) times_s.push_back(static_cast<double>(1 + (*random)() % 4));  // ties
    if (kind == 1) times_s.push_back(0.5 + unit);
    if (kind == 2) times_s.push_back(std::pow(10.0, 24 * unit - 12));       // huge spreads
    if (kind == 3) times_s.push_back((*random)() % 3 == 0 ? 1 + unit : 1);  // some are slow
  }
  return times_s;
}

// Nobody could give one of his away so that it were done earlier elsewhere: then no distribution is better.
void ExpectOptimal(const std::vector<double>& times_s, const MicroBatchPlan& plan, int64_t micro_batches,
                   int stages) {
  ASSERT_EQ(plan.micro_batches.size(), times_s.size());
  EXPECT_EQ(std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), int64_t{0}), micro_batches);
  double slowest_s = 0;
  double soonest_s = std::numeric_limits<double>::infinity();
  double last_given_s = 0;
  for (size_t i = 0; i < times_s.size(); ++i) {
    ASSERT_GE(plan.micro_batches[i], 1);
    const double done_s = GroupTime(times_s[i], plan.micro_batches[i], stages);
    slowest_s = std::max(slowest_s, done_s);
    if (plan.micro_batches[i] > 1) last_given_s = std::max(last_given_s, done_s);
    soonest_s = std::min(soonest_s, GroupTime(times_s[i], plan.micro_batches[i] + 1, stages));
  }
  EXPECT_EQ(plan.iteration_s, slowest_s);
  EXPECT_LE(last_given_s, soonest_s);
  EXPECT_LE(plan.iteration_s, plan.even_s);
  EXPECT_LE(plan.ideal_s, plan.iteration_s);
}

TEST(MicroBatches, IsAsGoodAsTheBestOfAll) {
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    const size_t groups = 1 + random() % 5;
    const auto micro_batches = static_cast<int64_t>(groups + random() % 9);
    const int stages = seed % 2 == 0 ? 1 : static_cast<int>(1 + random() % 6);
    const std::vector<double> times_s = RandomTimes(&random, groups);
    const auto plan = DistributeMicroBatches(times_s, micro_batches, stages);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<double> best;
    Counts counts;
    TryAll(times_s, micro_batches, stages, &counts, &best);
    ASSERT_EQ(plan->iteration_s, best.front()) << "seed " << seed;
    ASSERT_EQ(SortedTimes(times_s, plan->micro_batches, stages), best) << "seed " << seed;
    ExpectOptimal(times_s, *plan, micro_batches, stages);
  }
}

TEST(MicroBatches, HoldsForManyGroups) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const size_t groups = 1 + random() % 2000;
    const auto micro_batches = static_cast<int64_t>(groups * (1 + random() % 40) + random() % groups);
    const std::vector<double> times_s = RandomTimes(&random, groups);
    const auto plan = DistributeMicroBatches(times_s, micro_batches);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectOptimal(times_s, *plan, micro_batches, 1);
  }
  const std::vector<double> spread = {1e-12, 1e12, 1, std::numeric_limits<double>::denorm_min()};
  const auto plan = DistributeMicroBatches(spread, kMostMicroBatches);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectOptimal(spread, *plan, kMostMicroBatches, 1);
  EXPECT_EQ(plan->micro_batches[1], 1);
}

TEST(MicroBatches, TakesWorkFromTheSlowGroup) {
  // The least slowest group; the least variance would be 3, 6, 3.
  const auto three = DistributeMicroBatches(std::vector<double>{2, 1, 2.5}, 12);
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->micro_batches, (Counts{3, 7, 2}));
  EXPECT_EQ(three->iteration_s, 7);
  EXPECT_EQ(three->even_s, 10);
  // One of four is twice as slow: 16 s become 10, of 8 without it.
  const auto four = DistributeMicroBatches(std::vector<double>{1, 1, 2, 1}, 32);
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(four->micro_batches, (Counts{10, 9, 4, 9}));
  EXPECT_EQ(four->iteration_s, 10);
  EXPECT_EQ(four->even_s, 16);
  EXPECT_NEAR(four->ideal_s, 32 / 3.5, 1e-12);
}

TEST(MicroBatches, EqualTimesStayEven) {
  const auto equal = DistributeMicroBatches(std::vector<double>(4, 0.3), 10);
  ASSERT_TRUE(equal.ok());
  EXPECT_EQ(equal->micro_batches, EvenMicroBatches(4, 10));
  EXPECT_EQ(equal->micro_batches, (Counts{3, 3, 2, 2}));
  EXPECT_EQ(equal->iteration_s, equal->even_s);
  const auto one = DistributeMicroBatches(std::vector<double>{0.5}, 7);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->micro_batches, (Counts{7}));
  EXPECT_EQ(one->iteration_s, 3.5);
}

// The gradient is that of the whole batch, whoever computed which part of it.
TEST(MicroBatches, WeightsKeepTheGradient) {
  std::mt19937_64 random(7);
  std::normal_distribution<> normal;
  std::vector<double> gradients(64);
  for (double& gradient : gradients) gradient = normal(random);
  const double whole = std::accumulate(gradients.begin(), gradients.end(), 0.0) / 64;
  const auto plan = DistributeMicroBatches(std::vector<double>{1, 3, 1.2, 0.9, 2}, 64);
  ASSERT_TRUE(plan.ok());
  double sum = 0;
  double weights = 0;
  size_t next = 0;
  for (size_t group = 0; group < 5; ++group) {
    double mean = 0;
    for (int64_t i = 0; i < plan->micro_batches[group]; ++i) mean += gradients[next++];
    mean /= static_cast<double>(plan->micro_batches[group]);
    sum += plan->weights[group] * mean;
    weights += plan->weights[group];
  }
  EXPECT_EQ(next, 64u);
  EXPECT_NEAR(sum, whole, 1e-15);
  EXPECT_NEAR(weights, 1, 1e-15);
  // Equal weights would learn something else.
  EXPECT_NE(plan->micro_batches[0], plan->micro_batches[1]);
}

TEST(MicroBatches, RefusesWithASentence) {
  const auto refusal = [](const std::vector<double>& times_s, int64_t micro_batches, int stages = 1) {
    const auto plan = DistributeMicroBatches(times_s, micro_batches, stages);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  EXPECT_EQ(refusal({}, 4), "there is no group: give the time of each one");
  EXPECT_EQ(refusal({1, 1, 1}, 2),
            "2 micro-batches are too few for 3 groups: each one computes at least one");
  EXPECT_EQ(refusal({1, 1}, 1), "1 micro-batch is too few for 2 groups: each one computes at least one");
  refusal({1, 1}, -5);
  const double nan = std::nan("");
  for (const double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity(), 2e12}) {
    EXPECT_NE(refusal({1, bad}, 4).find("the time of group 1 is "), std::string::npos) << bad;
  }
  EXPECT_NE(refusal({1, 1}, kMostMicroBatches + 1).find("beyond"), std::string::npos);
  EXPECT_NE(refusal(std::vector<double>(kMostGroups + 1, 1), kMostMicroBatches).find("groups are more"),
            std::string::npos);
  EXPECT_EQ(refusal({1}, 4, 0), "a pipeline has 1 to 65536 stages, not 0");
}

}  // namespace
}  // namespace c4::mitigation
