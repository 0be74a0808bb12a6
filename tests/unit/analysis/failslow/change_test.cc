#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "analysis/failslow/change_detector.h"
#include "analysis/failslow/job_changes.h"
#include "analysis/failslow/run_length.h"
#include "benchmarks/iteration_series.h"

namespace c4::failslow {
namespace {

std::vector<double> Noisy(std::vector<std::pair<int, double>> parts, double sigma, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> times;
  for (const auto& [count, level_s] : parts) {
    for (int i = 0; i < count; ++i) times.push_back(level_s * (1 + sigma * normal(random)));
  }
  return times;
}

TEST(Changes, OnsetAndReliefWithTheirFigures) {
  const std::vector<Change> changes = FindChanges(Noisy({{100, 2}, {50, 3}, {100, 2}}, 0.01, 1));
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].iteration, 100u);
  EXPECT_NEAR(changes[0].before_s, 2, 0.02);
  EXPECT_NEAR(changes[0].after_s, 3, 0.03);
  EXPECT_LE(changes[0].told_at, 103u);
  EXPECT_EQ(changes[1].iteration, 150u);
  EXPECT_LE(changes[1].told_at, 153u);
}

TEST(Changes, OfATenthAndBackWhateverTheUnit) {
  for (const double unit : {1e-6, 1e-3, 1.0, 5e3}) {
    const std::vector<Change> changes =
        FindChanges(Noisy({{80, unit}, {80, 1.1 * unit}, {80, unit}}, 0.005, 2));
    ASSERT_EQ(changes.size(), 2u) << unit;
    EXPECT_EQ(changes[0].iteration, 80u);
    EXPECT_EQ(changes[1].iteration, 160u);
  }
}

TEST(Changes, NoneOfWhatStaysBelowATenth) {
  EXPECT_TRUE(FindChanges(Noisy({{150, 1}, {150, 1.06}, {150, 1}}, 0.01, 3)).empty());
}

TEST(Changes, NoneOfPausesSpikesAndALongStart) {
  std::vector<double> times = Noisy({{600, 10}}, 0.01, 4);
  for (size_t i = 19; i < times.size(); i += 20) times[i] *= 3;
  times[0] *= 8;
  times[1] *= 3;
  times[301] *= 1.5;  // beside a pause
  EXPECT_TRUE(FindChanges(times).empty());
}

TEST(Changes, NoneOfEqualTimes) {
  EXPECT_TRUE(FindChanges(std::vector<double>(500, 1.5)).empty());
}

TEST(Changes, TimesThatAreNoneKeepTheirPlace) {
  std::vector<double> times = Noisy({{100, 2}, {100, 3}}, 0.01, 5);
  times[10] = std::numeric_limits<double>::quiet_NaN();
  times[20] = std::numeric_limits<double>::infinity();
  times[30] = 0;
  times[40] = -1;
  const std::vector<Change> changes = FindChanges(times);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].iteration, 100u);
  EXPECT_TRUE(FindChanges(std::vector<double>(100, -1.0)).empty());
}

// What is no change must not hide the one that comes.
TEST(Changes, AStepIsToldAtOnceWhateverCameBefore) {
  const auto expect_at_once = [](const std::vector<double>& times, uint64_t iteration, const char* what) {
    const std::vector<Change> changes = FindChanges(times);
    ASSERT_EQ(changes.size(), 1u) << what;
    EXPECT_EQ(changes[0].iteration, iteration) << what;
    EXPECT_LE(changes[0].told_at, iteration + 3) << what;
  };
  std::vector<double> pauses = Noisy({{150, 2}, {50, 2.5}}, 0.002, 11);
  pauses[60] *= 2;  // two in a row, and another two
  pauses[61] *= 2.4;
  pauses[90] *= 1.6;
  pauses[91] *= 3;
  expect_at_once(pauses, 150, "pauses in a row");

  std::vector<double> slow_start = Noisy({{120, 2}, {50, 2.3}}, 0.002, 12);
  for (const size_t i : {0, 1, 2, 3}) slow_start[i] *= 6;
  expect_at_once(slow_start, 120, "a slow start");

  std::vector<double> mixed = Noisy({{150, 2}, {50, 1.7}}, 0.002, 13);
  mixed[151] *= 1.3;  // two pauses among the first of the new level
  mixed[152] *= 2.5;
  const std::vector<Change> changes = FindChanges(mixed);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].iteration, 150u);
  EXPECT_LE(changes[0].told_at, 155u);
}

TEST(Changes, AShortEpisodeAfterADriftEndsAtOnce) {
  std::vector<double> times = Noisy({{500, 2}, {15, 2.4}, {100, 2}}, 0.001, 14);
  for (size_t i = 0; i < times.size(); ++i) times[i] *= 1 + 0.07 * static_cast<double>(i) / 600;
  const std::vector<Change> changes = FindChanges(times);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[1].iteration, 515u);
  EXPECT_LE(changes[1].told_at, 518u);
}

TEST(Changes, FewIterationsThatDifferAreNoLevel) {
  for (const double ratio : {0.8, 1.3}) {
    const std::vector<double> times = Noisy({{200, 2}, {4, 2 * ratio}, {200, 2}}, 0.005, 15);
    EXPECT_TRUE(FindChanges(times).empty()) << ratio;
  }
}

TEST(Changes, TheLargestOfSeveralStepsIsThePlace) {
  const std::vector<Change> changes = FindChanges(Noisy({{100, 2}, {6, 2.2}, {100, 3}}, 0.002, 16));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].iteration, 106u);
  EXPECT_NEAR(changes[0].before_s, 2, 0.02);
  EXPECT_NEAR(changes[0].after_s, 3, 0.02);
}

TEST(Changes, TooFewToJudge) {
  for (size_t count = 0; count < 11; ++count) {
    std::vector<double> times(count, 1);
    if (count > 0) times.back() = 2;
    EXPECT_TRUE(FindChanges(times).empty()) << count;
  }
}

TEST(Changes, ACreepIsToldWithWhereItBegan) {
  std::vector<double> times = Noisy({{400, 1}}, 0.005, 6);
  for (size_t i = 100; i < times.size(); ++i) times[i] *= 1 + 0.3 * static_cast<double>(i - 100) / 300;
  const std::vector<Change> changes = FindChanges(times);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].creeping);
  EXPECT_NEAR(static_cast<double>(changes[0].iteration), 100, 30);
  EXPECT_GT(changes[0].after_s, 1.2);
}

TEST(Changes, SeededSeriesAreJudgedRight) {
  for (const benchmarks::IterationSeries& series : benchmarks::MakeSeriesSet(40, 77)) {
    if (series.kind == benchmarks::SeriesKind::kCreep) continue;
    const std::vector<Change> changes = FindChanges(series.times_s);
    EXPECT_EQ(changes.size(), series.changes.size()) << SeriesKindName(series.kind);
  }
}

TEST(RunLength, ShortOnceTheLevelHasChanged) {
  RunLength run_length;
  run_length.Restart(5);
  const std::vector<double> times = Noisy({{100, 5}, {4, 6}}, 0.01, 8);
  for (size_t i = 0; i < 100; ++i) run_length.Add(times[i]);
  EXPECT_GE(run_length.MostProbable(), 90u);
  for (size_t i = 100; i < 104; ++i) run_length.Add(times[i]);
  EXPECT_EQ(run_length.MostProbable(), 4u);
  EXPECT_GT(run_length.Probability(3, 5), 0.9);
}

TEST(RunLength, AtMostItsLongest) {
  RunLength run_length({.longest = 16});
  for (int i = 0; i < 100; ++i) run_length.Add(1 + 0.001 * (i % 3));
  EXPECT_EQ(run_length.MostProbable(), 16u);
  EXPECT_NEAR(run_length.Probability(0, 16), 1, 1e-9);
}

TEST(JobChanges, OneEventOfAThousandRanks) {
  JobChanges job;
  for (int rank = 0; rank < 1000; ++rank) {
    EXPECT_EQ(job.Add({.rank = rank,
                       .at_ns = 1'000'000'000 * (rank % 3),
                       .before_s = 1,
                       .after_s = 1.4,
                       .stage = ChangeStage::kSuspected}),
              0u);
  }
  std::vector<JobChange> told = job.Take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].ranks, 1000u);
  EXPECT_EQ(told[0].confirmed, 0u);
  EXPECT_EQ(told[0].at_ns, 0);
  EXPECT_NEAR(told[0].after_s, 1.4, 1e-9);
  EXPECT_TRUE(job.Take().empty()) << "told once";
  // Its relief is another one, and so is a later onset.
  EXPECT_EQ(job.Add({.rank = 5, .at_ns = 2'000'000'000, .before_s = 1.4, .after_s = 1}), 1u);
  EXPECT_EQ(job.Add({.rank = 5, .at_ns = 90'000'000'000, .before_s = 1, .after_s = 1.4}), 2u);
  EXPECT_EQ(job.Take().size(), 2u);
}

TEST(JobChanges, WhatARankTellsAgainTakesThePlace) {
  JobChanges job;
  const auto tell = [&job](int rank, ChangeStage stage, double after_s) {
    job.Add({.rank = rank, .at_ns = 5, .before_s = 1, .after_s = after_s, .stage = stage});
  };
  for (int rank = 0; rank < 4; ++rank) tell(rank, ChangeStage::kSuspected, 1.2);
  tell(0, ChangeStage::kConfirmed, 1.3);
  tell(1, ChangeStage::kConfirmed, 1.3);
  tell(2, ChangeStage::kConfirmed, 1.3);
  tell(3, ChangeStage::kWithdrawn, 1.02);
  const std::vector<JobChange> told = job.Take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].ranks, 3u);
  EXPECT_EQ(told[0].confirmed, 3u);
  EXPECT_NEAR(told[0].after_s, 1.3, 1e-9);
  for (int rank = 0; rank < 3; ++rank) tell(rank, ChangeStage::kWithdrawn, 1);
  EXPECT_EQ(job.Take()[0].ranks, 0u);
}

}  // namespace
}  // namespace c4::failslow
