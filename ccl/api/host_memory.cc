#include "ccl/api/host_memory.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

namespace c4::api {
namespace {

struct Allocations {
  std::mutex mutex;
  std::unordered_set<void*> live;
};

// Never destroyed: other threads may still allocate while the process exits.
Allocations& Allocated() {
  static auto* const allocations = new Allocations;
  return *allocations;
}

}  // namespace

Result AllocateHostMemory(size_t bytes, void** pointer) {
  *pointer = nullptr;
  if (bytes == 0) return Ok();
  if (bytes > static_cast<size_t>(PTRDIFF_MAX)) {
    return Fail(ncclInvalidArgument, "%zu bytes are more than memory can hold (was the size negative?)",
                bytes);
  }
  void* memory = nullptr;
  const int error = posix_memalign(&memory, kHostMemoryAlignment, bytes);
  if (error != 0)
    return Fail(ncclSystemError, "no memory for %zu bytes: %s", bytes, ErrnoText(error).c_str());
  Allocations& allocations = Allocated();
  const std::lock_guard<std::mutex> lock(allocations.mutex);
  allocations.live.insert(memory);
  *pointer = memory;
  return Ok();
}

Result FreeHostMemory(void* pointer) {
  if (pointer == nullptr) return Ok();
  {
    Allocations& allocations = Allocated();
    const std::lock_guard<std::mutex> lock(allocations.mutex);
    if (allocations.live.erase(pointer) == 0) {
      return Fail(ncclInvalidArgument, "%p does not come from ncclMemAlloc, or was freed before", pointer);
    }
  }
  free(pointer);
  return Ok();
}

}  // namespace c4::api
