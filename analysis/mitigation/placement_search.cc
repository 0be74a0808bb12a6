#include "analysis/mitigation/placement_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/mitigation/placement_state.h"

namespace c4::mitigation {
namespace {

// All pairs are tried up to here; above, one of those that cannot be told apart.
constexpr int kFewWorkers = 96;
constexpr size_t kFirstSwaps = 12;  // of pairs of swaps: the best first ones

struct Swap {
  int a = 0;
  int b = 0;
  Worth worth;
};

class Search {
 public:
  Search(const IterationModel& model, const PlacementOptions& options)
      : model_(model), most_operations_(options.most_operations) {}

  // The best that is found from there.
  Placement From(const Placement& start) {
    PlacementState state(model_, start);
    for (;;) {
      std::vector<Swap> swaps = Tried(&state);
      if (swaps.empty()) break;
      if (swaps.front().worth < state.worth()) {
        state.Swap(swaps.front().a, swaps.front().b);
        continue;
      }
      if (!TwoSwaps(&state, swaps)) break;
    }
    operations_ += state.operations();
    tried_ += state.tried();
    return state.placement();
  }

  uint64_t tried() const { return tried_; }

 private:
  bool IsSpent(const PlacementState& state) const {
    return operations_ + state.operations() > most_operations_;
  }

  // The best first, no more than kFirstSwaps.
  std::vector<Swap> Tried(PlacementState* state) {
    std::vector<Swap> best;
    const int workers = model_.job().workers();
    std::vector<int> movers;
    for (int worker = 0; worker < workers; ++worker) {
      if (workers <= kFewWorkers || state->IsSlow(worker)) movers.push_back(worker);
    }
    for (const int a : movers) {
      std::unordered_set<uint64_t> seen;
      for (int b = 0; b < workers; ++b) {
        if (b == a || (workers <= kFewWorkers && b < a)) continue;
        if (workers > kFewWorkers && !seen.insert(state->Likeness(a, b)).second) continue;
        if (IsSpent(*state)) return best;
        Keep({a, b, state->Try(a, b)}, &best);
      }
    }
    return best;
  }

  static void Keep(const Swap& swap, std::vector<Swap>* best) {
    const auto at =
        std::upper_bound(best->begin(), best->end(), swap,
                         [](const Swap& one, const Swap& other) { return one.worth < other.worth; });
    if (at == best->end() && best->size() >= kFirstSwaps) return;
    best->insert(at, swap);
    if (best->size() > kFirstSwaps) best->pop_back();
  }

  // A swap that does not help may make room for one that does.
  bool TwoSwaps(PlacementState* state, const std::vector<Swap>& firsts) {
    const Worth now = state->worth();
    Swap first, second;
    Worth best = now;
    for (const Swap& swap : firsts) {
      state->Swap(swap.a, swap.b);
      const std::vector<Swap> seconds = Tried(state);
      if (!seconds.empty() && seconds.front().worth < best) {
        best = seconds.front().worth;
        first = swap;
        second = seconds.front();
      }
      state->Swap(swap.a, swap.b);
      if (IsSpent(*state)) break;
    }
    if (!(best < now)) return false;
    state->Swap(first.a, first.b);
    state->Swap(second.a, second.b);
    return true;
  }

  const IterationModel& model_;
  const uint64_t most_operations_;
  uint64_t operations_ = 0;
  uint64_t tried_ = 0;
};

// Inner stages first: the outer ones have more to do besides.
std::vector<int> StagesFromWithin(int stages) {
  std::vector<int> order;
  for (int stage = 1; stage + 1 < stages; ++stage) order.push_back(stage);
  order.push_back(stages - 1);
  if (stages > 1) order.push_back(0);
  return order;
}

// Slow places, the slowest first, go to the workers of as few stages as hold them all; `first`: which stage
// of the order is the first one.
Placement Consolidated(const IterationModel& model, Placement placement, size_t first) {
  const PlacedJob& job = model.job();
  std::vector<int> worker_at(placement.size());
  std::vector<int> slow;
  for (size_t worker = 0; worker < placement.size(); ++worker) {
    worker_at[static_cast<size_t>(placement[worker])] = static_cast<int>(worker);
    if (model.FactorOf(placement[worker]) > 1) slow.push_back(placement[worker]);
  }
  std::sort(slow.begin(), slow.end(), [&](int a, int b) {
    return model.FactorOf(a) != model.FactorOf(b) ? model.FactorOf(a) > model.FactorOf(b) : a < b;
  });
  std::vector<int> order = StagesFromWithin(static_cast<int>(job.stages.size()));
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first % order.size()), order.end());
  // Who stands in a stage already, stays.
  size_t next = 0;
  for (const int stage : order) {
    if (next >= slow.size()) break;
    const auto last = std::min(slow.size(), next + static_cast<size_t>(job.groups));
    std::vector<int> places(slow.begin() + static_cast<std::ptrdiff_t>(next),
                            slow.begin() + static_cast<std::ptrdiff_t>(last));
    next = last;
    std::vector<int> come;
    std::vector<bool> stays(static_cast<size_t>(job.groups), false);
    for (const int place : places) {
      const int worker = worker_at[static_cast<size_t>(place)];
      if (worker / job.groups == stage) {
        stays[static_cast<size_t>(worker % job.groups)] = true;
      } else {
        come.push_back(place);
      }
    }
    int group = 0;
    for (const int place : come) {
      while (stays[static_cast<size_t>(group)]) ++group;
      const int goes = stage * job.groups + group++;
      const int comes = worker_at[static_cast<size_t>(place)];
      std::swap(placement[static_cast<size_t>(goes)], placement[static_cast<size_t>(comes)]);
      worker_at[static_cast<size_t>(placement[static_cast<size_t>(goes)])] = goes;
      worker_at[static_cast<size_t>(placement[static_cast<size_t>(comes)])] = comes;
    }
  }
  return placement;
}

size_t Moved(const Placement& now, const Placement& then) {
  size_t moved = 0;
  for (size_t worker = 0; worker < now.size(); ++worker) moved += now[worker] != then[worker] ? 1 : 0;
  return moved;
}

// Who need not move goes back: what they bring is less than a thousandth.
void Prune(const IterationModel& model, const Placement& now, Placement* placement) {
  constexpr double kAlike = 1 + 1e-3;
  constexpr size_t kMany = 256;  // moves, of which none is spared
  if (Moved(now, *placement) > kMany) return;
  PlacementState state(model, *placement);
  const double most_s = state.worth().time_s * kAlike;
  for (size_t worker = 0; worker < now.size(); ++worker) {
    if (state.placement()[worker] == now[worker]) continue;
    const auto& at = state.placement();
    const auto there = std::find(at.begin(), at.end(), now[worker]);
    const auto other = static_cast<int>(there - at.begin());
    if (state.Try(static_cast<int>(worker), other).time_s <= most_s) {
      state.Swap(static_cast<int>(worker), other);
    }
  }
  if (Moved(now, state.placement()) < Moved(now, *placement)) *placement = state.placement();
}

absl::Status CheckPlacement(const PlacedJob& job, const Placement& now) {
  std::vector<bool> taken(static_cast<size_t>(job.workers()), false);
  bool good = now.size() == taken.size();
  for (size_t worker = 0; good && worker < now.size(); ++worker) {
    good = now[worker] >= 0 && now[worker] < job.workers() && !taken[static_cast<size_t>(now[worker])];
    if (good) taken[static_cast<size_t>(now[worker])] = true;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError("each worker needs a place of its own, and there are as many as workers");
}

}  // namespace

absl::StatusOr<PlacementPlan> FindPlacement(const PlacedJob& job, const Placement& now,
                                            const PlacementOptions& options) {
  if (const absl::Status checked = CheckJob(job); !checked.ok()) return checked;
  if (const absl::Status checked = CheckPlacement(job, now); !checked.ok()) return checked;
  const PlacedJob healthy = Healthy(job);
  const IterationModel model(job);
  PlacementPlan plan;
  plan.before_s = model.Time(now);
  plan.healthy_s = IterationModel(healthy).Time(now);
  plan.placement = now;
  plan.after_s = plan.before_s;
  Search search(model, options);
  constexpr double kAlike = 1 - 1e-3;
  const auto take = [&](Placement found) {
    Prune(model, now, &found);
    const double found_s = model.Time(found);
    const bool fewer = Moved(now, found) < Moved(now, plan.placement);
    if (found_s < plan.after_s * kAlike || (found_s <= plan.after_s && fewer)) {
      plan.placement = std::move(found);
      plan.after_s = found_s;
    }
  };
  if (plan.before_s > plan.healthy_s) {
    take(search.From(now));
    const bool has_slow_places =
        std::any_of(job.compute_factor.begin(), job.compute_factor.end(), [](double f) { return f > 1; });
    for (size_t first = 0; has_slow_places && first < std::min<size_t>(2, job.stages.size()); ++first) {
      take(search.From(Consolidated(model, now, first)));
    }
    if (job.places_per_node > 1) {  // else all places are alike
      take(search.From(UsualPlacement(job)));
      take(search.From(PipelinePlacement(job)));
    }
  }
  if (plan.before_s - plan.after_s < options.least_gain * plan.before_s) {
    plan.placement = now;
    plan.after_s = plan.before_s;
  }
  for (int worker = 0; worker < job.workers(); ++worker) {
    const auto at = static_cast<size_t>(worker);
    if (plan.placement[at] == now[at]) continue;
    plan.moves.push_back({worker / job.groups, worker % job.groups, now[at], plan.placement[at]});
  }
  plan.swap_s = model.SwapTime(now, plan.placement);
  plan.tried = search.tried();
  return plan;
}

}  // namespace c4::mitigation
