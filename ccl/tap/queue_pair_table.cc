#include "ccl/tap/queue_pair_table.h"

namespace c4::tap {
namespace {

constexpr uintptr_t kNever = 0;
constexpr uintptr_t kFreed = 1;

uint32_t HashOf(uintptr_t key, uint32_t places) {
  return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >> 32) & (places - 1);
}

}  // namespace

QueuePairTable::QueuePairTable() = default;

// Devices' contexts are heap objects, so that their low bits are free; two devices that use one number differ
// in the high ones.
uintptr_t QueuePairTable::KeyOf(const abi::Context* context, uint32_t number) {
  return (reinterpret_cast<uintptr_t>(context) << 24) ^ (uintptr_t{number} << 1) ^ 2;
}

void QueuePairTable::Index::Put(uintptr_t key, WatchedQueuePair* watched) {
  uint32_t at = HashOf(key, kPlaces);
  while (places[at].key.load(std::memory_order_relaxed) > kFreed) at = (at + 1) & (kPlaces - 1);
  places[at].watched.store(watched, std::memory_order_relaxed);
  places[at].key.store(key, std::memory_order_release);
}

void QueuePairTable::Index::Take(uintptr_t key) {
  for (uint32_t at = HashOf(key, kPlaces), n = 0; n < kPlaces; at = (at + 1) & (kPlaces - 1), ++n) {
    const uintptr_t here = places[at].key.load(std::memory_order_relaxed);
    if (here == kNever) return;
    if (here != key) continue;
    const bool last = places[(at + 1) & (kPlaces - 1)].key.load(std::memory_order_relaxed) == kNever;
    places[at].key.store(last ? kNever : kFreed, std::memory_order_release);
    return;
  }
}

WatchedQueuePair* QueuePairTable::Index::Get(uintptr_t key) const {
  for (uint32_t at = HashOf(key, kPlaces), n = 0; n < kPlaces; at = (at + 1) & (kPlaces - 1), ++n) {
    const uintptr_t here = places[at].key.load(std::memory_order_acquire);
    if (here == key) return places[at].watched.load(std::memory_order_relaxed);
    if (here == kNever) return nullptr;
  }
  return nullptr;
}

WatchedQueuePair* QueuePairTable::Add(const abi::QueuePair* queue_pair) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (live_ == kMostQueuePairs) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  WatchedQueuePair* watched = nullptr;
  if (free_.empty()) {
    all_.push_back(std::make_unique<WatchedQueuePair>());
    watched = all_.back().get();
    made_.store(static_cast<uint32_t>(all_.size()), std::memory_order_release);
  } else {
    watched = free_.back();
    free_.pop_back();
  }
  ++live_;
  by_pointer_.Put(reinterpret_cast<uintptr_t>(queue_pair), watched);
  by_number_.Put(KeyOf(queue_pair->context, queue_pair->number), watched);
  return watched;
}

void QueuePairTable::Remove(const abi::QueuePair* queue_pair) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WatchedQueuePair* const watched = by_pointer_.Get(reinterpret_cast<uintptr_t>(queue_pair));
  if (watched == nullptr) return;
  by_pointer_.Take(reinterpret_cast<uintptr_t>(queue_pair));
  by_number_.Take(KeyOf(queue_pair->context, queue_pair->number));
  watched->Close();
  free_.push_back(watched);
  --live_;
}

WatchedQueuePair* QueuePairTable::Find(const abi::QueuePair* queue_pair) const {
  return by_pointer_.Get(reinterpret_cast<uintptr_t>(queue_pair));
}

WatchedQueuePair* QueuePairTable::Find(const abi::Context* context, uint32_t number) const {
  return by_number_.Get(KeyOf(context, number));
}

}  // namespace c4::tap
