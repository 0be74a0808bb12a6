// What fail-slows are found with elsewhere, to compare with: a sliding window, and Bayesian online detection
// without verification, as in tables 4 and 5 of the Falcon paper. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace c4::benchmarks {

struct PlainChange {
  uint64_t iteration = 0;
  uint64_t told_at = 0;
};

// The mean of the newest ten iterations is more than a tenth off the median of the level so far.
std::vector<PlainChange> SlidingWindowChanges(std::span<const double> times_s);

// The most probable run length is 1 to 9, with a probability of 0.9 for it and its neighbours; values are
// divided by the median of the first ones.
std::vector<PlainChange> PlainBayesianChanges(std::span<const double> times_s);

}  // namespace c4::benchmarks
