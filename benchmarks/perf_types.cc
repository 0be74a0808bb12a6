#include "benchmarks/perf_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace c4::perf {
namespace {

constexpr TypeInfo kTypes[] = {
    {"int8", ncclInt8, 1, true, 0, 0, false},         {"uint8", ncclUint8, 1, false, 0, 0, false},
    {"int32", ncclInt32, 4, true, 0, 0, false},       {"uint32", ncclUint32, 4, false, 0, 0, false},
    {"int64", ncclInt64, 8, true, 0, 0, false},       {"uint64", ncclUint64, 8, false, 0, 0, false},
    {"half", ncclFloat16, 2, true, 11, 5, true},      {"float", ncclFloat32, 4, true, 24, 8, true},
    {"double", ncclFloat64, 8, true, 53, 11, true},   {"bfloat16", ncclBfloat16, 2, true, 8, 8, true},
    {"f8e4m3", ncclFloat8e4m3, 1, true, 4, 4, false}, {"f8e5m2", ncclFloat8e5m2, 1, true, 3, 5, true},
};

constexpr ReductionInfo kReductions[] = {
    {"sum", Reduction::kSum, ncclSum}, {"prod", Reduction::kProd, ncclProd},
    {"max", Reduction::kMax, ncclMax}, {"min", Reduction::kMin, ncclMin},
    {"avg", Reduction::kAvg, ncclAvg}, {"mulsum", Reduction::kMulSum, ncclNumOps},
};

int Bias(const TypeInfo& type) {
  return (1 << (type.exponent_bits - 1)) - 1;
}

uint64_t Mask(const TypeInfo& type) {
  return ~uint64_t{0} >> (64 - 8 * type.bytes);
}

}  // namespace

std::span<const TypeInfo> AllTypes() {
  return kTypes;
}

const TypeInfo& InfoOf(ncclDataType_t type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  return kTypes[0];  // not reached: options hold none but these
}

std::span<const ReductionInfo> AllReductions() {
  return kReductions;
}

const ReductionInfo& InfoOf(Reduction reduction) {
  return kReductions[static_cast<size_t>(reduction)];
}

uint64_t Encode(const TypeInfo& type, double value) {
  if (type.precision == 0) {
    const bool negative = value < 0;
    const auto magnitude = static_cast<uint64_t>(std::fabs(value));
    return (negative ? 0 - magnitude : magnitude) & Mask(type);
  }
  if (type.bytes == 8) return std::bit_cast<uint64_t>(value);
  const int fraction_bits = type.precision - 1;
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (8 * type.bytes - 1) : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = 0.1xxx (binary) * 2^exponent
  int quantum = std::max(exponent - 1, 1 - Bias(type)) - fraction_bits;
  auto significand = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, -quantum)));
  if (significand >> type.precision != 0) {  // rounded up to the next power of two
    significand >>= 1;
    ++quantum;
  }
  if (significand >> fraction_bits == 0) return sign | significand;  // subnormal
  const auto biased = static_cast<uint64_t>(quantum + fraction_bits + Bias(type));
  return sign | biased << fraction_bits | (significand - (uint64_t{1} << fraction_bits));
}

double Decode(const TypeInfo& type, uint64_t bits) {
  const int width = static_cast<int>(8 * type.bytes);
  if (type.precision == 0) {
    if (!type.is_signed) return static_cast<double>(bits & Mask(type));
    return static_cast<double>(static_cast<int64_t>(bits << (64 - width)) >> (64 - width));
  }
  if (type.bytes == 8) return std::bit_cast<double>(bits);
  const int fraction_bits = type.precision - 1;
  const uint64_t fraction = bits & ((uint64_t{1} << fraction_bits) - 1);
  const uint64_t highest = (uint64_t{1} << type.exponent_bits) - 1;
  const uint64_t biased = bits >> fraction_bits & highest;
  const double sign = (bits >> (width - 1) & 1) != 0 ? -1 : 1;
  if (biased == highest && type.has_infinity) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (biased == highest && fraction + 1 == uint64_t{1} << fraction_bits) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const uint64_t significand = biased == 0 ? fraction : fraction + (uint64_t{1} << fraction_bits);
  const int exponent = std::max(static_cast<int>(biased), 1) - Bias(type) - fraction_bits;
  return sign * std::ldexp(static_cast<double>(significand), exponent);
}

double LeastNumber(const TypeInfo& type) {
  return std::ldexp(1.0, 2 - Bias(type) - type.precision);
}

}  // namespace c4::perf
