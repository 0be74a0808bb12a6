// How many queue pairs may move now of those that have time: so many a second, no more than a second's at
// once. Pure; one thread; the caller's monotonic clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace c4::c4p {

class MoveBudget {
 public:
  explicit MoveBudget(double per_second) : per_second_(per_second), left_(per_second) {}

  size_t Available(int64_t now_ns) {
    if (at_ns_ >= 0)
      left_ = std::min(per_second_, left_ + per_second_ * 1e-9 * static_cast<double>(now_ns - at_ns_));
    at_ns_ = now_ns;
    return static_cast<size_t>(std::max(0.0, left_ + kRounding));
  }
  // A connection's queue pairs move together: it may be a few more than were available.
  void Take(size_t moves) { left_ -= static_cast<double>(moves); }

 private:
  static constexpr double kRounding = 1e-6;

  const double per_second_;
  double left_;
  int64_t at_ns_ = -1;
};

}  // namespace c4::c4p
