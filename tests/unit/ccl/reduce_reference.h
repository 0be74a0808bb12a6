// What a reduction has to give, one element at a time and in double: slow, and sharing nothing with the code
// under test. A code of a small float is found by searching the table of all its values for the nearest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ccl/include/nccl.h"

namespace c4::host {

using Bytes = std::vector<uint8_t>;

// The codes of a small float, as the standards have them.
struct SmallFloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;  // rather than become infinite
  uint32_t nan;    // the one that comes out
};
// Null for a type that is none.
const SmallFloatFormat* FindSmallFloat(ncclDataType_t type);
double DecodeSmallFloat(const SmallFloatFormat& format, uint32_t code);
uint32_t EncodeSmallFloat(const SmallFloatFormat& format, double value);

// `sources` are buffers of whole elements, all of one size.
Bytes ExpectCombined(ncclDataType_t type, ncclRedOp_t op, const std::vector<Bytes>& sources);
Bytes ExpectScaled(ncclDataType_t type, const Bytes& in, const Bytes& factor);
Bytes ExpectDivided(ncclDataType_t type, const Bytes& in, uint64_t divisor);

}  // namespace c4::host
