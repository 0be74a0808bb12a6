#include "tests/double/fake_cuda.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "tests/double/fake_ptx.h"

namespace {

using c4::fake_cuda::Kernel;
using c4::fake_cuda::Machine;

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kInvalidPtx = 218;
constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr uint64_t kDeviceOffset = 0x7000'0000'0000;  // host memory as the device sees it
constexpr double kTimerRate = 1.00002;
constexpr uint64_t kTimerStart = 1'700'000'000'000'000'000;

int context_object;
thread_local std::vector<void*> contexts;
thread_local int capture_mode = 0;  // global

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool busy = false;
  bool held = false;
  bool capturing = false;
  bool invalidated = false;
  std::vector<std::function<void()>> captured;
  std::thread thread;
};
using Graph = std::vector<std::function<void()>>;

struct Process {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, std::pair<int, int>> failures;  // code, times
  std::vector<Stream*> streams;
  std::deque<Graph> graphs;  // nobody destroys them, and their addresses are handles
  Machine machine;
};
Process& The() {
  static auto* const process = new Process;
  return *process;
}

uint64_t Monotonic() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
uint64_t GpuTime() {
  static const uint64_t begin = Monotonic();
  return kTimerStart + static_cast<uint64_t>(static_cast<double>(Monotonic() - begin) * kTimerRate);
}

[[noreturn]] void Run(Stream* stream) {
  std::unique_lock<std::mutex> lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [&] { return !stream->work.empty() && !stream->held; });
    const std::function<void()> next = stream->work.front();
    stream->work.pop_front();
    stream->busy = true;
    lock.unlock();
    next();
    lock.lock();
    stream->busy = false;
    stream->changed.notify_all();
  }
}

Stream* Make() {
  auto* const stream = new Stream;
  stream->thread = std::thread(Run, stream);
  stream->thread.detach();
  const std::lock_guard<std::mutex> lock(The().mutex);
  The().streams.push_back(stream);
  return stream;
}

Stream* Of(void* stream) {
  if (stream != nullptr) return static_cast<Stream*>(stream);
  static Stream* const made = Make();
  return made;
}

void Enqueue(Stream* stream, std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  if (stream->capturing) {
    stream->captured.push_back(std::move(work));
    return;
  }
  stream->work.push_back(std::move(work));
  stream->changed.notify_all();
}

// Counts the call; the code that it is to fail with.
int Called(const char* name) {
  const std::lock_guard<std::mutex> lock(The().mutex);
  ++The().calls[name];
  auto& [code, times] = The().failures[name];
  if (times == 0) return 0;
  --times;
  return code;
}

// A call that no capture may see: it spoils all captures, unless the thread says that it knows.
int Unsafe(const char* name) {
  if (const int code = Called(name)) return code;
  if (capture_mode == 2) return 0;
  const std::lock_guard<std::mutex> lock(The().mutex);
  for (Stream* stream : The().streams) {
    const std::lock_guard<std::mutex> brief(stream->mutex);
    if (stream->capturing) {
      stream->invalidated = true;
      return kCaptureUnsupported;
    }
  }
  return 0;
}

#define FAKE_CALLED(kind)                             \
  do {                                                \
    if (const int code = kind(__func__)) return code; \
  } while (0)

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int cuInit(unsigned) {
  FAKE_CALLED(Called);
  return 0;
}
FAKE_EXPORT int cuDeviceGet(int* device, int ordinal) {
  FAKE_CALLED(Called);
  if (ordinal < 0 || ordinal > 7) return kInvalidValue;
  *device = ordinal;
  return 0;
}
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  FAKE_CALLED(Called);
  *context = &context_object;
  return 0;
}
FAKE_EXPORT int cuCtxPushCurrent_v2(void* context) {
  FAKE_CALLED(Called);
  contexts.push_back(context);
  return 0;
}
FAKE_EXPORT int cuCtxPopCurrent_v2(void** context) {
  FAKE_CALLED(Called);
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
FAKE_EXPORT int cuModuleLoadData(void** module, const void* text) {
  FAKE_CALLED(Unsafe);
  if (contexts.empty()) return kInvalidContext;
  Kernel* const kernel = The().machine.Assemble(static_cast<const char*>(text));
  if (kernel == nullptr) return kInvalidPtx;
  *module = kernel;
  return 0;
}
FAKE_EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  FAKE_CALLED(Called);
  if (static_cast<Kernel*>(module)->name != name) return kNotFound;
  *function = module;
  return 0;
}
FAKE_EXPORT int cuMemHostRegister_v2(void* data, size_t bytes, unsigned flags) {
  FAKE_CALLED(Unsafe);
  if (contexts.empty()) return kInvalidContext;
  if ((flags & 2) == 0 || reinterpret_cast<uintptr_t>(data) % 4096 != 0) return kInvalidValue;
  The().machine.Map(reinterpret_cast<uint64_t>(data) + kDeviceOffset, data, bytes);
  return 0;
}
FAKE_EXPORT int cuMemHostGetDevicePointer_v2(uint64_t* pointer, void* data, unsigned) {
  FAKE_CALLED(Called);
  *pointer = reinterpret_cast<uint64_t>(data) + kDeviceOffset;
  return 0;
}
FAKE_EXPORT int cuStreamCreate(void** stream, unsigned) {
  FAKE_CALLED(Called);
  if (contexts.empty()) return kInvalidContext;
  *stream = Make();
  return 0;
}
FAKE_EXPORT int cuStreamQuery(void* handle) {
  FAKE_CALLED(Unsafe);
  Stream* const stream = Of(handle);
  const std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->work.empty() && !stream->busy ? 0 : kNotReady;
}
FAKE_EXPORT int cuStreamDestroy_v2(void*) {
  FAKE_CALLED(Called);
  return 0;  // its thread waits for good
}
FAKE_EXPORT int cuStreamIsCapturing(void* handle, int* status) {
  FAKE_CALLED(Called);
  Stream* const stream = Of(handle);
  const std::lock_guard<std::mutex> lock(stream->mutex);
  *status = !stream->capturing ? 0 : stream->invalidated ? 2 : 1;
  return 0;
}
FAKE_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CALLED(Called);
  std::swap(*mode, capture_mode);
  return 0;
}
FAKE_EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned, void* handle,
                               void** arguments, void**) {
  FAKE_CALLED(Called);
  if (contexts.empty() || contexts.back() != &context_object) return kInvalidContext;
  if (grid_x * grid_y * grid_z * block_x * block_y * block_z != 1) return kInvalidValue;
  const auto* const kernel = static_cast<Kernel*>(function);
  Stream* const stream = Of(handle);
  {
    const std::lock_guard<std::mutex> lock(stream->mutex);
    if (stream->capturing && stream->invalidated) return kCaptureInvalidated;
  }
  // Read now: that is what makes a graph's arguments frozen.
  std::vector<uint64_t> values;
  for (size_t i = 0; i < kernel->parameters.size(); ++i)
    values.push_back(*static_cast<uint64_t*>(arguments[i]));
  Enqueue(stream, [kernel, values] { The().machine.Run(*kernel, values, &GpuTime); });
  return 0;
}

namespace {

// Memory of devices, by its address.
struct Memory {
  size_t bytes;
  char* seen;
  int device;
};
std::mutex memory_mutex;
std::map<uint64_t, Memory>& Memories() {
  static auto* const memories = new std::map<uint64_t, Memory>;
  return *memories;
}

// The memory that holds all of that; null: none does.
const Memory* MemoryOf(uint64_t at, size_t bytes, uint64_t* offset) {
  const auto next = Memories().upper_bound(at);
  if (next == Memories().begin()) return nullptr;
  const auto& [from, memory] = *std::prev(next);
  *offset = at - from;
  return *offset <= memory.bytes && bytes <= memory.bytes - *offset ? &memory : nullptr;
}

}  // namespace

FAKE_EXPORT void* fake_cuda_memory(int device, uint64_t bytes) {
  const int file = memfd_create("gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) abort();
  void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED || seen == MAP_FAILED) abort();
  const std::lock_guard<std::mutex> lock(memory_mutex);
  Memories()[reinterpret_cast<uint64_t>(at)] = {bytes, static_cast<char*>(seen), device};
  return at;
}
FAKE_EXPORT int cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  FAKE_CALLED(Unsafe);
  if (contexts.empty()) return kInvalidContext;
  *pointer = reinterpret_cast<uint64_t>(fake_cuda_memory(0, bytes));
  return 0;
}
FAKE_EXPORT void* fake_cuda_seen(void* memory) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  return Memories().at(reinterpret_cast<uint64_t>(memory)).seen;
}
FAKE_EXPORT void fake_cuda_free(void* memory) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  const auto found = Memories().find(reinterpret_cast<uint64_t>(memory));
  munmap(memory, found->second.bytes);
  munmap(found->second.seen, found->second.bytes);
  Memories().erase(found);
}
FAKE_EXPORT int cuPointerGetAttributes(unsigned count, int* attributes, void** values, uint64_t pointer) {
  FAKE_CALLED(Called);
  const std::lock_guard<std::mutex> lock(memory_mutex);
  uint64_t offset = 0;
  const Memory* const memory = MemoryOf(pointer, 1, &offset);
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2:
        *static_cast<unsigned*>(values[i]) = memory != nullptr ? 2 : 0;
        break;
      case 8:
        *static_cast<unsigned*>(values[i]) = 0;
        break;
      case 9:
        *static_cast<int*>(values[i]) = memory != nullptr ? memory->device : -2;
        break;
      default:
        return kInvalidValue;
    }
  }
  return 0;
}
FAKE_EXPORT int cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  FAKE_CALLED(Unsafe);
  if (contexts.empty()) return kInvalidContext;
  *data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return 0;
}
FAKE_EXPORT int cuMemFreeHost(void* data) {
  FAKE_CALLED(Unsafe);
  if (contexts.empty()) return kInvalidContext;
  free(data);
  return 0;
}
FAKE_EXPORT int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  FAKE_CALLED(Unsafe);
  const std::lock_guard<std::mutex> lock(memory_mutex);
  uint64_t offset = 0;
  const Memory* const memory = MemoryOf(from, bytes, &offset);
  if (contexts.empty() || memory == nullptr) return contexts.empty() ? kInvalidContext : kInvalidValue;
  memcpy(to, memory->seen + offset, bytes);
  return 0;
}
FAKE_EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  FAKE_CALLED(Unsafe);
  const std::lock_guard<std::mutex> lock(memory_mutex);
  uint64_t offset = 0;
  const Memory* const memory = MemoryOf(to, bytes, &offset);
  if (contexts.empty() || memory == nullptr) return contexts.empty() ? kInvalidContext : kInvalidValue;
  memcpy(memory->seen + offset, from, bytes);
  return 0;
}
FAKE_EXPORT int cuGetErrorName(int code, const char** name) {
  *name = code == kInvalidPtx ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_OF_THE_DOUBLE";
  return 0;
}

FAKE_EXPORT void* fake_cuda_stream() {
  return Make();
}
FAKE_EXPORT void fake_cuda_work(void* stream, uint64_t ns) {
  Enqueue(Of(stream), [ns] {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr);
  });
}
FAKE_EXPORT void fake_cuda_hold(void* handle, int held) {
  Stream* const stream = Of(handle);
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->held = held != 0;
  stream->changed.notify_all();
}
FAKE_EXPORT void fake_cuda_synchronize(void* handle) {
  Stream* const stream = Of(handle);
  std::unique_lock<std::mutex> lock(stream->mutex);
  stream->changed.wait(lock, [&] { return stream->work.empty() && !stream->busy; });
}
FAKE_EXPORT void fake_cuda_begin_capture(void* handle) {
  Stream* const stream = Of(handle);
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->capturing = true;
  stream->invalidated = false;
}
FAKE_EXPORT void* fake_cuda_end_capture(void* handle) {
  Stream* const stream = Of(handle);
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->capturing = false;
  Graph captured;
  captured.swap(stream->captured);
  if (stream->invalidated) return nullptr;
  const std::lock_guard<std::mutex> process_lock(The().mutex);
  return &The().graphs.emplace_back(std::move(captured));
}
FAKE_EXPORT void fake_cuda_launch_graph(void* graph, void* stream) {
  for (const std::function<void()>& work : *static_cast<Graph*>(graph)) Enqueue(Of(stream), work);
}
FAKE_EXPORT uint64_t fake_cuda_now_ns() {
  return GpuTime();
}
FAKE_EXPORT void fake_cuda_fail(const char* name, int code, int times) {
  const std::lock_guard<std::mutex> lock(The().mutex);
  The().failures[name] = {code, times};
}
FAKE_EXPORT uint64_t fake_cuda_calls(const char* name) {
  const std::lock_guard<std::mutex> lock(The().mutex);
  return The().calls[name];
}
FAKE_EXPORT uint64_t fake_cuda_faults() {
  return The().machine.faults();
}
