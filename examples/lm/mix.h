// Numbers that look random and depend on nothing but where they stand: so a model's first weights and a
// batch's samples are the same however the job is laid out.
#pragma once

#include <cstdint>

namespace c4::examples::lm {

// SplitMix64 of the two.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// From 0 up to 1.
inline double UnitOf(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace c4::examples::lm
