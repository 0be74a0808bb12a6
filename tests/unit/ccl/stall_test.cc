// When a stream counts as stalled, in simulated time.
#include "ccl/transport/stall.h"

#include <gtest/gtest.h>

namespace c4 {
namespace {

constexpr uint64_t kMs = 1000000;

// Readings each `step` from `begin` on, as long as nothing is said; when it stalls, or 0.
struct Stream {
  StallRule rule;
  uint64_t now = 5000 * kMs;
  uint64_t acked = 0;
  uint64_t patience_ns = 0;
  bool heard = true;  // on other streams, all the time

  bool Read(uint64_t step, uint64_t bytes, bool outstanding = true, bool window_open = true) {
    now += step;
    acked += bytes;
    EXPECT_TRUE(rule.Due(now) || step < StallRule::kSampleNs);
    return rule.Read({acked, outstanding, window_open, patience_ns, heard ? now : 0}, now);
  }
  // Milliseconds from the last progress until it counts as stalled.
  uint64_t MsToStall(uint64_t step, uint64_t most_ms) {
    const uint64_t begin = now;
    while (now - begin < most_ms * kMs) {
      if (Read(step, 0)) return (now - begin) / kMs;
    }
    return 0;
  }
};

TEST(StallRule, TwentyMillisecondsWithoutProgress) {
  Stream stream;
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 20u);
}

TEST(StallRule, FourUsualGapsWhereProgressIsRare) {
  Stream stream;
  // 30 ms apart: that this is usual has to be learnt.
  int alarms = 0;
  for (int i = 0; i < 120; ++i) alarms += stream.Read(5 * kMs, i % 6 == 0 ? 1000 : 0) ? 1 : 0;
  EXPECT_LE(alarms, 2);
  for (int i = 0; i < 1200; ++i) ASSERT_FALSE(stream.Read(5 * kMs, i % 6 == 0 ? 1000 : 0)) << i;
  const uint64_t ms = stream.MsToStall(5 * kMs, 1000);
  EXPECT_GE(ms, 70u) << "of a gap, what lies between two readings is not known";
  EXPECT_LE(ms, 125u);
}

// Acknowledgements came every few milliseconds, of what had been in the queues for long.
TEST(StallRule, AsLongAsRoundTripsTakeBehindFullQueues) {
  Stream stream;
  stream.patience_ns = 90 * kMs;
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 90u);
  stream.patience_ns = 9000 * kMs;
  stream.Read(5 * kMs, 1000);
  EXPECT_EQ(stream.MsToStall(10 * kMs, 10000), 2000u) << "but not for ever";
}

// A process that does not run does not read, and its kernel waits for it with acknowledgements.
TEST(StallRule, LongerWhereThePeerWasNotHeard) {
  Stream stream;
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  stream.heard = false;
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 60u);
  // What was heard just after the last progress had not seen what is outstanding.
  StallRule rule;
  uint64_t now = 1000 * kMs;
  ASSERT_FALSE(rule.Read({1, true, true, 40 * kMs, now}, now));
  const uint64_t begin = now;
  while (!rule.Read({1, true, true, 40 * kMs, begin + 20 * kMs}, now += 5 * kMs)) ASSERT_LT(now, 2000 * kMs);
  EXPECT_EQ((now - begin) / kMs, 80u);
}

TEST(StallRule, NoLongerThanTwoSecondsWhateverWasUsual) {
  Stream stream;
  for (int i = 0; i < 100; ++i) stream.Read(3000 * kMs, 1);
  EXPECT_EQ(stream.MsToStall(10 * kMs, 10000), 2000u);
}

TEST(StallRule, WhoDidNotRunHasSeenNothing) {
  Stream stream;
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  EXPECT_FALSE(stream.Read(500 * kMs, 0)) << "one reading";
  EXPECT_FALSE(stream.Read(5 * kMs, 0));
  EXPECT_TRUE(stream.Read(5 * kMs, 0));
}

// A path that answers after 300 ms, each time on a new stream: the alarms come to an end.
TEST(StallRule, EachAlarmMakesTheNextRarer) {
  Stream stream;
  int alarms = 0;
  for (int answers = 0; answers < 20;) {
    stream.rule.Restart();
    bool alarm = false;
    for (int i = 0; i < 60 && !alarm; ++i) alarm = stream.Read(5 * kMs, 0);
    alarms += alarm ? 1 : 0;
    if (alarm) continue;
    EXPECT_FALSE(stream.Read(5 * kMs, 1000));
    ++answers;
  }
  EXPECT_GE(alarms, 1);
  EXPECT_LE(alarms, 6);
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  EXPECT_LE(stream.MsToStall(5 * kMs, 1000), 25u) << "forgotten where all is well";
}

TEST(StallRule, NothingOutstandingIsNoStall) {
  Stream stream;
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 0, false));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 20u) << "from the moment on from which there is something";
}

TEST(StallRule, AClosedWindowIsNoStall) {
  Stream stream;
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 0, true, false));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 20u);
}

TEST(StallRule, APauseDoesNotCount) {
  Stream stream;
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  stream.now += 10000 * kMs;
  stream.rule.Restart();
  EXPECT_FALSE(stream.Read(5 * kMs, 0));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 20u);
  // Nor does it count as a usual gap.
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));  // forgotten
  for (int i = 0; i < 10; ++i) ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  stream.now += 10000 * kMs;
  stream.rule.Restart();
  ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  ASSERT_FALSE(stream.Read(5 * kMs, 1000));
  EXPECT_EQ(stream.MsToStall(5 * kMs, 1000), 20u);
}

TEST(StallRule, ReadingsAreRare) {
  StallRule rule;
  (void)rule.Read({}, 100 * kMs);
  EXPECT_FALSE(rule.Due(104 * kMs));
  EXPECT_TRUE(rule.Due(105 * kMs));
}

}  // namespace
}  // namespace c4
