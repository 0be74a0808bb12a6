// The work requests of one queue pair and one way (sends or receives) that have not completed, oldest first.
// Verbs complete them in that order. A send that asked for no completion is over when a later one is; so one
// completion may end several.
//
// Memory is taken once, for as many as the queue pair holds. What goes past that (a queue pair that was
// resized behind us) is counted and not timed. Pure; one thread at a time.
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

  void Push(const Request& request);
  // The newest `count` were refused.
  void TakeBack(uint64_t count);
  // Of the oldest signaled request of that id. `failed`: after an error each request completes by itself,
  // signaled or not.
  Ended Complete(uint64_t id, bool failed);

  uint64_t open() const { return pushed_ - ended_; }
  // Not to be told apart any more, as there were more than were expected.
  uint64_t untimed() const { return untimed_; }
  // The one that must complete next has this id.
  bool IsNext(uint64_t id, bool failed) const;

 private:
  const Request& at(uint64_t i) const { return requests_[i & mask_]; }
  // Index of the request that a completion of this id is of; pushed_: none.
  uint64_t Find(uint64_t id, bool failed) const;

  std::unique_ptr<Request[]> requests_;
  uint64_t mask_ = 0;
  uint64_t pushed_ = 0;
  uint64_t ended_ = 0;
  uint64_t untimed_ = 0;
};

}  // namespace c4::tap
