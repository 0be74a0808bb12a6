// What an engine offers to the API layer: communicators that operations are enqueued on.
//
// `host` does collectives on host memory; `vendor` (the unmodified NVIDIA library) joins it later. The
// API layer checks arguments and groups calls; an engine trusts what it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ccl/base/result.h"
#include "wire/segment.h"

namespace c4 {

// One call, as the user made it. Buffers belong to the user and stay valid until the stream has passed
// the operation, as in NCCL.
struct Operation {
  wire::Function function = wire::kFunctionNone;
  const void* send_buffer = nullptr;
  void* recv_buffer = nullptr;
  size_t count = 0;  // elements, as given to the call
  ncclDataType_t data_type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = -1;  // root or peer; -1 where there is none
  cudaStream_t stream = nullptr;
  uint64_t called_ticks = 0;  // when the user called, as RecordCall gave it
};

// One rank's end of a communicator. Enqueue may be called by one thread at a time, Abort and AsyncError
// by any thread at any time. Destruction waits for nothing: Finalize or Abort come first.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  // The same on all its ranks, and another for every other communicator.
  virtual uint64_t id() const = 0;
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;

  // Counts and records the user's call, once an operation and before it is enqueued; gives the stamp that
  // goes into Operation::called_ticks.
  virtual uint64_t RecordCall(const Operation& operation) = 0;
  // Says whether this engine can do the operation, without doing it.
  virtual Result Supports(const Operation& operation) const = 0;
  // The operations of one call, or of one group of calls. Returns at once; they run in stream order: the
  // collectives of a group in their order, and then its sends and receives, all together. So ranks that put
  // the same operations into a group, each in an order of its own, do not wait for each other for ever.
  virtual Result Enqueue(const Operation* operations, size_t count) = 0;
  // Waits for all that was enqueued, then tells the peers that this end leaves in order.
  virtual Result Finalize() = 0;
  // Ends everything at once; what is under way fails. Never waits for a peer.
  virtual void Abort() = 0;
  // The error that an operation met after its call returned; Ok while there is none.
  virtual Result AsyncError() const = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual Result GetUniqueId(ncclUniqueId* id) = 0;
  // Blocks until all ranks have joined.
  virtual Result InitRank(int rank_count, const ncclUniqueId& id, int rank, const char* name,
                          std::unique_ptr<Communicator>* communicator) = 0;
};

// The engine that serves communicators made from `id` (nullptr: the one that makes new ids). Chosen by
// C4_ENGINE and by what the id says of itself; fails with a sentence when that engine is not there.
Result ChooseEngine(const ncclUniqueId* id, Engine** engine);

}  // namespace c4
