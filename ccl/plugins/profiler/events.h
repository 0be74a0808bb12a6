// What NCCL's events say, whatever the version that they come in: which call an operation belongs to, when
// its kernel began and ended, and what its network steps waited for. Made for ccl/monitor/observed.h.
//
// Matching: an operation belongs to the oldest open call of the same contents. The first one that is matched
// binds NCCL's communicator (a context here) to ours for good; when many operations in a row are nobody's,
// the binding is looked at again.
//
// AlltoAll, Gather and Scatter (NCCL 2.28) reach us as sends and receives. The first of these that belongs to
// such a call opens it, the others join by their buffers. It is told finished when as many parts have come as
// the call has peers (a rank's part with itself may come or not) and all channels of all parts have ended.
//
// CUDA graphs: a captured call runs at no time of its own, and its operation comes at every launch of the
// graph. From v5 on NCCL says that a collective was captured: the call is then counted as done, and each
// later operation of its contents that no call is open for counts as a call of its own, made when it comes.
// Earlier versions, sends and receives: the first launch is met with the call, later ones are nobody's.
//
// Ends: an operation has ended when as many channels have stopped as its descriptor promised. Stops can be
// missing (a stop seen before its start), promises can be wrong, v3 makes none. So an operation is over too
//  - when one of a later group has ended, since NCCL runs the kernels of a communicator one after the other;
//  - when the progress thread goes to sleep with it begun: it has nothing left to poll (up to v6).
//
// Threads: any. A context is locked for tens of nanoseconds an event. Everything is made when a context is:
// a full pool drops events and counts them. What does not belong (of a forked child, of another process, of
// a communicator that is gone, without a parent) is dropped. Nothing here can fail.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ccl/monitor/gpu_clock.h"
#include "ccl/monitor/observed.h"
#include "ccl/plugins/profiler/handle.h"
#include "ccl/plugins/profiler/steps.h"

namespace c4::profiler {

struct ContextIdentity {
  std::string name;
  uint64_t hash = 0;       // NCCL's own, 0 where it tells none
  int rank = -1;           // -1: operations tell
  int rank_count = 0;      // 0: unknown
  bool gpu_times = false;  // kernel events carry the GPU's timer; else when we hear of them is all there is
};

struct OperationEvent {
  ObservedCall call;  // send: send_buffer; receive: recv_buffer
  int rank = -1;
  uint32_t channels = 0;      // kernel events to come; 0: not said
  void* group = nullptr;      // of the same kernel
  bool arrivals_tell = true;  // receives complete when the data are there (not so with the LL protocols)
};

struct Counts {
  uint64_t operations = 0;  // matched
  uint64_t unmatched = 0;   // no call of the program's was found
  uint64_t replayed = 0;    // of captured graphs
  uint64_t overtaken = 0;   // ended by what came behind it, or by the progress thread's sleep
  uint64_t dropped = 0;     // for want of a place
  uint64_t late = 0;        // of operations that are over, of communicators that are gone
  uint64_t foreign = 0;     // another process's (PXN)
};

class Context;
struct Matched;

class Events {
 public:
  // `all` outlives this. `ticks_per_second` is the local clock's.
  Events(ObservedCommunicators* all, uint64_t ticks_per_second);
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events();

  // nullptr: no place is left, and nothing will be seen of this communicator.
  void* Open(const ContextIdentity& identity);
  Counts Close(void* context);

  // Starts give a handle, or nullptr for an event that is of no interest. `ticks` is now.
  void* Group(void* context);
  void* Operation(void* context, const OperationEvent& event, uint64_t ticks);
  void* Kernel(void* operation, int channel, uint64_t gpu_ns, uint64_t ticks);
  void* ProxyOp(void* operation, const ProxyOpEvent& event);
  void* Step(void* proxy_op, int step);
  void* Progress(void* context);

  // A collective was called on a stream that a graph is captured from. Its buffers are not told.
  void Captured(void* context, const ObservedCall& call, uint64_t ticks);

  void KernelEnded(void* kernel, uint64_t gpu_ns, uint64_t ticks);
  void StepState(void* step, StepChange change, uint64_t bytes, uint64_t ticks);
  void Asleep(void* progress, uint64_t ticks);
  // Of whatever kind but a kernel: that has its own.
  void Stop(void* handle, uint64_t ticks);
  // Whether the stop of this handle says anything.
  bool StopTells(void* handle) const {
    const Kind kind = Decode(handle).kind;
    return kind == Kind::kOperation || kind == Kind::kProxyOp || kind == Kind::kStep;
  }

  Counts counts(void* context);

 private:
  // What the look-up of a call wants to know of the event's context.
  struct Place {
    int rank;
    int rank_count;
    uint32_t misses;
    uint32_t group;
    uint16_t context;
  };

  Context* Locked(const Handle& handle);
  bool Match(const ObservedCall& call, const Place& place, ObservedCommunicator** communicator,
             Matched* matched) const;
  static bool Replay(const OperationEvent& event, const Place& place, const ObservedCall& captured,
                     ObservedCommunicator* communicator, uint64_t ticks, Matched* matched);
  void* Encode(Kind kind, const Context& context, uint32_t serial, uint16_t detail) const;
  Handle Decode(void* handle) const { return Handle::Decode(handle, salt_); }
  bool Elsewhere() const;
  bool BoundElsewhere(const ObservedCommunicator* communicator, uint16_t place) const;

  ObservedCommunicators* const all_;
  const uint64_t ticks_per_second_;
  const uint32_t salt_;
  const uint64_t forks_;
  const int64_t pid_;
  std::mutex mutex_;  // of what opens and closes contexts
  std::array<std::atomic<Context*>, Handle::kContexts> contexts_{};
  std::vector<Context*> free_;
  uint32_t made_ = 0;
};

}  // namespace c4::profiler
