// A queue pair whose sends are posted by functions of its own (ibv_wr_start, ibv_wr_rdma_write, ...,
// ibv_wr_complete): these are ours instead, which call the provider's and gather what was posted between
// start and complete. The queue pair hears of it at complete, before the provider does, so that no completion
// comes for what it does not know.
//
// The provider keeps other threads away between start and complete (or the program does), and so from what is
// gathered here; nothing of ours is locked meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "ccl/tap/extended_abi.h"
#include "ccl/tap/watched_queue_pair.h"

namespace c4::tap {

class ExtendedSends {
 public:
  // Its functions become ours, but for those that it has not. `watched` is in the process's table.
  static void TakeOver(abi::ExtendedQueuePair* queue_pair, WatchedQueuePair* watched, uint32_t capacity);
  // As they were; nothing where they are not ours.
  static void GiveBack(abi::QueuePair* queue_pair, WatchedQueuePair* watched);

  ExtendedSends(const abi::SendCalls& real, uint32_t capacity) : real_(real) { gathered_.reserve(capacity); }

  const abi::SendCalls& real() const { return real_; }
  void Begin() { gathered_.clear(); }
  // More than the queue pair holds are refused by the provider at complete.
  void Add(const WatchedQueuePair::Sent& sent) {
    if (gathered_.size() < gathered_.capacity()) gathered_.push_back(sent);
  }
  void AddBytes(uint64_t bytes) {
    if (!gathered_.empty()) gathered_.back().bytes += bytes;
  }
  const std::vector<WatchedQueuePair::Sent>& gathered() const { return gathered_; }

 private:
  const abi::SendCalls real_;
  std::vector<WatchedQueuePair::Sent> gathered_;
};

}  // namespace c4::tap
