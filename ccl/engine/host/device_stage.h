// Where the host engine works on buffers that are memory of a GPU: pinned memory of the host, into which they
// are copied before operations run, and out of which goes back what was written. So ranks whose buffers are
// of unlike kinds meet in one operation: none of them knows of the others'.
//
// A copy comes behind all that was enqueued before it on CUDA's streams that block (the null stream is one),
// and takes the memory's own device. Managed memory and memory of the host that CUDA knows are used in place.
//
// CUDA's driver is used where the process has loaded it; it is looked for with the first operations, and then
// once a second. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ccl/base/cuda_driver.h"
#include "ccl/engine/engine.h"

namespace c4::host {

class DeviceStage {
 public:
  explicit DeviceStage(size_t most_bytes) : most_bytes_(most_bytes) {}
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;
  ~DeviceStage();

  // Runs `run`, which does these operations together. Meanwhile their buffers that are in GPU memory are
  // others, which what `run` wrote goes back from where it succeeded.
  template <typename Run>
  Result Around(Operation* operations, size_t count, int rank, int rank_count, const Run& run) {
    if (!IsNeeded()) return run();
    C4_RETURN_IF_ERROR(Enter(operations, count, rank, rank_count));
    C4_RETURN_IF_ERROR(run());
    return Move(written_, false);
  }

 private:
  // A stretch of GPU memory, and what stands in for it.
  struct Stretch {
    uint64_t at = 0;
    size_t bytes = 0;
    int device = 0;
    size_t offset = 0;  // in the pinned memory
  };

  // Whether buffers may be memory of a GPU at all.
  bool IsNeeded();
  Result Enter(Operation* operations, size_t count, int rank, int rank_count);
  // Whether it is memory of a GPU, and of which.
  bool IsOfDevice(const void* pointer, int* device) const;
  // Places for the operation's buffers behind the first `used` bytes; returns the bytes used then.
  size_t Place(const Operation& operation, int rank, int rank_count, size_t used);
  Result MakeRoom(size_t bytes);
  Result Move(const std::vector<Stretch>& stretches, bool to_host);
  Result ContextOf(int device, CudaContext* context);

  const size_t most_bytes_;
  CudaDriver driver_;
  bool found_ = false;
  uint64_t look_ns_ = 0;
  std::map<int, CudaContext> contexts_;  // by device; those that programs use, and never given back
  char* pinned_ = nullptr;
  size_t pinned_bytes_ = 0;
  std::vector<Stretch> read_;
  std::vector<Stretch> written_;
};

}  // namespace c4::host
