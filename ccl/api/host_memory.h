// Memory for ncclMemAlloc where communicators work on host memory. What was given out is remembered, so that
// freeing something else is an error and not a crash. Any thread.
#pragma once

#include <cstddef>

#include "ccl/base/result.h"

namespace c4::api {

inline constexpr size_t kHostMemoryAlignment = 4096;

// 0 bytes give a null pointer, as with cudaMalloc.
Result AllocateHostMemory(size_t bytes, void** pointer);
// A null pointer is no error.
Result FreeHostMemory(void* pointer);

}  // namespace c4::api
