// What SMon decides without a clock: when sessions begin and end, and what is kept.
#include "c4d_master/smon/schedule.h"

#include <random>

#include "c4d_master/smon/retention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kUnixNs = 1'700'000'000 * kSecondNs;

Now At(int64_t seconds) {
  return {seconds * kSecondNs, kUnixNs + seconds * kSecondNs};
}

TEST(ScheduleTest, ASessionEveryPeriodAfterTheLastOne) {
  Schedule schedule(100 * kSecondNs);
  schedule.Start(At(1000), 0);
  EXPECT_FALSE(schedule.Due(At(1099)));
  EXPECT_TRUE(schedule.Due(At(1100)));
  schedule.Began(At(1150));  // late, or asked for
  EXPECT_FALSE(schedule.Due(At(1249)));
  EXPECT_TRUE(schedule.Due(At(1250)));
}

TEST(ScheduleTest, ARestartDoesNotBeginAnew) {
  Schedule schedule(100 * kSecondNs);
  schedule.Start(At(1000), kUnixNs + 940 * kSecondNs);
  EXPECT_FALSE(schedule.Due(At(1039)));
  EXPECT_TRUE(schedule.Due(At(1040)));
  // Long ago: at once. In the future, because the wall clock was set back: after one period.
  schedule.Start(At(1000), kUnixNs - 5000 * kSecondNs);
  EXPECT_TRUE(schedule.Due(At(1000)));
  schedule.Start(At(1000), kUnixNs + 99'000 * kSecondNs);
  EXPECT_FALSE(schedule.Due(At(1099)));
  EXPECT_TRUE(schedule.Due(At(1100)));
}

TEST(ScheduleTest, NoPeriodNoSession) {
  Schedule schedule(0);
  schedule.Start(At(1000), 0);
  EXPECT_FALSE(schedule.Due(At(1'000'000)));
}

TEST(SessionLimitsTest, StepsOrTime) {
  const SessionLimits limits = {.steps = 20, .at_most_ns = 60 * kSecondNs};
  EXPECT_FALSE(limits.Over(19, 100 * kSecondNs, At(159)));
  EXPECT_TRUE(limits.Over(20, 100 * kSecondNs, At(101)));
  EXPECT_TRUE(limits.Over(0, 100 * kSecondNs, At(160)));
}

TEST(RetentionTest, ByCountAndAge) {
  std::vector<KeptSession> sessions;
  for (uint64_t number = 1; number <= 6; ++number) {
    sessions.push_back({number, static_cast<int64_t>(number) * 10 * kSecondNs, number != 5});
  }
  const Retention by_count = {.reports = 2, .report_age_ns = 1000 * kSecondNs, .sessions = 5};
  Pruned pruned = Prune(sessions, by_count, 60 * kSecondNs);
  EXPECT_THAT(pruned.reports, ElementsAre(3, 2));  // 6 and 4 stay, 5 has none
  EXPECT_THAT(pruned.sessions, ElementsAre(1));
  const Retention by_age = {.reports = 10, .report_age_ns = 25 * kSecondNs, .sessions = 10};
  pruned = Prune(sessions, by_age, 60 * kSecondNs);
  EXPECT_THAT(pruned.reports, ElementsAre(3, 2, 1));
  EXPECT_THAT(pruned.sessions, IsEmpty());
  EXPECT_THAT(Prune({}, by_age, 0).reports, IsEmpty());
}

TEST(RetentionTest, WhateverThereIsTheBoundsHold) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<KeptSession> sessions(random() % 40);
    for (size_t i = 0; i < sessions.size(); ++i) {
      sessions[i] = {i + 1, static_cast<int64_t>(i * (random() % 10)), random() % 3 != 0};
    }
    const Retention retention = {random() % 10 + 1, static_cast<int64_t>(random() % 100), random() % 20 + 1};
    const int64_t now_ns = 200;
    const Pruned pruned = Prune(sessions, retention, now_ns);
    const auto is_in = [](const std::vector<uint64_t>& numbers, uint64_t number) {
      return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    };
    size_t kept = 0;
    size_t reports = 0;
    bool gone_before = true;  // only older ones than all that stay are gone
    for (const KeptSession& session : sessions) {
      if (is_in(pruned.sessions, session.number)) {
        EXPECT_TRUE(gone_before);
        continue;
      }
      gone_before = false;
      ++kept;
      if (!session.has_report || is_in(pruned.reports, session.number)) continue;
      ++reports;
      EXPECT_LE(now_ns - session.begun_unix_ns, retention.report_age_ns);
    }
    EXPECT_EQ(kept, std::min(sessions.size(), retention.sessions));
    EXPECT_LE(reports, retention.reports);
  }
}

}  // namespace
}  // namespace c4::c4d
