// Data that makes wrong results visible. A value depends on the rank, the place in the buffer and the round,
// so that a rank that is missing or counted twice, a chunk at the wrong place or a result of an earlier
// operation gives another number. All are whole numbers whose sums stay exact in float. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c4::perf {

// Up to this many ranks all sums stay below 2^24, where float still counts one by one.
inline constexpr int kMaxExactRanks = 4096;

namespace data_internal {

// Ranks 997 apart have the same values; more different ones would not fit into a float's sum.
inline uint32_t RankWeight(int rank) {
  return static_cast<uint32_t>(rank % 997) + 1;
}

inline uint32_t Mix(size_t index, uint32_t round) {
  auto x =
      static_cast<uint32_t>(index) * 2654435761u ^ static_cast<uint32_t>(index >> 32) ^ round * 0x9e3779b9u;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  return x ^ (x >> 12);
}

inline uint32_t Offset(uint32_t mixed) {
  return mixed & 255u;
}
inline uint32_t Slope(uint32_t mixed) {
  return 1u + ((mixed >> 8) & 3u);
}

}  // namespace data_internal

// What rank `rank` puts at `index`.
inline float Value(int rank, size_t index, uint32_t round) {
  const uint32_t mixed = data_internal::Mix(index, round);
  return static_cast<float>(data_internal::Offset(mixed) +
                            data_internal::Slope(mixed) * data_internal::RankWeight(rank));
}

// The sum over all ranks of what they put at an index. Made once for a number of ranks.
class ExpectedSum {
 public:
  explicit ExpectedSum(int ranks) : ranks_(static_cast<uint32_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) weights_ += data_internal::RankWeight(rank);
  }

  float At(size_t index, uint32_t round) const {
    const uint32_t mixed = data_internal::Mix(index, round);
    return static_cast<float>(data_internal::Offset(mixed) * ranks_ + data_internal::Slope(mixed) * weights_);
  }

 private:
  uint32_t ranks_;
  uint32_t weights_ = 0;
};

}  // namespace c4::perf
