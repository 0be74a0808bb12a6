#include "analysis/failslow/call_periods.h"

#include <algorithm>
#include <limits>
#include <map>

namespace c4::failslow {
namespace {

constexpr uint64_t kLeastShare = 4;  // a quarter

// Periods of fewer calls are layers more often than iterations: nearly all calls have to repeat with them.
constexpr uint32_t kFewCalls = 8;

struct Coverage {
  uint64_t calls = 0;
  uint64_t stretches = 0;
  uint64_t most_periods = 0;  // of one stretch
  uint64_t end_call = 0;
};

// 0: none is to be believed.
uint32_t IterationPeriod(const std::vector<Stretch>& stretches, uint64_t calls) {
  std::map<uint32_t, Coverage> by_period;
  for (const Stretch& stretch : stretches) {
    Coverage& coverage = by_period[stretch.period];
    const uint64_t length = stretch.end_call - stretch.first_call;
    coverage.calls += length;
    ++coverage.stretches;
    coverage.most_periods = std::max(coverage.most_periods, length / stretch.period);
    coverage.end_call = stretch.end_call;
  }
  const auto lasts = [&by_period, calls](uint32_t period) {
    const Coverage& coverage = by_period[period];
    return coverage.end_call == calls || coverage.stretches > 1 || coverage.most_periods >= kManyPeriods;
  };
  // Layers and micro-batches are less than half of their iteration: what is followed by a period of about its
  // own length is none of them.
  const auto has_follower = [&by_period, &lasts](uint32_t period) {
    return std::any_of(by_period.begin(), by_period.end(), [&lasts, period](const auto& other) {
      return other.first != period && other.first < 2 * period && 2 * other.first > period &&
             lasts(other.first);
    });
  };
  uint32_t best = 0;
  for (const auto& entry : by_period) {
    const auto period = entry.first;
    const auto coverage = entry.second;
    const bool lasting = lasts(period) || has_follower(period);
    if (period < kFewCalls && 20 * coverage.calls < 19 * calls) continue;
    if (!lasting || kLeastShare * coverage.calls < calls) continue;
    const auto beats = [&by_period, &coverage](uint32_t other) {
      const Coverage& before = by_period[other];
      return coverage.calls > before.calls ||
             (coverage.calls == before.calls && coverage.end_call > before.end_call);
    };
    if (best == 0 || beats(best)) best = period;
  }
  return best;
}

std::vector<Stretch> StretchesOf(const PeriodTracker& tracker) {
  std::vector<Stretch> stretches(tracker.ended().begin(), tracker.ended().end());
  if (tracker.stretch()) stretches.push_back(*tracker.stretch());
  return stretches;
}

}  // namespace

CallPeriods FindCallPeriods(std::span<const uint64_t> tokens) {
  PeriodTracker tracker(std::numeric_limits<size_t>::max());
  for (const uint64_t token : tokens) tracker.Add(token, 0);
  tracker.Finish();
  CallPeriods found = {.stretches = StretchesOf(tracker)};
  if (tokens.size() < PeriodTracker::kRepeats * PeriodTracker::kLongestPeriod) {
    tracker.Finish(PeriodTracker::kRepeats - 1);
    const std::vector<Stretch> with_fewer = StretchesOf(tracker);
    const uint32_t period = IterationPeriod(with_fewer, tokens.size());
    if (period > IterationPeriod(found.stretches, tokens.size())) found.stretches = with_fewer;
  }
  found.period = IterationPeriod(found.stretches, tokens.size());
  return found;
}

std::vector<CallIteration> IterationsOf(const CallPeriods& periods) {
  std::vector<CallIteration> iterations;
  for (const Stretch& stretch : periods.stretches) {
    if (stretch.period != periods.period) continue;
    for (uint64_t first = stretch.first_call; first + stretch.period < stretch.end_call;
         first += stretch.period) {
      iterations.push_back({.first_call = first, .end_call = first + stretch.period});
    }
  }
  return iterations;
}

}  // namespace c4::failslow
