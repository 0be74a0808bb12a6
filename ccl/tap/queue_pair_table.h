// The queue pairs that the tap watches, found by the program's pointer and, for completions, by device and
// number: both without a lock and in nanoseconds, as each post and each completion asks.
//
// Objects are never freed: a thread may hold one while another destroys its queue pair. They are used again,
// and know themselves whose they are. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/tap/watched_queue_pair.h"

namespace c4::tap {

class QueuePairTable {
 public:
  // Twice as many places as queue pairs, so that searches stay short.
  static constexpr uint32_t kMostQueuePairs = 1 << 15;

  QueuePairTable();
  QueuePairTable(const QueuePairTable&) = delete;
  QueuePairTable& operator=(const QueuePairTable&) = delete;

  // nullptr: the table is full; the queue pair is left alone.
  WatchedQueuePair* Add(const abi::QueuePair* queue_pair);
  void Remove(const abi::QueuePair* queue_pair);
  // Of those that were ever live at a time, by number from 0; `body` is called if that one is live, and it
  // stays so until `body` returns.
  uint32_t made() const { return made_.load(std::memory_order_acquire); }
  template <typename Body>
  void With(uint32_t i, Body body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (i < all_.size() && (all_[i]->serial() & 1) != 0) body(all_[i].get());
  }
  // nullptr: not one of ours.
  WatchedQueuePair* Find(const abi::QueuePair* queue_pair) const;
  WatchedQueuePair* Find(const abi::Context* context, uint32_t number) const;
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kPlaces = 2 * kMostQueuePairs;
  // `key` 0: never used; 1: free again.
  struct Place {
    std::atomic<uintptr_t> key{0};
    std::atomic<WatchedQueuePair*> watched{nullptr};
  };
  struct Index {
    std::unique_ptr<Place[]> places{new Place[kPlaces]};

    void Put(uintptr_t key, WatchedQueuePair* watched);
    void Take(uintptr_t key);
    WatchedQueuePair* Get(uintptr_t key) const;
  };
  static uintptr_t KeyOf(const abi::Context* context, uint32_t number);

  Index by_pointer_;
  Index by_number_;
  std::mutex mutex_;  // of what changes it
  uint32_t live_ = 0;
  std::atomic<uint32_t> made_{0};  // of all_
  std::vector<std::unique_ptr<WatchedQueuePair>> all_;
  std::vector<WatchedQueuePair*> free_;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace c4::tap
