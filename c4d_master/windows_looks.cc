// Looks at queue pairs as the slices of their process end: whether one of them may be slow, and how often one
// looks so by chance.
#include <algorithm>

#include "c4d_master/windows.h"

namespace c4::c4d {

// While all of it lies at hand. What becomes usual is known of the whole connection, and remembered as Usual
// does.
void Windows::TakeLooks(ProcessHistory* history) const {
  const auto [first_slice, last_slice] = Span(*history, 0);
  const bool learnt = history->usual_own.size() >= thresholds_.least_usual_slices;
  history->looks.assign(history->queue_pairs.size(), {});
  history->looked_shares = shares_;
  for (size_t i = 0; i < history->queue_pairs.size(); ++i) {
    const std::vector<Count>& recent = history->queue_pairs[i].recent;
    Look& look = history->looks[i];
    std::array<double, kLatencyBuckets> counts{};
    for (size_t k = recent.size(); k > 0 && recent[k - 1].slice >= first_slice; --k) {
      counts[recent[k - 1].bucket] += recent[k - 1].chunks;
      look.several_paths = look.several_paths || recent[k - 1].path != recent.back().path;
    }
    const Latency low = QuantileOf(counts, shares_.low);
    look.low = low.ns_per_kib;
    look.chunks = low.chunks;
    if (history->queue_pairs[i].key.carrier == Carrier::kVendor) {
      look.upper = QuantileOf(counts, shares_.upper).ns_per_kib;
    }
  }
  for (size_t begin = 0; learnt && begin < history->by_key.size();) {
    std::array<double, kLatencyBuckets> counts{};
    size_t end = begin;
    for (; end < history->by_key.size(); ++end) {
      const QueuePairHistory& queue_pair = history->queue_pairs[history->by_key[end]];
      if (queue_pair.connection != begin) break;
      for (size_t i = 0; i < kLatencyBuckets; ++i) counts[i] += queue_pair.usual[i];
    }
    const Latency usual = QuantileOf(counts, shares_.low);
    const Latency bad = QuantileOf(counts, shares_.bad);
    auto& memos = history->queue_pairs[history->by_key[begin]].usual_of;
    memos[0] = {history->round, shares_.low, usual};
    memos[1] = {history->round, shares_.bad, bad};
    for (; begin < end; ++begin) {
      Look& look = history->looks[history->by_key[begin]];
      look.usual = usual.ns_per_kib;
      look.usual_bad = bad.ns_per_kib;
      look.usual_chunks = usual.chunks;
      look.usual_upper = look.upper > 0 ? QuantileOf(counts, shares_.upper).ns_per_kib : 0;
    }
  }
}

// Of slices that become usual, before they do.
void Windows::CountScatter(const ProcessHistory& history, const QueuePairHistory& queue_pair, size_t begin,
                           size_t end) {
  constexpr double kMostSeen = 1e6;
  const Latency usual = Usual(&history, queue_pair.key, shares_.low);
  if (usual.chunks < scatter_.least_usual_chunks) return;
  std::array<double, kLatencyBuckets> counts{};
  for (size_t i = begin; i < end; ++i) counts[queue_pair.recent[i].bucket] += queue_pair.recent[i].chunks;
  const double low = QuantileOf(counts, shares_.low).ns_per_kib;
  const bool slow = low >= scatter_.factor * usual.ns_per_kib &&
                    low >= scatter_.bad_factor * Usual(&history, queue_pair.key, shares_.bad).ns_per_kib;
  scatter_seen_ += 1;
  scatter_slow_ += slow ? 1 : 0;
  if (scatter_seen_ < kMostSeen) return;
  scatter_seen_ /= 2;
  scatter_slow_ /= 2;
}

bool Windows::SomeMayBeSlow(const Suspicion& suspicion) const {
  const double job_bad = UsualOfAll(suspicion.bad_share).ns_per_kib;
  const auto may_be_slow = [&](const ProcessHistory& history, const Look& look) {
    if (look.chunks <= 0) return false;
    if (look.several_paths) return true;
    if (look.usual <= 0 || look.usual_chunks < suspicion.least_usual_chunks) {
      return look.chunks >= suspicion.blind_chunks && history.seen >= suspicion.blind_slices;
    }
    if (look.upper > 0 && look.upper >= suspicion.ratio * look.usual_upper) return true;
    return look.low >= suspicion.ratio * look.usual &&
           look.low >= suspicion.bad_ratio * std::max(look.usual_bad, job_bad);
  };
  return std::any_of(histories_.begin(), histories_.end(), [&](const auto& entry) {
    const ProcessHistory& history = entry.second;
    if (history.looks.empty()) return false;
    const Shares asked{suspicion.share, suspicion.bad_share, suspicion.upper_share};
    if (history.looked_shares != asked) return true;
    return std::any_of(history.looks.begin(), history.looks.end(),
                       [&](const Look& look) { return may_be_slow(history, look); });
  });
}

}  // namespace c4::c4d
