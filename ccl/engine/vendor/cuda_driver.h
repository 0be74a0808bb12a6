// The functions of the CUDA driver that stamps need (ccl/engine/vendor/stamps.h), in declarations of our own.
// The driver is used where the process has loaded it already, and only then: nothing here loads it, and
// nothing calls cuInit, which would break a fork that comes later. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ccl/base/result.h"

namespace c4::vendor {

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
  CudaStatus (*error_name)(CudaStatus status, const char** name) = nullptr;

  const char* NameOf(CudaStatus status) const;  // "CUDA_ERROR_INVALID_PTX"
};

// The sentence of a failure says what is missing.
Result FindCudaDriver(CudaDriver* driver);

}  // namespace c4::vendor
