// The reductions of one instruction set, and the table of them: for the files reduce_*.cc alone, each of
// which gives its `Set` and defines its table. In an anonymous namespace for the reason that reduce_vectors.h
// gives.
//
// What is left after the last whole block goes through the same code in a block filled up with zeros, so an
// element's result does not depend on where in the buffer it stands.
#pragma once

#include <type_traits>

#include "ccl/engine/host/reduce_formats.h"
#include "ccl/engine/host/reduce_table.h"
#include "ccl/engine/host/reduce_vectors.h"

namespace c4::host {
namespace {

struct Sum {
  template <class Scalar, class Vector>
  C4_INLINE Vector Apply(Vector a, Vector b) {
    return a + b;
  }
};

struct Product {
  template <class Scalar, class Vector>
  C4_INLINE Vector Apply(Vector a, Vector b) {
    return a * b;
  }
};

// A comparison says nothing about a NaN and nothing about the sign of a zero, so both are seen to: b of NaN
// is replaced by a; a of NaN is not above and not equal, so b stays.
struct Maximum {
  template <class Scalar, class Vector>
  C4_INLINE Vector Apply(Vector a, Vector b) {
    if constexpr (std::is_integral_v<Scalar>) {
      return a > b ? a : b;
    } else {
      using Bits = decltype(a == b);
      const Vector other = b != b ? a : b;
      const Vector above = a > other ? a : other;
      return a == other ? (Vector)((Bits)a & (Bits)other) : above;
    }
  }
};

struct Minimum {
  template <class Scalar, class Vector>
  C4_INLINE Vector Apply(Vector a, Vector b) {
    if constexpr (std::is_integral_v<Scalar>) {
      return a < b ? a : b;
    } else {
      using Bits = decltype(a == b);
      const Vector other = b != b ? a : b;
      const Vector below = a < other ? a : other;
      return a == other ? (Vector)((Bits)a | (Bits)other) : below;
    }
  }
};

template <class Codec, class Op>
C4_INLINE typename Codec::Block ApplyBlock(typename Codec::Block x, typename Codec::Block y) {
  using Scalar = typename Codec::Scalar;
  return {Op::template Apply<Scalar>(x.a, y.a), Op::template Apply<Scalar>(x.b, y.b),
          Op::template Apply<Scalar>(x.c, y.c), Op::template Apply<Scalar>(x.d, y.d)};
}

// A block of which only the first `count` elements are in the buffer.
template <class Codec>
C4_INLINE typename Codec::Block LoadPart(const void* from, size_t count) {
  char bytes[Codec::kBlockElements * Codec::kElementBytes] = {};
  memcpy(bytes, from, count * Codec::kElementBytes);
  return Codec::Load(bytes);
}
template <class Codec>
C4_INLINE void StorePart(void* to, typename Codec::Block block, size_t count) {
  char bytes[Codec::kBlockElements * Codec::kElementBytes];
  Codec::Store(bytes, block);
  memcpy(to, bytes, count * Codec::kElementBytes);
}

template <class Codec, class Op>
C4_INLINE void Reduce(void* out, const void* const* sources, size_t source_count, size_t count) {
  constexpr size_t kBlock = Codec::kBlockElements;
  size_t offset = 0;
  for (; count >= kBlock; count -= kBlock) {
    typename Codec::Block block = Codec::Load(static_cast<const char*>(sources[0]) + offset);
    for (size_t s = 1; s < source_count; ++s) {
      block = ApplyBlock<Codec, Op>(block, Codec::Load(static_cast<const char*>(sources[s]) + offset));
    }
    Codec::Store(static_cast<char*>(out) + offset, block);
    offset += kBlock * Codec::kElementBytes;
  }
  if (count == 0) return;
  typename Codec::Block block = LoadPart<Codec>(static_cast<const char*>(sources[0]) + offset, count);
  for (size_t s = 1; s < source_count; ++s) {
    block =
        ApplyBlock<Codec, Op>(block, LoadPart<Codec>(static_cast<const char*>(sources[s]) + offset, count));
  }
  StorePart<Codec>(static_cast<char*>(out) + offset, block, count);
}

template <class Codec, class Op>
void CombineMany(void* out, const void* const* sources, size_t source_count, size_t count) {
  Reduce<Codec, Op>(out, sources, source_count, count);
}

template <class Codec, class Op>
void Combine(void* out, const void* a, const void* b, size_t count) {
  const void* const sources[] = {a, b};
  Reduce<Codec, Op>(out, sources, 2, count);
}

// out[i] = Op of in[i] and a value that all lanes of `with` hold.
template <class Codec, class Op>
C4_INLINE void Map(void* out, const void* in, size_t count, typename Codec::Block with) {
  constexpr size_t kBlock = Codec::kBlockElements;
  constexpr size_t kBlockBytes = kBlock * Codec::kElementBytes;
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  for (; count >= kBlock; count -= kBlock, from += kBlockBytes, to += kBlockBytes) {
    Codec::Store(to, ApplyBlock<Codec, Op>(Codec::Load(from), with));
  }
  if (count > 0) StorePart<Codec>(to, ApplyBlock<Codec, Op>(LoadPart<Codec>(from, count), with), count);
}

template <class Codec>
void Scale(void* out, const void* in, size_t count, const void* factor) {
  char bytes[Codec::kBlockElements * Codec::kElementBytes];
  for (size_t i = 0; i < Codec::kBlockElements; ++i) {
    memcpy(bytes + i * Codec::kElementBytes, factor, Codec::kElementBytes);
  }
  Map<Codec, Product>(out, in, count, Codec::Load(bytes));
}

struct Quotient {
  template <class Scalar, class Vector>
  C4_INLINE Vector Apply(Vector a, Vector b) {
    return a / b;
  }
};

template <class Codec>
void DivideFloat(void* out, const void* in, size_t count, uint64_t divisor) {
  using Vector = typename Codec::Block::Vector;
  const Vector all = Vector{} + static_cast<typename Codec::Scalar>(divisor);
  Map<Codec, Quotient>(out, in, count, {all, all, all, all});
}

// Up to 32 bits: multiplied by the reciprocal as a fraction of 64 bits, rounded up. That is exact: the error
// stays below 2^32 / 2^64, less than the distance of any quotient that is not whole from the next whole
// number (Granlund and Montgomery, "Division by invariant integers using multiplication").
struct ShortDivision {
  using Magnitude = uint32_t;
  explicit ShortDivision(uint64_t divisor)
      : by_one(divisor == 1), reciprocal(divisor > UINT32_MAX ? 0 : UINT64_MAX / divisor + 1) {}
  Magnitude operator()(Magnitude x) const {
    return by_one ? x : static_cast<Magnitude>(static_cast<unsigned __int128>(reciprocal) * x >> 64);
  }
  bool by_one;
  uint64_t reciprocal;
};
struct LongDivision {
  using Magnitude = uint64_t;
  explicit LongDivision(uint64_t by) : divisor(by) {}
  Magnitude operator()(Magnitude x) const { return x / divisor; }
  uint64_t divisor;
};

template <class T, class Division>
void DivideInteger(void* out, const void* in, size_t count, uint64_t divisor) {
  using Magnitude = typename Division::Magnitude;
  const Division divide(divisor);
  for (size_t i = 0; i < count; ++i) {
    T value;
    memcpy(&value, static_cast<const char*>(in) + i * sizeof(T), sizeof(T));
    // By way of the magnitude: the divisor need not fit into T, and the smallest number has no opposite.
    const bool negative = std::is_signed_v<T> && value < static_cast<T>(0);
    using Unsigned = std::make_unsigned_t<T>;
    const Unsigned whole = static_cast<Unsigned>(value);
    const Magnitude quotient = divide(negative ? static_cast<Unsigned>(0 - whole) : whole);
    const T result = static_cast<T>(negative ? 0 - quotient : quotient);
    memcpy(static_cast<char*>(out) + i * sizeof(T), &result, sizeof(T));
  }
}

template <class Codec, class Op>
constexpr Reducer MakeReducer() {
  return {Codec::kElementBytes, Combine<Codec, Op>, CombineMany<Codec, Op>};
}

template <class Arithmetic, class Compared = Arithmetic>
constexpr void FillType(ReduceTable* table, ncclDataType_t type, DivideFunction divide) {
  table->reducers[type][ncclSum] = MakeReducer<Arithmetic, Sum>();
  table->reducers[type][ncclProd] = MakeReducer<Arithmetic, Product>();
  table->reducers[type][ncclMax] = MakeReducer<Compared, Maximum>();
  table->reducers[type][ncclMin] = MakeReducer<Compared, Minimum>();
  table->scales[type] = Scale<Arithmetic>;
  table->divides[type] = divide;
}

template <class Codec>
constexpr void FillFloat(ReduceTable* table, ncclDataType_t type) {
  FillType<Codec>(table, type, DivideFloat<Codec>);
}

template <class Set, class Signed, class Unsigned, class Division>
constexpr void FillIntegers(ReduceTable* table, ncclDataType_t with_sign, ncclDataType_t without) {
  FillType<Native<Set, Unsigned>, Native<Set, Signed>>(table, with_sign, DivideInteger<Signed, Division>);
  FillType<Native<Set, Unsigned>>(table, without, DivideInteger<Unsigned, Division>);
}

template <class Set>
constexpr ReduceTable MakeReduceTable() {
  ReduceTable table{};
  FillIntegers<Set, int8_t, uint8_t, ShortDivision>(&table, ncclInt8, ncclUint8);
  FillIntegers<Set, int32_t, uint32_t, ShortDivision>(&table, ncclInt32, ncclUint32);
  FillIntegers<Set, int64_t, uint64_t, LongDivision>(&table, ncclInt64, ncclUint64);
  FillFloat<Native<Set, float>>(&table, ncclFloat32);
  FillFloat<Native<Set, double>>(&table, ncclFloat64);
  FillFloat<Small<Set, Half>>(&table, ncclFloat16);
  FillFloat<Small<Set, Bfloat16>>(&table, ncclBfloat16);
  FillFloat<Small<Set, Float8e4m3>>(&table, ncclFloat8e4m3);
  FillFloat<Small<Set, Float8e5m2>>(&table, ncclFloat8e5m2);
  return table;
}

}  // namespace
}  // namespace c4::host
