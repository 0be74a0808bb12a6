#include "ccl/tap/queue_pair_table.h"

namespace c4::tap {
namespace {

// What lies under that byte, made where nothing does.
template <typename Level, typename Owner>
auto* Under(Level* level, uint32_t byte, Owner* owner) {
  auto* under = level->under[byte].load(std::memory_order_relaxed);
  if (under != nullptr) return under;
  owner->push_back(std::make_unique<std::remove_pointer_t<decltype(under)>>());
  under = owner->back().get();
  level->under[byte].store(under, std::memory_order_release);
  return under;
}

}  // namespace

QueuePairTable::QueuePairTable() = default;
QueuePairTable::~QueuePairTable() = default;

QueuePairTable::Root* QueuePairTable::RootOf(const abi::Context* context) {
  const size_t devices = devices_.load(std::memory_order_relaxed);
  size_t at = devices;
  for (size_t i = 0; i < devices; ++i) {
    const abi::Context* const here = contexts_[i].load(std::memory_order_relaxed);
    if (here == context) return roots_[i].get();
    if (here == nullptr && at == devices) at = i;  // of one that was closed
  }
  if (at == kMostDevices) return nullptr;
  if (roots_[at] == nullptr) roots_[at] = std::make_unique<Root>();
  contexts_[at].store(context, std::memory_order_release);
  if (at == devices) devices_.store(devices + 1, std::memory_order_release);
  return roots_[at].get();
}

std::atomic<WatchedQueuePair*>* QueuePairTable::MakePlace(const abi::Context* context, uint32_t number) {
  Root* const root = RootOf(context);
  if (root == nullptr) return nullptr;
  Branch* const branch = Under(root, number >> 16, &branches_);
  Leaf* const leaf = Under(branch, number >> 8 & 0xff, &leaves_);
  return &leaf->under[number & 0xff];
}

void QueuePairTable::Drop(std::atomic<WatchedQueuePair*>* place) {
  WatchedQueuePair* const watched = place->exchange(nullptr, std::memory_order_relaxed);
  if (watched == nullptr) return;
  watched->Close();
  free_.push_back(watched);
  --live_;
}

WatchedQueuePair* QueuePairTable::Add(const abi::QueuePair* queue_pair) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<WatchedQueuePair*>* const place = live_ == kMostQueuePairs || queue_pair->number >> 24 != 0
                                                    ? nullptr
                                                    : MakePlace(queue_pair->context, queue_pair->number);
  if (place == nullptr) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  Drop(place);  // one that was destroyed behind us
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
  place->store(watched, std::memory_order_release);
  return watched;
}

void QueuePairTable::Remove(const abi::QueuePair* queue_pair) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<WatchedQueuePair*>* const place = PlaceOf(queue_pair->context, queue_pair->number);
  if (place != nullptr) Drop(place);
}

void QueuePairTable::RemoveAllOf(const abi::Context* context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < devices_.load(std::memory_order_relaxed); ++i) {
    if (contexts_[i].load(std::memory_order_relaxed) != context) continue;
    for (const auto& branch : roots_[i]->under) {
      if (branch.load(std::memory_order_relaxed) == nullptr) continue;
      for (const auto& leaf : branch.load(std::memory_order_relaxed)->under) {
        if (leaf.load(std::memory_order_relaxed) == nullptr) continue;
        for (auto& place : leaf.load(std::memory_order_relaxed)->under) Drop(&place);
      }
    }
    contexts_[i].store(nullptr, std::memory_order_release);
    return;
  }
}

}  // namespace c4::tap
