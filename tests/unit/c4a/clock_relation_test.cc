#include "c4a/clock_relation.h"

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <gtest/gtest.h>

namespace c4::agent {
namespace {

constexpr double kRate = 2.5;  // ticks per ns
constexpr int64_t kSecond = 1'000'000'000;

// A machine whose counter runs at kRate against a clock that is slewed by `slew` (relative).
struct Machine {
  double slew = 0;
  double ns = 1e12;
  double ticks = 5e12;

  void Advance(double real_ns) {
    ticks += real_ns * kRate;
    ns += real_ns * (1 + slew);
  }
  ClockSample Sample(int64_t width_ns = 50) const {
    const auto at = static_cast<int64_t>(ns);
    return {static_cast<uint64_t>(ticks), at - width_ns / 2, at + width_ns / 2};
  }
};

TEST(ClockRelation, IdentityForMonotonicTicks) {
  const ClockRelation relation;
  EXPECT_EQ(relation.ToMonotonicNs(123456789), 123456789);
  EXPECT_EQ(relation.ToDurationNs(77), 77u);
  EXPECT_EQ(relation.ErrorNs(123456789), 0);
}

TEST(ClockRelation, AbsurdTicksDoNotOverflow) {
  const ClockRelation relation(1000, 1000, 0.4, 10, 1e-4);
  for (const uint64_t ticks : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63}) {
    (void)relation.ToMonotonicNs(ticks);
    (void)relation.ToDurationNs(ticks);
    EXPECT_GE(relation.ErrorNs(ticks), 0);
  }
}

TEST(TscRelation, NothingBeforeThereIsABase) {
  TscRelation tsc;
  EXPECT_FALSE(tsc.Relation().has_value());
  Machine machine;
  tsc.Add(machine.Sample());
  EXPECT_FALSE(tsc.Relation().has_value());
  machine.Advance(1000);
  tsc.Add(machine.Sample());
  EXPECT_FALSE(tsc.Relation().has_value());  // a microsecond is no base for a rate
  machine.Advance(10e6);
  tsc.Add(machine.Sample());
  EXPECT_TRUE(tsc.Relation().has_value());
}

// What is said of the error holds, also for a clock that NTP slews and whose slew changes.
TEST(TscRelation, StaysWithinItsBound) {
  TscRelation tsc;
  Machine machine;
  for (int i = 0; i < 3000; ++i) {
    machine.slew = i < 1000 ? 0 : i < 2000 ? 4e-4 : -4e-4;
    const Machine past = machine;  // a stamp is made here, and converted up to 0.1 s later
    machine.Advance(0.1 * kSecond);
    tsc.Add(machine.Sample(50 + i % 500));
    const auto relation = tsc.Relation();
    if (!relation.has_value()) continue;
    const double error =
        std::abs(static_cast<double>(relation->ToMonotonicNs(static_cast<uint64_t>(past.ticks))) - past.ns);
    ASSERT_LE(error, static_cast<double>(relation->ErrorNs(static_cast<uint64_t>(past.ticks))) + 1) << i;
    ASSERT_LE(error, 100'000) << i;  // 0.1 ms: far less than anything that is judged
  }
}

TEST(TscRelation, FollowsTheRateOfTheLastWindows) {
  TscRelation tsc;
  Machine machine;
  for (int i = 0; i < 600; ++i) {
    machine.slew = i < 300 ? 0 : 1e-4;
    machine.Advance(0.1 * kSecond);
    tsc.Add(machine.Sample());
  }
  const double second_in_ticks = kRate * kSecond;
  EXPECT_NEAR(static_cast<double>(tsc.Relation()->ToDurationNs(static_cast<uint64_t>(second_in_ticks))),
              kSecond * (1 + 1e-4), 100);
}

TEST(TscRelation, StartsAnewWhenTheCounterDoes) {
  TscRelation tsc;
  Machine machine;
  for (int i = 0; i < 10; ++i) {
    machine.Advance(0.1 * kSecond);
    tsc.Add(machine.Sample());
  }
  machine.ticks = 1000;  // the machine was suspended, or moved to another host
  tsc.Add(machine.Sample());
  EXPECT_FALSE(tsc.Relation().has_value());
  machine.Advance(0.1 * kSecond);
  tsc.Add(machine.Sample());
  EXPECT_NEAR(static_cast<double>(tsc.Relation()->ToMonotonicNs(static_cast<uint64_t>(machine.ticks))),
              machine.ns, 100);
}

TEST(SampleTsc, AgreesWithTheClockOfThisMachine) {
  const auto first = SampleTsc();
  if (!first.has_value()) GTEST_SKIP() << "no invariant time stamp counter here";
  TscRelation tsc;
  tsc.Add(*first);
  timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
  tsc.Add(*SampleTsc());
  const auto relation = tsc.Relation();
  ASSERT_TRUE(relation.has_value());
  const auto again = SampleTsc();
  const int64_t middle = again->before_ns + (again->after_ns - again->before_ns) / 2;
  EXPECT_LE(std::abs(relation->ToMonotonicNs(again->ticks) - middle),
            relation->ErrorNs(again->ticks) + again->after_ns - again->before_ns);
}

}  // namespace
}  // namespace c4::agent
