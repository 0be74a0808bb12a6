// What stamps mean: which calls each belongs to, and when, by our clock, they began and ended. Pure:
// launching and reading are stamps.h's, which also holds the lock that all of this wants.
//
// A batch is what the vendor runs as one: a call, or the calls of a group on one stream of a communicator. It
// has a stamp before and one after, told apart by a bit of the tag. Batches of captured calls run at each
// launch of the graph: the captured calls are done when captured, and every launch is made of calls of its
// own, as the profiler tells it (docs/plans/c1.md). Tags carry a generation, so that a graph of a
// communicator that is gone means nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/monitor/gpu_clock.h"
#include "ccl/monitor/observed.h"

namespace c4::vendor {

struct StampedCall {
  ObservedCall call;
  uint64_t number = 0;  // as ObservedCommunicator::Called gave it
  uint64_t called_ticks = 0;
};

class StampBook {
 public:
  static constexpr uint32_t kOpen = 1024;      // batches under way; a power of two
  static constexpr uint32_t kCaptured = 4096;  // batches in graphs

  static constexpr uint64_t kNoTag = 0;
  static constexpr uint64_t kAfter = uint64_t{1} << 63;

  struct Counts {
    uint64_t read = 0;
    uint64_t replayed = 0;  // batches of graphs
    uint64_t strange = 0;   // of no batch: of an earlier communicator, cancelled, or pushed out
  };

  explicit StampBook(uint64_t ticks_per_second);

  void Open(ObservedCommunicator* communicator);
  void Close();

  // The tag of the stamp before; with kAfter it is that of the one after. kNoTag: there is no room.
  uint64_t Begin(const StampedCall* calls, size_t count, bool captured, uint64_t ticks);
  // There will be no stamp after: the vendor refused.
  void Cancel(uint64_t tag);

  // A stamp was read just now, at `ticks`.
  void Read(uint64_t tag, uint64_t gpu_ns, uint64_t ticks);

  bool waits() const { return open_ > 0; }                  // for stamps of batches
  bool has_captured() const { return !captured_.empty(); }  // whose stamps may come at any time
  const Counts& counts() const { return counts_; }

 private:
  struct Batch {
    uint64_t tag = kNoTag;
    uint64_t started_ticks = 0;  // 0: not yet
    std::vector<StampedCall> calls;
  };

  Batch* Find(uint64_t tag);
  uint64_t TagOf(bool captured, uint32_t index) const;
  uint64_t Ticks(uint64_t gpu_ns, uint64_t heard) const;
  void Replay(Batch* batch, uint64_t ticks);
  void Began(Batch* batch, uint64_t gpu_ns, uint64_t ticks);
  void Ended(Batch* batch, uint64_t gpu_ns, uint64_t ticks);
  void TellError(uint64_t gpu_ns);

  const uint64_t ticks_per_second_;
  ObservedCommunicator* communicator_ = nullptr;
  uint32_t generation_ = 0;
  uint32_t next_ = 0;
  uint32_t open_ = 0;
  std::vector<Batch> batches_;
  std::vector<Batch> captured_;
  GpuClock clock_;
  bool told_ = false;
  uint32_t told_error_ns_ = UINT32_MAX;
  Counts counts_;
};

}  // namespace c4::vendor
