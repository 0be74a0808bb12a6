#include "c4a/master_clock.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

namespace c4::agent {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Two clocks that run apart, and the ways between them.
struct World {
  int64_t offset_ns = 0;
  double drift_ppm = 0;  // of the master's clock against the node's
  int64_t MasterAt(int64_t node_ns) const {
    return node_ns + offset_ns + static_cast<int64_t>(static_cast<double>(node_ns) * drift_ppm / 1e6);
  }
};

void RoundTrip(MasterClock* clock, const World& world, uint64_t epoch, int64_t sent_ns, int64_t there_ns,
               int64_t in_master_ns, int64_t back_ns) {
  clock->Sample(epoch, sent_ns, world.MasterAt(sent_ns + there_ns),
                world.MasterAt(sent_ns + there_ns + in_master_ns),
                sent_ns + there_ns + in_master_ns + back_ns);
}

void ExpectTruthWithin(const MasterClock& clock, const World& world, int64_t now_ns) {
  const auto relation = clock.At(now_ns);
  ASSERT_TRUE(relation.has_value());
  const int64_t truth = world.MasterAt(now_ns) - now_ns;
  EXPECT_LE(std::abs(relation->offset_ns - truth), relation->error_ns)
      << "offset " << relation->offset_ns << " where it is " << truth;
  EXPECT_GE(relation->age_ns, 0);
}

TEST(MasterClock, NothingBeforeTheFirstRoundTrip) {
  MasterClock clock;
  EXPECT_FALSE(clock.At(5).has_value());
}

TEST(MasterClock, ASymmetricRoundTripGivesTheOffset) {
  for (const int64_t offset : {int64_t{0}, int64_t{-77'000'000}, 100'000 * kSecond, 3 * kSecond}) {
    MasterClock clock;
    const World world{offset, 0};
    RoundTrip(&clock, world, 1, 200'000 * kSecond, 50'000, 2'000'000, 50'000);
    const auto relation = clock.At(200'001 * kSecond);
    ASSERT_TRUE(relation.has_value());
    EXPECT_EQ(relation->offset_ns, offset);
    EXPECT_GE(relation->error_ns, 50'000);
    EXPECT_LT(relation->error_ns, 50'000 + 110'000) << "a second of drift at 100 ppm";
    EXPECT_NEAR(static_cast<double>(relation->age_ns), 1e9, 3e6);
  }
}

TEST(MasterClock, OneWayTrafficIsWithinTheErrorAndNoBetter) {
  MasterClock clock;
  const World world{123'456, 0};
  RoundTrip(&clock, world, 1, kSecond, 10'000'000, 0, 0);
  const auto relation = clock.At(kSecond + 10'000'000);
  ASSERT_TRUE(relation.has_value());
  EXPECT_NEAR(static_cast<double>(relation->error_ns), 5e6, 5e3);
  EXPECT_NEAR(static_cast<double>(relation->offset_ns), 123'456 + 5e6, 5e3);
}

// Offsets, drift up to what is allowed for, ways of any length and asymmetry, pauses: the truth lies within.
TEST(MasterClock, TheTruthIsAlwaysWithinTheError) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const World world{static_cast<int64_t>(random() % 1'000'000'000'000),
                      (static_cast<double>(random() % 2001) - 1000.0) / 1000.0 * 99};
    MasterClock clock;
    int64_t now = 1000 * kSecond;
    int64_t best_error = INT64_MAX;
    for (int i = 0; i < 200; ++i) {
      const auto way = [&] { return static_cast<int64_t>(random() % (uint64_t{1} << (10 + random() % 20))); };
      const int64_t there = way();
      const int64_t inside = way();
      const int64_t back = way();
      RoundTrip(&clock, world, 1, now, there, inside, back);
      now += there + inside + back;
      ExpectTruthWithin(clock, world, now);
      best_error = std::min(best_error, clock.At(now)->error_ns);
      now += static_cast<int64_t>(random() % (i % 20 == 0 ? 100 * kSecond : kSecond));
      ExpectTruthWithin(clock, world, now);
      ExpectTruthWithin(clock, world, now - static_cast<int64_t>(random() % kSecond));  // a batch that waited
    }
    EXPECT_LT(best_error, 10'000'000);
  }
}

TEST(MasterClock, TheQuickestWinsUntilItIsTooOld) {
  MasterClock clock;
  const World world{5'000, 0};
  RoundTrip(&clock, world, 1, kSecond, 100'000, 0, 100'000);
  for (int i = 2; i < 30; ++i) RoundTrip(&clock, world, 1, i * kSecond, 9'000'000, 0, 1'000'000);
  EXPECT_EQ(clock.At(30 * kSecond)->offset_ns, 5'000);
  for (int i = 30; i < 100; ++i) RoundTrip(&clock, world, 1, i * kSecond, 9'000'000, 0, 1'000'000);
  EXPECT_GT(clock.At(100 * kSecond)->error_ns, 4'000'000);
  EXPECT_LE(clock.At(100 * kSecond)->age_ns, MasterClock::kWindowNs + kSecond);
  RoundTrip(&clock, world, 1, 100 * kSecond, 100'000, 0, 100'000);
  EXPECT_EQ(clock.At(101 * kSecond)->offset_ns, 5'000);
}

TEST(MasterClock, AnotherMasterHasAnotherClock) {
  MasterClock clock;
  RoundTrip(&clock, {5'000, 0}, 1, kSecond, 10, 0, 10);
  RoundTrip(&clock, {77 * kSecond, 0}, 2, 2 * kSecond, 10'000'000, 0, 10'000'000);
  EXPECT_EQ(clock.At(2 * kSecond)->offset_ns, 77 * kSecond) << "worse, but of this master";
  // One that says nothing of its clock leaves none of the old one's behind.
  clock.Sample(3, 3 * kSecond, 0, 0, 3 * kSecond + 10);
  EXPECT_FALSE(clock.At(3 * kSecond).has_value());
}

TEST(MasterClock, WhatCannotBeIsIgnored) {
  MasterClock clock;
  clock.Sample(1, kSecond, 0, 0, kSecond + 10);                // an older master
  clock.Sample(1, kSecond, 500, 400, kSecond + 10);            // sent before it was received
  clock.Sample(1, kSecond, 500, 500 + kSecond, kSecond + 10);  // longer inside than on the whole way
  clock.Sample(1, kSecond, -5, 5, kSecond + 10);               // a negative clock
  clock.Sample(1, kSecond, INT64_MIN, INT64_MAX, kSecond + 10);
  clock.Sample(1, kSecond, 1, INT64_MAX, kSecond + 10);
  clock.Sample(1, kSecond + 10, 500, 501, kSecond);  // answered before it was asked
  EXPECT_FALSE(clock.At(kSecond).has_value());
  clock.Sample(1, kSecond, INT64_MAX, INT64_MAX, kSecond + 10);  // absurd, but nothing contradicts it
  EXPECT_TRUE(clock.At(kSecond).has_value());
}

}  // namespace
}  // namespace c4::agent
