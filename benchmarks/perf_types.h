// The data types and reductions that the measuring programs offer: their names in nccl-tests, and the numbers
// that an element's bits stand for, also where C++ has no such type. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ccl/include/nccl.h"

namespace c4::perf {

struct TypeInfo {
  const char* name;
  ncclDataType_t type;
  size_t bytes;
  bool is_signed;
  int precision;      // of a floating-point type, bits of the significand; 0 for whole numbers
  int exponent_bits;  // 0 for whole numbers
  bool has_infinity;  // all exponents but the highest are numbers; otherwise all codes but one are
};

// In the order of nccl-tests, that of -d all.
std::span<const TypeInfo> AllTypes();
const TypeInfo& InfoOf(ncclDataType_t type);

// The nearest element to `value`, ties to even; beyond the type's range nothing is promised. Bits above the
// element's size are 0.
uint64_t Encode(const TypeInfo& type, double value);
// 64-bit whole numbers lose what a double cannot hold.
double Decode(const TypeInfo& type, uint64_t bits);
// The least positive number of a floating-point type.
double LeastNumber(const TypeInfo& type);

enum class Reduction { kSum, kProd, kMax, kMin, kAvg, kMulSum };

struct ReductionInfo {
  const char* name;
  Reduction reduction;
  ncclRedOp_t op;  // of kMulSum there is none: the program makes it, with its own scalar
};

std::span<const ReductionInfo> AllReductions();
const ReductionInfo& InfoOf(Reduction reduction);

}  // namespace c4::perf
