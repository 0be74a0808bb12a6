// Which queue pair of a connection carries the next chunk: the one that will have it done first, by what it
// has in flight and how fast it has been. A queue pair whose share would exceed the window gets no more, so
// that queues on its path stay short; when the best one has no room the chunk waits, rather than taking a
// path on which it would arrive later still. While there is something to send, each queue pair gets a few
// chunks a second, one right behind the other: a slow one shows when it has recovered, and is seen by C4D
// until then. A dead queue pair takes nothing until it is revived, and then counts as new.
//
// Pure: no I/O, time is handed in. One thread. (C4 paper, section 3.2: dynamic load balance.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4 {

class QpScheduler {
 public:
  static constexpr int kNone = -1;
  static constexpr uint64_t kProbeNs = 1000000000;
  static constexpr int kProbeChunks = 4;  // as far as the window allows

  QpScheduler(size_t queue_pairs, size_t window_bytes);

  // The queue pair for a chunk of `bytes` bytes, or kNone: ask again after a completion.
  int Pick(size_t bytes, uint64_t now_ns) const;
  void Posted(int queue_pair, size_t bytes, uint64_t now_ns);
  // A queue pair completes its chunks in the order in which they were posted: these `chunks` of `bytes` in
  // all together, the oldest of them posted at `posted_ns`.
  void Completed(int queue_pair, size_t chunks, size_t bytes, uint64_t posted_ns, uint64_t now_ns);

  // Takes no more; what it has in flight may still complete.
  void Pause(int queue_pair);
  // What it had in flight is not in flight any more.
  void TakeBack(int queue_pair);
  // Takes chunks again. What it cost before says nothing of its new path.
  void Revive(int queue_pair);
  bool usable(int queue_pair) const { return pairs_[static_cast<size_t>(queue_pair)].usable; }

  size_t in_flight_bytes(int queue_pair) const { return pairs_[static_cast<size_t>(queue_pair)].in_flight; }
  // Nanoseconds a byte, the best of the last few chunks; 0 before the first completion.
  double cost(int queue_pair) const { return pairs_[static_cast<size_t>(queue_pair)].cost; }

 private:
  static constexpr size_t kRecent = 4;

  // What every choice looks at, apart from the rest: half a cache line each.
  struct Pair {
    size_t in_flight = 0;
    uint64_t last_posted_ns = 0;
    double cost = 0;  // 0 before the first completion
    bool usable = true;
    int probe_left = 0;  // chunks that are to follow the first one after a pause
  };
  struct Took {
    double ns = 0;
    double bytes = 0;
  };
  struct History {
    Took before[2];               // the completions before the next one
    double recent[kRecent] = {};  // costs of the last completions, each with those before it
    uint64_t completions = 0;
    uint64_t last_completed_ns = 0;
  };

  void FindBestCost();
  void SetProbeLeft(Pair* pair, int chunks);

  std::vector<Pair> pairs_;
  std::vector<History> histories_;
  size_t window_bytes_;
  double best_cost_ = 0;  // of those that are usable and have one; 0: none
  int probing_ = 0;       // of which chunks of a probe are left
};

}  // namespace c4
