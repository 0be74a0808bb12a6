// The queue pairs that the tap watches, found by device and number: without a lock and in nanoseconds, as
// each post and each completion asks.
//
// A device gives numbers of 24 bits, near ones to queue pairs that are made one after the other. So each
// device has a tree of three levels by the number's bytes, whose lowest level holds 256 pointers side by
// side: thousands of queue pairs that are used in turn share few lines of memory there.
//
// Objects are never freed: a thread may hold one while another destroys its queue pair. They are used again,
// and know themselves whose they are. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/tap/watched_queue_pair.h"

namespace c4::tap {

class QueuePairTable {
 public:
  static constexpr uint32_t kMostQueuePairs = 1 << 15;
  static constexpr size_t kMostDevices = 256;

  QueuePairTable();
  ~QueuePairTable();
  QueuePairTable(const QueuePairTable&) = delete;
  QueuePairTable& operator=(const QueuePairTable&) = delete;

  // nullptr: the table is full, or the number has more than 24 bits; the queue pair is left alone.
  WatchedQueuePair* Add(const abi::QueuePair* queue_pair);
  void Remove(const abi::QueuePair* queue_pair);
  // The device is closed: its queue pairs are gone with it.
  void RemoveAllOf(const abi::Context* context);
  // Of those that were ever live at a time, by number from 0; `body` is called if that one is live, and it
  // stays so until `body` returns.
  uint32_t made() const { return made_.load(std::memory_order_acquire); }
  template <typename Body>
  void With(uint32_t i, Body body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (i < all_.size() && (all_[i]->serial() & 1) != 0) body(all_[i].get());
  }
  // nullptr: not one of ours.
  WatchedQueuePair* Find(const abi::QueuePair* queue_pair) const {
    return Find(queue_pair->context, queue_pair->number);
  }
  WatchedQueuePair* Find(const abi::Context* context, uint32_t number) const {
    const std::atomic<WatchedQueuePair*>* const place = PlaceOf(context, number);
    return place == nullptr ? nullptr : place->load(std::memory_order_acquire);
  }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kByte = 256;
  template <typename Under>
  struct Level {
    std::array<std::atomic<Under*>, kByte> under{};
  };
  using Leaf = Level<WatchedQueuePair>;
  using Branch = Level<Leaf>;
  using Root = Level<Branch>;

  // nullptr: nothing was ever added there.
  std::atomic<WatchedQueuePair*>* PlaceOf(const abi::Context* context, uint32_t number) const {
    const size_t devices = devices_.load(std::memory_order_acquire);
    for (size_t i = 0; i < devices; ++i) {
      if (contexts_[i].load(std::memory_order_acquire) != context) continue;
      if (number >> 24 != 0) return nullptr;
      const Branch* const branch = roots_[i]->under[number >> 16].load(std::memory_order_acquire);
      if (branch == nullptr) return nullptr;
      Leaf* const leaf = branch->under[number >> 8 & 0xff].load(std::memory_order_acquire);
      return leaf == nullptr ? nullptr : &leaf->under[number & 0xff];
    }
    return nullptr;
  }
  // The same, and there is one. nullptr: there is no room for one more device.
  std::atomic<WatchedQueuePair*>* MakePlace(const abi::Context* context, uint32_t number);
  Root* RootOf(const abi::Context* context);
  void Drop(std::atomic<WatchedQueuePair*>* place);

  std::mutex mutex_;  // of what changes it
  std::atomic<size_t> devices_{0};
  std::array<std::atomic<const abi::Context*>, kMostDevices> contexts_{};  // nullptr: closed
  std::array<std::unique_ptr<Root>, kMostDevices> roots_;                  // of each of these; never freed
  std::vector<std::unique_ptr<Branch>> branches_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  uint32_t live_ = 0;
  std::atomic<uint32_t> made_{0};  // of all_
  std::vector<std::unique_ptr<WatchedQueuePair>> all_;
  std::vector<WatchedQueuePair*> free_;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace c4::tap
