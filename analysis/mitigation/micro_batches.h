// S2 of the mitigation of fail-slows (papers/falcon.txt, section 5.3): how many micro-batches each
// data-parallel group computes, so that the slowest group is done as early as can be. The answer is exact: no
// other distribution of as many micro-batches has a slowest group that is faster. Of several such answers it
// is the one whose second slowest group is fastest, and so on: a time that was measured wrongly then costs
// the least.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace c4::mitigation {

// More than any job has; a number beyond them is a mistake.
inline constexpr int64_t kMostGroups = 1 << 20;
inline constexpr int64_t kMostMicroBatches = 1'000'000'000;
inline constexpr double kLongestMicroBatchS = 1e12;
inline constexpr int kMostStages = 1 << 16;

struct MicroBatchPlan {
  std::vector<int64_t> micro_batches;  // by group, at least 1 each
  // Each group's share of the global batch: the gradient of the whole batch is the sum over groups of weight
  // times the mean gradient of the group's micro-batches. They add up to 1.
  std::vector<double> weights;
  double iteration_s = 0;  // of the slowest group
  double even_s = 0;       // the same with the micro-batches dealt out evenly
  double ideal_s = 0;      // no distribution can be faster, not even one in fractions of micro-batches
};

// When a group of `micro_batches` is done that takes `time_s` for one, as the last of `stages` pipeline
// stages: each further stage costs one micro-batch more, in which the pipeline fills and drains.
inline double GroupTime(double time_s, int64_t micro_batches, int stages) {
  return static_cast<double>(micro_batches + stages - 1) * time_s;
}

// `times_s`: by group, the time of one micro-batch. InvalidArgument with a sentence: no group, a time that is
// no positive finite number, fewer micro-batches than groups, numbers beyond the limits above.
absl::StatusOr<MicroBatchPlan> DistributeMicroBatches(std::span<const double> times_s, int64_t micro_batches,
                                                      int stages = 1);

// As a job begins: all groups the same number, the first ones one more where they do not go up. REQUIRES: as
// many micro-batches as groups.
std::vector<int64_t> EvenMicroBatches(size_t groups, int64_t micro_batches);

// Of groups that compute so many micro-batches each.
std::vector<double> GradientWeights(std::span<const int64_t> micro_batches);

}  // namespace c4::mitigation
