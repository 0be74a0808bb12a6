// What is told of counters, levels and events over time.
#include "c4a/health/watches.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "c4a/health/event_log.h"
#include "tests/unit/wire/golden.h"

namespace c4::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;

constexpr CounterRule kRule{RuleSource::kInfiniband, "symbol_error", "link-error", 10, "symbol errors", ""};

class CounterWatchTest : public ::testing::Test {
 protected:
  std::vector<HealthEvent> Take(uint64_t value, int64_t second) {
    std::vector<HealthEvent> events;
    watch_.Take(kRule, "mlx5_0", value, second * kSecond, &events);
    return events;
  }
  CounterWatch watch_;
};

TEST_F(CounterWatchTest, TheFirstValueTellsNothingAndGrowthDoes) {
  EXPECT_THAT(Take(1'000'000, 1), IsEmpty());
  EXPECT_THAT(Take(1'000'009, 2), IsEmpty());
  const auto events = Take(1'000'010, 8);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "link-error");
  EXPECT_EQ(events[0].device, "mlx5_0");
  EXPECT_EQ(events[0].number, 10U);
  EXPECT_EQ(events[0].text, "symbol errors: 10 within 7 s");
  EXPECT_EQ(events[0].at_ns, 8 * kSecond);
}

TEST_F(CounterWatchTest, SlowGrowthIsNoEvent) {
  uint64_t value = 0;
  for (int64_t second = 1; second < 3600; second += 10) {
    EXPECT_THAT(Take(value, second), IsEmpty());
    value += 1;  // six a minute
  }
}

TEST_F(CounterWatchTest, AStormIsToldOnceAMinute) {
  size_t told = 0;
  for (int64_t second = 1; second <= 300; ++second)
    told += Take(static_cast<uint64_t>(second) * 1000, second).size();
  EXPECT_EQ(told, 5U);
}

TEST_F(CounterWatchTest, ACounterThatGoesBackBeginsAnew) {
  (void)Take(1'000, 1);
  EXPECT_THAT(Take(5, 2), IsEmpty());
  EXPECT_THAT(Take(14, 3), IsEmpty());
  EXPECT_THAT(Take(15, 4), SizeIs(1));
}

TEST(LevelWatch, IsToldWhenEnteredAndAgainOnlyAfterARest) {
  LevelWatch watch;
  EXPECT_FALSE(watch.Entered("rule", "GPU 0", false, 1 * kSecond));
  EXPECT_TRUE(watch.Entered("rule", "GPU 0", true, 2 * kSecond));
  EXPECT_TRUE(watch.Entered("rule", "GPU 1", true, 2 * kSecond));
  for (int64_t second = 3; second < 600; ++second) {
    EXPECT_FALSE(watch.Entered("rule", "GPU 0", second % 5 != 0, second * kSecond))
        << second;  // comes and goes
  }
  EXPECT_TRUE(watch.Entered("rule", "GPU 0", true, 700 * kSecond));
}

HealthEvent Event(const std::string& kind, const std::string& device, int64_t second, uint64_t number = 0) {
  HealthEvent event;
  event.kind = kind;
  event.device = device;
  event.number = number;
  event.at_ns = second * kSecond;
  return event;
}

TEST(EventLog, MergesWhatTwoSourcesTell) {
  EventLog log;
  log.Add(Event("xid", "GPU 3", 10, 79), 10 * kSecond);
  log.Add(Event("xid", "GPU 3", 11, 79), 11 * kSecond);
  log.Add(Event("xid", "GPU 3", 11, 74), 11 * kSecond);
  log.Add(Event("xid", "GPU 2", 11, 79), 11 * kSecond);
  const auto& recent = log.Recent(12 * kSecond);
  ASSERT_THAT(recent, SizeIs(3));
  EXPECT_EQ(recent[0].event.times, 2U);
  EXPECT_EQ(recent[0].event.at_ns, 10 * kSecond);
  EXPECT_EQ(recent[0].sequence, 1U);
  EXPECT_EQ(recent[2].sequence, 3U);
  EXPECT_EQ(log.totals().at("xid"), 4U);
}

TEST(EventLog, WhatGoesOnIsToldAgainEachMinute) {
  EventLog log;
  for (int64_t second = 0; second < 100; ++second)
    log.Add(Event("pcie-error", "eth0", second), second * kSecond);
  EXPECT_THAT(log.Recent(100 * kSecond), SizeIs(2));
}

TEST(EventLog, ForgetsTheOld) {
  EventLog log;
  log.Add(Event("xid", "GPU 3", 10, 79), 10 * kSecond);
  EXPECT_THAT(log.Recent(130 * kSecond), SizeIs(1));
  EXPECT_THAT(log.Recent(131 * kSecond), IsEmpty());
}

TEST(EventLog, ADeviceThatShoutsHidesNoOther) {
  EventLog log;
  for (uint64_t i = 0; i < 1000; ++i)
    log.Add(Event("pcie-error", "PCI device " + std::to_string(i), 10), 10 * kSecond);
  log.Add(Event("xid", "GPU 3", 11, 79), 11 * kSecond);
  EXPECT_THAT(log.Recent(12 * kSecond), SizeIs(EventLog::kMostOfKindPerMinute + 1));
  EXPECT_EQ(log.left_out(), 1000U - EventLog::kMostOfKindPerMinute);
}

TEST(EventLog, IsBoundedWhateverComes) {
  EventLog log;
  for (int64_t second = 0; second < 600; ++second) {
    for (int kind = 0; kind < 40; ++kind) {
      log.Add(Event("kind" + std::to_string(kind), "d" + std::to_string(second), second), second * kSecond);
    }
    ASSERT_LE(log.Recent(second * kSecond).size(), EventLog::kMost);
  }
  EXPECT_GT(log.left_out(), 20'000U);
}

// The page and the table are one.
TEST(Rules, StandInTheManual) {
  const std::string page = wire::ReadSource("docs/health.md");
  for (const CounterRule& rule : CounterRules()) {
    const std::string row = "| `" + std::string(rule.counter) + "` | `" + std::string(rule.kind) + "` | " +
                            std::to_string(rule.per_minute) + " | " + std::string(rule.words) + " | " +
                            std::string(rule.reason) + " |";
    EXPECT_THAT(page, HasSubstr(row));
  }
  for (const LevelRule& rule : LevelRules()) {
    EXPECT_THAT(page, HasSubstr("| " + std::string(rule.name) + " | `" + std::string(rule.kind) + "` | "));
    EXPECT_THAT(page, HasSubstr(std::string(rule.unit) + " | " + std::string(rule.reason) + " |"));
  }
}

}  // namespace
}  // namespace c4::agent
