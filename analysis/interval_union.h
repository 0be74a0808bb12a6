// How much of the time is covered by intervals that come roughly in order: the time in which a process was
// inside at least one operation. Operations of several communicators overlap, and are heard of when they
// finish: a long one after short ones that it covers. Intervals are kept apart for kWindowNs and then summed
// up; one that reaches further back counts with what lies within.
//
// Pure; one thread. Starts at 0, never falls.
#pragma once

#include <cstdint>
#include <map>

namespace c4::analysis {

class IntervalUnion {
 public:
  static constexpr int64_t kWindowNs = 30'000'000'000;

  // REQUIRES: begin <= end.
  void Add(int64_t begin_ns, int64_t end_ns);
  // Time covered so far.
  uint64_t covered_ns() const { return covered_ns_; }
  // The same, had [begin, end] been added.
  uint64_t CoveredWith(int64_t begin_ns, int64_t end_ns) const;

 private:
  // Part of [begin, end] that no interval covers yet.
  uint64_t Uncovered(int64_t begin_ns, int64_t end_ns) const;

  std::map<int64_t, int64_t> intervals_;  // begin -> end, apart from each other
  int64_t forgotten_until_ns_ = INT64_MIN;
  uint64_t covered_ns_ = 0;
};

}  // namespace c4::analysis
