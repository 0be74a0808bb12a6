// A profiler plugin that is not ours, of any version from 1 to 7 of NCCL's interface, behind calls that take
// events of any version that NCCL tells us of. Which of its versions it is spoken to in is settled as NCCL
// would settle it: the newest that both know.
//
// Any thread; nothing is locked while it is called. Its answers are kept from NCCL but for what they say of
// its own handles: a profiler that fails does not fail the job. The library stays loaded.
#pragma once

#include <memory>
#include <string>

#include "ccl/plugins/profiler/translate.h"

namespace c4::profiler {

// What NCCL tells of a communicator at init; v3 tells nothing.
struct InitCall {
  uint64_t hash = 0;
  const char* name = nullptr;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  nccl_profiler::Logger log = nullptr;
};

class Foreign {
 public:
  // As NCCL finds it: `library` is a path, a name of the loader's, the NAME of libnccl-profiler-NAME.so, or
  // STATIC_PLUGIN. `newest`: the version by which NCCL speaks to us. nullptr: *fault says why, as the end of
  // a sentence; empty where nobody asked for one that is not there.
  static std::unique_ptr<Foreign> Open(const std::string& library, int newest, std::string* fault);

  Foreign() = default;
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  virtual ~Foreign() = default;

  virtual const char* name() const = 0;
  virtual int version() const = 0;

  // ncclResult_t. The mask stays where it is for as long as the process lives.
  virtual int Init(void** context, int* mask, const InitCall& call) = 0;
  // nullptr: it has none.
  virtual void* Start(void* context, const nccl_profiler::DescriptorV3& d, const EventSource& source,
                      const Parents& parents) = 0;
  virtual void* Start(void* context, const nccl_profiler::DescriptorV4& d, const EventSource& source,
                      const Parents& parents) = 0;
  virtual void* Start(void* context, const nccl_profiler::DescriptorV5& d, const EventSource& source,
                      const Parents& parents) = 0;
  virtual void* Start(void* context, const nccl_profiler::DescriptorV6& d, const EventSource& source,
                      const Parents& parents) = 0;
  virtual void* Start(void* context, const nccl_profiler::DescriptorV7& d, const EventSource& source,
                      const Parents& parents) = 0;
  virtual void Stop(void* handle) = 0;
  virtual void Record(void* handle, nccl_profiler::State state, nccl_profiler::StateArgsV3* args) = 0;
  virtual void Record(void* handle, nccl_profiler::State state, nccl_profiler::StateArgsV4* args) = 0;
  virtual void Finalize(void* context) = 0;
};

}  // namespace c4::profiler
