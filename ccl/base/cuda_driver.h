// The functions of the CUDA driver that stamps (ccl/engine/vendor/stamps.h) and the host engine's stage for
// GPU memory (ccl/engine/host/device_stage.h) need, in declarations of our own. The driver is used where the
// process has loaded it already, and only then: nothing here loads it, and nothing calls cuInit, which would
// break a fork that comes later. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ccl/base/result.h"

namespace c4 {

using CudaStatus = int;  // 0: success
using CudaContext = void*;
using CudaStream = void*;

inline constexpr CudaStatus kCudaNotReady = 600;
// What a capture may refuse; it concerns that stream only.
inline constexpr CudaStatus kCudaFirstCaptureFault = 900;
inline constexpr CudaStatus kCudaLastCaptureFault = 909;

inline constexpr unsigned kCudaHostPortable = 1;
inline constexpr unsigned kCudaHostMapped = 2;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr int kCudaCaptureModeRelaxed = 2;
inline constexpr int kCudaCaptureNone = 0;
inline constexpr int kCudaCaptureActive = 1;
// Attributes of a pointer, and what the first of them says of device memory.
inline constexpr int kCudaMemoryType = 2;
inline constexpr int kCudaIsManaged = 8;
inline constexpr int kCudaDeviceOrdinal = 9;
inline constexpr unsigned kCudaMemoryOfDevice = 2;

struct CudaDriver {
  CudaStatus (*device_get)(int* device, int ordinal) = nullptr;
  CudaStatus (*retain_context)(CudaContext* context, int device) = nullptr;
  CudaStatus (*push_context)(CudaContext context) = nullptr;
  CudaStatus (*pop_context)(CudaContext* context) = nullptr;
  CudaStatus (*load_module)(void** module, const void* text) = nullptr;
  CudaStatus (*get_function)(void** function, void* module, const char* name) = nullptr;
  CudaStatus (*register_host)(void* data, size_t bytes, unsigned flags) = nullptr;
  CudaStatus (*device_pointer)(uint64_t* pointer, void* data, unsigned flags) = nullptr;
  CudaStatus (*create_stream)(CudaStream* stream, unsigned flags) = nullptr;
  CudaStatus (*query_stream)(CudaStream stream) = nullptr;
  CudaStatus (*destroy_stream)(CudaStream stream) = nullptr;
  CudaStatus (*is_capturing)(CudaStream stream, int* status) = nullptr;
  CudaStatus (*exchange_capture_mode)(int* mode) = nullptr;
  CudaStatus (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                              CudaStream stream, void** arguments, void** extra) = nullptr;
  // Of memory that is not CUDA's it says nothing and succeeds.
  CudaStatus (*pointer_attributes)(unsigned count, int* attributes, void** values,
                                   uint64_t pointer) = nullptr;
  CudaStatus (*allocate_host)(void** data, size_t bytes, unsigned flags) = nullptr;
  CudaStatus (*free_host)(void* data) = nullptr;
  // Return when it is done, which is after all that was enqueued before on streams that block.
  CudaStatus (*copy_to_host)(void* to, uint64_t from, size_t bytes) = nullptr;
  CudaStatus (*copy_to_device)(uint64_t to, const void* from, size_t bytes) = nullptr;
  CudaStatus (*error_name)(CudaStatus status, const char** name) = nullptr;

  const char* NameOf(CudaStatus status) const;  // "CUDA_ERROR_INVALID_PTX"
};

// The sentence of a failure says what is missing.
Result FindCudaDriver(CudaDriver* driver);

// The sentence for a call that failed.
Result CudaRefused(const CudaDriver& driver, const char* call, CudaStatus status);

// For as long as it lives, what the thread does concerns no capture of a graph, wherever one is under way.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const CudaDriver& driver) : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  ~OutsideCaptures() { driver_.exchange_capture_mode(&mode_); }

 private:
  const CudaDriver& driver_;
  int mode_ = kCudaCaptureModeRelaxed;
};

// The thread's context for as long as it lives; afterwards the one before.
class InContext {
 public:
  InContext(const CudaDriver& driver, CudaContext context)
      : driver_(driver), status_(driver.push_context(context)) {}
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    CudaContext ignored = nullptr;
    if (status_ == 0) driver_.pop_context(&ignored);
  }
  CudaStatus status() const { return status_; }

 private:
  const CudaDriver& driver_;
  const CudaStatus status_;
};

}  // namespace c4
