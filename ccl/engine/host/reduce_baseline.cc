// The reductions for every machine: vectors of 16 bytes, in the compiler's own notation (on x86-64 it makes
// SSE2 of them, NEON on ARM, scalar code where there is nothing).
#include <type_traits>

#include "ccl/engine/host/reduce_kernels.h"

namespace c4::host {
namespace {

struct Baseline {
  static constexpr size_t kBytes = 16;
  using Word = Words<Baseline>::Vector;

  template <size_t kElementBytes>
  C4_INLINE Words<Baseline> Widen(const void* from) {
    const char* bytes = static_cast<const char*>(from);
    return {WidenFour<kElementBytes>(bytes), WidenFour<kElementBytes>(bytes + 4 * kElementBytes),
            WidenFour<kElementBytes>(bytes + 8 * kElementBytes),
            WidenFour<kElementBytes>(bytes + 12 * kElementBytes)};
  }
  template <size_t kElementBytes>
  C4_INLINE void Narrow(void* to, Words<Baseline> from) {
    char* bytes = static_cast<char*>(to);
    NarrowFour<kElementBytes>(bytes, from.a);
    NarrowFour<kElementBytes>(bytes + 4 * kElementBytes, from.b);
    NarrowFour<kElementBytes>(bytes + 8 * kElementBytes, from.c);
    NarrowFour<kElementBytes>(bytes + 12 * kElementBytes, from.d);
  }

 private:
  template <size_t kElementBytes>
  using Four =
      typename VectorOf<std::conditional_t<kElementBytes == 1, uint8_t, uint16_t>, 4 * kElementBytes>::Type;

  template <size_t kElementBytes>
  C4_INLINE Word WidenFour(const char* from) {
    Four<kElementBytes> four;
    memcpy(&four, from, sizeof(four));
    return __builtin_convertvector(four, Word);
  }
  template <size_t kElementBytes>
  C4_INLINE void NarrowFour(char* to, Word from) {
    const Four<kElementBytes> four = __builtin_convertvector(from, Four<kElementBytes>);
    memcpy(to, &four, sizeof(four));
  }
};

}  // namespace

constinit const ReduceTable kReduceBaseline = MakeReduceTable<Baseline>();

}  // namespace c4::host
