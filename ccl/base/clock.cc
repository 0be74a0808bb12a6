#include "ccl/base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace c4 {
namespace {

// Invariant: constant rate, does not stop in sleep states (CPUID 8000_0007h, EDX bit 8).
bool HasInvariantTsc() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
  return false;
#endif
}

struct Pair {
  uint64_t ticks;
  uint64_t ns;
};

// The tick stamp is bracketed by two clock reads; of several tries the tightest bracket counts, so that
// an interrupt in the middle does not spoil the pair.
Pair SamplePair() {
  Pair best{};
  uint64_t best_width = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = MonotonicNs();
    const uint64_t ticks = NowTicks();
    const uint64_t after = MonotonicNs();
    if (after - before < best_width) {
      best_width = after - before;
      best = {ticks, before + (after - before) / 2};
    }
  }
  return best;
}

}  // namespace

namespace clock_internal {
const bool use_tsc = HasInvariantTsc();
}

ClockBase MeasureClock() {
  if (!clock_internal::use_tsc) {
    const uint64_t now = MonotonicNs();
    return {wire::kClockMonotonic, 1000000000u, now, now};
  }
  const Pair first = SamplePair();
  timespec pause{0, 2000000};
  nanosleep(&pause, nullptr);
  const Pair second = SamplePair();
  const double rate =
      static_cast<double>(second.ticks - first.ticks) / static_cast<double>(second.ns - first.ns);
  return {wire::kClockTsc, static_cast<uint64_t>(rate * 1e9), second.ticks, second.ns};
}

}  // namespace c4
