// Times of which nothing is learnt, because something was wrong with the job then. Disjoint, by their end;
// the oldest are forgotten.
//
// One thread; no errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace c4::c4d {

class ExcludedTimes {
 public:
  void Add(int64_t from_ns, int64_t to_ns) {
    while (!spans_.empty() && spans_.back().second >= from_ns) {
      from_ns = std::min(from_ns, spans_.back().first);
      to_ns = std::max(to_ns, spans_.back().second);
      spans_.pop_back();
    }
    spans_.emplace_back(from_ns, to_ns);
    if (spans_.size() > kMost) spans_.pop_front();
  }

  // Whether any of it lies in that time.
  bool Touches(int64_t from_ns, int64_t to_ns) const {
    return std::any_of(spans_.begin(), spans_.end(),
                       [&](const auto& span) { return to_ns > span.first && from_ns < span.second; });
  }

 private:
  static constexpr size_t kMost = 64;
  std::deque<std::pair<int64_t, int64_t>> spans_;
};

}  // namespace c4::c4d
