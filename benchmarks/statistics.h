// What the paired benchmarks say of their ratios. Pure; no errors.
#pragma once

#include <random>
#include <vector>

namespace c4 {

// 0 of nothing.
double Median(std::vector<double> values);

struct Interval {
  double low = 0;
  double high = 0;
};

// The 95 % bootstrap interval of the median, from 10,000 resamples. REQUIRES: values is not empty.
Interval BootstrapMedian(const std::vector<double>& values, std::mt19937* random);

}  // namespace c4
