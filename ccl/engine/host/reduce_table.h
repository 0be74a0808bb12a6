// The functions of one instruction set, as data: constant, so that nothing of a file that was compiled for
// more than this machine has runs before the machine was asked.
#pragma once

#include "ccl/engine/host/reduce.h"

namespace c4::host {

struct ReduceTable {
  static constexpr size_t kOperations = 4;  // ncclSum, ncclProd, ncclMax, ncclMin
  Reducer reducers[ncclNumTypes][kOperations];
  ScaleFunction scales[ncclNumTypes];
  DivideFunction divides[ncclNumTypes];
};

extern const ReduceTable kReduceBaseline;
#ifdef __x86_64__
extern const ReduceTable kReduceAvx2;
#endif

}  // namespace c4::host
