// Time in the library. Stamps are raw ticks of the cheapest monotonic clock that the node offers: the
// invariant time stamp counter, else CLOCK_MONOTONIC. The agent relates them to CLOCK_MONOTONIC; the
// library itself measures time-outs with MonotonicNs only. Any thread.
#pragma once

#include <cstdint>
#include <ctime>

#include "wire/segment.h"

namespace c4 {

inline uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

namespace clock_internal {
// Decided before main by what the processor says; constant afterwards.
extern const bool use_tsc;
}  // namespace clock_internal

inline uint64_t NowTicks() {
#if defined(__x86_64__)
  if (clock_internal::use_tsc) return __builtin_ia32_rdtsc();
#endif
  return MonotonicNs();
}

struct ClockBase {
  wire::ClockKind kind;
  uint64_t ticks_per_second;  // nominal, within 0.1 %: for people; the agent measures its own
  uint64_t ticks;             // taken together with
  uint64_t monotonic_ns;
};

// Samples the pair with the shortest bracket of several; takes about 2 ms.
ClockBase MeasureClock();

}  // namespace c4
