#include "analysis/interval_union.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace c4::analysis {
namespace {

constexpr int64_t kWindow = IntervalUnion::kWindowNs;

TEST(IntervalUnion, StartsAtNothingAndCountsEachMomentOnce) {
  IntervalUnion covered;
  EXPECT_EQ(covered.covered_ns(), 0u);
  covered.Add(10, 20);
  covered.Add(15, 30);  // overlaps
  covered.Add(12, 18);  // within
  covered.Add(30, 40);  // touches
  covered.Add(50, 50);  // empty
  EXPECT_EQ(covered.covered_ns(), 30u);
  covered.Add(60, 70);
  covered.Add(5, 65);  // heard of last, covers all but the end
  EXPECT_EQ(covered.covered_ns(), 65u);
  EXPECT_EQ(covered.CoveredWith(0, 80), 80u);
  EXPECT_EQ(covered.CoveredWith(66, 69), 65u);
  EXPECT_EQ(covered.CoveredWith(90, 80), 65u) << "the wrong way round: nothing";
  EXPECT_EQ(covered.covered_ns(), 65u) << "asking adds nothing";
}

// Against a bitmap of moments.
TEST(IntervalUnion, AgreesWithABitmapWhateverTheOrder) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int64_t origin = seed % 3 == 0 ? -500 : static_cast<int64_t>(seed) * 1'000'000'000'000;
    constexpr int kMoments = 1000;
    std::vector<bool> bitmap(kMoments);
    const auto count = [&] { return static_cast<uint64_t>(std::count(bitmap.begin(), bitmap.end(), true)); };
    IntervalUnion covered;
    const int longest = 1 + static_cast<int>(random() % 200);
    for (int i = 0; i < 60; ++i) {
      const int begin = static_cast<int>(random() % kMoments);
      const int end = std::min(kMoments, begin + static_cast<int>(random() % static_cast<unsigned>(longest)));
      std::vector<bool> with = bitmap;
      std::fill(with.begin() + begin, with.begin() + end, true);
      ASSERT_EQ(covered.CoveredWith(origin + begin, origin + end),
                static_cast<uint64_t>(std::count(with.begin(), with.end(), true)));
      bitmap = with;
      covered.Add(origin + begin, origin + end);
      ASSERT_EQ(covered.covered_ns(), count());
    }
  }
}

// What lies further back than the window is summed up: it is neither counted again nor taken away.
TEST(IntervalUnion, ForgetsWhatIsLongAgoWithoutLosingItsSum) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    IntervalUnion covered;
    uint64_t expected = 0;
    int64_t now = 0;
    for (int i = 0; i < 2000; ++i) {
      now += 1 + static_cast<int64_t>(random() % 100'000'000);
      const int64_t begin = now;
      now += 1 + static_cast<int64_t>(random() % 100'000'000);
      covered.Add(begin, now);
      expected += static_cast<uint64_t>(now - begin);
      ASSERT_EQ(covered.covered_ns(), expected);
    }
  }
}

TEST(IntervalUnion, WhatReachesFurtherBackThanTheWindowNeverMakesItFall) {
  IntervalUnion covered;
  covered.Add(0, 10);
  covered.Add(kWindow + 20, kWindow + 30);
  EXPECT_EQ(covered.covered_ns(), 20u);
  const uint64_t before = covered.covered_ns();
  covered.Add(0, 10);  // forgotten: must not count twice
  EXPECT_EQ(covered.covered_ns(), before);
  covered.Add(5, kWindow + 25);  // long, heard of late: counts with what lies within
  EXPECT_GE(covered.covered_ns(), before + kWindow);
  EXPECT_LE(covered.covered_ns(), static_cast<uint64_t>(kWindow) + 30);
  covered.Add(INT64_MIN / 4, 0);
  EXPECT_LE(covered.covered_ns(), static_cast<uint64_t>(kWindow) + 30);
}

TEST(IntervalUnion, OneThatIsLongerThanTheWindowCountsWhole) {
  IntervalUnion covered;
  covered.Add(1000, 1000 + 10 * kWindow);
  EXPECT_EQ(covered.covered_ns(), static_cast<uint64_t>(10 * kWindow));
  covered.Add(1000 + 10 * kWindow, 2000 + 10 * kWindow);
  EXPECT_EQ(covered.covered_ns(), static_cast<uint64_t>(10 * kWindow) + 1000);
}

}  // namespace
}  // namespace c4::analysis
