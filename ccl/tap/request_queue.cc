#include "ccl/tap/request_queue.h"

#include <algorithm>
#include <bit>

namespace c4::tap {
namespace {

constexpr uint32_t kMostRequests = 1u << 24;  // no device has as many

}  // namespace

RequestQueue::RequestQueue(uint32_t capacity)
    : most_mask_(std::bit_ceil(std::clamp(capacity, kNear, kMostRequests)) - 1) {
  requests_ = std::make_unique_for_overwrite<Kept[]>(size_t{most_mask_} + 1);
}

void RequestQueue::MakeRoom() {
  if (mask_ >= most_mask_) {  // the oldest is given up: its completion will be found no more
    ++ended_;
    ++untimed_;
    return;
  }
  // Twice as wide: each stays where it is or goes as far behind that as the ring was wide.
  const uint32_t wide = mask_ + 1;
  for (uint32_t i = ended_; i != pushed_; ++i) {
    if ((i & wide) != 0) place((i & mask_) + wide) = at(i);
  }
  mask_ = 2 * wide - 1;
}

void RequestQueue::TakeBack(uint64_t count) {
  pushed_ -= static_cast<uint32_t>(std::min<uint64_t>(count, open()));
}

uint32_t RequestQueue::Find(uint64_t id, bool failed) const {
  // The oldest that completes: one of another id before it means that this completion is not of this queue,
  // for they come in order.
  for (uint32_t i = ended_; i != pushed_; ++i) {
    const Kept& request = at(i);
    if (!failed && !request.signaled()) continue;
    return request.id == id ? i : pushed_;
  }
  return pushed_;
}

bool RequestQueue::IsNext(uint64_t id, bool failed) const {
  return Find(id, failed) != pushed_;
}

RequestQueue::Ended RequestQueue::Complete(uint64_t id, bool failed) {
  Ended ended;
  const uint32_t found = Find(id, failed);
  if (found == pushed_) return ended;
  for (uint32_t i = ended_; i != found + 1; ++i) {
    ++ended.requests;
    ended.bytes += at(i).bytes();
  }
  ended.posted_ticks = at(found).posted_ticks;
  ended_ = found + 1;
  // Few are open at a time, as a rule: where they stand stays near.
  if (ended_ == pushed_) {
    ended_ = pushed_ = 0;
    mask_ = kNear - 1;
  }
  return ended;
}

}  // namespace c4::tap
