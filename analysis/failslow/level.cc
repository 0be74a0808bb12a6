#include "analysis/failslow/level.h"

#include <algorithm>
#include <cmath>

namespace c4::failslow {
namespace {

constexpr double kOfNormal = 1.4826;
constexpr double kShared = 0.7;  // of the values

}  // namespace

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double SpreadAround(std::span<const double> values, double center) {
  if (values.empty()) return 0;
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - center));
  return kOfNormal * MedianOf(std::move(distances));
}

double MeanWithin(std::span<const double> values, double reach) {
  const double median = MedianOf({values.begin(), values.end()});
  double sum = 0;
  size_t count = 0;
  for (const double value : values) {
    if (std::abs(value - median) > reach) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : median;
}

double SharedDeviation(std::span<const double> values, double center) {
  std::vector<double> above;
  for (const double value : values) above.push_back(value - center);
  std::sort(above.begin(), above.end());
  const auto others = static_cast<size_t>((1 - kShared) * static_cast<double>(values.size()));
  return std::max({above[others], -above[above.size() - 1 - others], 0.0});
}

RunScatter ScatterOfRuns(std::span<const double> values, size_t length, size_t before) {
  RunScatter scatter;
  std::vector<double> distances;
  // At first there is less in front.
  for (size_t begin = before / 4; begin + length <= values.size(); ++begin) {
    const std::span<const double> front =
        values.subspan(begin - std::min(begin, before), std::min(begin, before));
    const std::span<const double> run = values.subspan(begin, length);
    const double center = MedianOf({front.begin(), front.end()});
    double sum = 0;
    for (const double value : run) sum += value;
    distances.push_back(sum / static_cast<double>(length) - center);
    scatter.most = std::max(scatter.most, SharedDeviation(run, center));
  }
  scatter.spread = SpreadAround(distances, 0);
  scatter.runs = distances.size();
  return scatter;
}

}  // namespace c4::failslow
