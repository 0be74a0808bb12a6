// Iteration times of training jobs that never ran, with the truth about their fail-slows: what the detection
// of changes is measured and tested against.
//
// Deterministic by its seed; one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace c4::benchmarks {

enum class SeriesKind { kHealthy, kWeak, kMedium, kSevere, kCreep };
inline constexpr int kSeriesKinds = 5;
const char* SeriesKindName(SeriesKind kind);

struct TrueChange {
  uint64_t iteration = 0;  // the first of the new level; of a creep, where it begins
  double ratio = 1;        // of the new level to the one before
  uint64_t until = 0;      // of a creep: where it has come to its end; else the same as `iteration`
};

struct IterationSeries {
  SeriesKind kind = SeriesKind::kHealthy;
  std::vector<double> times_s;
  std::vector<TrueChange> changes;
};

// Weak: by 10 to 20 %; medium: to 50 %; severe: to four times. One to three of them, each with its relief
// unless it lasts to the end. Beside it, each at random: normal noise, noise with heavy tails, noise that
// comes in runs; a coarse clock; spikes; checkpoint pauses; a slow drift and shifts that stay below the
// limit; a long first iteration. In milliseconds, seconds or thousands.
IterationSeries MakeSeries(SeriesKind kind, uint64_t seed);

// Every third healthy, the others of the kinds in turn.
std::vector<IterationSeries> MakeSeriesSet(int count, uint64_t seed);

}  // namespace c4::benchmarks
