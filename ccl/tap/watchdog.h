// Looks at the state of each queue pair that is watched, by ibv_query_qp, seldom and from a thread of its
// own: one that has gone to the error state without anybody polling why is named. That is how a job stands
// whose queue pairs the GPU drives: an error completes to nobody.
//
// A step looks at few, so that ten thousand cost a device no more than ten. Never while the program changes
// the queue pair, nor while it destroys it.
#pragma once

#include <cstdint>

#include "ccl/tap/queue_pair_table.h"

namespace c4::tap {

class Watchdog {
 public:
  using Query = int (*)(abi::QueuePair*, abi::QpAttributes*, int, abi::QpInit*);
  static constexpr uint32_t kLooksPerStep = 64;
  static constexpr uint64_t kStepNs = 1'000'000'000;
  // Each at most that often, and not so soon after a change.
  static constexpr uint64_t kSeldomNs = 10'000'000'000;

  // Both outlive it.
  Watchdog(QueuePairTable* table, Query query) : table_(table), query_(query) {}

  // The process's own begins, once, at the first queue pair; for nobody in a forked child.
  // `also`: called with each step, in ticks of ccl/base/clock.h.
  static void Begin(QueuePairTable* table, Query query, void (*also)(uint64_t ticks));

  // How many were found in the error state that were not known to be. One thread at a time.
  uint32_t Step(uint64_t now_ns);

 private:
  QueuePairTable* const table_;
  const Query query_;
  uint32_t next_ = 0;
};

}  // namespace c4::tap
