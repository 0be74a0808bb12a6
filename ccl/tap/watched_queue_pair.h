// One queue pair that a program made through verbs, as the tap sees it: what was posted and what has
// completed, with times, as the records of our own transport have it (wire/segment.h).
//
// A queue pair sends, receives, or both, and each way has a slot of its own. Before anybody has said which
// communicator and peer it serves, the slots are this object's own memory; AttributeTo moves what they hold
// into the segment. Small sends of a queue pair that has receives posted are no data: they tell the peer that
// it may send (NCCL's clear to send), and count as that.
//
// Locked for tens of nanoseconds a call. The lock is held over the call of the provider that posts, so that
// requests stand here in the order in which they stand there; the provider locks the queue for as long. Not
// so where the queue pair has functions of its own to post by (extended_sends.h): the provider is locked
// before.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/monitor/observed.h"
#include "ccl/tap/completion_burst.h"
#include "ccl/tap/request_queue.h"
#include "ccl/transport/verbs/abi.h"

namespace c4::tap {

namespace abi = verbs::abi;

// Where its packets go and come from, as far as the change to RTR told.
struct Route {
  wire::Endpoint local{};  // port 0: not known
  wire::Endpoint remote{};
  uint32_t peer_number = 0;
  uint32_t flow_label = 0;
};

class ExtendedSends;

// Whose queue pairs are: NCCL's, whose small writes are credits and whose peers the profiler knows, or any
// program's.
enum class Owner : uint8_t { kNccl, kAnyProgram };

class alignas(64) WatchedQueuePair {
 public:
  // One request to send, as the program posts it.
  struct Sent {
    uint64_t id = 0;
    uint64_t bytes = 0;
    int opcode = 0;
    unsigned flags = 0;  // SendFlag
  };
  // What was posted together.
  struct Batch {
    uint64_t requests = 0;
    uint64_t data = 0;  // of these
    uint64_t data_bytes = 0;
    uint64_t credits = 0;
  };
  using PostSend = int (*)(abi::QueuePair*, abi::SendRequest*, abi::SendRequest**);
  using PostReceive = int (*)(abi::QueuePair*, abi::ReceiveRequest*, abi::ReceiveRequest**);

  WatchedQueuePair();
  ~WatchedQueuePair();
  WatchedQueuePair(const WatchedQueuePair&) = delete;
  WatchedQueuePair& operator=(const WatchedQueuePair&) = delete;

  // It takes the place of one that was closed. `capacity`: as the provider gave it.
  void Open(Monitor* monitor, abi::QueuePair* queue_pair, const abi::QpCapacity& capacity, bool signal_all,
            Owner owner);
  // Requests that are still open are over; what the slots hold stays until they are taken again.
  void Close();
  // Another number for each queue pair that it was; odd while it is open.
  uint32_t serial() const { return serial_.load(std::memory_order_acquire); }

  // The user's call, through the provider's own `post`.
  int Send(PostSend post, abi::QueuePair* queue_pair, abi::SendRequest* requests, abi::SendRequest** failed);
  int Receive(PostReceive post, abi::QueuePair* queue_pair, abi::ReceiveRequest* requests,
              abi::ReceiveRequest** failed);
  // Of a queue pair that has functions of its own to post by: before the provider has it, and that it refused
  // it all.
  Batch Posting(const std::vector<Sent>& sent);
  void Refused(const Batch& batch);
  // Before the first post. nullptr: it has none.
  void SetExtended(std::unique_ptr<ExtendedSends> extended);
  ExtendedSends* extended() const { return extended_.get(); }
  // What a post or a completion looks at, into the processor's cache. Without the lock.
  void Prefetch() const {
    __builtin_prefetch(&lock_, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + kLineBytes, 1);
  }
  // The user has polled it.
  void Completed(const abi::Completion& completion, uint64_t ticks);
  void Routed(const Route& route);
  // The device ended it: an errno.
  void Failed(int error);
  // The program is about to change its state, or has.
  void Changed(int state, uint64_t now_ns);
  // For the watchdog: the queue pair, where it is ready to send, nothing of it is known to have failed and it
  // was neither changed nor looked at since so long; then it counts as looked at. nullptr: not now.
  abi::QueuePair* DueForLook(uint64_t now_ns, uint64_t seldom_ns);
  // The program has not asked its device for completions of late: that its requests stand means nothing up to
  // now. `contexts`: the devices of which that holds.
  void Unasked(const std::vector<const void*>& contexts, uint64_t ticks);
  // It was found in the error state. False: that was known, or the program's own doing.
  bool FoundInError(Route* route);

  // Both ways belong to that communicator and peer. The first word counts: false where it was known.
  bool AttributeTo(ObservedCommunicator* communicator, int peer);
  // Without the lock: for who would ask whose it is.
  bool is_attributed() const { return attributed_.load(std::memory_order_relaxed); }

  // Copies, for tests and for whoever looks.
  wire::QueuePairSlot sends();
  wire::QueuePairSlot receives();

 private:
  static constexpr size_t kLineBytes = 64;
  struct Way {
    QueuePairRecorder recorder;
    RequestQueue open;
    uint64_t last_completed_ticks = 0;
  };
  static_assert(sizeof(Way) == 104);
  bool& used(const Way* way) { return way == &sends_ ? sends_used_ : receives_used_; }
  void Add(const Sent& sent, Batch* batch) const;
  Batch BatchOf(const abi::SendRequest* requests) const;
  void Push(const Sent& sent, uint64_t ticks);
  void Count(const Batch& batch, uint64_t ticks);
  // What has been sent, into the histogram.
  void EndBurst();
  // From now on it is used; where it is known whose it is, in a slot of the segment.
  void Use(Way* way);
  void IntoSegment(Way* way);

  // What a post or a completion touches is these two lines of memory: with many queue pairs each line is one
  // more that nobody has near.
  static std::atomic<double> ns_per_tick;  // alike for all
  std::atomic<uint32_t> serial_{0};
  std::atomic<bool> attributed_{false};
  BriefLock lock_;  // all that follows, and the change of attributed_
  bool signal_all_ = false;
  Owner owner_ = Owner::kNccl;
  bool sends_used_ = false;
  bool receives_used_ = false;
  bool has_calls_ = false;  // extended_ is there
  CompletionBurst sent_;    // not in the histogram yet
  Way sends_;
  // From here on what is touched less often, or of those alone that receive.
  alignas(kLineBytes) Way receives_;
  std::unique_ptr<ExtendedSends> extended_;
  Monitor* monitor_ = nullptr;
  const void* context_ = nullptr;
  abi::QueuePair* queue_pair_ = nullptr;
  int state_ = abi::kReset;  // as the program changed it
  uint64_t changed_ns_ = 0;  // or looked at
  uint32_t number_ = 0;
  Route route_;
  ObservedCommunicator* communicator_ = nullptr;
  QueuePairIdentity identity_;
  // Before it is known whose it is.
  wire::QueuePairSlot own_sends_{};
  wire::QueuePairSlot own_receives_{};
};

}  // namespace c4::tap
