// What the windows answer when they are asked; windows.cc fills them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "c4d_master/windows.h"

namespace c4::c4d {
namespace {

// The end of a slice may lie within a pause.
constexpr size_t kSpoiltByAPause = 2;

// The lower one of the two in the middle (analysis/median.h), of values that may be put in another order.
double LowerMedianOf(std::span<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Latency QuantileOf(const std::array<double, kLatencyBuckets>& counts, double share) {
  Latency result;
  result.chunks = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (result.chunks <= 0) return result;
  const double wanted = share * result.chunks;
  double below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0 && below + counts[i] >= wanted) {
      const double inside = (wanted - below) / counts[i];
      result.ns_per_kib = std::exp2(4 + (static_cast<double>(i) + inside) / 2);
      return result;
    }
    below += counts[i];
  }
  return result;
}

// The first and last slice of the window that ends `back` slices ago; empty when first > last.
std::pair<uint64_t, uint64_t> Windows::Span(const ProcessHistory& history, size_t back) const {
  if (history.recent.size() <= back) return {1, 0};
  const size_t last = history.recent.size() - 1 - back;
  size_t first = last;
  int64_t covered_ns = history.recent[last].length_ns;
  while (first > 0 && covered_ns < thresholds_.window_ns && last - first + 1 < thresholds_.window_slices) {
    --first;
    covered_ns += history.recent[first].length_ns;
  }
  return {history.recent[first].number, history.recent[last].number};
}

void Windows::Recent(History history, const QueuePairKey& queue_pair, size_t back, double share,
                     std::vector<PathLatency>* result) const {
  result->clear();
  const QueuePairHistory* known = history == nullptr ? nullptr : Find(*history, queue_pair);
  if (known == nullptr || known->recent.empty()) return;
  const auto [first, last] = Span(*history, back);
  // In the order of the slices, hence path by path; the window lies at the end.
  const std::vector<Count>& recent = known->recent;
  size_t begin = recent.size();
  while (begin > 0 && recent[begin - 1].slice >= first) --begin;
  std::array<double, kLatencyBuckets> counts{};
  for (size_t i = begin; i < recent.size() && recent[i].slice <= last; ++i) {
    const Count& count = recent[i];
    counts[count.bucket] += count.chunks;
    const bool goes_on =
        i + 1 < recent.size() && recent[i + 1].slice <= last && recent[i + 1].path == count.path;
    if (goes_on) continue;
    const Path& path = *known->paths[static_cast<uint16_t>(count.path - known->first_path)];
    result->push_back({path.local, path.remote, QuantileOf(counts, share)});
    counts.fill(0);
  }
}

std::vector<Latency> Windows::BySlices(History history, const QueuePairKey& queue_pair, double share) const {
  std::vector<Latency> result;
  const QueuePairHistory* known = history == nullptr ? nullptr : Find(*history, queue_pair);
  if (known == nullptr || known->recent.empty()) return result;
  const uint16_t path = known->recent.back().path;
  std::array<double, kLatencyBuckets> counts{};
  for (size_t i = known->recent.size(); i > 0; --i) {
    const Count& count = known->recent[i - 1];
    if (count.path != path) break;
    counts[count.bucket] += count.chunks;
    if (i > 1 && known->recent[i - 2].slice == count.slice) continue;
    result.push_back(QuantileOf(counts, share));
    counts.fill(0);
  }
  return result;
}

Latency Windows::Usual(History history, const QueuePairKey& queue_pair, double share) const {
  if (history == nullptr || history->usual_own.size() < thresholds_.least_usual_slices) return {};
  const auto& all = history->queue_pairs;
  auto first = history->by_key.begin();
  if (const QueuePairHistory* known = Find(*history, queue_pair)) {
    first += known->connection;
  } else {
    QueuePairKey key = queue_pair;
    key.index = 0;
    first = std::lower_bound(first, history->by_key.end(), key,
                             [&](uint32_t i, const QueuePairKey& k) { return all[i].key < k; });
  }
  const auto is_of_connection = [&](uint32_t i) { return OfOneConnection(all[i].key, queue_pair); };
  if (first == history->by_key.end() || !is_of_connection(*first)) return {};
  // Asked for again and again, of each queue pair of the connection and in each look.
  auto& memos = all[*first].usual_of;
  auto memo = std::find_if(memos.begin(), memos.end(), [&](const Memo& known) {
    return known.round != history->round || known.share == share;
  });
  if (memo == memos.end()) memo = memos.begin();
  if (memo->round == history->round && memo->share == share) return memo->latency;
  std::array<double, kLatencyBuckets> counts{};
  for (auto at = first; at != history->by_key.end() && is_of_connection(*at); ++at) {
    for (size_t i = 0; i < kLatencyBuckets; ++i) counts[i] += all[*at].usual[i];
  }
  *memo = {history->round, share, QuantileOf(counts, share)};
  return memo->latency;
}

Latency Windows::UsualOfAll(double share) const {
  std::array<double, kLatencyBuckets> counts = usual_of_all_;
  // A sum that numbers are taken from again keeps a trace of them.
  for (double& count : counts) count = count < 1e-6 ? 0 : count;
  return QuantileOf(counts, share);
}

// Per operation, over all of them but those with the longest own times; 0: there are no more.
double Windows::MeanOf(std::vector<OwnSlice> slices, size_t left_out) {
  if (slices.size() <= left_out) return 0;
  std::sort(slices.begin(), slices.end(), [](const OwnSlice& a, const OwnSlice& b) {
    return a.own_ns * a.operations < b.own_ns * b.operations;
  });
  slices.resize(slices.size() - left_out);
  double own_ns = 0;
  double operations = 0;
  for (const OwnSlice& slice : slices) {
    own_ns += slice.own_ns * slice.operations;
    operations += slice.operations;
  }
  return operations > 0 ? own_ns / operations : 0;
}

OwnMean Windows::MeanOwn(const ProcessKey& process) const {
  const ProcessHistory* const history = Find(process);
  if (history == nullptr) return {};
  std::vector<OwnSlice> recent;
  for (const Slice& slice : history->recent) {
    if (slice.whole) recent.push_back({slice.own_ns, slice.operations});
  }
  const size_t usual = history->usual_own.size();
  return {MeanOf(std::move(recent), kSpoiltByAPause),
          MeanOf({history->usual_own.begin(), history->usual_own.end()}, usual / 10)};
}

OwnTime Windows::Own(const ProcessKey& process, size_t back) const {
  OwnTime result;
  const ProcessHistory* found = Find(process);
  if (found == nullptr || found->recent.size() <= back) return result;
  const ProcessHistory& history = *found;
  std::array<double, kRecentSlices> own{};
  std::array<double, kRecentSlices> cycle{};
  std::array<double, kRecentSlices> waits{};
  const size_t most = std::min(thresholds_.own_slices, kRecentSlices);
  size_t count = 0;
  for (size_t i = history.recent.size() - back; i > 0 && count < most; --i) {
    if (!history.recent[i - 1].whole) continue;
    own[count] = history.recent[i - 1].own_ns;
    cycle[count] = history.recent[i - 1].cycle_ns;
    waits[count] = history.recent[i - 1].first_wait_ns;
    ++count;
  }
  result.slices = count;
  result.seen = history.seen;
  result.since_ns = history.seen_since_ns;
  result.recent_ns = LowerMedianOf({own.data(), count});
  result.cycle_ns = LowerMedianOf({cycle.data(), count});
  result.first_wait_ns = LowerMedianOf({waits.data(), count});
  const bool known = history.rounds == kNoRounds || history.rounds_at_usual == kNoRounds ||
                     history.rounds >= history.rounds_at_usual + thresholds_.least_usual_rounds;
  if (known && history.usual_own.size() >= thresholds_.least_usual_slices) {
    std::vector<double>& usual = scratch_;
    usual.clear();
    for (const OwnSlice& slice : history.usual_own) usual.push_back(slice.own_ns);
    result.usual_ns = LowerMedianOf(usual);
    const auto high = usual.begin() + static_cast<std::ptrdiff_t>(thresholds_.usual_high_share *
                                                                  static_cast<double>(usual.size() - 1));
    std::nth_element(usual.begin(), high, usual.end());
    result.usual_high_ns = *high;
  }
  return result;
}

}  // namespace c4::c4d
