// What the completions of a queue pair say of its path. A program that polls finds several at once, and each
// of them but the first then seems to have taken no time. So those that are found together, or one right
// behind the other, share the time that they took: a chunk's latency is the mean of its burst's.
//
// Pure; one thread at a time.
#pragma once

#include <cstdint>

namespace c4::tap {

class CompletionBurst {
 public:
  static constexpr uint32_t kMost = 16;
  static constexpr double kGapNs =
      2000;  // a program that has more to do comes back for the rest later than that

  // Whether a completion that was found so many ticks after the one before it goes with it.
  bool Holds(uint64_t gap_ticks, double ns_per_tick) const {
    return count_ > 0 && count_ < kMost && static_cast<double>(gap_ticks) * ns_per_tick <= kGapNs;
  }
  // `ticks`: since it was posted, or since the one before it was found.
  void Add(uint64_t bytes, uint64_t ticks) {
    ++count_;
    bytes_ += static_cast<float>(bytes);
    ticks_ += static_cast<float>(ticks);
  }

  uint32_t count() const { return count_; }
  // Of all of it.
  double bytes() const { return static_cast<double>(bytes_); }
  double ticks() const { return static_cast<double>(ticks_); }

 private:
  uint32_t count_ = 0;
  float bytes_ = 0;
  float ticks_ = 0;
};

}  // namespace c4::tap
