// One communicator of NCCL's as its profiler tells of it: its operations under way, their kernels and what is
// known of its GPU's timer. All methods but Open want the context's lock held, and none of them blocks.
// Kept for good once made, and used again by later communicators; the serials of operations go on, so that
// what belonged to an earlier communicator is found to be over.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ccl/plugins/profiler/events.h"

namespace c4::profiler {

// The call that an event belongs to: its own, or one that it is part of.
struct Matched {
  ObservedCall call;
  uint64_t number = 0;
  uint64_t called_ticks = 0;
  bool composite = false;
  bool replay = false;  // of a graph: it was asked for earlier than it was called
};

class Context {
 public:
  static constexpr uint32_t kOperations = 1024;    // under way at a time; a power of two
  static constexpr uint32_t kCaptured = 256;       // kinds of collectives in graphs
  static constexpr uint32_t kOpenComposites = 16;  // likewise

  struct Operation {
    uint32_t serial = 0;
    uint32_t group = 0;   // 0: not said
    uint64_t number = 0;  // of the call
    uint64_t called_ticks = 0;
    uint64_t started_ticks = 0;  // as told last; 0: no kernel has been seen to begin
    uint64_t first_gpu_ns = 0;   // over all channels
    uint64_t last_gpu_ns = 0;
    uint64_t last_ticks = 0;  // when its latest stop was heard of
    uint32_t channels = 0;    // promised; 0: nothing was
    uint32_t starts = 0;
    uint32_t stops = 0;
    uint32_t parts_missing = 0;  // of a composite call
    uint8_t function = wire::kFunctionNone;
    bool open = false;
    bool enqueued = false;
    bool arrivals_tell = true;
    bool replay = false;
  };

  Context(uint16_t place, uint64_t ticks_per_second);

  void Open(const ContextIdentity& identity);
  void Close();

  // nullptr: it is over.
  Operation* Find(uint32_t serial);
  // The events of operations belong to this communicator of ours.
  void Bind(ObservedCommunicator* bound);
  // A new one. The oldest, if it is still open after so many, counts as overtaken.
  Operation* Add(const OperationEvent& event, uint32_t group, const Matched& matched);
  // The composite call that this event is a part of, with parts to come; or (`complete`) that had all of them
  // and is of this group: its rank's part with itself. nullptr: none.
  Operation* Join(const OperationEvent& event, uint32_t group, bool complete);

  // Collectives that graphs were captured from.
  void KeepCaptured(const ObservedCall& call);
  const ObservedCall* Captured(const ObservedCall& call) const;

  void Began(Operation* operation, uint64_t gpu_ns, uint64_t ticks);
  void Ended(Operation* operation, uint64_t gpu_ns, uint64_t ticks);
  void Enqueued(Operation* operation, uint64_t ticks);
  // The progress thread has nothing left to poll.
  void Asleep(uint64_t ticks);
  Steps::KernelStart KernelOf(uint32_t serial);
  uint32_t told_error_ns() const { return told_error_ns_; }

  BriefLock lock;
  const uint16_t place;
  uint32_t serial = 0;  // of its present use
  bool live = false;
  uint32_t groups = 0;
  ContextIdentity identity;
  std::atomic<ObservedCommunicator*> communicator{nullptr};
  uint32_t misses = 0;  // operations in a row that were nobody's
  Steps steps;
  Counts counts;

 private:
  struct Composite {
    ObservedCall call;
    uint32_t serial = 0;
  };

  int RankOf(const OperationEvent& event) const;
  uint64_t Ticks(uint64_t gpu_ns, uint64_t heard) const;
  bool Complete(const Operation& operation) const;
  void Finish(Operation* operation, uint64_t ticks);
  void FinishEarlierGroups(const Operation& than, uint64_t ticks);
  void FinishUnpromised(const Operation& behind, uint64_t ticks);
  void Forget();

  const uint64_t ticks_per_second_;
  std::unique_ptr<std::array<Operation, kOperations>> operations_;
  std::array<Composite, kOpenComposites> composites_{};
  uint32_t next_composite_ = 0;
  std::unique_ptr<std::array<ObservedCall, kCaptured>> captured_;
  uint32_t captured_count_ = 0;
  uint32_t next_ = 1;    // serial of the next operation
  uint32_t oldest_ = 1;  // none before it is open
  GpuClock clock_;
  bool kernels_seen_ = false;
  uint32_t told_error_ns_ = UINT32_MAX;
};

}  // namespace c4::profiler
