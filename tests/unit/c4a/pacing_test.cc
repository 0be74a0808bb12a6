// The budget of probes: no window of any length holds more than it may, and what may go out can go out.
#include "c4a/pacing.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace c4::agent {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(PacingTest, NoWindowHoldsMoreThanTheBudget) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto per_second = static_cast<uint32_t>(1 + random() % (seed % 2 == 0 ? 20 : 100000));
    const auto burst = static_cast<uint32_t>(1 + random() % 50);
    Pacing pacing(per_second, burst);
    int64_t now = static_cast<int64_t>(random() % 1'000'000) - 500'000;
    const int64_t usual_gap = kSecondNs / per_second;
    std::vector<int64_t> taken;
    while (taken.size() < 400) {
      // Hurry, dawdle, sleep long, wait for exactly the moment, and clocks that go back.
      switch (random() % 5) {
        case 0:
          break;
        case 1:
          now += static_cast<int64_t>(random() % static_cast<uint64_t>(usual_gap + 1));
          break;
        case 2:
          now += usual_gap * static_cast<int64_t>(random() % 100);
          break;
        case 3:
          now = std::max(now, pacing.NextNs());
          break;
        default:
          if (random() % 20 == 0) {
            const int64_t back = now - static_cast<int64_t>(random() % 1'000'000);
            if (pacing.Take(back)) taken.push_back(now);
          }
      }
      if (pacing.Take(now)) taken.push_back(now);
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      for (size_t j = i; j < taken.size(); ++j) {
        const double window_s = static_cast<double>(taken[j] - taken[i]) / kSecondNs;
        ASSERT_LE(static_cast<double>(j - i + 1), burst + per_second * window_s + 1e-6)
            << per_second << " a second, burst " << burst << ", " << window_s << " s";
      }
    }
  }
}

TEST(PacingTest, TheBudgetCanBeSpent) {
  Pacing pacing(1000, 5);
  int sent = 0;
  for (int64_t now = 0; now < kSecondNs; now += 100'000) sent += pacing.Take(now) ? 1 : 0;
  EXPECT_GE(sent, 1000);
  EXPECT_LE(sent, 1005);
}

TEST(PacingTest, NextIsWhenTakeSaysYesAndNotBefore) {
  Pacing pacing(300, 2);
  int64_t now = 17;
  EXPECT_TRUE(pacing.Take(now));
  EXPECT_TRUE(pacing.Take(now));
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(pacing.Take(pacing.NextNs() - 1));
    now = pacing.NextNs();
    EXPECT_TRUE(pacing.Take(now));
  }
}

}  // namespace
}  // namespace c4::agent
