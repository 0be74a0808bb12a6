// The GPU's timer in local ticks: simulated clocks with offset, drift, delays, jumps and wraps, and what is
// made of them. A nanosecond is three ticks here, nominally.
#include "ccl/monitor/gpu_clock.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace c4 {
namespace {

constexpr uint64_t kTicksPerSecond = 3'000'000'000;
constexpr double kTicksPerUs = 3000;

// A GPU whose timer gains `drift` on the host's clock, whose rate is `nominal_error` off what we are told.
struct Sim {
  explicit Sim(uint64_t seed) : random(seed) {}

  double true_ns = 1e9;
  uint64_t offset_ns = 1'700'000'000'000'000'000;  // the timer counts from 1970
  double drift = 0;
  double nominal_error = 0;
  double least_delay_us = 1;
  double jitter_us = 5;  // exponential
  double stall_chance = 0.01;
  double stall_us = 20000;  // the progress thread was not running
  double ahead_us = 8;      // of the kernel: its call, exponential beyond 5
  GpuClock clock{kTicksPerSecond};
  std::mt19937_64 random;

  uint64_t Gpu(double ns) const {
    return offset_ns + static_cast<uint64_t>(static_cast<int64_t>(ns * (1 + drift)));
  }
  uint64_t Ticks(double ns) const { return static_cast<uint64_t>(ns * 3 * (1 + nominal_error)) + 12345; }
  double Exponential(double mean) {
    return mean <= 0 ? 0 : std::exponential_distribution<double>(1 / mean)(random);
  }

  void Kernel() {
    const double call = true_ns;
    const double start = call + 1000 * (5 + Exponential(ahead_us - 5));
    double heard = start + 1000 * (least_delay_us + Exponential(jitter_us));
    if (std::bernoulli_distribution(stall_chance)(random)) heard += 1000 * stall_us;
    clock.Heard(Gpu(start), Ticks(heard));
    clock.Asked(Gpu(start), Ticks(call));
  }
  // Kernels every `every_us` for that long.
  void Run(double seconds, double every_us = 500) {
    for (const double end = true_ns + seconds * 1e9; true_ns < end; true_ns += every_us * 1000) Kernel();
  }
  // Estimate less truth, of a kernel that starts now.
  double ErrorUs() {
    const GpuClock::Time time = clock.At(Gpu(true_ns));
    return static_cast<double>(static_cast<int64_t>(time.ticks - Ticks(true_ns))) / kTicksPerUs;
  }
  double BoundUs() {
    const GpuClock::Time time = clock.At(Gpu(true_ns));
    return time.error_ticks == GpuClock::kUnknown ? INFINITY
                                                  : static_cast<double>(time.error_ticks) / kTicksPerUs;
  }
};

TEST(GpuClock, TheFirstPairIsOfUse) {
  GpuClock clock(kTicksPerSecond);
  EXPECT_FALSE(clock.ready());
  clock.Heard(5'000'000, 900'000);
  ASSERT_TRUE(clock.ready());
  EXPECT_EQ(clock.At(5'000'000).ticks, 900'000u);
  EXPECT_EQ(clock.At(5'000'100).ticks, 900'300u);
  EXPECT_EQ(clock.At(4'999'900).ticks, 899'700u);
  EXPECT_EQ(clock.At(5'000'000).error_ticks, GpuClock::kUnknown) << "nothing says how late it was heard";
  clock.Asked(5'000'000, 900'000 - 30'000);
  EXPECT_LE(clock.At(5'000'000).error_ticks, 30'000u + 6'000u);
  EXPECT_GE(clock.At(5'000'000).error_ticks, 30'000u);
}

TEST(GpuClock, LeastDelayWins) {
  GpuClock clock(kTicksPerSecond);
  clock.Heard(1'000'000, 3'000'000 + 90'000);
  clock.Heard(1'010'000, 3'030'000 + 600);
  clock.Heard(1'020'000, 3'060'000 + 50'000);
  EXPECT_EQ(clock.At(1'030'000).ticks, 3'090'600u);
}

struct Case {
  const char* name;
  double drift;
  double nominal_error;
  double least_delay_us;
  double jitter_us;
  double ahead_us;
};

class GpuClockCases : public ::testing::TestWithParam<Case> {};

TEST_P(GpuClockCases, TruthLiesWithinTheBoundAndTheEstimateIsClose) {
  const Case& c = GetParam();
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Sim sim(seed);
    sim.drift = c.drift;
    sim.nominal_error = c.nominal_error;
    sim.least_delay_us = c.least_delay_us;
    sim.jitter_us = c.jitter_us;
    sim.ahead_us = c.ahead_us;
    for (int i = 0; i < 60; ++i) {
      sim.Run(0.5);
      ASSERT_LE(std::abs(sim.ErrorUs()), sim.BoundUs())
          << "seed " << seed << " after " << 0.5 * (i + 1) << " s";
      if (i >= 8) {
        // Late by the least delay there is, which nobody can see, and what jitter leaves of 2000 pairs a
        // window.
        ASSERT_NEAR(sim.ErrorUs(), c.least_delay_us, 1 + c.jitter_us / 10) << "seed " << seed << " at " << i;
      }
    }
    EXPECT_EQ(sim.clock.jumps(), 0u);
    EXPECT_NEAR(sim.clock.drift(), c.nominal_error - c.drift, 3e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Drifts, GpuClockCases,
                         ::testing::Values(Case{"still", 0, 0, 1, 5, 8}, Case{"gains", 50e-6, 0, 1, 5, 8},
                                           Case{"loses", -50e-6, 1e-4, 1, 5, 8},
                                           Case{"nominal", 20e-6, -1e-3, 1, 5, 8},
                                           Case{"jitter", 20e-6, 0, 2, 100, 8},
                                           Case{"asymmetric", 20e-6, 0, 40, 10, 8},
                                           Case{"far_ahead", 20e-6, 0, 1, 5, 5000}),
                         [](const auto& tested) { return tested.param.name; });

TEST(GpuClock, RareKernelsAreEnough) {
  Sim sim(3);
  sim.drift = 40e-6;
  sim.Run(600, 1e6);  // one a second
  EXPECT_NEAR(sim.ErrorUs(), 1, 12);
  EXPECT_LE(std::abs(sim.ErrorUs()), sim.BoundUs());
}

TEST(GpuClock, AfterAPauseTheBoundHasGrown) {
  Sim sim(4);
  sim.drift = 40e-6;
  sim.Run(20);
  const double before = sim.BoundUs();
  sim.true_ns += 100e9;
  EXPECT_GT(sim.BoundUs(), before);
  EXPECT_LE(std::abs(sim.ErrorUs()), sim.BoundUs());
  sim.Run(1);
  EXPECT_NEAR(sim.ErrorUs(), 1, 5);
}

TEST(GpuClock, AJumpIsNoticedEitherWay) {
  for (const int64_t jump_ns : {int64_t{3'000'000}, int64_t{-3'000'000}, int64_t{3'600'000'000'000},
                                int64_t{-3'600'000'000'000}, int64_t{-1'700'000'000'000'000'000}}) {
    Sim sim(5);
    sim.drift = 10e-6;
    sim.Run(10);
    sim.offset_ns += static_cast<uint64_t>(jump_ns);
    sim.Run(0.5);
    EXPECT_EQ(sim.clock.jumps(), 1u) << jump_ns;
    EXPECT_NEAR(sim.ErrorUs(), 1, 5) << jump_ns;
    EXPECT_LE(std::abs(sim.ErrorUs()), sim.BoundUs()) << jump_ns;
  }
}

// Nobody says when kernels were asked for: a timer that was set back looks like hearing late, for a while.
TEST(GpuClock, AJumpIsNoticedWithoutCalls) {
  GpuClock clock(kTicksPerSecond);
  uint64_t gpu_ns = 1'000'000'000;
  uint64_t ticks = 0;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) clock.Heard(gpu_ns += 1'000'000, ticks += 3'000'000);
  };
  run(5000);
  gpu_ns -= 20'000'000;
  run(5000);
  EXPECT_EQ(clock.jumps(), 1u);
  EXPECT_EQ(clock.At(gpu_ns).ticks, ticks);
}

TEST(GpuClock, TheTimerWraps) {
  GpuClock clock(kTicksPerSecond);
  uint64_t gpu_ns = UINT64_MAX - 2'000'000'000;
  uint64_t ticks = UINT64_MAX - 3'000'000'000;
  for (int i = 0; i < 5000; ++i) clock.Heard(gpu_ns += 1'000'000, ticks += 3'000'000);
  EXPECT_EQ(clock.jumps(), 0u);
  EXPECT_EQ(clock.At(gpu_ns - 4'000'000'000).ticks, ticks - 12'000'000'000);
}

TEST(GpuClock, StallsOfTheProgressThreadDoNoHarm) {
  Sim sim(6);
  sim.stall_chance = 0.9;
  sim.drift = 20e-6;
  sim.Run(30);
  EXPECT_EQ(sim.clock.jumps(), 0u);
  EXPECT_NEAR(sim.ErrorUs(), 1, 4);
}

TEST(GpuClock, MonthsDoNotWearItOut) {
  Sim sim(7);
  sim.drift = 10e-6;
  sim.Run(5);
  for (int day = 0; day < 60; ++day) {
    for (int i = 0; i < 24; ++i) {
      sim.true_ns += 3600e9;
      sim.Run(0.02);
    }
  }
  sim.Run(5);
  EXPECT_NEAR(sim.ErrorUs(), 1, 5);
}

}  // namespace
}  // namespace c4
