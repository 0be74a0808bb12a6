// The recent past of the job in slices of about one second of the data's own time: per process its own time
// per operation, per queue pair the latencies of its chunks; and what was usual while the job was healthy.
//
// A slice ends with the first batch a second after its beginning in which the process has finished
// operations since, or after three where chunks have completed, which tells of latencies only; time in which
// nothing does makes no slices, so a pause spoils one. Slices older than
// kRecentSlices become part of the baseline, unless something was wrong with the job (Exclude) or the
// process was still warming up. A process that takes the place of another one (rank and host) begins with
// what was usual for that. Memory is bounded by processes x queue pairs x kRecentSlices; processes that are
// not seen for ten minutes are forgotten.
//
// Time comes with the batches. One thread; no errors.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c4d_master/durations.h"
#include "c4d_master/excluded_times.h"
#include "c4d_master/job_state.h"
#include "c4d_master/window_thresholds.h"

namespace c4::c4d {

// A queue pair that sends, as its sender knows it; or what the vendor's engine moves to a peer, where no
// queue pair tells of it.
struct QueuePairKey {
  uint64_t communicator_id = 0;
  uint32_t rank = 0;
  uint32_t peer = 0;
  uint32_t channel = 0;
  uint32_t index = 0;
  Carrier carrier = Carrier::kQueuePair;

  friend bool operator==(const QueuePairKey&, const QueuePairKey&) = default;
  friend bool operator<(const QueuePairKey& a, const QueuePairKey& b) {
    return std::tie(a.communicator_id, a.rank, a.peer, a.carrier, a.channel, a.index) <
           std::tie(b.communicator_id, b.rank, b.peer, b.carrier, b.channel, b.index);
  }
};

struct Latency {
  double ns_per_kib = 0;  // 0: no chunk
  double chunks = 0;
};

// What a queue pair did on one of the paths that it had within a window. The texts live as long as the
// windows are not changed.
struct PathLatency {
  std::string_view local;  // "address:port"
  std::string_view remote;
  Latency latency;
};

// Queue pairs of one connection, each way by itself.
bool OfOneConnection(const QueuePairKey& a, const QueuePairKey& b);

// The value below which `share` of the counts lie, between the bounds of its half octave by proportion.
Latency QuantileOf(const std::array<double, kLatencyBuckets>& counts, double share);

// Whatever can be asked of one process; times in nanoseconds per operation.
struct OwnTime {
  double recent_ns = 0;      // median of the last slices
  double usual_ns = 0;       // median of the healthy ones; 0: not known yet
  double usual_high_ns = 0;  // and what they now and then come to
  double cycle_ns = 0;       // all the time per operation, recently
  double first_wait_ns = 0;
  size_t slices = 0;          // recent ones that were looked at
  size_t seen = 0;            // since it began, without warm-up
  int64_t since_ns = kNever;  // the first of those began then
};

// A process's own time per operation, over all operations together.
struct OwnMean {
  double recent_ns = 0;  // of the recent slices, without those that one pause may have spoilt; 0: not known
  double usual_ns = 0;   // 0: not known
};

class Windows {
 private:
  struct ProcessHistory;

 public:
  explicit Windows(const WindowThresholds& thresholds = {}) : thresholds_(thresholds) {}

  // From now on; what was cut and learnt before stays.
  void SetThresholds(const WindowThresholds& thresholds) { thresholds_ = thresholds; }

  // What is held of one process, found once for many questions; nothing where it is not known. Valid until
  // the next batch.
  using History = const ProcessHistory*;
  History Of(const ProcessKey& process) const { return Find(process); }

  // The newest state of a host, once for each batch. Tells whether a slice was finished.
  bool Observe(const Host& host);

  // What lies in that time never becomes usual.
  void Exclude(int64_t from_ns, int64_t to_ns);

  void Forget();

  // `back`: as it was so many slices ago. By path, the newest last; where a slice saw two of them, neither is
  // told of. Only what had chunks.
  std::vector<PathLatency> Recent(const ProcessKey& process, const QueuePairKey& queue_pair, size_t back,
                                  double share) const {
    return Recent(Find(process), queue_pair, back, share);
  }
  std::vector<PathLatency> Recent(History process, const QueuePairKey& queue_pair, size_t back,
                                  double share) const {
    std::vector<PathLatency> result;
    Recent(process, queue_pair, back, share, &result);
    return result;
  }
  // The same, in the place of what was in `result`: for who asks of all queue pairs of a job.
  void Recent(History process, const QueuePairKey& queue_pair, size_t back, double share,
              std::vector<PathLatency>* result) const;
  // Of each slice in which it had chunks, the newest first, as far as they are kept and on the path of the
  // newest.
  std::vector<Latency> BySlices(History process, const QueuePairKey& queue_pair, double share) const;
  // Of all the queue pairs of its connection together: those that the scheduler hardly uses learn little of
  // their own, and all of them carry chunks of the same messages.
  Latency Usual(const ProcessKey& process, const QueuePairKey& queue_pair, double share) const {
    return Usual(Find(process), queue_pair, share);
  }
  Latency Usual(History process, const QueuePairKey& queue_pair, double share) const;
  // Of all queue pairs of the job together.
  Latency UsualOfAll(double share) const;

  // The least that a queue pair has to show now to be slow, whatever the others of the job do. A job of half
  // a million of them is looked through queue pair by queue pair only where one shows it.
  struct Suspicion {
    double share = 0;               // of its latencies now, and of what is usual for it
    double bad_share = 0;           // where its bad chunks usually begin
    double upper_share = 0;         // of the vendor's, which hold several channels
    double ratio = 0;               // to what is usual
    double bad_ratio = 0;           // to what is usually bad, of it and of the job
    double least_usual_chunks = 0;  // below which nothing is usual:
    double blind_chunks = 0;        // then it takes so many chunks,
    size_t blind_slices = 0;        // and its process was seen for so long
  };
  // The shares that will be asked for; looks are taken as the slices end.
  void SetShares(double share, double bad_share, double upper_share) {
    shares_ = {share, bad_share, upper_share};
  }
  bool SomeMayBeSlow(const Suspicion& suspicion) const;

  // How often a slice of a queue pair has looked slow by itself while the job was healthy: a share of the
  // slices with chunks, of all of the job. An operation's chunks fare alike, so where a slice holds one
  // operation it is much more than where it holds twenty. As long as few have been seen it may be much.
  double ScatterShare() const { return (scatter_slow_ + 0.5) / (scatter_seen_ + 1); }
  // What looks slow: the low quantile in a slice, to what is usual for the connection and to its bad chunks,
  // where so many are known.
  void SetScatter(double factor, double bad_factor, double least_usual_chunks) {
    scatter_ = {factor, bad_factor, least_usual_chunks};
  }
  OwnTime Own(const ProcessKey& process, size_t back) const;
  OwnMean MeanOwn(const ProcessKey& process) const;
  // What the operations of a communicator take.
  Duration DurationOf(uint64_t communicator_id, size_t back) const {
    return durations_.Of(communicator_id, back, thresholds_);
  }

  // Made of slices that lie after this moment; 0 before the first one.
  uint64_t slices() const { return slices_; }

 private:
  struct Path {
    std::string local;
    std::string remote;
  };
  // Chunks of one slice in one bucket.
  struct Count {
    uint64_t slice = 0;
    uint32_t chunks = 0;
    uint16_t path = 0;  // of QueuePairHistory::paths, counted since the first
    uint8_t bucket = 0;
  };
  struct Memo {
    uint64_t round = 0;  // ProcessHistory::round that it is of
    double share = 0;
    Latency latency;
  };
  struct Shares {
    double low = 0.25;
    double bad = 0.85;
    double upper = 0.8;
    friend bool operator==(const Shares&, const Shares&) = default;
  };
  // Of a queue pair over the newest window.
  struct Look {
    double low = 0;  // ns per KiB; 0: no chunks
    double chunks = 0;
    double usual = 0;
    double usual_bad = 0;
    double usual_chunks = 0;
    double upper = 0;  // these two: of the vendor's alone
    double usual_upper = 0;
    bool several_paths = false;
  };
  struct QueuePairHistory {
    QueuePairKey key;
    size_t ordinal = 0;  // its communicator's place among the process's when it was first seen
    LatencyHistogram at_start{};
    std::vector<Count> recent;  // by slice
    std::array<float, kLatencyBuckets> usual{};
    float usual_chunks = 0;
    uint32_t strange = 0;  // slices in a row that were far from usual, and were not learnt from
    // The last one is in use; the first has the number first_path.
    std::vector<std::unique_ptr<const Path>> paths;
    uint16_t first_path = 0;
    uint32_t connection = 0;               // place in by_key at which its connection begins
    mutable std::array<Memo, 4> usual_of;  // of its connection, kept with the first queue pair of that
  };
  // What a queue pair is to its process: its communicator's place among the process's, rank, peer, channel,
  // index, carrier.
  using Role = std::tuple<size_t, uint32_t, uint32_t, uint32_t, uint32_t, Carrier>;
  struct Inherited {
    std::array<float, kLatencyBuckets> counts{};
    float chunks = 0;
  };
  struct Slice {
    uint64_t number = 0;
    int64_t end_ns = 0;
    int64_t length_ns = 0;
    bool by_time = false;   // of a program that calls nothing
    bool whole = true;      // operations have finished in it:
    double operations = 0;  // so many
    // Each per operation, since the last whole slice.
    double own_ns = 0;
    double cycle_ns = 0;
    double first_wait_ns = 0;
  };
  // Own time of a slice that is usual.
  struct OwnSlice {
    double own_ns = 0;  // per operation
    double operations = 0;
  };
  struct ProcessHistory {
    int64_t start_ns = kNever;      // of the slice under way
    int64_t own_start_ns = kNever;  // the end of the last whole one, and what had been counted then
    uint64_t start_in_operation_ns = 0;
    uint64_t start_operations = 0;
    uint64_t start_first_wait_ns = 0;
    uint64_t next_slice = 1;
    uint64_t matured = 0;  // up to here slices have been learnt from, or left out
    size_t seen = 0;
    int64_t seen_since_ns = kNever;
    std::deque<Slice> recent;
    std::deque<OwnSlice> usual_own;
    uint64_t rounds = 0;                        // that the process has made
    uint64_t rounds_at_usual = 0;               // when the first of usual_own came
    std::vector<QueuePairHistory> queue_pairs;  // as the process lists them
    std::vector<Look> looks;                    // of each, when the last slice had ended
    Shares looked_shares;                       // that they are of
    std::vector<uint32_t> by_key;               // indices into queue_pairs
    mutable uint32_t asked = 0;                 // the one that was asked for last: the next one is next to it
    uint64_t round = 1;                         // grows with whatever may change what is usual
    std::map<Role, Inherited> inherited;
    std::string host;
    int32_t rank = -1;
    uint32_t job_ranks = 0;  // of its job; 0: not known
    int64_t last_seen_ns = kNever;
  };
  struct KeyHash {
    size_t operator()(const ProcessKey& key) const {
      return std::hash<std::string_view>()(key.boot_id) ^ (key.pid * 0x9e3779b97f4a7c15U) ^
             (key.start_time_ticks * 0xbf58476d1ce4e5b9U);
    }
  };

  bool ObserveProcess(const Host& host, const Process& process);
  void Inherit(const Host& host, const Process& process, ProcessHistory* heir);
  void Sweep(int64_t now_ns);
  static bool IsArranged(const Process& process, const ProcessHistory& history);
  static bool HasChunks(const Process& process, const ProcessHistory& history);
  void Arrange(const Process& process, ProcessHistory* history);
  static void ObserveQueuePair(const QueuePair& queue_pair, bool warm, uint64_t slice,
                               QueuePairHistory* known);
  void Learn(QueuePairHistory* queue_pair, size_t begin, size_t end);
  static void DropOld(QueuePairHistory* queue_pair, uint64_t matured);
  bool IsStrange(QueuePairHistory* queue_pair, size_t begin, size_t end) const;
  void AddToAll(const QueuePairHistory& queue_pair, double times);
  static void DropOldPaths(QueuePairHistory* queue_pair);
  const ProcessHistory* Find(const ProcessKey& process) const;
  static const QueuePairHistory* Find(const ProcessHistory& history, const QueuePairKey& key);
  bool IsExcluded(const Slice& slice) const;
  static double MeanOf(std::vector<OwnSlice> slices, size_t left_out);
  static void BeginOwn(const Process& process, int64_t as_of_ns, ProcessHistory* history);
  void Mature(ProcessHistory* history);
  void TakeLooks(ProcessHistory* history) const;
  void CountScatter(const ProcessHistory& history, const QueuePairHistory& queue_pair, size_t begin,
                    size_t end);
  std::pair<uint64_t, uint64_t> Span(const ProcessHistory& history, size_t back) const;

  WindowThresholds thresholds_;
  Shares shares_;
  std::unordered_map<ProcessKey, ProcessHistory, KeyHash> histories_;
  std::unordered_map<std::string, std::vector<ProcessHistory*>> by_host_;
  std::array<double, kLatencyBuckets> usual_of_all_{};  // the sum over all queue pairs
  ExcludedTimes excluded_;
  Durations durations_;
  struct Scatter {
    double factor = 2.5;
    double bad_factor = 1.25;
    double least_usual_chunks = 16;
  };
  Scatter scatter_;
  double scatter_seen_ = 0;  // slices of queue pairs; the older ones count less and less
  double scatter_slow_ = 0;
  uint64_t slices_ = 0;
  int64_t swept_at_ns_ = 0;
  mutable std::vector<double> scratch_;  // of Own
};

}  // namespace c4::c4d
