#include "benchmarks/statistics.h"

#include <algorithm>

namespace c4 {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Interval BootstrapMedian(const std::vector<double>& values, std::mt19937* random) {
  constexpr size_t kResamples = 10000;
  std::vector<double> medians;
  std::vector<double> sample(values.size());
  for (size_t i = 0; i < kResamples; ++i) {
    for (double& value : sample) value = values[(*random)() % values.size()];
    medians.push_back(Median(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {medians[kResamples / 40], medians[kResamples - 1 - kResamples / 40]};
}

}  // namespace c4
