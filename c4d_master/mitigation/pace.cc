#include "c4d_master/mitigation/pace.h"

#include <algorithm>

#include "analysis/mitigation/micro_batches.h"

namespace c4::c4d {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double SlowestS(const LayoutPace& pace, const std::vector<int64_t>& micro_batches) {
  double slowest_s = 0;
  for (size_t group = 0; group < pace.groups.size(); ++group) {
    slowest_s = std::max(slowest_s, mitigation::GroupTime(pace.groups[group].micro_batch_s,
                                                          micro_batches[group], pace.stages));
  }
  return slowest_s;
}

std::vector<int64_t> Present(const LayoutPace& pace) {
  std::vector<int64_t> micro_batches;
  for (const GroupPace& group : pace.groups) micro_batches.push_back(group.micro_batches);
  return micro_batches;
}

std::vector<double> Times(const LayoutPace& pace) {
  std::vector<double> times_s;
  for (const GroupPace& group : pace.groups) times_s.push_back(group.micro_batch_s);
  return times_s;
}

}  // namespace c4::c4d
