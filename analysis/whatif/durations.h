// How long each operation takes by itself: computations as recorded, communication without the wait for its
// other ends, and what each type would take in a job without stragglers (the what-if paper, section 3.2).
//
// A plain value; any thread once made. Seconds.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "analysis/whatif/graph.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

using TypeDurations = std::array<float, kOperationTypes>;

struct Durations {
  std::vector<float> recorded_s;  // [operation * lanes + lane]
  TypeDurations ideal_s{};  // mean of computation, median of communication; 0 of types that do not occur
  // By operation: what is usual of this own time in front of this operation of its stage; empty: there is
  // none. Programs do different things in different places, so that a mean of all would be that of none.
  std::vector<float> usual_own_s;
  std::array<size_t, kOperationTypes> counts{};
  std::array<double, kOperationTypes> ideal_exact_s{};

  // Transfers that end 10 ms or more before their last end has started: clocks are apart, they count as 0.
  size_t negative = 0;
  double most_negative_s = 0;
  std::string worst;  // which: "forward-recv 3 of rank 5, step 23"

  // What stands for its recorded duration in a job without stragglers.
  float Replaced_s(size_t operation, OperationType type, const TypeDurations& replacement) const {
    return type == OperationType::kOwnTime ? usual_own_s[operation] : replacement[Index(type)];
  }
};

Durations MeasureDurations(const Trace& trace, const Graph& graph);

}  // namespace c4::whatif
