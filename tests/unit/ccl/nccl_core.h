// A double of what NCCL's core does with a profiler plugin, for every version of its table: which descriptor
// it fills, in which order it calls, and what it never clears. Written from what its public sources show of
// releases 2.26 to 2.32; no line of NCCL ran here. Any thread, as NCCL: it locks nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "ccl/plugins/profiler/profiler.h"

namespace c4::profiler::test {

struct CollTask {
  const char* func = "AllReduce";
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  int root = 0;  // NCCL gives 0 to functions without one
  const char* datatype = "ncclFloat32";
  uint8_t channels = 1;
  const char* proto = "SIMPLE";
  const char* algo = "RING";
};

struct P2pTask {
  const char* func = "Send";
  void* buff = nullptr;
  size_t count = 0;
  const char* datatype = "ncclFloat32";
  int peer = 0;
  uint8_t channels = 1;
};

// One communicator of NCCL's.
class NcclCore {
 public:
  // 3 to 7.
  static std::unique_ptr<NcclCore> Make(int version);
  virtual ~NcclCore() = default;

  virtual void Init(int rank, int ranks, uint64_t hash) = 0;
  void Finalize();  // as NCCL: only with a context

  void* StartGroup();
  virtual void* StartColl(const CollTask& task, void* group) = 0;
  virtual void* StartP2p(const P2pTask& task, void* group) = 0;
  virtual void* StartKernel(void* task, int channel, uint64_t gpu_ns) = 0;
  virtual void* StartProxyOp(void* task, pid_t pid, int channel, int peer, bool send) = 0;
  virtual void* StartStep(void* op, int step) = 0;
  void* StartProxyCtrl();
  // What comes unasked, since others are asked for: the API's own events.
  virtual void UnaskedEvents() = 0;
  // Of a captured call, from v5 on.
  virtual void CapturedCall(const CollTask& task) = 0;

  // NCCL tells states and stops only of handles that are not null.
  virtual void Record(void* handle, nccl_profiler::State state, uint64_t bytes, uint64_t gpu_ns) = 0;
  void StopKernel(void* kernel, uint64_t gpu_ns);
  void Stop(void* handle);

  int mask() const { return mask_; }
  void* context() const { return context_; }
  int version() const { return version_; }

 protected:
  explicit NcclCore(int version) : version_(version) {}
  virtual void* StartBare(uint64_t type) = 0;
  virtual int CallStop(void* handle) = 0;
  virtual int CallFinalize(void* context) = 0;

  const int version_;
  int rank_ = 0;
  int mask_ = 0x7fffffff;  // a plugin that does not answer gets everything
  void* context_ = nullptr;
};

}  // namespace c4::profiler::test
