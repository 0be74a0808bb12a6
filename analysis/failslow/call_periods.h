// Finds the periods in a complete list of calls, such as a file: where each period holds, and which of them
// is the iteration's. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/failslow/period_tracker.h"

namespace c4::failslow {

struct CallPeriods {
  std::vector<Stretch> stretches;  // oldest first
  uint32_t period = 0;  // the one that most calls repeat with, the later one of two; 0: there is none
};

// A period counts when at least a quarter of the calls repeats with it, and it holds to the end, comes back
// after an interruption, or has been seen kManyPeriods times: what ends with the file's only iteration is a
// part of it. Two periods are enough where all the calls there are show no more.
inline constexpr uint64_t kManyPeriods = 16;
CallPeriods FindCallPeriods(std::span<const uint64_t> tokens);

// The same call in adjacent periods of the iteration: the call that begins each of them.
struct CallIteration {
  uint64_t first_call = 0;
  uint64_t end_call = 0;  // the next one's first
};
std::vector<CallIteration> IterationsOf(const CallPeriods& periods);

}  // namespace c4::failslow
