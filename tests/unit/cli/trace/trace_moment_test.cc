#include "cli/trace/trace_moment.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace c4::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class TraceMomentTest : public ::testing::Test {
 protected:
  // Ten minutes, local time.
  static int64_t Local(int hour, int minute, int second = 0) {
    return absl::ToUnixNanos(
        absl::FromCivil(absl::CivilSecond(2026, 11, 25, hour, minute, second), absl::LocalTimeZone()));
  }
  const RecordedTime recorded_{Local(3, 10), Local(3, 20)};
};

TEST_F(TraceMomentTest, SecondsSinceTheBeginAndBeforeTheEnd) {
  EXPECT_EQ(*ParseMoment("12.5", recorded_), 12'500'000'000);
  EXPECT_EQ(*ParseMoment("0", recorded_), 0);
  EXPECT_EQ(*ParseMoment("-30", recorded_), 570 * kSecond);
  EXPECT_EQ(*ParseMoment("-0", recorded_), 600 * kSecond);
}

TEST_F(TraceMomentTest, TimesOfDayAreTheLastBeforeTheEnd) {
  EXPECT_EQ(*ParseMoment("03:12:07.5", recorded_), 127 * kSecond + kSecond / 2);
  EXPECT_EQ(*ParseMoment("03:12", recorded_), 120 * kSecond);
  EXPECT_EQ(*ParseMoment("23:50", recorded_), -(3 * 3600 + 20 * 60) * kSecond) << "the evening before";
}

TEST_F(TraceMomentTest, DatesWithTime) {
  const std::string text = absl::FormatTime(absl::FromUnixNanos(Local(3, 15)), absl::UTCTimeZone());
  EXPECT_EQ(*ParseMoment(text, recorded_), 300 * kSecond);
}

TEST_F(TraceMomentTest, WhatIsNoneIsRefused) {
  for (const char* text : {"", "soon", "1e300", "nan", "inf", "25:00", "03:12:07:01", "2026-11-25",
                           "1999-01-01T00:00:00Z", "1 2", "\x1b[31m"}) {
    EXPECT_FALSE(ParseMoment(text, recorded_).ok()) << text;
  }
}

}  // namespace
}  // namespace c4::cli
