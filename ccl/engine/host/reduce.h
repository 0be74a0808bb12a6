// Reductions of host memory, for every data type and operation of NCCL. Pure functions: any thread, any
// alignment of the buffers, nothing is kept. They cannot fail; what NCCL does not have is not found
// (nullptr). The vector code is chosen when the program runs. Every result is the same bit for bit on every
// machine, and however a buffer is split or aligned, as long as the thread rounds to nearest and keeps
// denormals (the default of a thread).
//
// Integers wrap around. half, bfloat16 and the 8 bit floats are computed in float and rounded to nearest
// even, once a call. What is too large becomes infinity in half and bfloat16; in the 8 bit floats (e4m3 is
// the variant without infinities) it becomes the largest finite value, infinities of e5m2 included, as
// __NV_SATFINITE does in CUDA. Every NaN that comes out is one pattern (0x7fc00000 for float, 0x7f for the 8
// bit floats), because which of two NaNs a sum keeps depends on the compiler. The minimum and maximum of a
// NaN and a number is the number, as CUDA's fmin and fmax; -0 is below +0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ccl/include/nccl.h"

namespace c4::host {

struct Reducer {
  size_t element_bytes;
  // out[i] = a[i] op b[i]. `out` may be `a` or `b`, no other overlap.
  void (*combine)(void* out, const void* a, const void* b, size_t count);
  // out[i] = sources[0][i] op sources[1][i] op ..., in that order, in one pass; 2 <= source_count. `out` may
  // be one of the sources, no other overlap. Small floats are rounded after the last source only.
  void (*combine_many)(void* out, const void* const* sources, size_t source_count, size_t count);
};

// out[i] = in[i] * factor, the factor being one element of that type. `out` may be `in`.
using ScaleFunction = void (*)(void* out, const void* in, size_t count, const void* factor);

// out[i] = in[i] / divisor, 1 <= divisor. Integers truncate toward zero; floats are divided, not multiplied
// by the reciprocal, and rounded once (float and smaller: by the float nearest to the divisor). `out` may be
// `in`.
using DivideFunction = void (*)(void* out, const void* in, size_t count, uint64_t divisor);

// ncclAvg is the sum; dividing is left to the caller, who knows how many there are.
const Reducer* FindReducer(ncclDataType_t type, ncclRedOp_t op);
ScaleFunction FindScale(ncclDataType_t type);
DivideFunction FindDivide(ncclDataType_t type);

// The same by instruction set, for tests; nullptr where this machine lacks it.
enum class InstructionSet {
  kBaseline,  // what every machine of the architecture has
  kAvx2,      // with F16C
};
bool HasInstructionSet(InstructionSet set);
const Reducer* FindReducer(ncclDataType_t type, ncclRedOp_t op, InstructionSet set);
ScaleFunction FindScale(ncclDataType_t type, InstructionSet set);
DivideFunction FindDivide(ncclDataType_t type, InstructionSet set);

}  // namespace c4::host
