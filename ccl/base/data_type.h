// NCCL's data types. Pure; any thread.
#pragma once

#include <cstddef>

#include "ccl/include/nccl.h"

namespace c4 {

// Bytes of one element; 0 for a number that is no data type.
constexpr size_t ElementBytes(int type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace c4
