// When the thread of a communicator looks at the queue. A thread that enqueues mostly waits for the result
// right away, and then runs it itself: two switches between threads less. So what is enqueued gets a moment
// before the thread takes it, and where callers have waited at once each time, the thread looks less often:
// neither a timer nor a switch between threads for each operation.
//
// Pure: it is told the number of operations that ever were in the queue, and of those that are in there now,
// and says when to look. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace c4::host {

class Patrol {
 public:
  // What a caller gets to wait in, and how long the thread stays away at most where all callers did.
  static constexpr long kFirstNs = 50000;
  static constexpr long kLongestNs = 400000;

  // Something was enqueued. True when the thread is to look kFirstNs from now; else it will anyway.
  bool Begin(uint64_t queued) {
    if (walks_) return false;
    walks_ = true;
    seen_ = queued;
    calm_ns_ = kFirstNs;
    return true;
  }

  // The thread runs the queue for another reason, whose timer has taken the place of the patrol's: the next
  // Begin sets one again.
  void End() { walks_ = false; }

  enum class Next { kRest, kAgain, kRun };
  // The thread looks. kRun: what was in the queue when it last looked, or when the patrol began, still is;
  // nobody waits for it. kAgain: after pause_ns(). kRest: nothing has come since; Begin will say so.
  Next Look(uint64_t queued, uint64_t waiting) {
    if (waiting != 0 && queued - waiting < seen_) {
      walks_ = false;
      return Next::kRun;
    }
    if (waiting == 0 && queued == seen_) {
      walks_ = false;
      return Next::kRest;
    }
    seen_ = queued;
    if (waiting == 0) calm_ns_ = std::min(2 * calm_ns_, kLongestNs);
    pause_ns_ = waiting == 0 ? calm_ns_ : kFirstNs;
    return Next::kAgain;
  }
  long pause_ns() const { return pause_ns_; }

 private:
  bool walks_ = false;
  uint64_t seen_ = 0;        // that were in the queue up to the last look
  long calm_ns_ = kFirstNs;  // grows while callers wait at once
  long pause_ns_ = kFirstNs;
};

}  // namespace c4::host
