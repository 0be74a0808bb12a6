#include "ccl/api/registrations.h"

#include <atomic>

#include "ccl/api/checks.h"

namespace c4::api {
namespace {

std::atomic<uintptr_t> handles_made{0};

}  // namespace

Result Registrations::Add(const void* buffer, size_t bytes, uintptr_t* handle) {
  C4_RETURN_IF_ERROR(CheckNotNull(buffer, "buff"));
  if (bytes == 0 || bytes > static_cast<size_t>(PTRDIFF_MAX)) {
    return Fail(ncclInvalidArgument, "%s of %zu bytes cannot be registered", what_, bytes);
  }
  *handle = ((handles_made.fetch_add(1) + 1) << 1) | 1;
  live_.insert(*handle);
  return Ok();
}

Result Registrations::Remove(uintptr_t handle) {
  if (handle == 0 || live_.erase(handle) == 1) return Ok();
  return Fail(ncclInvalidArgument,
              "0x%zx is no handle that %s gave out for this communicator, or it was given back before",
              static_cast<size_t>(handle), call_);
}

}  // namespace c4::api
