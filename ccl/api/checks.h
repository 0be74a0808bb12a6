// Checks of what a caller hands in, before an engine sees it. Pure; any thread.
//
// A number that is no data type or reduction at all is ncclInvalidArgument, as in NCCL; a valid one that
// the engine cannot do is ncclInvalidUsage, said by the engine itself.
#pragma once

#include <cstddef>

#include "ccl/engine/engine.h"

namespace c4::api {

// Bytes of one element; 0 for a number that is no data type.
size_t ElementBytes(ncclDataType_t type);

// An out argument that a call stores to.
Result CheckNotNull(const void* pointer, const char* name);

// Type, reduction, count and buffers of an operation.
Result CheckOperation(const Operation& operation);

}  // namespace c4::api
