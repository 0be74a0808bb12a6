// The order in which notifications are tried, and when they are given up; by chance as well.
#include "c4d_master/alerts/outbox.h"

#include <gtest/gtest.h>
#include <random>

namespace c4::c4d {
namespace {

constexpr int64_t kBeginNs = 1'700'000'000 * kSecondNs;

AlertTarget Target(const std::string& name, int64_t retry_for_s = 3600) {
  AlertTarget target;
  target.name = name;
  target.retry_for_ns = retry_for_s * kSecondNs;
  return target;
}

WaitingNotification Made(uint64_t number, const std::string& target, int64_t at_s = 0) {
  WaitingNotification notification;
  notification.number = number;
  notification.target = target;
  notification.made_unix_ns = kBeginNs + at_s * kSecondNs;
  return notification;
}

int64_t At(double seconds) {
  return kBeginNs + static_cast<int64_t>(seconds * 1e9);
}

TEST(OutboxTest, OneATargetInItsOrderAndNobodyWaitsForAnother) {
  Outbox outbox;
  for (const uint64_t number : {1, 2}) outbox.Add(Made(number, "a"));
  outbox.Add(Made(3, "b"));
  auto due = outbox.Due(At(0));
  ASSERT_EQ(due.size(), 2U);
  EXPECT_EQ(due[0].number, 1U);
  EXPECT_EQ(due[1].number, 3U);
  EXPECT_TRUE(outbox.Due(At(1)).empty()) << "one is under way at each";
  EXPECT_EQ(outbox.Finished(1, Target("a"), absl::OkStatus(), At(1))->fate, Outbox::Fate::kDelivered);
  EXPECT_FALSE(outbox.Finished(1, Target("a"), absl::OkStatus(), At(1)).has_value())
      << "an answer that came twice";
  due = outbox.Due(At(1));
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].number, 2U);
}

TEST(OutboxTest, PausesDoubleAndTheTimeIsUpInTheEnd) {
  Outbox outbox;
  outbox.Add(Made(1, "a"));
  double at_s = 0;
  for (const double pause_s : {1.0, 2.0, 4.0, 8.0}) {
    ASSERT_EQ(outbox.Due(At(at_s)).size(), 1U);
    const auto finish = outbox.Finished(1, Target("a"), absl::UnavailableError("no answer"), At(at_s));
    ASSERT_EQ(finish->fate, Outbox::Fate::kAgain);
    EXPECT_EQ(finish->notification.trouble, "no answer");
    EXPECT_TRUE(outbox.Due(At(at_s + pause_s - 0.01)).empty());
    at_s += pause_s;
  }
  ASSERT_EQ(outbox.Due(At(at_s)).size(), 1U);
  const auto finish = outbox.Finished(1, Target("a", 10), absl::UnavailableError("no answer"), At(at_s));
  EXPECT_EQ(finish->fate, Outbox::Fate::kGivenUp);
  EXPECT_EQ(finish->notification.attempts, 5U);
  EXPECT_EQ(outbox.Waiting("a"), 0U);
}

TEST(OutboxTest, WhatIsRefusedForGoodHoldsUpNothing) {
  Outbox outbox;
  AlertTarget target = Target("a");
  outbox.Add(Made(1, "a"));
  ASSERT_EQ(outbox.Due(At(0)).size(), 1U);
  EXPECT_EQ(outbox.Finished(1, target, absl::FailedPreconditionError("403"), At(0))->fate,
            Outbox::Fate::kGivenUp);
  target.retry_refused = true;
  outbox.Add(Made(2, "a"));
  ASSERT_EQ(outbox.Due(At(0)).size(), 1U);
  EXPECT_EQ(outbox.Finished(2, target, absl::FailedPreconditionError("403"), At(0))->fate,
            Outbox::Fate::kAgain);
  outbox.Hurry("a");
  EXPECT_EQ(outbox.Due(At(0)).size(), 1U);
}

TEST(OutboxTest, AClockThatWasSetBackHoldsNothingUp) {
  Outbox outbox;
  outbox.Add(Made(1, "a"));
  ASSERT_EQ(outbox.Due(At(100'000)).size(), 1U);
  ASSERT_TRUE(
      outbox.Finished(1, Target("a", 1'000'000), absl::UnavailableError(""), At(100'000)).has_value());
  EXPECT_EQ(outbox.Due(At(0)).size(), 1U);
}

TEST(OutboxTest, TheOldestGoWhereTooManyWait) {
  Outbox outbox;
  for (uint64_t number = 1; number <= Outbox::kMaxWaiting; ++number) {
    ASSERT_FALSE(outbox.Add(Made(number, "a")).has_value());
  }
  EXPECT_EQ(outbox.Add(Made(100'001, "a"))->number, 1U);
  ASSERT_EQ(outbox.Due(At(0)).size(), 1U);  // 2, which is under way
  EXPECT_EQ(outbox.Add(Made(100'002, "a"))->number, 3U);
  EXPECT_EQ(outbox.Drop("a").size(), Outbox::kMaxWaiting);
  EXPECT_EQ(outbox.Waiting("a"), 0U);
}

// Whatever fails and however it is asked: each is delivered or given up once, in the order of its target.
TEST(OutboxTest, EachEndsOnceAndInOrder) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Outbox outbox;
    uint64_t made = 0;
    std::map<std::string, uint64_t> last;
    std::vector<WaitingNotification> under_way;
    size_t ended = 0;
    double at_s = 0;
    for (int step = 0; step < 400 || ended < made; ++step) {
      ASSERT_LT(step, 20'000);
      at_s += static_cast<double>(random() % 1000) / 100;
      if (step < 400 && random() % 4 == 0) {
        ++made;
        outbox.Add(Made(made, random() % 2 == 0 ? "a" : "b", static_cast<int64_t>(at_s)));
      }
      for (WaitingNotification& due : outbox.Due(At(at_s))) under_way.push_back(std::move(due));
      ASSERT_LE(under_way.size(), 2U);
      if (under_way.empty() || random() % 3 == 0) continue;
      const size_t i = random() % under_way.size();
      const WaitingNotification attempt = under_way[i];
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
      const absl::Status outcome = random() % 3 == 0   ? absl::UnavailableError("")
                                   : random() % 8 == 0 ? absl::FailedPreconditionError("")
                                                       : absl::OkStatus();
      const auto finish = outbox.Finished(attempt.number, Target(attempt.target, 600), outcome, At(at_s));
      ASSERT_TRUE(finish.has_value());
      if (finish->fate == Outbox::Fate::kAgain) continue;
      ++ended;
      EXPECT_GT(attempt.number, last[attempt.target]);
      last[attempt.target] = attempt.number;
    }
    EXPECT_EQ(ended, made);
  }
}

}  // namespace
}  // namespace c4::c4d
