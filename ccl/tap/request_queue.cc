#include "ccl/tap/request_queue.h"

#include <algorithm>
#include <bit>

namespace c4::tap {

RequestQueue::RequestQueue(uint32_t capacity) : mask_(std::bit_ceil(std::max<uint64_t>(capacity, 1)) - 1) {
  requests_ = std::make_unique<Request[]>(mask_ + 1);
}

void RequestQueue::Push(const Request& request) {
  if (requests_ == nullptr) return;
  if (open() > mask_) {  // the oldest is given up: its completion will be found no more
    ++ended_;
    ++untimed_;
  }
  requests_[pushed_++ & mask_] = request;
}

void RequestQueue::TakeBack(uint64_t count) {
  pushed_ -= std::min(count, open());
}

uint64_t RequestQueue::Find(uint64_t id, bool failed) const {
  // The oldest that completes: one of another id before it means that this completion is not of this queue,
  // for they come in order.
  for (uint64_t i = ended_; i != pushed_; ++i) {
    const Request& request = at(i);
    if (!failed && !request.signaled) continue;
    return request.id == id ? i : pushed_;
  }
  return pushed_;
}

bool RequestQueue::IsNext(uint64_t id, bool failed) const {
  return Find(id, failed) != pushed_;
}

RequestQueue::Ended RequestQueue::Complete(uint64_t id, bool failed) {
  Ended ended;
  const uint64_t found = Find(id, failed);
  if (found == pushed_) return ended;
  for (uint64_t i = ended_; i != found + 1; ++i) {
    ++ended.requests;
    ended.bytes += at(i).bytes;
  }
  ended.posted_ticks = at(found).posted_ticks;
  ended_ = found + 1;
  // Few are open at a time, as a rule: where they stand stays near.
  if (ended_ == pushed_) ended_ = pushed_ = 0;
  return ended;
}

}  // namespace c4::tap
