// What an engine offers to the API layer: communicators that operations are enqueued on.
//
// `host` does collectives on host memory. `vendor` (the unmodified NVIDIA library) is none of these: its
// communicators stay the vendor's own, and the API layer hands calls on them over (ccl/engine/vendor/). The
// API layer checks arguments and groups calls; an engine trusts what it is given.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  ncclRedOp_t reduction = ncclSum;  // one of NCCL's own, ncclAvg among them
  // An operator that the program made: `reduction` is ncclSum, of values that this rank first multiplies by
  // `factor`, which is one element of `data_type`, as it was when the operation was called.
  bool scales = false;
  alignas(8) unsigned char factor[8] = {};
  int root = -1;  // root or peer; -1 where there is none
  cudaStream_t stream = nullptr;
  uint64_t called_ticks = 0;  // when the user called, as RecordCall gave it
};

// How a rank joins a new communicator.
struct InitRequest {
  int rank_count = 0;
  ncclUniqueId id{};
  int rank = 0;
  std::string name;  // for people; may be empty
  // Of a communicator that was split off another; its id is then ChildCommunicatorId (ccl/base/identity.h)
  // of these three, equal on all its ranks. 0: it has no parent.
  uint64_t parent_id = 0;
  uint64_t split_number = 0;  // splits of the parent before this one
  int colour = 0;
  // Another thread sets it to end the joining: InitRank then fails soon. nullptr: nobody will.
  const std::atomic<bool>* cancelled = nullptr;
};

// One rank's end of a communicator. One thread at a time calls Supports, RecordCall and Enqueue, and one
// GatherRecords; any thread may call Revoke, Abort and AsyncError at any time. Destruction waits for nothing:
// Finalize or Abort come first.
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
  // A call that was recorded and will never be enqueued: it counts no more.
  virtual void TakeBackCall(const Operation& operation) = 0;
  // Says whether this engine can do the operation, without doing it.
  virtual Result Supports(const Operation& operation) const = 0;
  // The operations of one call, or of one group of calls. Returns at once; they run in stream order: the
  // collectives of a group in their order, and then its sends and receives, all together. So ranks that put
  // the same operations into a group, each in an order of its own, do not wait for each other for ever.
  virtual Result Enqueue(const Operation* operations, size_t count) = 0;
  // All-gather of small records (at most 4096 bytes each) beside the operations, for set-up: blocks until
  // every rank has called it, in the same order on all; `all` has room for one record a rank, by rank. Where
  // ranks are lost, abort or give records of other sizes, it fails on all that take part. One at a time.
  virtual Result GatherRecords(const void* mine, size_t bytes, void* all) = 0;
  // The same among `ranks` only, which ascend and of which this is one; works also when the communicator has
  // been revoked. `cancelled` as in InitRequest.
  virtual Result GatherRecordsAmong(const std::vector<int>& ranks, const void* mine, size_t bytes, void* all,
                                    const std::atomic<bool>* cancelled) = 0;
  // Ends the operations under way, also where they have failed already. Nothing can be enqueued from now on;
  // GatherRecordsAmong and Abort are what is left. Never waits for a peer.
  virtual void Revoke() = 0;
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
  // The same for a communicator whose ranks hear of the id by other ways than NCCL_COMM_ID: children, and
  // ranks of one process. Never twice the same.
  virtual Result GetPrivateId(ncclUniqueId* id) = 0;
  // An id that nobody will join with: what waits for the ranks ends. No effect where nothing waits.
  virtual void ForgetId(const ncclUniqueId& id) = 0;
  // Blocks until all ranks have joined, or the request is cancelled.
  virtual Result InitRank(const InitRequest& request, std::unique_ptr<Communicator>* communicator) = 0;
};

// The engine that serves communicators made from `id` (nullptr: the one that makes new ids). Chosen by
// C4_ENGINE and by what the id says of itself; fails with a sentence when that engine is not there.
Result ChooseEngine(const ncclUniqueId* id, Engine** engine);

}  // namespace c4
