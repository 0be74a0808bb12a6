// The reductions for AVX2 and F16C; compiled for those, and called only where reduce.cc has found them.
#include <immintrin.h>

#include "ccl/engine/host/reduce_kernels.h"

namespace c4::host {
namespace {

struct Avx2 {
  static constexpr size_t kBytes = 32;

  template <size_t kElementBytes>
  C4_INLINE Words<Avx2> Widen(const void* from) {
    const char* bytes = static_cast<const char*>(from);
    if constexpr (kElementBytes == 1) {
      return {(Word)_mm256_cvtepu8_epi32(Eight(bytes)), (Word)_mm256_cvtepu8_epi32(Eight(bytes + 8)),
              (Word)_mm256_cvtepu8_epi32(Eight(bytes + 16)), (Word)_mm256_cvtepu8_epi32(Eight(bytes + 24))};
    } else {
      return {(Word)_mm256_cvtepu16_epi32(Sixteen(bytes)), (Word)_mm256_cvtepu16_epi32(Sixteen(bytes + 16)),
              (Word)_mm256_cvtepu16_epi32(Sixteen(bytes + 32)),
              (Word)_mm256_cvtepu16_epi32(Sixteen(bytes + 48))};
    }
  }

  template <size_t kElementBytes>
  C4_INLINE void Narrow(void* to, Words<Avx2> from) {
    // Packing works within each half of a vector, so what comes out has to change places.
    const __m256i ab = _mm256_packus_epi32((__m256i)from.a, (__m256i)from.b);
    const __m256i cd = _mm256_packus_epi32((__m256i)from.c, (__m256i)from.d);
    __m256i* vectors = static_cast<__m256i*>(to);
    if constexpr (kElementBytes == 1) {
      const __m256i places = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      _mm256_storeu_si256(vectors, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(ab, cd), places));
    } else {
      constexpr int kPlaces = 0b11'01'10'00;
      _mm256_storeu_si256(vectors, _mm256_permute4x64_epi64(ab, kPlaces));
      _mm256_storeu_si256(vectors + 1, _mm256_permute4x64_epi64(cd, kPlaces));
    }
  }

  C4_INLINE Floats<Avx2> Load(Half, const void* from) {
    const char* bytes = static_cast<const char*>(from);
    return {_mm256_cvtph_ps(Sixteen(bytes)), _mm256_cvtph_ps(Sixteen(bytes + 16)),
            _mm256_cvtph_ps(Sixteen(bytes + 32)), _mm256_cvtph_ps(Sixteen(bytes + 48))};
  }
  C4_INLINE void Store(Half, void* to, Floats<Avx2> from) {
    __m128i* vectors = static_cast<__m128i*>(to);
    _mm_storeu_si128(vectors, _mm256_cvtps_ph(from.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(vectors + 1, _mm256_cvtps_ph(from.b, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(vectors + 2, _mm256_cvtps_ph(from.c, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(vectors + 3, _mm256_cvtps_ph(from.d, _MM_FROUND_TO_NEAREST_INT));
  }

  // e5m2 is the upper half of a half.
  C4_INLINE Floats<Avx2> Load(Float8e5m2, const void* from) {
    const char* bytes = static_cast<const char*>(from);
    return FromHalves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(Sixteen(bytes)), 8),
                      _mm256_slli_epi16(_mm256_cvtepu8_epi16(Sixteen(bytes + 16)), 8));
  }

  // e4m3 is a half with one bit less for the exponent, hence 2^8 too small; its only NaN would be a number.
  C4_INLINE Floats<Avx2> Load(Float8e4m3, const void* from) {
    const char* bytes = static_cast<const char*>(from);
    const Floats<Avx2> small = FromHalves(HalvesOfE4m3(Sixteen(bytes)), HalvesOfE4m3(Sixteen(bytes + 16)));
    return {small.a * 256.0f, small.b * 256.0f, small.c * 256.0f, small.d * 256.0f};
  }

 private:
  using Word = Words<Avx2>::Vector;

  C4_INLINE __m128i Eight(const char* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
  C4_INLINE __m128i Sixteen(const char* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  C4_INLINE Floats<Avx2> FromHalves(__m256i ab, __m256i cd) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(ab)), _mm256_cvtph_ps(_mm256_extracti128_si256(ab, 1)),
            _mm256_cvtph_ps(_mm256_castsi256_si128(cd)), _mm256_cvtph_ps(_mm256_extracti128_si256(cd, 1))};
  }
  C4_INLINE __m256i HalvesOfE4m3(__m128i codes) {
    const __m256i wide = _mm256_cvtepu8_epi16(codes);
    const __m256i magnitude_mask = _mm256_set1_epi16(0x7f << 7);
    const __m256i magnitude = _mm256_and_si256(_mm256_slli_epi16(wide, 7), magnitude_mask);
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(wide, 8), _mm256_set1_epi16(INT16_MIN));
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, magnitude_mask);
    const __m256i nan = _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7c00));
    return _mm256_or_si256(_mm256_or_si256(magnitude, sign), nan);
  }
};

}  // namespace

constinit const ReduceTable kReduceAvx2 = MakeReduceTable<Avx2>();

}  // namespace c4::host
