#include "c4d_master/windows.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "c4d_master/unknown_peer.h"

namespace c4::c4d {

// One whose peer is not known is a connection by itself.
bool OfOneConnection(const QueuePairKey& a, const QueuePairKey& b) {
  return a.communicator_id == b.communicator_id && a.rank == b.rank && a.peer == b.peer &&
         a.channel == b.channel && a.carrier == b.carrier && (a.peer != kUnknownPeer || a.index == b.index);
}

namespace {

constexpr int64_t kForgetNs = 600 * kSecondNs;
constexpr uint64_t kKeptSlices = 80;

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

// A program of which queue pairs are all that is seen (the tap): each second in which chunks have completed
// is a slice.
bool CallsNothing(const Process& process) {
  return process.operations_finished == 0 &&
         std::all_of(process.communicators.begin(), process.communicators.end(),
                     [](const Membership& membership) {
                       return membership.called.count == 0 && membership.p2p_called.count == 0;
                     });
}

// How often the process has gone through all that it does: as often as it has finished something in the
// communicator in which it has finished least. One that rests is none of a step's. kNoRounds: there are none.
uint64_t Rounds(const Process& process, int64_t now_ns, int64_t most_ns) {
  uint64_t rounds = kNoRounds;
  for (const Membership& membership : process.communicators) {
    const int64_t last_ns = std::max(
        {membership.phase_since_at_ns, membership.finished.last_at_ns, membership.p2p_finished.last_at_ns});
    if (membership.phase != Phase::kReady || last_ns == kNever || now_ns - last_ns > most_ns) continue;
    rounds = std::min(rounds, membership.finished.count + membership.p2p_finished.count);
  }
  return rounds;
}

// Whose chunks are looked at, of one membership: those of queue pairs, and where none of these has an address
// those of the steps that the vendor's engine tells of, which are else the same data again.
class Looked {
 public:
  Looked(const Process& process, const Membership& membership)
      : addressed_(TellsAddresses(process, membership)) {}
  bool operator()(const QueuePair& queue_pair) const {
    return queue_pair.sends && (queue_pair.carrier == Carrier::kQueuePair || !addressed_);
  }

 private:
  const bool addressed_;
};

QueuePairKey KeyOf(const Membership& membership, const QueuePair& queue_pair) {
  return {membership.communicator_id, membership.rank,  queue_pair.peer,
          queue_pair.channel,         queue_pair.index, queue_pair.carrier};
}

}  // namespace

void Windows::BeginOwn(const Process& process, int64_t as_of_ns, ProcessHistory* history) {
  history->own_start_ns = as_of_ns;
  history->start_in_operation_ns = process.in_operation_ns;
  history->start_operations = process.operations_finished;
  history->start_first_wait_ns = FirstWaits(process);
}

bool Windows::Observe(const Host& host) {
  bool finished = false;
  for (const Process& process : host.processes) {
    if (process.ended || CannotRun(process.health.state)) continue;
    finished = ObserveProcess(host, process) || finished;
    durations_.Observe(process, host.as_of_ns);
  }
  durations_.Cut(host.as_of_ns, thresholds_, excluded_);
  if (host.as_of_ns - swept_at_ns_ > kForgetNs / 4) Sweep(host.as_of_ns);
  return finished;
}

void Windows::Sweep(int64_t now_ns) {
  swept_at_ns_ = now_ns;
  const auto is_old = [&](const ProcessHistory& history) {
    return now_ns - history.last_seen_ns > kForgetNs;
  };
  for (auto it = by_host_.begin(); it != by_host_.end();) {
    std::erase_if(it->second, [&](const ProcessHistory* history) { return is_old(*history); });
    it = it->second.empty() ? by_host_.erase(it) : std::next(it);
  }
  std::erase_if(histories_, [&](const auto& entry) {
    if (!is_old(entry.second)) return false;
    for (const QueuePairHistory& queue_pair : entry.second.queue_pairs) AddToAll(queue_pair, -1);
    return true;
  });
}

void Windows::Forget() {
  histories_.clear();
  by_host_.clear();
  usual_of_all_.fill(0);
  durations_.Forget();
}

void Windows::AddToAll(const QueuePairHistory& queue_pair, double times) {
  for (size_t i = 0; i < kLatencyBuckets; ++i) usual_of_all_[i] += times * queue_pair.usual[i];
}

void Windows::Exclude(int64_t from_ns, int64_t to_ns) {
  excluded_.Add(from_ns, to_ns);
}

bool Windows::IsExcluded(const Slice& slice) const {
  const auto own_ns = static_cast<int64_t>(slice.cycle_ns * slice.operations);
  return excluded_.Touches(slice.end_ns - std::max(slice.length_ns, own_ns), slice.end_ns);
}

// Ranks of its job, or of its widest communicator; 0: it is in none yet.
uint32_t JobRanks(const Process& process) {
  if (process.world > 0) return static_cast<uint32_t>(process.world);
  uint32_t widest = 0;
  for (const Membership& membership : process.communicators) widest = std::max(widest, membership.rank_count);
  return widest;
}

// The same rank on the same host does the same work over the same NIC, whichever process it is, in a job of
// as many ranks.
void Windows::Inherit(const Host& host, const Process& process, ProcessHistory* heir) {
  const ProcessHistory* former = nullptr;
  for (const ProcessHistory* history : by_host_[host.name]) {
    if (history == heir || history->rank != process.rank || process.rank < 0) continue;
    const int64_t gone_ns = host.as_of_ns - history->last_seen_ns;
    if (gone_ns <= 0 || gone_ns > kForgetNs) continue;  // it is still there, or long forgotten
    const uint32_t job_ranks = JobRanks(process);
    if (job_ranks != 0 && history->job_ranks != 0 && job_ranks != history->job_ranks) continue;
    if (former == nullptr || history->last_seen_ns > former->last_seen_ns) former = history;
  }
  if (former == nullptr) return;
  const size_t slices = std::min(former->usual_own.size(), thresholds_.inherited_slices);
  heir->usual_own.assign(former->usual_own.end() - static_cast<std::ptrdiff_t>(slices),
                         former->usual_own.end());
  heir->inherited = former->inherited;
  for (const QueuePairHistory& known : former->queue_pairs) {
    if (known.usual_chunks <= 0) continue;
    const QueuePairKey& key = known.key;
    Inherited& usual =
        heir->inherited[{known.ordinal, key.rank, key.peer, key.channel, key.index, key.carrier}];
    const float scale = std::min(1.0F, static_cast<float>(thresholds_.inherited_chunks) / known.usual_chunks);
    for (size_t i = 0; i < kLatencyBuckets; ++i) usual.counts[i] = known.usual[i] * scale;
    usual.chunks = known.usual_chunks * scale;
  }
}

// The process's queue pairs that send, in its own order; those that it has no longer are forgotten.
void Windows::Arrange(const Process& process, ProcessHistory* history) {
  std::vector<QueuePairHistory> arranged;
  std::vector<bool> taken(history->queue_pairs.size());
  for (size_t ordinal = 0; ordinal < process.communicators.size(); ++ordinal) {
    const Membership& membership = process.communicators[ordinal];
    const Looked looked(process, membership);
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (!looked(queue_pair)) continue;
      const QueuePairKey key = KeyOf(membership, queue_pair);
      const QueuePairHistory* known = Find(*history, key);
      const size_t place = known == nullptr ? 0 : static_cast<size_t>(known - history->queue_pairs.data());
      if (known != nullptr && !taken[place]) {
        taken[place] = true;
        arranged.push_back(std::move(history->queue_pairs[place]));
        continue;
      }
      QueuePairHistory& fresh = arranged.emplace_back();
      fresh.key = key;
      fresh.ordinal = ordinal;
      const auto inherited =
          history->inherited.find({ordinal, key.rank, key.peer, key.channel, key.index, key.carrier});
      if (inherited == history->inherited.end()) continue;
      fresh.usual = inherited->second.counts;
      fresh.usual_chunks = inherited->second.chunks;
      AddToAll(fresh, 1);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) AddToAll(history->queue_pairs[i], -1);
  }
  history->queue_pairs = std::move(arranged);
  history->by_key.resize(history->queue_pairs.size());
  std::iota(history->by_key.begin(), history->by_key.end(), 0U);
  std::stable_sort(history->by_key.begin(), history->by_key.end(), [&](uint32_t a, uint32_t b) {
    return history->queue_pairs[a].key < history->queue_pairs[b].key;
  });
  history->asked = 0;
  uint32_t first = 0;
  for (uint32_t i = 0; i < history->by_key.size(); ++i) {
    QueuePairHistory& queue_pair = history->queue_pairs[history->by_key[i]];
    if (!OfOneConnection(queue_pair.key, history->queue_pairs[history->by_key[first]].key)) first = i;
    queue_pair.connection = first;
  }
}

bool Windows::IsArranged(const Process& process, const ProcessHistory& history) {
  size_t place = 0;
  for (const Membership& membership : process.communicators) {
    const Looked looked(process, membership);
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (!looked(queue_pair)) continue;
      if (place == history.queue_pairs.size()) return false;
      if (!(history.queue_pairs[place++].key == KeyOf(membership, queue_pair))) return false;
    }
  }
  return place == history.queue_pairs.size();
}

const Windows::ProcessHistory* Windows::Find(const ProcessKey& process) const {
  const auto found = histories_.find(process);
  return found == histories_.end() ? nullptr : &found->second;
}

const Windows::QueuePairHistory* Windows::Find(const ProcessHistory& history, const QueuePairKey& key) {
  for (const uint32_t guess : {history.asked, history.asked + 1}) {
    if (guess >= history.queue_pairs.size() || !(history.queue_pairs[guess].key == key)) continue;
    history.asked = guess;
    return &history.queue_pairs[guess];
  }
  const auto found =
      std::lower_bound(history.by_key.begin(), history.by_key.end(), key,
                       [&](uint32_t i, const QueuePairKey& k) { return history.queue_pairs[i].key < k; });
  if (found == history.by_key.end() || !(history.queue_pairs[*found].key == key)) return nullptr;
  history.asked = *found;
  return &history.queue_pairs[*found];
}

void Windows::ObserveQueuePair(const QueuePair& queue_pair, bool warm, uint64_t slice,
                               QueuePairHistory* known) {
  const bool is_new = known->paths.empty();
  const bool moved = is_new || known->paths.back()->local != queue_pair.local ||
                     known->paths.back()->remote != queue_pair.remote;
  if (moved) {
    known->paths.push_back(std::make_unique<const Path>(Path{queue_pair.local, queue_pair.remote}));
    DropOldPaths(known);
  }
  // What a slice brought in which it moved is of both paths.
  if (moved && !is_new) {
    known->at_start = queue_pair.latency;
    return;
  }
  const auto path = static_cast<uint16_t>(known->first_path + known->paths.size() - 1);
  for (size_t i = 0; warm && i < kLatencyBuckets; ++i) {
    // Counts wrap at 32 bits; a difference does not care.
    const uint32_t count = queue_pair.latency[i] - known->at_start[i];
    if (count != 0 && count < (1U << 30)) {
      known->recent.push_back({slice, count, path, static_cast<uint8_t>(i)});
    }
  }
  known->at_start = queue_pair.latency;
}

// Paths of which no slice is left, but for the one in use.
void Windows::DropOldPaths(QueuePairHistory* queue_pair) {
  const size_t needed = queue_pair->recent.empty()
                            ? queue_pair->paths.size() - 1
                            : static_cast<uint16_t>(queue_pair->recent.front().path - queue_pair->first_path);
  const size_t unused = std::min(needed, queue_pair->paths.size() - 1);
  queue_pair->paths.erase(queue_pair->paths.begin(),
                          queue_pair->paths.begin() + static_cast<std::ptrdiff_t>(unused));
  queue_pair->first_path = static_cast<uint16_t>(queue_pair->first_path + unused);
}

// Whether chunks have completed since the slice began.
bool Windows::HasChunks(const Process& process, const ProcessHistory& history) {
  if (!IsArranged(process, history)) return false;
  size_t place = 0;
  for (const Membership& membership : process.communicators) {
    const Looked looked(process, membership);
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (looked(queue_pair) && queue_pair.latency != history.queue_pairs[place++].at_start) return true;
    }
  }
  return false;
}

bool Windows::ObserveProcess(const Host& host, const Process& process) {
  const int64_t as_of_ns = host.as_of_ns;
  const auto [it, is_new] = histories_.try_emplace(process.key);
  ProcessHistory& history = it->second;
  if (is_new) {
    history.host = host.name;
    by_host_[host.name].push_back(&history);
    Inherit(host, process, &history);
  }
  history.rank = process.rank;
  history.job_ranks = std::max(history.job_ranks, JobRanks(process));
  history.last_seen_ns = as_of_ns;
  if (history.start_ns == kNever || process.operations_finished < history.start_operations) {
    history.start_ns = as_of_ns;
    BeginOwn(process, as_of_ns, &history);
    return false;
  }
  const uint64_t operations = process.operations_finished - history.start_operations;
  const int64_t length_ns = as_of_ns - history.start_ns;
  if (length_ns < thresholds_.slice_ns) return false;
  const bool by_time = CallsNothing(process);
  const int64_t least_ns = by_time ? thresholds_.slice_ns : thresholds_.inside_slice_ns;
  if (operations == 0 && (length_ns < least_ns || !HasChunks(process, history))) {
    if (by_time && !IsArranged(process, history)) Arrange(process, &history);
    return false;
  }
  const bool warm =
      by_time ? history.next_slice > 1 : history.start_operations >= thresholds_.warm_up_operations;
  Slice slice;
  slice.number = history.next_slice++;
  slice.end_ns = as_of_ns;
  slice.length_ns = length_ns;
  slice.by_time = by_time;
  slice.whole = operations != 0;
  slice.operations = static_cast<double>(operations);
  // Of an operation that ends in a later slice than it began in, all the time before it counts.
  if (slice.whole) {
    const auto since_ns = static_cast<double>(as_of_ns - history.own_start_ns);
    const uint64_t inside_ns =
        process.in_operation_ns - std::min(process.in_operation_ns, history.start_in_operation_ns);
    const uint64_t waits_ns = FirstWaits(process);
    slice.cycle_ns = since_ns / slice.operations;
    slice.own_ns = std::max(0.0, since_ns - static_cast<double>(inside_ns)) / slice.operations;
    slice.first_wait_ns =
        static_cast<double>(waits_ns - std::min(waits_ns, history.start_first_wait_ns)) / slice.operations;
  }
  if (!IsArranged(process, history)) Arrange(process, &history);
  ++history.round;
  size_t place = 0;
  for (const Membership& membership : process.communicators) {
    const Looked looked(process, membership);
    for (const QueuePair& queue_pair : membership.queue_pairs) {
      if (looked(queue_pair)) {
        ObserveQueuePair(queue_pair, warm, slice.number, &history.queue_pairs[place++]);
      }
    }
  }
  if (warm) {
    history.recent.push_back(slice);
    if ((slice.whole || by_time) && history.seen++ == 0) history.seen_since_ns = history.start_ns;
    history.rounds = Rounds(process, as_of_ns, thresholds_.round_most_ns);
    ++slices_;
    Mature(&history);
    TakeLooks(&history);
  }
  history.start_ns = as_of_ns;
  if (slice.whole || by_time) BeginOwn(process, as_of_ns, &history);
  return warm;
}

void Windows::Mature(ProcessHistory* history) {
  if (history->recent.size() <= kRecentSlices) return;
  const Slice old = history->recent.front();
  history->recent.pop_front();
  const bool learn = !IsExcluded(old) && history->seen > kRecentSlices + thresholds_.warm_up_slices;
  // What has no steps has no time of its own: 0, which is not known, and counts as a slice all the same.
  const bool by_time = old.by_time;
  if (learn && (old.whole || by_time)) {
    if (history->usual_own.empty()) history->rounds_at_usual = history->rounds;
    history->usual_own.push_back({old.own_ns, old.operations});
    while (history->usual_own.size() > thresholds_.usual_slices) history->usual_own.pop_front();
  }
  // Of all processes together so many tell enough of how their slices scatter.
  constexpr size_t kSamples = 4096;
  const size_t queue_pairs = history->queue_pairs.size();
  const size_t samples = std::min(queue_pairs, 1 + kSamples / histories_.size());
  const auto is_sample = [&](size_t place) {
    return (place + queue_pairs - old.number * samples % queue_pairs) % queue_pairs < samples;
  };
  for (size_t place = 0; place < queue_pairs; ++place) {
    QueuePairHistory& queue_pair = history->queue_pairs[place];
    if (queue_pair.recent.empty() || queue_pair.recent.front().slice > old.number) continue;
    const auto after = [&](uint64_t number) {
      return std::find_if(queue_pair.recent.begin(), queue_pair.recent.end(),
                          [number](const Count& count) { return count.slice > number; });
    };
    const auto first = after(history->matured);
    const auto last = after(old.number);
    const auto begin = static_cast<size_t>(first - queue_pair.recent.begin());
    const auto end = static_cast<size_t>(last - queue_pair.recent.begin());
    if (learn && first < last && is_sample(place)) CountScatter(*history, queue_pair, begin, end);
    if (learn && first < last && !IsStrange(&queue_pair, begin, end)) Learn(&queue_pair, begin, end);
    DropOld(&queue_pair, old.number);
    if (queue_pair.paths.size() > 1) DropOldPaths(&queue_pair);
  }
  history->matured = old.number;
}

// Of a way that has few chunks a baseline is soon made of what is wrong with it. What is far from usual
// becomes usual only when it has lasted for as long as own times are kept.
bool Windows::IsStrange(QueuePairHistory* queue_pair, size_t begin, size_t end) const {
  constexpr double kFar = 2.5;
  constexpr float kKnownChunks = 16;
  if (queue_pair->key.carrier == Carrier::kQueuePair || queue_pair->usual_chunks < kKnownChunks) return false;
  std::array<double, kLatencyBuckets> counts{};
  for (size_t i = begin; i < end; ++i) counts[queue_pair->recent[i].bucket] += queue_pair->recent[i].chunks;
  std::array<double, kLatencyBuckets> usual{};
  std::copy(queue_pair->usual.begin(), queue_pair->usual.end(), usual.begin());
  const auto is_far = [&](double share) {
    return QuantileOf(counts, share).ns_per_kib >= kFar * QuantileOf(usual, share).ns_per_kib;
  };
  const bool far = is_far(0.25) || is_far(0.8);
  queue_pair->strange = far ? queue_pair->strange + 1 : 0;
  return far && queue_pair->strange < thresholds_.usual_slices;
}

// What was learnt stays for as long as the queue pair has hardly done anything since: of a job whose steps
// are long only several of them together tell whether it is slow.
void Windows::DropOld(QueuePairHistory* queue_pair, uint64_t matured) {
  std::vector<Count>& recent = queue_pair->recent;
  size_t slices = 0;
  auto keep = recent.end();
  while (keep != recent.begin()) {
    const Count& count = *std::prev(keep);
    const bool first_of_slice = keep == recent.end() || keep->slice != count.slice;
    if (first_of_slice && count.slice <= matured &&
        (slices == kRecentSlices || count.slice + kKeptSlices <= matured)) {
      break;
    }
    slices += first_of_slice ? 1 : 0;
    --keep;
  }
  recent.erase(recent.begin(), keep);
}

// These of what is recent become usual.
void Windows::Learn(QueuePairHistory* queue_pair, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const Count& count = queue_pair->recent[i];
    float& usual = queue_pair->usual[count.bucket];
    usual_of_all_[count.bucket] -= usual;
    usual += static_cast<float>(count.chunks);
    usual_of_all_[count.bucket] += usual;
    queue_pair->usual_chunks += static_cast<float>(count.chunks);
    const bool last_of_slice = i + 1 == end || queue_pair->recent[i + 1].slice != count.slice;
    if (!last_of_slice || queue_pair->usual_chunks <= static_cast<float>(thresholds_.usual_chunks)) continue;
    AddToAll(*queue_pair, -1);
    for (float& of_bucket : queue_pair->usual) of_bucket /= 2;
    queue_pair->usual_chunks /= 2;
    AddToAll(*queue_pair, 1);
  }
}

}  // namespace c4::c4d
