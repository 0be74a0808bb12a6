// Estimates the level of a handful of iteration times and their scatter. Single outliers do not move either.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace c4::failslow {

// Of an even number the mean of the two in the middle. REQUIRES: there are some.
double MedianOf(std::vector<double> values);

// 1.4826 times the median distance from `center`: the standard deviation of normal values. 0 of none.
double SpreadAround(std::span<const double> values, double center);

// The mean of those within `reach` of the median. REQUIRES: there are some.
double MeanWithin(std::span<const double> values, double reach);

// How far from `center` the values lie together: all but three in ten of them at least so far, on the same
// side; 0 where they lie on both. Single pauses among them do nothing. REQUIRES: there are some.
double SharedDeviation(std::span<const double> values, double center);

// How far `length` values in a row lie from the median of the `before` values in front of them, in a series
// that does not change: their means usually, and at the most that they have in common. Knows of scatter that
// comes in runs, which the spread of single values does not.
struct RunScatter {
  double spread = 0;
  double most = 0;
  size_t runs = 0;
};
RunScatter ScatterOfRuns(std::span<const double> values, size_t length, size_t before);

}  // namespace c4::failslow
