// How closely simulated jobs are watched: all around what may fool the master, and a sample of the rest.
#include "benchmarks/job_cadence.h"

#include "gtest/gtest.h"

namespace c4::benchmarks {
namespace {

using jobsim::kSecondNs;
using jobsim::Rhythm;

constexpr int64_t kFineNs = 250 * jobsim::kMillisecondNs;
constexpr int64_t kDayNs = 86'400 * kSecondNs;

jobsim::JobPlan OneLife() {
  jobsim::JobPlan plan;
  plan.lives.emplace_back();
  return plan;
}

Rhythm Quiet(uint64_t behind, uint64_t ahead) {
  return {.behind = behind, .ahead = ahead, .step_ns = kSecondNs};
}

TEST(FaultCadence, IsFineFromBeforeTheFaultUntilAllIsAtRestAndAgainAtTheLimit) {
  const FaultCadence cadence{
      .ready_ns = 10 * kSecondNs, .fault_ns = 100 * kSecondNs, .stands_still = true, .limit_s = 125};
  const int64_t shown_ns = 103 * kSecondNs;
  for (const auto& [at_s, fine] : {std::pair(5, false),
                                   {12, true},
                                   {40, false},
                                   {96, true},
                                   {119, true},
                                   {140, false},
                                   {217, false},
                                   {219, true},
                                   {228, true}}) {
    EXPECT_EQ(cadence.Next(at_s * kSecondNs, shown_ns), fine ? kFineNs : kCoarseNs) << at_s;
  }
}

TEST(FaultCadence, WhatAgentsDoIsWatchedToTheEnd) {
  const FaultCadence cadence{.fault_ns = 100 * kSecondNs, .harmless = true};
  EXPECT_EQ(cadence.Next(190 * kSecondNs, 0), kFineNs);
}

TEST(HealthyCadence, SkipsAfterASampleAndStopsWellBeforeWhatComes) {
  HealthyCadence cadence(OneLife(), kDayNs);
  int64_t at_ns = 1000 * kSecondNs;
  EXPECT_TRUE(cadence.Next(at_ns, Quiet(70, 500), at_ns).mark);
  uint64_t skips = 0;
  int watched = 0;
  for (; skips == 0 && watched < 100; ++watched) {
    at_ns += kSecondNs;
    const HealthyCadence::Step step = cadence.Next(at_ns, Quiet(70, 500), at_ns);
    EXPECT_FALSE(step.mark);
    EXPECT_EQ(step.wait_ns, kCoarseNs);
    skips = step.skips;
  }
  EXPECT_EQ(watched, 30);
  EXPECT_EQ(skips, 500U - 45U);
}

TEST(HealthyCadence, NothingIsSkippedNearACheckpointOrWhatThePlanHas) {
  jobsim::JobPlan plan = OneLife();
  plan.agents.push_back({.at_ns = 5000 * kSecondNs, .lasts_ns = 30 * kSecondNs});
  for (const auto& [at_s, rhythm] : {std::pair(1000, Quiet(59, 500)),
                                     {1000, Quiet(70, 44)},
                                     {1000, Rhythm()},
                                     {4956, Quiet(900, 900)},
                                     {5089, Quiet(900, 900)},
                                     {86'380, Quiet(900, 900)}}) {
    HealthyCadence cadence(plan, kDayNs);
    for (int64_t i = 0; i < 60; ++i) {
      const HealthyCadence::Step step = cadence.Next(at_s * kSecondNs, rhythm, 0);
      EXPECT_EQ(step.skips, 0U) << at_s;
      EXPECT_FALSE(step.mark) << at_s;
    }
  }
  // Where the plan has something ahead, it is skipped up to well before that.
  HealthyCadence cadence(plan, kDayNs);
  EXPECT_TRUE(cadence.Next(4700 * kSecondNs, Quiet(900, 900), 0).mark);
  EXPECT_EQ(cadence.Next(4800 * kSecondNs, Quiet(900, 900), 0).skips, 155U);
}

TEST(HealthyCadence, AStandstillIsFineUntilAllIsAtRest) {
  HealthyCadence cadence(OneLife(), kDayNs);
  const int64_t at_ns = 1000 * kSecondNs;
  EXPECT_EQ(cadence.Next(at_ns, Quiet(0, 0), at_ns - kSecondNs).wait_ns, kFineNs);
  EXPECT_EQ(cadence.Next(at_ns, Quiet(0, 0), at_ns - 11 * kSecondNs).wait_ns, kCoarseNs);
}

}  // namespace
}  // namespace c4::benchmarks
