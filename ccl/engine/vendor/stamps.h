// Kernel times by stamps of our own, where the vendor's profiler gives none (C4_KERNEL_STAMPS): a kernel of
// one thread (stamp_kernel.h) is put on the stream before and after what the vendor runs, and a thread
// `c4-stamps` reads the times that it leaves in host memory. What they mean says stamp_book.h.
//
// One Stamps a communicator, made when the communicator is (the module is loaded then, never during a
// capture, and tried once), kept for good and used again by a later communicator of the same device: graphs
// may hold our kernels longer than their communicator lives. Its memory is ours and only registered with the
// driver, so that reading it is safe whatever becomes of the GPU's context.
//
// Nothing here can make a job fail: what does not work is said once, and there are no kernel times.
//
// Any thread. Launches want no lock of ours but the book's, for tens of nanoseconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ccl/base/cuda_driver.h"
#include "ccl/base/result.h"
#include "ccl/engine/vendor/stamp_book.h"
#include "ccl/engine/vendor/stamp_kernel.h"
#include "ccl/monitor/observed.h"

namespace c4::vendor {

// What is on a stream between a stamp before and one after.
struct StampedBatch {
  class Stamps* stamps = nullptr;  // nullptr: not stamped
  uint64_t tag = StampBook::kNoTag;
  uint64_t stream = 0;
};

class Stamps {
 public:
  static constexpr uint32_t kRecords = 4096;

  // For `communicator` on the CUDA device of that ordinal. A failure says why there are none.
  static Result Open(int device, ObservedCommunicator* communicator, Stamps** stamps);
  // What has been written is read first. No batch may be begun afterwards.
  void Close();

  // Stamps `stream` before what the vendor will run for these calls. Not stamped: no room, or the stream is
  // captured from in a way that takes no kernels.
  StampedBatch Before(uint64_t stream, const StampedCall* calls, size_t count);
  // The vendor has launched it.
  void After(const StampedBatch& batch);
  void Cancel(const StampedBatch& batch);
  // The vendor will launch it on a thread of its own: After is to come when that has happened.
  void Later(const StampedBatch& batch);
  // Of those that wait: `launched` or never to be.
  void Settle(bool launched);
  bool waits_for_launch() const { return later_count_.load(std::memory_order_acquire) != 0; }

  // Reads what has been written; `c4-stamps` does, and tests. When there may be more.
  enum class More { kWhenAsked, kAnyTime, kSoon };
  More Poll();
  StampBook::Counts counts();

 private:
  struct Device;

  Stamps(Device* device, uint32_t counter, uint64_t ticks_per_second);
  static Result Prepare(int ordinal, Device** device);
  static Result Load(Device* device);
  Result MapRing();
  Result Try();
  // `stream` takes a kernel, and whether a graph is captured from it.
  bool Takes(uint64_t stream, bool* captured);
  bool Launch(uint64_t stream, uint64_t tag);
  bool ReadOne(StampRecord* record);

  Device* const device_;
  const uint32_t counter_;
  StampRecord* ring_ = nullptr;
  uint64_t ring_on_device_ = 0;
  std::atomic<bool> broken_{false};
  std::atomic<int> later_count_{0};

  BriefLock lock_;  // what follows
  StampBook book_;
  uint64_t next_ = 0;  // number of the record to be read
  uint64_t lost_ = 0;  // written over before they were read
  std::vector<StampedBatch> later_;
};

}  // namespace c4::vendor
