// Who a rank is in the layout of the job, and the communicators of the groups that it belongs to: the tensor
// group that shares its layers, the pipeline that it is a stage of, the data group of its counterparts in the
// other replicas. Calls of NCCL wait for their end; each says on standard error what failed and where, and
// returns false.
//
// Groups of one have no communicator; a sum over them does nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ccl/include/nccl.h"
#include "examples/rendezvous.h"

namespace c4::examples::lm {

struct Layout {
  int data = 1;  // replicas
  int pipeline = 1;
  int tensor = 1;

  int size() const { return data * pipeline * tensor; }
};

struct Worker {
  int replica = 0;
  int stage = 0;
  int tensor_rank = 0;
};

// Tensor ranks lie side by side, then stages, then replicas.
Worker WorkerOf(const Layout& layout, int number);
int NumberOf(const Layout& layout, const Worker& worker);

enum class Group { kTensor, kPipeline, kData, kAll };

class Groups {
 public:
  explicit Groups(const World& world) : world_(world) {}
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // All ranks' communicator.
  bool Connect();
  // The others, for this rank as that worker; all ranks call it.
  bool Join(const Layout& layout, const Worker& worker);
  // One more of all ranks, for calls beside the others; the caller's.
  bool Split(const char* name, ncclComm_t* made) const;
  // Gives those of Join back, and then all.
  bool Part();
  bool Disconnect();

  int size(Group group) const;
  bool Sum(float* values, size_t count, Group group) const;
  bool Reduce(uint64_t* values, size_t count, ncclRedOp_t operation, Group group) const;
  // Along the pipeline, both at once; an empty one is left out. `from` has its size already.
  bool Exchange(const std::vector<float>& to, int to_stage, std::vector<float>* from, int from_stage) const;
  // Between ranks of the job, both at once. `from` has its size already.
  bool Swap(const std::vector<float>& to, int to_rank, std::vector<float>* from, int from_rank) const;

 private:
  bool SendAndReceive(const std::vector<float>& to, int to_rank, std::vector<float>* from, int from_rank,
                      Group group) const;
  bool Check(ncclResult_t code, const char* call, ncclComm_t comm) const;
  bool Wait(const char* call, ncclComm_t comm) const;
  bool AllReduce(void* values, size_t count, ncclDataType_t type, ncclRedOp_t operation, Group group) const;
  ncclComm_t Of(Group group) const { return comms_[static_cast<size_t>(group)]; }

  const World world_;
  Layout layout_;
  ncclComm_t comms_[4] = {};  // by group
};

}  // namespace c4::examples::lm
