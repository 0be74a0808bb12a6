// A placement and its iteration's time, kept up from swap to swap: only what a swap touches is replayed.
// Of placement_search.cc. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/mitigation/iteration_model.h"

namespace c4::mitigation {

// Less is better: the time, and where it is the same how much is slow beside the slowest.
struct Worth {
  double time_s = 0;
  double rest_s = 0;

  bool operator<(const Worth& other) const {
    constexpr double kAlike = 1e-9;
    if (time_s < other.time_s * (1 - kAlike)) return true;
    if (time_s > other.time_s * (1 + kAlike)) return false;
    return rest_s < other.rest_s * (1 - kAlike);
  }
};

class PlacementState {
 public:
  PlacementState(const IterationModel& model, Placement placement);

  const Placement& placement() const { return placement_; }
  const Worth& worth() const { return worth_; }

  // What it would be with these two workers in each other's places.
  Worth Try(int a, int b);
  void Swap(int a, int b);

  // A worker whose place, or a link of it that the job uses, is slower than others.
  bool IsSlow(int worker) const;
  // Of swapping `a`: two workers b of the same likeness give the same.
  uint64_t Likeness(int a, int b) const;

  uint64_t operations() const { return operations_; }
  uint64_t tried() const { return tried_; }

 private:
  struct Saved {
    std::vector<double> done_s;
    double ring_s = 0;
  };
  void Replay(int group);
  void Exchange(int a, int b);
  Worth Sum() const;
  int WorkerOf(int stage, int group) const { return stage * model_.job().groups + group; }
  int PlaceOf(int stage, int group) const { return placement_[static_cast<size_t>(WorkerOf(stage, group))]; }
  uint64_t MarkOf(uint64_t sum, int place) const;
  void Mark(int group);

  const IterationModel& model_;
  const int stages_;
  const int groups_;
  Placement placement_;
  std::vector<double> done_s_;  // by stage, then group
  std::vector<double> ring_s_;  // by stage
  std::vector<uint64_t> mark_;  // by group: what its pipeline is like
  Worth worth_;
  IterationModel::Scratch scratch_;
  std::vector<double> column_;
  Saved saved_a_, saved_b_;
  uint64_t operations_ = 0;
  uint64_t tried_ = 0;
};

}  // namespace c4::mitigation
