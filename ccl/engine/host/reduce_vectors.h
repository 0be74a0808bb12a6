// Elements as vectors: how blocks of each data type are loaded into registers and stored. Everything is in an
// anonymous namespace, and calls no inline function of the standard library: each file that includes this is
// compiled for another instruction set, and the linker must not keep one file's copy for all. Only for
// reduce_kernels.h and the files reduce_*.cc.
//
// `Set` describes an instruction set: kBytes of a vector, how small elements are widened to 32 bit lanes and
// narrowed again, and Load and Store of the formats that it converts in a way of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define C4_INLINE [[gnu::always_inline]] static inline

namespace c4::host {
namespace {

template <class T, size_t kBytes>
struct VectorOf {
  using Type __attribute__((vector_size(kBytes))) = T;
};

// Four vectors: enough work in flight to hide an instruction's latency. No array and no loop, so that they
// are registers whatever the optimizer thinks.
template <class T, size_t kBytes>
struct BlockOf {
  using Vector = typename VectorOf<T, kBytes>::Type;
  Vector a, b, c, d;
};

template <class Set>
using Words = BlockOf<uint32_t, Set::kBytes>;
template <class Set>
using Floats = BlockOf<float, Set::kBytes>;

template <class Block>
C4_INLINE Block LoadBlock(const void* from) {
  using Vector = typename Block::Vector;
  const char* bytes = static_cast<const char*>(from);
  Block block;
  memcpy(&block.a, bytes, sizeof(Vector));
  memcpy(&block.b, bytes + sizeof(Vector), sizeof(Vector));
  memcpy(&block.c, bytes + 2 * sizeof(Vector), sizeof(Vector));
  memcpy(&block.d, bytes + 3 * sizeof(Vector), sizeof(Vector));
  return block;
}

template <class Block>
C4_INLINE void StoreBlock(void* to, Block block) {
  using Vector = typename Block::Vector;
  char* bytes = static_cast<char*>(to);
  memcpy(bytes, &block.a, sizeof(Vector));
  memcpy(bytes + sizeof(Vector), &block.b, sizeof(Vector));
  memcpy(bytes + 2 * sizeof(Vector), &block.c, sizeof(Vector));
  memcpy(bytes + 3 * sizeof(Vector), &block.d, sizeof(Vector));
}

// Every NaN becomes the quiet one: which of two NaNs an addition keeps is the order of its operands, and that
// is the compiler's choice.
template <class Vector>
C4_INLINE Vector OneNan(Vector v, double) {
  return v != v ? Vector{} + __builtin_nan("") : v;
}
template <class Vector>
C4_INLINE Vector OneNan(Vector v, float) {
  return v != v ? Vector{} + __builtin_nanf("") : v;
}
template <class Vector, class T>
C4_INLINE Vector OneNan(Vector v, T) {
  return v;
}

// Elements that are computed as they are stored. Of integers the unsigned type adds and multiplies, which
// wraps; the signed type is only compared.
template <class Set, class T>
struct Native {
  using Element = T;
  using Block = BlockOf<T, Set::kBytes>;
  using Scalar = T;  // what a lane holds
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kBlockElements = 4 * Set::kBytes / sizeof(T);

  C4_INLINE Block Load(const void* from) { return LoadBlock<Block>(from); }
  C4_INLINE void Store(void* to, Block v) {
    StoreBlock(to, Block{OneNan(v.a, T{}), OneNan(v.b, T{}), OneNan(v.c, T{}), OneNan(v.d, T{})});
  }
};

// Elements that are computed as floats.
template <class Set, class Format>
struct Small {
  using Block = Floats<Set>;
  using Scalar = float;
  using Word = typename Words<Set>::Vector;
  using Float = typename Block::Vector;
  static constexpr size_t kElementBytes = Format::kBits / 8;
  static constexpr size_t kBlockElements = Set::kBytes;

  C4_INLINE Block Load(const void* from) {
    if constexpr (requires { Set::Load(Format{}, from); }) {
      return Set::Load(Format{}, from);
    } else {
      const Words<Set> codes = Set::template Widen<kElementBytes>(from);
      return {Decode(codes.a), Decode(codes.b), Decode(codes.c), Decode(codes.d)};
    }
  }
  C4_INLINE void Store(void* to, Block v) {
    if constexpr (requires { Set::Store(Format{}, to, v); }) {
      const Block plain = {OneNan(v.a, 0.0f), OneNan(v.b, 0.0f), OneNan(v.c, 0.0f), OneNan(v.d, 0.0f)};
      Set::Store(Format{}, to, plain);
    } else {
      Set::template Narrow<kElementBytes>(to, Words<Set>{Encode(v.a), Encode(v.b), Encode(v.c), Encode(v.d)});
    }
  }

 private:
  C4_INLINE Float Decode(Word code) { return Format::template Decode<Set>(code); }
  C4_INLINE Word Encode(Float value) { return Format::template Encode<Set>(value); }
};

}  // namespace
}  // namespace c4::host
