#include "benchmarks/change_baselines.h"

#include <cmath>

#include "analysis/failslow/level.h"
#include "analysis/failslow/run_length.h"

namespace c4::benchmarks {
namespace {

constexpr size_t kWindow = 10;
constexpr double kDifference = 0.10;
constexpr size_t kEarly = 8;
constexpr size_t kShortRun = 9;
constexpr double kCertain = 0.9;

}  // namespace

std::vector<PlainChange> SlidingWindowChanges(std::span<const double> times_s) {
  std::vector<PlainChange> changes;
  size_t begin = 0;  // of the level
  for (size_t i = 0; i < times_s.size(); ++i) {
    if (i + 1 < begin + 2 * kWindow) continue;
    const std::span<const double> level = times_s.subspan(begin, i + 1 - begin);
    double mean = 0;
    for (const double time_s : level.last(kWindow)) mean += time_s / kWindow;
    const double median = failslow::MedianOf({level.begin(), level.end()});
    if (std::abs(mean / median - 1) <= kDifference) continue;
    begin = i + 1 - kWindow;
    changes.push_back({.iteration = begin, .told_at = i});
  }
  return changes;
}

std::vector<PlainChange> PlainBayesianChanges(std::span<const double> times_s) {
  std::vector<PlainChange> changes;
  if (times_s.size() < kEarly) return changes;
  failslow::RunLength run_length;
  run_length.Restart(failslow::MedianOf({times_s.begin(), times_s.begin() + kEarly}));
  uint64_t last = 0;  // where the run before began
  for (size_t i = 0; i < times_s.size(); ++i) {
    run_length.Add(times_s[i]);
    const size_t run = run_length.MostProbable();
    if (i < kEarly || run < 1 || run > kShortRun || run_length.Probability(run - 1, run + 1) < kCertain)
      continue;
    const uint64_t begin = i + 1 - run;
    if (begin > last + 1) changes.push_back({.iteration = begin, .told_at = i});
    last = begin;
  }
  return changes;
}

}  // namespace c4::benchmarks
