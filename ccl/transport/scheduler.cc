#include "ccl/transport/scheduler.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace c4 {
namespace {

// Costs less apart than this count as equal: chunks of one path differ as much among themselves, and a
// scheduler that took that for a difference would leave good paths idle.
constexpr double kClearlySlower = 3;
constexpr size_t kLeastBytes = 4096;     // below, a latency says nothing about bytes
constexpr size_t kChunkOverhead = 1024;  // what a chunk costs beside its bytes, so that empty ones count

}  // namespace

QpScheduler::QpScheduler(size_t queue_pairs, size_t window_bytes)
    : pairs_(std::max<size_t>(1, queue_pairs)), histories_(pairs_.size()), window_bytes_(window_bytes) {}

int QpScheduler::Pick(size_t bytes, uint64_t now_ns) const {
  const double usual = std::max(best_cost_, 1e-3);
  const double slow = kClearlySlower * best_cost_;
  int best = kNone, starved = kNone;
  double best_finish = std::numeric_limits<double>::infinity();
  uint64_t best_posted_ns = 0, starved_since_ns = 0;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    if (!pair.usable) continue;
    if (pair.in_flight == 0 && now_ns - pair.last_posted_ns >= kProbeNs &&
        (starved == kNone || pair.last_posted_ns < starved_since_ns)) {
      starved = static_cast<int>(i);
      starved_since_ns = pair.last_posted_ns;
    }
    const double cost = pair.cost > slow ? pair.cost : usual;
    const double finish = static_cast<double>(pair.in_flight + bytes + kChunkOverhead) * cost;
    // Which one is best cannot be foreseen: selected without a branch.
    const bool better =
        (finish < best_finish) | ((finish == best_finish) & (pair.last_posted_ns < best_posted_ns));
    best = better ? static_cast<int>(i) : best;
    best_finish = better ? finish : best_finish;
    best_posted_ns = better ? pair.last_posted_ns : best_posted_ns;
  }
  for (size_t i = 0; probing_ > 0 && i < pairs_.size(); ++i) {
    // What belongs to a probe that has begun. A chunk alone also waits for a receiver that is busy; several
    // share that wait, but each takes its own time on a slow path.
    const Pair& pair = pairs_[i];
    if (pair.usable && pair.probe_left > 0 && pair.in_flight != 0 &&
        pair.in_flight + bytes <= window_bytes_) {
      return static_cast<int>(i);
    }
  }
  if (starved != kNone || best == kNone) return starved;
  const size_t in_flight = pairs_[static_cast<size_t>(best)].in_flight;
  return in_flight == 0 || in_flight + bytes <= window_bytes_ ? best : kNone;
}

void QpScheduler::SetProbeLeft(Pair* pair, int chunks) {
  probing_ += (chunks > 0 ? 1 : 0) - (pair->probe_left > 0 ? 1 : 0);
  pair->probe_left = chunks;
}

void QpScheduler::FindBestCost() {
  best_cost_ = 0;
  for (const Pair& pair : pairs_) {
    if (pair.usable && pair.cost > 0 && (best_cost_ <= 0 || pair.cost < best_cost_)) best_cost_ = pair.cost;
  }
}

void QpScheduler::Posted(int queue_pair, size_t bytes, uint64_t now_ns) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  if (pair.in_flight == 0 && now_ns - pair.last_posted_ns >= kProbeNs) {
    SetProbeLeft(&pair, kProbeChunks - 1);
  } else if (pair.probe_left > 0) {
    SetProbeLeft(&pair, pair.in_flight == 0 ? 0 : pair.probe_left - 1);
  }
  pair.in_flight += bytes + kChunkOverhead;
  pair.last_posted_ns = now_ns;
}

void QpScheduler::Pause(int queue_pair) {
  pairs_[static_cast<size_t>(queue_pair)].usable = false;
  FindBestCost();
}

void QpScheduler::TakeBack(int queue_pair) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  pair.in_flight = 0;
  SetProbeLeft(&pair, 0);
}

void QpScheduler::Revive(int queue_pair) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  History& history = histories_[static_cast<size_t>(queue_pair)];
  pair.usable = true;
  pair.cost = 0;
  std::fill(std::begin(history.before), std::end(history.before), Took());
  history.completions = 0;
  FindBestCost();
}

void QpScheduler::Completed(int queue_pair, size_t chunks, size_t bytes, uint64_t posted_ns,
                            uint64_t now_ns) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  History& history = histories_[static_cast<size_t>(queue_pair)];
  pair.in_flight -= std::min(pair.in_flight, bytes + chunks * kChunkOverhead);
  // Its own time on the path: not that of the chunks that were ahead of it.
  const uint64_t since = std::max(posted_ns, history.last_completed_ns);
  history.last_completed_ns = now_ns;
  const auto took = static_cast<double>(now_ns > since ? now_ns - since : 1);
  const auto counted = static_cast<double>(std::max(bytes, kLeastBytes));
  // With the ones before: what is heard of late makes the next look fast, on its own up to any rate.
  double all_took = took;
  double all_counted = counted;
  for (const auto& [before_took, before_counted] : history.before) {
    all_took += before_took;
    all_counted += before_counted;
  }
  history.before[history.completions % std::size(history.before)] = {took, counted};
  history.recent[history.completions++ % kRecent] = all_took / all_counted;
  // The best of the last few: otherwise noise only ever adds, and a path that is slow is so for every chunk.
  const double cost_before = pair.cost;
  pair.cost =
      *std::min_element(history.recent, history.recent + std::min<uint64_t>(history.completions, kRecent));
  if (!pair.usable) return;
  if (best_cost_ <= 0 || pair.cost <= best_cost_) {
    best_cost_ = pair.cost;
  } else if (cost_before <= best_cost_) {
    FindBestCost();  // it may have been the best
  }
}

}  // namespace c4
