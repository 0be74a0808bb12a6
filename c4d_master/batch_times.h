// Turns the ages of a batch into moments on the master's clock. An age is never negative, and never longer
// than the node has been up. A plain value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace c4::c4d {

class BatchTimes {
 public:
  // `offset_ns` is added to the node's monotonic times to make them the master's.
  BatchTimes(int64_t monotonic_ns, int64_t offset_ns) : monotonic_ns_(monotonic_ns), offset_ns_(offset_ns) {}

  int64_t Ago(int64_t age_ns) const {
    return monotonic_ns_ - std::clamp<int64_t>(age_ns, 0, monotonic_ns_) + offset_ns_;
  }

 private:
  int64_t monotonic_ns_;
  int64_t offset_ns_;
};

}  // namespace c4::c4d
