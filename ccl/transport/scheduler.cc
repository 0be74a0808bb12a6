#include "ccl/transport/scheduler.h"

#include <algorithm>
#include <iterator>

namespace c4 {
namespace {

// Costs less apart than this count as equal: chunks of one path differ as much among themselves, and a
// scheduler that took that for a difference would leave good paths idle.
constexpr double kClearlySlower = 3;
constexpr size_t kLeastBytes = 4096;     // below, a latency says nothing about bytes
constexpr size_t kChunkOverhead = 1024;  // what a chunk costs beside its bytes, so that empty ones count

}  // namespace

QpScheduler::QpScheduler(size_t queue_pairs, size_t window_bytes)
    : pairs_(std::max<size_t>(1, queue_pairs)), window_bytes_(window_bytes) {}

int QpScheduler::Pick(size_t bytes, uint64_t now_ns) const {
  double best_cost = 0;
  for (const Pair& pair : pairs_) {
    if (pair.usable && pair.cost > 0 && (best_cost <= 0 || pair.cost < best_cost)) best_cost = pair.cost;
  }
  int best = kNone;
  double best_finish = 0;
  int starved = kNone;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    if (!pair.usable) continue;
    if (pair.in_flight == 0 && now_ns - pair.last_posted_ns >= kProbeNs &&
        (starved == kNone || pair.last_posted_ns < pairs_[static_cast<size_t>(starved)].last_posted_ns)) {
      starved = static_cast<int>(i);
    }
    const double cost = pair.cost > kClearlySlower * best_cost ? pair.cost : std::max(best_cost, 1e-3);
    const double finish = static_cast<double>(pair.in_flight + bytes + kChunkOverhead) * cost;
    const bool better =
        best == kNone || finish < best_finish ||
        (finish <= best_finish && pair.last_posted_ns < pairs_[static_cast<size_t>(best)].last_posted_ns);
    if (!better) continue;
    best = static_cast<int>(i);
    best_finish = finish;
  }
  for (size_t i = 0; i < pairs_.size(); ++i) {
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

void QpScheduler::Posted(int queue_pair, size_t bytes, uint64_t now_ns) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  if (pair.in_flight == 0 && now_ns - pair.last_posted_ns >= kProbeNs) {
    pair.probe_left = kProbeChunks - 1;
  } else {
    pair.probe_left = pair.in_flight == 0 ? 0 : std::max(0, pair.probe_left - 1);
  }
  pair.in_flight += bytes + kChunkOverhead;
  pair.last_posted_ns = now_ns;
}

void QpScheduler::TakeBack(int queue_pair) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  pair.in_flight = 0;
  pair.probe_left = 0;
}

void QpScheduler::Revive(int queue_pair) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  pair.usable = true;
  pair.cost = 0;
  std::fill(std::begin(pair.before), std::end(pair.before), Took());
  pair.completions = 0;
}

void QpScheduler::Completed(int queue_pair, size_t chunks, size_t bytes, uint64_t posted_ns,
                            uint64_t now_ns) {
  Pair& pair = pairs_[static_cast<size_t>(queue_pair)];
  pair.in_flight -= std::min(pair.in_flight, bytes + chunks * kChunkOverhead);
  // Its own time on the path: not that of the chunks that were ahead of it.
  const uint64_t since = std::max(posted_ns, pair.last_completed_ns);
  pair.last_completed_ns = now_ns;
  const auto took = static_cast<double>(now_ns > since ? now_ns - since : 1);
  const auto counted = static_cast<double>(std::max(bytes, kLeastBytes));
  // With the ones before: what is heard of late makes the next look fast, on its own up to any rate.
  double all_took = took;
  double all_counted = counted;
  for (const auto& [before_took, before_counted] : pair.before) {
    all_took += before_took;
    all_counted += before_counted;
  }
  pair.before[pair.completions % std::size(pair.before)] = {took, counted};
  pair.recent[pair.completions++ % kRecent] = all_took / all_counted;
  // The best of the last few: otherwise noise only ever adds, and a path that is slow is so for every chunk.
  pair.cost = *std::min_element(pair.recent, pair.recent + std::min<uint64_t>(pair.completions, kRecent));
}

}  // namespace c4
