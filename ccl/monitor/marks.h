// What the program marks (ccl/include/c4/marks.h), into the process's segment: the worker into its header,
// the rest as records of one ring that all threads share.
//
// Any thread, also one that interrupted another in a mark: who cannot have the ring soon gives up, and the
// mark is lost. In the child of a fork nothing is recorded. Arguments are the caller's to check.
#pragma once

#include <atomic>
#include <cstdint>

#include "ccl/base/fork.h"
#include "ccl/monitor/monitor.h"
#include "ccl/monitor/observed.h"

namespace c4 {

class MarkWriter {
 public:
  // The process's own; made at the first call, kept to the end of the process.
  static MarkWriter& Get();

  explicit MarkWriter(Monitor* monitor);
  MarkWriter(const MarkWriter&) = delete;
  MarkWriter& operator=(const MarkWriter&) = delete;

  void Declare(const wire::WorkerPlace& place);
  // Now, in ticks of ccl/base/clock.h; 0 while marks are not recorded.
  uint64_t Begin() const {
    if (!ring_.Wants(wire::kLevelFine) || forks_ != Forks()) return 0;
    return NowTicks();
  }
  // Does nothing with a mark that began at 0. `kind` and what goes with it as in wire::MarkRecord; its times
  // are filled in here.
  void Write(wire::MarkRecord mark, uint64_t began_ticks);

  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  bool Lock();

  Monitor* const monitor_;
  const uint64_t forks_ = Forks();
  BriefLock lock_;  // of writing to the ring
  RingWriter ring_;
  std::atomic<uint64_t> lost_{0};
};

}  // namespace c4
