// Communicators of an engine that is not ours, as far as we see them. The front door says what the program
// calls, the profiler plugin what the vendor's library does with it; here both become the records that the
// host engine writes (wire/segment.h), so that nobody behind them need know which engine it was.
//
// A call gets its number when it is made, from 1: collectives and point-to-point are numbered apart, as in
// the segment. NCCL's events name no calls: an event belongs to the oldest call of its communicator that none
// was matched with and that has the same function, count, type, root or peer, and buffers. NCCL sorts the
// operations of a group, so order alone does not tell.
//
// Any thread. A communicator is locked for tens of nanoseconds a call; the table that finds them is read
// without a lock.
#pragma once

#include <atomic>
#include <cstdint>

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

class ObservedCommunicator {
 public:
  // What is kept of calls that no event was matched with, or that have not finished: the newest of each kind.
  static constexpr uint32_t kKept = 256;

  explicit ObservedCommunicator(const CommunicatorIdentity& identity);
  ObservedCommunicator(const ObservedCommunicator&) = delete;
  ObservedCommunicator& operator=(const ObservedCommunicator&) = delete;

  const CommunicatorIdentity& identity() const { return identity_; }

  // The front door. Gives the call's number.
  uint64_t Called(const ObservedCall& call, uint64_t ticks);
  // The vendor's library has taken it: the call, or the group that it was made in, has returned.
  void Enqueued(uint8_t function, uint64_t stream, uint64_t ticks);
  void Ready();
  void Close(wire::SlotPhase phase);

  // The profiler. 0: no such call is open, the event is nobody's. `call.stream` and the reduction do not
  // count, and neither do buffers that are null.
  uint64_t Match(const ObservedCall& call);
  // Whether Match would find one.
  bool Knows(const ObservedCall& call);
  // Of a matched call: when its kernel began and ended, in ticks of ccl/base/clock.h. Calls of one kind may
  // finish in any order; the counters tell of those that nothing before them is missing of.
  void Started(uint8_t function, uint64_t number, uint64_t ticks);
  void Finished(uint8_t function, uint64_t number, uint64_t ticks);
};

class ObservedCommunicators {
 public:
  // The process's own; never destroyed.
  static ObservedCommunicators& Get();

  // `handle` is the vendor's pointer. The newest takes the place of one of the same handle.
  ObservedCommunicator* Add(const void* handle, const CommunicatorIdentity& identity);
  // nullptr: none of ours. Without a lock.
  ObservedCommunicator* Find(const void* handle) const;
  // Out of the table, to be done before the vendor frees the handle. What was given out stays valid: entries
  // are used again only by communicators made later.
  void Remove(const void* handle, wire::SlotPhase phase);

  // The first communicator that knows this call and has this rank (and this number of ranks, where that is
  // not 0), oldest call first; nullptr: none. For a profiler that sees a communicator for the first time.
  ObservedCommunicator* Owner(int rank, int rank_count, const ObservedCall& call);
};

}  // namespace c4
