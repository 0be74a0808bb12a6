// Communicators of an engine that is not ours, as far as we see them. The front door says what the program
// calls, the profiler plugin what the vendor's library does with it; here both become the records that the
// host engine writes (wire/segment.h), so that nobody behind them need know which engine it was.
//
// A call gets its number when it is made, from 1: collectives and point-to-point are numbered apart, as in
// the segment. NCCL's events name no calls: an event belongs to the oldest call of its communicator that none
// was matched with and that has the same function, bytes, root or peer, and buffers. NCCL sorts the
// operations of a group, so order alone does not tell.
//
// Any thread. A communicator is locked for tens of nanoseconds a call; the table that finds them is read
// without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ccl/monitor/monitor.h"

namespace c4 {

struct ObservedCall {
  wire::OperationInfo info{};  // count, root or peer, function, data type, reduction
  const void* send_buffer = nullptr;
  const void* recv_buffer = nullptr;
  uint64_t stream = 0;
};

inline bool IsP2p(uint8_t function) {
  return function == wire::kSend || function == wire::kRecv;
}

// Held for tens of nanoseconds, by threads of the user's process that may outnumber its processors.
class BriefLock {
 public:
  void lock();
  bool try_lock() { return !taken_.test_and_set(std::memory_order_acquire); }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

// What finishes is written by whichever of NCCL's threads saw it; a ring has one writer at a time.
struct ObservedRing {
  BriefLock lock;
  RingWriter writer;
};

// One rank's membership in one communicator of the vendor's.
class ObservedCommunicator {
 public:
  // What is kept of calls that have not finished: the newest of each kind. What falls out counts as finished.
  static constexpr uint64_t kKept = 256;

  ObservedCommunicator() = default;
  ObservedCommunicator(const ObservedCommunicator&) = delete;
  ObservedCommunicator& operator=(const ObservedCommunicator&) = delete;

  CommunicatorIdentity identity();
  // Children made of it before this one, which the call makes one more.
  uint64_t NextChild() { return children_.fetch_add(1, std::memory_order_relaxed); }

  // What the front door keeps with it, which is nobody else's business; nullptr when it opens.
  void* extra() const { return extra_.load(std::memory_order_acquire); }
  void SetExtra(void* extra) { extra_.store(extra, std::memory_order_release); }

  // The front door. `Called` gives the call's number; a communicator that takes calls is ready.
  uint64_t Called(const ObservedCall& call, uint64_t ticks);
  // The vendor's library has refused it: as if it had not been made, where nothing was called since.
  void TakeBack(uint8_t function, uint64_t number);
  // The vendor's library has taken it: the call, or the group that it was made in, has returned.
  void Enqueued(uint8_t function, uint64_t stream, uint64_t ticks);
  void Ready() {
    if (!ready_.load(std::memory_order_relaxed)) BecomeReady();
  }
  void Finalized();
  // The vendor has given it up, with NCCL's `result`.
  void Failed(int32_t result);

  // The profiler. 0: no such call is open, the event is nobody's. `call.stream` and the reduction do not
  // count, and neither do buffers that are null. `called_ticks` becomes when the call was made. Calls of one
  // `group` (where it is not 0) are done by one kernel, side by side.
  uint64_t Match(const ObservedCall& call, uint64_t* called_ticks = nullptr, uint32_t group = 0);
  // Of a matched call: when its kernel began and ended, in ticks of ccl/base/clock.h. `Started` again
  // corrects the time to an earlier one. Calls of one kind may finish in any order; kernels of one stream
  // finish in order, so that with a call all before it on its stream have ended, whether that was seen or
  // not, but for those of its group. The counters tell of those that nothing before them is missing of. A
  // number of an earlier communicator in the same place is heeded no more.
  void Started(uint8_t function, uint64_t number, uint64_t ticks);
  void Finished(uint8_t function, uint64_t number, uint64_t ticks);
  // What the profiler sees of it, since just now (wire::Seen), and how far off its times may be.
  void Sees(uint32_t what, uint32_t kernel_error_ns);
  // A slot for what the vendor's engine moves to or from a peer (transport vendor), or for one of its queue
  // pairs. Whoever opens it writes to it, from one thread at a time, and closes it; it may outlive the
  // communicator.
  QueuePairRecorder OpenConnection(const QueuePairIdentity& identity);
  void CloseConnection(QueuePairRecorder* connection);

 private:
  friend class ObservedCommunicators;

  struct Kept {
    ObservedCall call;
    uint64_t called_ticks = 0;
    uint64_t started_ticks = 0;
    bool matched = false;
    bool started = false;
    bool finished = false;  // as the counters tell it
    bool recorded = false;
    uint32_t group = 0;
  };
  // Calls of one kind: collectives, or sends and receives. Numbers without the generation, from 0.
  struct Kind {
    uint64_t called = 0;
    uint64_t started = 0;   // none before it is missing
    uint64_t finished = 0;  // none before it is missing
    uint64_t matched = 0;   // none before it is open for a match
    std::vector<Kept> kept;

    Kept& at(uint64_t i) { return kept[i % kKept]; }
    uint64_t oldest() const { return called > kKept ? called - kKept : 0; }
  };

  void Open(Monitor* monitor, ObservedRing* ring, const CommunicatorIdentity& identity);
  void Close(wire::SlotPhase phase);
  bool LeavesNoEvents(const ObservedCall& call) const;
  void BecomeReady();
  Kind& KindOf(uint8_t function) { return kinds_[IsP2p(function) ? 1 : 0]; }
  // Index of the oldest call that an event of these contents belongs to, and whether there is one.
  bool Find(const ObservedCall& call, uint64_t* i);
  // The call of that number, if it is kept; nullptr otherwise.
  Kept* Of(uint8_t function, uint64_t number, uint64_t* i);
  // What is before the call on its stream, and not done by the same kernel, has ended.
  void EndBefore(Kind* kind, uint64_t i);
  void Advance(uint8_t function, uint64_t ticks);

  BriefLock lock_;  // all that follows, but what is atomic
  Monitor* monitor_ = nullptr;
  ObservedRing* ring_ = nullptr;
  bool open_ = false;
  uint64_t generation_ = 0;
  uint64_t opened_ = 0;  // how many were opened before it
  CommunicatorIdentity identity_;
  CommunicatorRecorder recorder_;
  Kind kinds_[2];
  std::atomic<uint64_t> children_{0};
  std::atomic<bool> ready_{false};
  std::atomic<void*> extra_{nullptr};
};

class ObservedCommunicators {
 public:
  // The process's own; never destroyed.
  static ObservedCommunicators& Get();

  explicit ObservedCommunicators(Monitor* monitor) : monitor_(monitor) {}
  ObservedCommunicators(const ObservedCommunicators&) = delete;
  ObservedCommunicators& operator=(const ObservedCommunicators&) = delete;
  ~ObservedCommunicators();  // for tests: frees what was given out, while nobody uses it

  // A communicator that ranks are joining: the vendor has given no handle yet.
  ObservedCommunicator* Open(const CommunicatorIdentity& identity);
  // It never came to be.
  void Drop(ObservedCommunicator* communicator, wire::SlotPhase phase);
  // `handle` is the vendor's pointer to it.
  void Bind(const void* handle, ObservedCommunicator* communicator);
  // nullptr: none of ours. Without a lock.
  ObservedCommunicator* Find(const void* handle) const {
    if (handle == nullptr) return nullptr;
    const Node* node = BucketOf(handle).load(std::memory_order_acquire);
    while (node != nullptr && node->handle.load(std::memory_order_acquire) != handle) node = node->next;
    return node == nullptr ? nullptr : node->communicator.load(std::memory_order_relaxed);
  }
  // Out of the table, to be done before the vendor frees the handle. What was given out stays valid: its
  // place is taken by communicators made later, and what belonged to the earlier one is heeded no more.
  void Remove(const void* handle, wire::SlotPhase phase);

  // The one that was opened first of those that are open; false: there is none.
  bool First(CommunicatorIdentity* identity);

  // The communicator that knows this call, by the oldest call if there are several, and has this rank (and
  // this number of ranks, where that is not 0); nullptr: none. For a profiler that sees one for the first
  // time.
  ObservedCommunicator* Owner(int rank, int rank_count, const ObservedCall& call);

 private:
  // Nodes stay where they are once they are linked; a handle that is null is free for another one.
  struct Node {
    std::atomic<const void*> handle{nullptr};
    std::atomic<ObservedCommunicator*> communicator{nullptr};
    Node* next = nullptr;
  };
  static constexpr size_t kBuckets = 1024;

  std::atomic<Node*>& BucketOf(const void* handle) const {
    return buckets_[(reinterpret_cast<uintptr_t>(handle) * 0x9E3779B97F4A7C15u) >> 54];  // the top ten bits
  }

  Monitor* const monitor_;
  std::mutex mutex_;  // of what changes the table
  ObservedRing ring_;
  bool has_ring_ = false;
  uint64_t opened_ = 0;
  mutable std::atomic<Node*> buckets_[kBuckets] = {};
  std::vector<ObservedCommunicator*> all_;   // ever made; they are never freed
  std::vector<ObservedCommunicator*> free_;  // of these, closed ones
};

}  // namespace c4
