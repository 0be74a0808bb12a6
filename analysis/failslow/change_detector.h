// Finds the changes of a job's iteration time: the onset of a fail-slow, weak or severe, its relief, and a
// time that creeps up.
//
// Three parts. What lasts a single iteration (a checkpoint, a collection of garbage) is set aside. Bayesian
// online detection (run_length.h) says where the present level began. Verification compares the means: at
// least three iterations, a tenth of the time and clearly more than runs of as many iterations have differed
// before, whose scatter is taken from the series itself, so that noise with heavy tails, noise that comes in
// runs and coarse clocks need no setting. A change is suspected as soon as that holds, and confirmed with the
// mean of more iterations, or withdrawn. A level that has left its reference by a tenth without a step is a
// creep. Nothing depends on the unit.
//
// Pure; one thread; a few kilobytes and microseconds an iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/failslow/run_length.h"

namespace c4::failslow {

struct Change {
  uint64_t iteration = 0;  // the first of the new level, counted from 0; of a creep, where it began
  double before_s = 0;
  double after_s = 0;
  bool creeping = false;
  uint64_t told_at = 0;  // the iteration after which it was suspected
  bool operator==(const Change&) const = default;
};

enum class ChangeStage { kSuspected, kConfirmed, kWithdrawn };

struct ChangeNews {
  uint64_t number = 0;  // of the change: later news of it have the same
  ChangeStage stage = ChangeStage::kSuspected;
  Change change;
};

class ChangeDetector {
 public:
  ChangeDetector() = default;

  // The next iteration. A time that is no finite positive number is counted and passed over.
  void Add(double time_s);
  // No more will come: what is suspected is decided by what there is.
  void Finish();

  // What became known since the last time.
  std::vector<ChangeNews> Take();

  uint64_t iterations() const { return iterations_; }
  // The present level; 0 before the first kWarmUp iterations.
  double level_s() const;

  static constexpr size_t kWarmUp = 8;

 private:
  struct Point {
    uint64_t iteration = 0;
    double time_s = 0;
  };
  struct Pending {
    uint64_t number = 0;
    Change change;
    double reference_s = 0;  // before it
  };

  void WarmUp(const Point& point);
  double Center() const;
  bool IsOutlier(double time_s, double center_s) const;
  void Feed(const Point& point);
  void Refresh();
  void JudgeStep();
  bool Verified(size_t begin, Change* change) const;
  size_t BestSplit(size_t begin) const;
  void JudgeCreep();
  void Declare(size_t begin, const Change& change);
  void Settle(size_t end, bool may_wait);
  void Tell(uint64_t number, ChangeStage stage, const Change& change);
  void RestartFrom(size_t begin, double level_s);
  std::vector<double> Times(size_t begin, size_t end) const;

  uint64_t iterations_ = 0;
  std::vector<Point> level_;         // the iterations of the present level, without what was set aside
  std::optional<Point> held_above_;  // set aside; longer than the level
  std::optional<Point> held_below_;
  double median_s_ = 0;  // of the newest of level_
  double spread_s_ = 0;
  double inherited_spread_ = 0;  // relative, of the level before
  double reference_s_ = 0;       // where the level began; 0: not known yet
  double healthy_s_ = 0;         // the lowest reference
  RunLength run_length_;
  std::optional<Pending> pending_;
  std::optional<Pending> creep_;  // the last change, while it is a creep
  uint64_t numbers_ = 0;
  std::vector<ChangeNews> news_;
};

// Of a whole series: what was not withdrawn.
std::vector<Change> FindChanges(std::span<const double> times_s);

}  // namespace c4::failslow
