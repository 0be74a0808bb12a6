// What one rank tells of its iterations: their times, from its calls (period_tracker.h), and the changes of
// these (change_detector.h). Iterations of different shapes, as of training and of evaluation, are not
// compared with each other; a shape that comes back goes on where it was.
//
// Bounded memory, under 700 KiB; nothing is taken before the first call. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "analysis/failslow/change_detector.h"
#include "analysis/failslow/period_tracker.h"

namespace c4::failslow {

struct RankIteration {
  uint64_t number = 0;  // of the rank, from 0
  int64_t began_ns = 0;
  int64_t duration_ns = 0;
  uint32_t shape = 0;  // of the rank, from 1
  uint32_t calls = 0;
};

// A change of the time of one shape's iterations, as it is now.
struct IterationChange {
  uint64_t number = 0;  // of the rank, from 1
  uint32_t shape = 0;
  ChangeStage stage = ChangeStage::kSuspected;
  int64_t at_ns = 0;       // the first iteration of the new level began then; of a creep, where it began
  uint64_t iteration = 0;  // that one's number
  double before_s = 0;
  double after_s = 0;
  bool creeping = false;
  bool operator==(const IterationChange&) const = default;
};

class RankIterations {
 public:
  static constexpr size_t kShapes = 4;    // those that came last are known
  static constexpr size_t kChanges = 16;  // the newest are kept
  static constexpr size_t kUntaken = 1024;

  // The next call.
  void Call(uint64_t token, int64_t called_ns);
  // Calls are missing here: what comes is no continuation.
  void Gap();

  // What has ended since the last time, oldest first; of more than kUntaken the newest.
  std::vector<RankIteration> Take();
  // Oldest first.
  const std::deque<IterationChange>& changes() const { return changes_; }
  uint64_t iterations() const { return iterations_; }

  size_t MemoryBytes() const;

 private:
  struct Place {
    uint64_t iteration = 0;
    int64_t began_ns = 0;
  };
  struct Shape {
    static constexpr size_t kPlaces = 1152;  // a creep may have begun that long ago

    uint64_t hash = 0;
    uint32_t number = 0;
    uint64_t used = 0;  // the rank's iteration that was the last one
    ChangeDetector detector;
    std::vector<Place> places;  // of its iterations, by their number modulo kPlaces

    Place PlaceOf(uint64_t iteration) const;
  };

  Shape* ShapeOf(uint64_t hash);
  void Heed(const Iteration& iteration);
  void Note(const Shape& shape, const ChangeNews& news);

  std::unique_ptr<PeriodTracker> tracker_;
  std::vector<std::unique_ptr<Shape>> shapes_;
  uint32_t shape_numbers_ = 0;
  uint64_t iterations_ = 0;
  uint64_t gaps_ = 0;
  int64_t called_ns_ = 0;  // the last call
  uint64_t change_numbers_ = 0;
  std::deque<RankIteration> untaken_;
  std::deque<IterationChange> changes_;
  struct Number {
    uint32_t shape = 0;
    uint64_t in_detector = 0;
    uint64_t number = 0;
  };
  std::deque<Number> numbers_;  // of changes_
};

}  // namespace c4::failslow
