// The calls of cuda_runtime.h beside it. C and C++ compilers take it.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "c4/stream.h"
#include "cuda_runtime.h"

#define MAX_DEVICES 1024
#define DEFAULT_DEVICES 2
#define ALIGNMENT 256

// The streams of all devices, for what waits for those of one.
typedef struct Stream {
  cudaStream_t handle;
  int device;
  struct Stream* next;
} Stream;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Stream* streams = NULL;  // under the mutex
static __thread int current_device = 0;
static __thread cudaError_t last_error = cudaSuccess;

static cudaError_t Said(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

static cudaError_t OfNccl(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return cudaSuccess;
    case ncclInProgress:
      return cudaErrorNotReady;
    case ncclInvalidArgument:
      return Said(cudaErrorInvalidResourceHandle);
    default:
      return Said(cudaErrorUnknown);
  }
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "an argument makes no sense";
    case cudaErrorMemoryAllocation:
      return "the host has no memory left";
    case cudaErrorInvalidDevice:
      return "there is no such device; HOST_CUDA_DEVICES says how many there are";
    case cudaErrorInvalidResourceHandle:
      return "that is no stream or event";
    case cudaErrorNotReady:
      return "not over yet";
    default:
      return "a collective in the stream failed; ncclGetLastError says why";
  }
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}

static int Devices(void) {
  const char* const text = getenv("HOST_CUDA_DEVICES");
  char* end = NULL;
  long count = 0;
  if (text == NULL || text[0] == '\0') return DEFAULT_DEVICES;
  count = strtol(text, &end, 10);
  return *end != '\0' || count < 0 || count > MAX_DEVICES ? -1 : (int)count;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == NULL) return Said(cudaErrorInvalidValue);
  *count = Devices();
  if (*count >= 0) return cudaSuccess;
  *count = 0;
  return Said(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  if (properties == NULL) return Said(cudaErrorInvalidValue);
  if (device < 0 || device >= Devices()) return Said(cudaErrorInvalidDevice);
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "host memory");
  properties->totalGlobalMem = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  properties->multiProcessorCount = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Devices()) return Said(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (device == NULL) return Said(cudaErrorInvalidValue);
  *device = current_device;
  return cudaSuccess;
}

// Waiting is done outside the mutex: another thread's stream may need this process to go on.
cudaError_t cudaDeviceSynchronize(void) {
  cudaStream_t* waited = NULL;
  size_t count = 0;
  size_t i = 0;
  Stream* stream = NULL;
  cudaError_t error = OfNccl(c4StreamSynchronize(NULL));
  pthread_mutex_lock(&mutex);
  for (stream = streams; stream != NULL; stream = stream->next) count += stream->device == current_device;
  if (count > 0) waited = (cudaStream_t*)malloc(count * sizeof *waited);
  if (waited != NULL) {
    for (stream = streams; stream != NULL; stream = stream->next) {
      if (stream->device == current_device) waited[i++] = stream->handle;
    }
  }
  pthread_mutex_unlock(&mutex);
  if (count > 0 && waited == NULL) return Said(cudaErrorMemoryAllocation);
  for (i = 0; i < count; ++i) {
    const cudaError_t failed = OfNccl(c4StreamSynchronize(waited[i]));
    if (error == cudaSuccess) error = failed;
  }
  free(waited);
  return error;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (memory == NULL) return Said(cudaErrorInvalidValue);
  *memory = NULL;
  if (bytes == 0) return cudaSuccess;
  return posix_memalign(memory, ALIGNMENT, bytes) == 0 ? cudaSuccess : Said(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  const cudaError_t error = memory == NULL ? cudaSuccess : cudaDeviceSynchronize();
  free(memory);
  return error;
}

static cudaError_t CheckCopy(const void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  if (bytes > 0 && (to == NULL || from == NULL)) return Said(cudaErrorInvalidValue);
  return kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault ? Said(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  cudaError_t error = CheckCopy(to, from, bytes, kind);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess && bytes > 0) memmove(to, from, bytes);
  return error;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  cudaError_t error = CheckCopy(to, from, bytes, kind);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess && bytes > 0) memmove(to, from, bytes);
  return error;
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  cudaError_t error = bytes > 0 && memory == NULL ? Said(cudaErrorInvalidValue) : cudaDeviceSynchronize();
  if (error == cudaSuccess && bytes > 0) memset(memory, value, bytes);
  return error;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  cudaError_t error =
      bytes > 0 && memory == NULL ? Said(cudaErrorInvalidValue) : cudaStreamSynchronize(stream);
  if (error == cudaSuccess && bytes > 0) memset(memory, value, bytes);
  return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  Stream* made = NULL;
  cudaError_t error = cudaSuccess;
  if (stream == NULL || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) {
    return Said(cudaErrorInvalidValue);
  }
  made = (Stream*)malloc(sizeof *made);
  if (made == NULL) return Said(cudaErrorMemoryAllocation);
  error = OfNccl(c4StreamCreate(stream));
  if (error != cudaSuccess) {
    free(made);
    return error;
  }
  made->handle = *stream;
  made->device = current_device;
  pthread_mutex_lock(&mutex);
  made->next = streams;
  streams = made;
  pthread_mutex_unlock(&mutex);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Stream** place = NULL;
  Stream* found = NULL;
  pthread_mutex_lock(&mutex);
  for (place = &streams; *place != NULL; place = &(*place)->next) {
    if ((*place)->handle != stream) continue;
    found = *place;
    *place = found->next;
    break;
  }
  pthread_mutex_unlock(&mutex);
  if (found == NULL) return Said(cudaErrorInvalidResourceHandle);
  free(found);
  return OfNccl(c4StreamDestroy(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return OfNccl(c4StreamSynchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return OfNccl(c4StreamQuery(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (flags != 0) return Said(cudaErrorInvalidValue);
  return OfNccl(c4StreamWaitEvent(stream, (c4Event_t)(void*)event));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  c4Event_t made = NULL;
  cudaError_t error = cudaSuccess;
  if (event == NULL || (flags & ~(unsigned int)cudaEventDisableTiming) != 0) {
    return Said(cudaErrorInvalidValue);
  }
  error = OfNccl(c4EventCreate(&made));
  *event = (cudaEvent_t)(void*)made;
  return error;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return OfNccl(c4EventRecord((c4Event_t)(void*)event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return OfNccl(c4EventSynchronize((c4Event_t)(void*)event));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return OfNccl(c4EventQuery((c4Event_t)(void*)event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return OfNccl(c4EventDestroy((c4Event_t)(void*)event));
}
