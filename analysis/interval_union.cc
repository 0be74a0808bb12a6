#include "analysis/interval_union.h"

#include <algorithm>
#include <iterator>

namespace c4::analysis {

uint64_t IntervalUnion::Uncovered(int64_t begin_ns, int64_t end_ns) const {
  begin_ns = std::max(begin_ns, forgotten_until_ns_);
  if (begin_ns >= end_ns) return 0;
  auto uncovered = static_cast<uint64_t>(end_ns - begin_ns);
  auto at = intervals_.upper_bound(begin_ns);
  if (at != intervals_.begin() && std::prev(at)->second > begin_ns) --at;
  for (; at != intervals_.end() && at->first < end_ns; ++at) {
    uncovered -= static_cast<uint64_t>(std::min(end_ns, at->second) - std::max(begin_ns, at->first));
  }
  return uncovered;
}

uint64_t IntervalUnion::CoveredWith(int64_t begin_ns, int64_t end_ns) const {
  return covered_ns_ + Uncovered(begin_ns, end_ns);
}

void IntervalUnion::Add(int64_t begin_ns, int64_t end_ns) {
  begin_ns = std::max(begin_ns, forgotten_until_ns_);
  if (begin_ns >= end_ns) return;
  covered_ns_ += Uncovered(begin_ns, end_ns);
  auto at = intervals_.upper_bound(begin_ns);
  if (at != intervals_.begin() && std::prev(at)->second >= begin_ns) --at;
  while (at != intervals_.end() && at->first <= end_ns) {
    begin_ns = std::min(begin_ns, at->first);
    end_ns = std::max(end_ns, at->second);
    at = intervals_.erase(at);
  }
  intervals_.emplace_hint(at, begin_ns, end_ns);
  const int64_t horizon_ns = intervals_.rbegin()->second - kWindowNs;
  while (intervals_.begin()->second <= horizon_ns) {
    forgotten_until_ns_ = intervals_.begin()->second;
    intervals_.erase(intervals_.begin());
  }
}

}  // namespace c4::analysis
