// How fast the data-parallel groups of a job compute, by what its program says of its steps
// (ccl/include/c4/mitigation.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace c4::c4d {

// A data-parallel group as its workers' newest reports tell it.
struct GroupPace {
  double micro_batch_s = 0;  // of its slowest worker
  int64_t micro_batches = 0;
};

struct LayoutPace {
  std::vector<GroupPace> groups;  // by dp_rank
  int stages = 1;
  int64_t micro_batches = 0;  // of the whole batch
};

// A part whose time is at most so many times the median's is as fast as the others.
inline constexpr double kWell = 1.1;

// The upper one; 0 of none.
double Median(std::vector<double> values);
// When the slowest group is done that computes as many as it is given here.
double SlowestS(const LayoutPace& pace, const std::vector<int64_t>& micro_batches);
// By group.
std::vector<int64_t> Present(const LayoutPace& pace);
std::vector<double> Times(const LayoutPace& pace);

}  // namespace c4::c4d
