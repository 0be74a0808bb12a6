// The median as a value that occurred: of an even number of values the lower one of the two in the middle; 0
// of none. Pure; any thread. (whatif/statistics.h has the mean of the two.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace c4::analysis {

inline double LowerMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace c4::analysis
