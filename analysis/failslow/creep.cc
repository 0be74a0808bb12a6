#include "analysis/failslow/creep.h"

#include <algorithm>
#include <cmath>

#include "analysis/failslow/level.h"

namespace c4::failslow {
namespace {

constexpr size_t kPlaces = 64;  // that are tried

double Distances(std::span<const double> values) {
  const double level = MedianOf({values.begin(), values.end()});
  double sum = 0;
  for (const double value : values) sum += std::abs(value - level);
  return sum;
}

// Of values around one level until `index`, and around another one from there on.
double StepCost(std::span<const double> values, size_t index) {
  return Distances(values.first(index)) + Distances(values.subspan(index));
}

// Of values that leave `level` at `index` in a straight line to `last` at the end.
double SlopeCost(std::span<const double> values, size_t index, double level, double last) {
  const auto length = static_cast<double>(values.size() - index);
  double cost = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double share = i < index ? 0 : static_cast<double>(i - index) / length;
    cost += std::abs(values[i] - level - share * (last - level));
  }
  return cost;
}

}  // namespace

Departure LocateDeparture(std::span<const double> values, double level) {
  const size_t every = std::max<size_t>(1, values.size() / kPlaces);
  const std::span<const double> newest = values.last(std::min<size_t>(values.size(), 8));
  const double last = MedianOf({newest.begin(), newest.end()});
  Departure best;
  double least = -1;
  const auto try_place = [&](size_t index) {
    const double step = StepCost(values, index);
    const double slope = SlopeCost(values, index, level, last);
    const double cost = std::min(step, slope);
    if (least >= 0 && cost >= least) return;
    least = cost;
    best = {.index = index, .creeping = slope < step};
  };
  const size_t end = values.size() - std::min<size_t>(values.size(), 4);
  for (size_t index = 1; index < end; index += every) try_place(index);
  const size_t near = best.index;
  for (size_t index = near > every ? near - every : 1; index < std::min(end, near + every); ++index) {
    try_place(index);
  }
  return best;
}

}  // namespace c4::failslow
