// As much of CUDA's runtime as programs need that call NCCL and run no kernels, on host memory: with this
// folder before CUDA's own, such a program compiles unchanged and runs over C4's host engine, without a GPU.
//
//   cc -I examples/host_cuda -I ccl/include program.c examples/host_cuda/host_cuda.c -L build/lib -lnccl
//
// Devices are numbers: there are HOST_CUDA_DEVICES of them (2 where it is not set, at most 1024), all with
// the host's memory. Streams and events are those of c4/stream.h. What CUDA enqueues (cudaMemcpyAsync,
// cudaMemsetAsync) is done at once, after what the stream holds. cudaMemcpy, cudaMemset, cudaFree and
// cudaDeviceSynchronize wait for all streams of the current device first.
//
// Any thread may call anything at any time; the current device is the thread's. Errors are CUDA's codes; one
// that an operation of NCCL's left in a stream comes out of the next call that waits for that stream.
// A call that is not here is no oversight: it does not compile, rather than do nothing.
#ifndef C4_HOST_CUDA_RUNTIME_H_
#define C4_HOST_CUDA_RUNTIME_H_

#include <stddef.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorUnknown = 999
} cudaError_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventDisableTiming 0x02

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;  // in bytes: the host's memory
  int major;              // 0: no compute capability
  int minor;
  int multiProcessorCount;
};
#ifndef __cplusplus
typedef struct cudaDeviceProp cudaDeviceProp;
#endif

typedef struct CUevent_st* cudaEvent_t;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
// The last error of this thread; the first forgets it.
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceSynchronize(void);

// 0 bytes give a null pointer.
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);

// They take no times: cudaEventElapsedTime is not here.
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);

#ifdef __cplusplus
}  // extern "C"

// As in CUDA's C++: cudaMalloc(&values, bytes) for a pointer of any type.
template <typename T>
static inline cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc((void**)(void*)memory, bytes);
}
#endif

#endif  // C4_HOST_CUDA_RUNTIME_H_
