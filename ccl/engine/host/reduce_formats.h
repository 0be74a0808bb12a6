// The small floats: between the code of an element, in a 32 bit lane, and a float. Branchless, the same steps
// for every value, hence vector code of any width. In an anonymous namespace for the reason that
// reduce_vectors.h gives. Encoding rounds to nearest even.
#pragma once

#include "ccl/engine/host/reduce_vectors.h"

namespace c4::host {
namespace {

constexpr uint32_t kFloatSign = 0x80000000;
constexpr uint32_t kFloatExponent = 0x7f800000;
constexpr int kFloatMantissaBits = 23;
constexpr int kFloatBias = 127;

// 2^exponent as the bits of a float.
constexpr uint32_t PowerOfTwo(int exponent) {
  return static_cast<uint32_t>(exponent + kFloatBias) << kFloatMantissaBits;
}

// kOverflow: the bits of the float that stands for everything above: the largest finite value where that is
// kept, 2^(largest exponent + 1), whose code is infinity's, where it becomes infinity.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity, uint32_t kOverflow, uint32_t kNan>
struct SmallFloat {
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;

  template <class Set, class Word>
  C4_INLINE typename Floats<Set>::Vector Decode(Word code) {
    using Float = typename Floats<Set>::Vector;
    using Int = typename VectorOf<int32_t, Set::kBytes>::Type;
    const Word magnitude = code & kMagnitude;
    const Word normal = (magnitude << kShift) + ((kFloatBias - kBias) << kFloatMantissaBits);
    // A denormal is a whole number of the smallest one. No denormal float comes up: those are slow.
    const Float whole = __builtin_convertvector((Int)magnitude, Float) * Power<Float>(kSmallest);
    Word bits = (Int)magnitude < (1 << kMantissaBits) ? (Word)whole : normal;
    bits |= (Word)((Int)magnitude >= kSpecial) & kFloatExponent;
    return (Float)(bits | ((code << (32 - kBits)) & kFloatSign));
  }

  template <class Set, class Float>
  C4_INLINE typename Words<Set>::Vector Encode(Float value) {
    using Word = typename Words<Set>::Vector;
    const Float magnitude = (Float)((Word)value & ~kFloatSign);
    const Float top = (Float)(Word{} + kOverflow);
    const Float kept = magnitude > top ? top : magnitude;
    // The power of two at or below, but not below the smallest normal one. 2^23 steps of the result's
    // precision above it a float has just that precision: adding rounds, and the lowest bits count the steps.
    const Float least = Power<Float>(1 - kBias);
    const Word power = (Word)(kept > least ? kept : least) & kFloatExponent;
    const Word scale = power + (kShift << kFloatMantissaBits);
    const Word steps = (Word)(kept + (Float)scale) - scale;
    // The first step of a normal number is its leading one: it counts into the exponent.
    const Word code = steps + ((power - PowerOfTwo(1 - kBias)) >> kShift);
    const Word sign = ((Word)value & kFloatSign) >> (32 - kBits);
    return value != value ? Word{} + kNan : code | sign;
  }

 private:
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = kFloatMantissaBits - kMantissaBits;
  static constexpr int kSmallest = 1 - kBias - kMantissaBits;  // the smallest denormal is 2 to this
  static constexpr uint32_t kMagnitude = (1u << (kBits - 1)) - 1;
  // From here on infinity and NaN, or NaN alone.
  static constexpr int32_t kSpecial = kHasInfinity ? ((1 << kExponentBits) - 1) << kMantissaBits : kMagnitude;

  template <class Float>
  C4_INLINE Float Power(int exponent) {
    using Word = decltype(Float{} != Float{});
    return (Float)(Word{} + static_cast<int32_t>(PowerOfTwo(exponent)));
  }
};

using Half = SmallFloat<5, 10, true, PowerOfTwo(16), 0x7e00>;
using Float8e5m2 = SmallFloat<5, 2, true, 0x47600000 /* 57344 */, 0x7f>;
using Float8e4m3 = SmallFloat<4, 3, false, 0x43e00000 /* 448 */, 0x7f>;

// The upper half of a float.
struct Bfloat16 {
  static constexpr int kBits = 16;

  template <class Set, class Word>
  C4_INLINE typename Floats<Set>::Vector Decode(Word code) {
    using Float = typename Floats<Set>::Vector;
    return (Float)(code << 16);
  }
  template <class Set, class Float>
  C4_INLINE typename Words<Set>::Vector Encode(Float value) {
    using Word = typename Words<Set>::Vector;
    const Word bits = (Word)value;
    const Word rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return value != value ? Word{} + 0x7fc0 : rounded;
  }
};

}  // namespace
}  // namespace c4::host
