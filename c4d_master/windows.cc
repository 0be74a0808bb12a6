#include "c4d_master/windows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/median.h"

namespace c4::c4d {
namespace {

constexpr int64_t kForgetNs = 600 * kSecondNs;
constexpr size_t kExclusions = 64;

// NCCL posts its receives ahead of its kernels: below it the wait of a queue pair says nothing of who is
// late, and the vendor's own steps say it.
uint64_t FirstWaits(const Process& process) {
  uint64_t sum_ns = 0;
  for (const Membership& membership : process.communicators) {
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (membership.vendor != (queue_pair.carrier == Carrier::kVendor)) continue;
      sum_ns += queue_pair.connection.first_wait_sum_ns;
    }
  }
  return sum_ns;
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

void Windows::Begin(const Process& process, int64_t as_of_ns, ProcessHistory* history) {
  history->start_ns = as_of_ns;
  history->start_in_operation_ns = process.in_operation_ns;
  history->start_operations = process.operations_finished;
  history->start_first_wait_ns = FirstWaits(process);
}

bool Windows::Observe(const Host& host) {
  bool finished = false;
  for (const Process& process : host.processes) {
    if (process.ended || CannotRun(process.health.state)) continue;
    finished = ObserveProcess(host, process) || finished;
  }
  if (host.as_of_ns - swept_at_ns_ > kForgetNs / 4) {
    swept_at_ns_ = host.as_of_ns;
    std::erase_if(histories_,
                  [&](const auto& entry) { return host.as_of_ns - entry.second.last_seen_ns > kForgetNs; });
  }
  return finished;
}

void Windows::Exclude(int64_t from_ns, int64_t to_ns) {
  while (!excluded_.empty() && excluded_.back().second >= from_ns) {
    from_ns = std::min(from_ns, excluded_.back().first);
    to_ns = std::max(to_ns, excluded_.back().second);
    excluded_.pop_back();
  }
  excluded_.emplace_back(from_ns, to_ns);
  if (excluded_.size() > kExclusions) excluded_.pop_front();
}

bool Windows::IsExcluded(const Slice& slice) const {
  return std::any_of(excluded_.begin(), excluded_.end(), [&](const auto& span) {
    return slice.end_ns > span.first && slice.end_ns - slice.length_ns < span.second;
  });
}

// The same rank on the same host does the same work over the same NIC, whichever process it is.
void Windows::Inherit(const Host& host, const Process& process, ProcessHistory* heir) {
  const ProcessHistory* former = nullptr;
  for (const auto& [key, history] : histories_) {
    if (&history == heir || history.rank != process.rank || process.rank < 0 || history.host != host.name)
      continue;
    const int64_t gone_ns = host.as_of_ns - history.last_seen_ns;
    if (gone_ns <= 0 || gone_ns > kForgetNs) continue;  // it is still there, or long forgotten
    if (former == nullptr || history.last_seen_ns > former->last_seen_ns) former = &history;
  }
  if (former == nullptr) return;
  const size_t slices = std::min(former->usual_own_ns.size(), thresholds_.inherited_slices);
  heir->usual_own_ns.assign(former->usual_own_ns.end() - static_cast<std::ptrdiff_t>(slices),
                            former->usual_own_ns.end());
  heir->inherited = former->inherited;
  const auto inherited_chunks = static_cast<float>(thresholds_.inherited_chunks);
  for (const auto& [role, key] : former->roles) {
    const auto known = former->queue_pairs.find(key);
    if (known == former->queue_pairs.end() || known->second.usual_chunks <= 0) continue;
    Inherited& usual = heir->inherited[role];
    const float scale = std::min(1.0F, inherited_chunks / known->second.usual_chunks);
    for (size_t i = 0; i < kLatencyBuckets; ++i) usual.counts[i] = known->second.usual[i] * scale;
    usual.chunks = known->second.usual_chunks * scale;
  }
}

void Windows::ObserveQueuePair(const Role& role, const QueuePairKey& key, const QueuePair& queue_pair,
                               bool warm, uint64_t slice, ProcessHistory* history) {
  const auto [it, is_new] = history->queue_pairs.try_emplace(key);
  QueuePairHistory& known = it->second;
  if (is_new) {
    history->roles[role] = key;
    if (const auto inherited = history->inherited.find(role); inherited != history->inherited.end()) {
      known.usual = inherited->second.counts;
      known.usual_chunks = inherited->second.chunks;
    }
  }
  known.round = slice;
  const bool moved = known.path == nullptr || known.path->local != queue_pair.local ||
                     known.path->remote != queue_pair.remote;
  if (moved) known.path = std::make_shared<const Path>(Path{queue_pair.local, queue_pair.remote});
  // What a slice brought in which it moved is of both paths.
  if (moved && !is_new) {
    known.at_start = queue_pair.latency;
    return;
  }
  Sparse sparse{.slice = slice, .path = known.path, .counts = {}};
  for (size_t i = 0; i < kLatencyBuckets; ++i) {
    // Counts wrap at 32 bits; a difference does not care.
    const uint32_t count = queue_pair.latency[i] - known.at_start[i];
    if (count != 0 && count < (1U << 30)) sparse.counts.emplace_back(static_cast<uint8_t>(i), count);
  }
  known.at_start = queue_pair.latency;
  if (warm && !sparse.counts.empty()) known.recent.push_back(std::move(sparse));
}

bool Windows::ObserveProcess(const Host& host, const Process& process) {
  const int64_t as_of_ns = host.as_of_ns;
  const auto [it, is_new] = histories_.try_emplace(process.key);
  ProcessHistory& history = it->second;
  if (is_new) {
    history.host = host.name;
    Inherit(host, process, &history);
  }
  history.rank = process.rank;
  history.last_seen_ns = as_of_ns;
  if (history.start_ns == kNever || process.operations_finished < history.start_operations) {
    Begin(process, as_of_ns, &history);
    return false;
  }
  const uint64_t operations = process.operations_finished - history.start_operations;
  const int64_t length_ns = as_of_ns - history.start_ns;
  if (operations == 0 || length_ns < thresholds_.slice_ns) return false;
  const bool warm = history.start_operations >= thresholds_.warm_up_operations;
  Slice slice;
  slice.number = history.next_slice++;
  slice.end_ns = as_of_ns;
  slice.length_ns = length_ns;
  slice.cycle_ns = static_cast<double>(length_ns) / static_cast<double>(operations);
  const uint64_t inside_ns =
      process.in_operation_ns - std::min(process.in_operation_ns, history.start_in_operation_ns);
  slice.own_ns = std::max(0.0, static_cast<double>(length_ns) - static_cast<double>(inside_ns)) /
                 static_cast<double>(operations);
  const uint64_t waits_ns = FirstWaits(process);
  slice.first_wait_ns = static_cast<double>(waits_ns - std::min(waits_ns, history.start_first_wait_ns)) /
                        static_cast<double>(operations);
  for (size_t ordinal = 0; ordinal < process.communicators.size(); ++ordinal) {
    const Membership& membership = process.communicators[ordinal];
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (!queue_pair.sends || queue_pair.carrier != Carrier::kQueuePair) continue;
      ObserveQueuePair({ordinal, membership.rank, queue_pair.peer, queue_pair.channel, queue_pair.index},
                       {membership.communicator_id, membership.rank, queue_pair.peer, queue_pair.channel,
                        queue_pair.index},
                       queue_pair, warm, slice.number, &history);
    }
  }
  std::erase_if(history.queue_pairs, [&](const auto& entry) { return entry.second.round != slice.number; });
  if (warm) {
    history.recent.push_back(slice);
    if (history.seen++ == 0) history.seen_since_ns = history.start_ns;
    ++slices_;
    Mature(&history);
  }
  Begin(process, as_of_ns, &history);
  return warm;
}

void Windows::Mature(ProcessHistory* history) {
  if (history->recent.size() <= kRecentSlices) return;
  const Slice old = history->recent.front();
  history->recent.pop_front();
  const bool learn = !IsExcluded(old) && history->seen > kRecentSlices + thresholds_.warm_up_slices;
  if (learn) {
    history->usual_own_ns.push_back(old.own_ns);
    while (history->usual_own_ns.size() > thresholds_.usual_slices) history->usual_own_ns.pop_front();
  }
  for (auto& [key, queue_pair] : history->queue_pairs) {
    while (!queue_pair.recent.empty() && queue_pair.recent.front().slice <= old.number) {
      if (learn) {
        for (const auto& [bucket, count] : queue_pair.recent.front().counts) {
          queue_pair.usual[bucket] += static_cast<float>(count);
          queue_pair.usual_chunks += static_cast<float>(count);
        }
        if (queue_pair.usual_chunks > static_cast<float>(thresholds_.usual_chunks)) {
          for (float& count : queue_pair.usual) count /= 2;
          queue_pair.usual_chunks /= 2;
        }
      }
      queue_pair.recent.pop_front();
    }
  }
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

std::vector<PathLatency> Windows::Recent(const ProcessKey& process, const QueuePairKey& queue_pair,
                                         size_t back, double share) const {
  const auto history = histories_.find(process);
  if (history == histories_.end()) return {};
  const auto known = history->second.queue_pairs.find(queue_pair);
  if (known == history->second.queue_pairs.end()) return {};
  const auto [first, last] = Span(history->second, back);
  // In the order of the slices, hence path by path.
  std::vector<std::pair<const Path*, std::array<double, kLatencyBuckets>>> counts;
  for (const Sparse& sparse : known->second.recent) {
    if (sparse.slice < first || sparse.slice > last) continue;
    if (counts.empty() || counts.back().first != sparse.path.get()) {
      counts.emplace_back(sparse.path.get(), std::array<double, kLatencyBuckets>());
    }
    for (const auto& [bucket, count] : sparse.counts) counts.back().second[bucket] += count;
  }
  std::vector<PathLatency> result;
  result.reserve(counts.size());
  for (const auto& [path, of_path] : counts) {
    result.push_back({path->local, path->remote, QuantileOf(of_path, share)});
  }
  return result;
}

Latency Windows::Usual(const ProcessKey& process, const QueuePairKey& queue_pair, double share) const {
  const auto history = histories_.find(process);
  if (history == histories_.end() || history->second.usual_own_ns.size() < thresholds_.least_usual_slices)
    return {};
  std::array<double, kLatencyBuckets> counts{};
  QueuePairKey first = queue_pair;
  first.index = 0;
  for (auto at = history->second.queue_pairs.lower_bound(first); at != history->second.queue_pairs.end();
       ++at) {
    const QueuePairKey& key = at->first;
    if (key.communicator_id != queue_pair.communicator_id || key.rank != queue_pair.rank ||
        key.peer != queue_pair.peer || key.channel != queue_pair.channel) {
      break;
    }
    for (size_t i = 0; i < kLatencyBuckets; ++i) counts[i] += at->second.usual[i];
  }
  return QuantileOf(counts, share);
}

Latency Windows::UsualOfAll(double share) const {
  std::array<double, kLatencyBuckets> counts{};
  for (const auto& [process, history] : histories_) {
    for (const auto& [key, queue_pair] : history.queue_pairs) {
      for (size_t i = 0; i < kLatencyBuckets; ++i) counts[i] += queue_pair.usual[i];
    }
  }
  return QuantileOf(counts, share);
}

OwnTime Windows::Own(const ProcessKey& process, size_t back) const {
  OwnTime result;
  const auto found = histories_.find(process);
  if (found == histories_.end()) return result;
  const ProcessHistory& history = found->second;
  if (history.recent.size() <= back) return result;
  std::vector<double> own;
  std::vector<double> cycle;
  std::vector<double> waits;
  for (size_t i = history.recent.size() - back; i > 0 && own.size() < thresholds_.own_slices; --i) {
    own.push_back(history.recent[i - 1].own_ns);
    cycle.push_back(history.recent[i - 1].cycle_ns);
    waits.push_back(history.recent[i - 1].first_wait_ns);
  }
  result.slices = own.size();
  result.seen = history.seen;
  result.since_ns = history.seen_since_ns;
  result.recent_ns = analysis::LowerMedian(own);
  result.cycle_ns = analysis::LowerMedian(cycle);
  result.first_wait_ns = analysis::LowerMedian(waits);
  if (history.usual_own_ns.size() >= thresholds_.least_usual_slices) {
    result.usual_ns = analysis::LowerMedian({history.usual_own_ns.begin(), history.usual_own_ns.end()});
  }
  return result;
}

}  // namespace c4::c4d
