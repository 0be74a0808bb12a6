// The work requests of one queue pair and one way (sends or receives) that have not completed, oldest first.
// Verbs complete them in that order. A send that asked for no completion is over when a later one is; so one
// completion may end several.
//
// Memory is taken once, for as many as the queue pair holds, and as little of it is used as is needed: two
// stand in the object itself, and the ring is as wide as there were requests open since it was last empty.
// With thousands of queue pairs each line of memory that is touched is one that is not near. What goes past
// the room (a queue pair that was resized behind us) is counted and not timed. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

namespace c4::tap {

class RequestQueue {
 public:
  struct Request {
    uint64_t id = 0;
    uint64_t posted_ticks = 0;
    uint64_t bytes = 0;
    bool signaled = false;  // it has a completion of its own when all goes well
  };
  // What a completion ended.
  struct Ended {
    uint64_t requests = 0;  // 0: none of ours has this id
    uint64_t bytes = 0;
    uint64_t posted_ticks = 0;  // of the one that completed, the newest of them
  };

  RequestQueue() = default;
  explicit RequestQueue(uint32_t capacity);

  void Push(const Request& request) {
    if (open() > mask_) MakeRoom();
    place(pushed_++ & mask_) = {request.id, request.posted_ticks,
                                request.bytes << 1 | (request.signaled ? 1u : 0u)};
  }
  // The newest `count` were refused.
  void TakeBack(uint64_t count);
  // Of the oldest signaled request of that id. `failed`: after an error each request completes by itself,
  // signaled or not.
  Ended Complete(uint64_t id, bool failed);

  uint32_t open() const { return pushed_ - ended_; }
  // Not to be told apart any more, as there were more than were expected.
  uint32_t untimed() const { return untimed_; }
  // The one that must complete next has this id.
  bool IsNext(uint64_t id, bool failed) const;

 private:
  static constexpr uint32_t kNear = 2;
  struct Kept {
    uint64_t id;
    uint64_t posted_ticks;
    uint64_t bytes_and_signaled;  // the lowest bit
    uint64_t bytes() const { return bytes_and_signaled >> 1; }
    bool signaled() const { return (bytes_and_signaled & 1) != 0; }
  };

  Kept& place(uint32_t i) { return i < kNear ? near_[i] : requests_[i]; }
  const Kept& at(uint32_t i) const {
    const uint32_t place = i & mask_;
    return place < kNear ? near_[place] : requests_[place];
  }
  // Index of the request that a completion of this id is of; pushed_: none.
  uint32_t Find(uint64_t id, bool failed) const;
  void MakeRoom();

  // Of as many as there is room for; the first kNear are not used.
  std::unique_ptr<Kept[]> requests_;
  uint32_t most_mask_ = 0;
  uint32_t mask_ = kNear - 1;  // of the ring that is in use
  // Indices of requests; they go round.
  uint32_t pushed_ = 0;
  uint32_t ended_ = 0;
  uint32_t untimed_ = 0;
  Kept near_[kNear] = {};
};

}  // namespace c4::tap
