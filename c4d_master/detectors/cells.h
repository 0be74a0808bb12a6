// The cells of the latency matrix as the detector of slow connections sees them: a queue pair on one path,
// what its chunks took there lately, and whether that is slow beside what is usual for it.
//
// Points into the links and the windows and lives no longer. Pure functions; any thread; no errors.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/detectors/slow.h"
#include "c4d_master/finding.h"
#include "c4d_master/windows.h"

namespace c4::c4d {

// Of the vendor's engine a slice with fewer tells little: a way holds all channels.
inline constexpr double kLeastSliceChunks = 2;

struct Cell {
  const QueuePairEnds* ends = nullptr;
  std::string_view local;  // of the path; not the queue pair's of now where it has moved since
  std::string_view remote;
  Latency low;
  double usual = 0;      // 0: not known
  double usual_bad = 0;  // what the worse chunks usually cost
  double ratio = 0;      // to the baseline, else to the median of the communicator
  bool judged = false;   // there is something to compare it with
  bool slow = false;
  // Slower than usual, but its bad chunks usually are as slow: speaks neither for nor against anybody.
  bool unclear = false;
  // Of one that holds several channels: the upper quantile to its baseline, and whether it alone is slow, so
  // that some of its channels are and others are not.
  double upper_ratio = 0;
  bool slow_upper = false;
  bool bad() const { return slow || slow_upper; }
  // What its chunks held, by the mean size of those of its queue pair's life; where that is not known, their
  // number.
  double bytes() const;

  // What is the same in looks at different times.
  using Id = std::pair<const QueuePairEnds*, std::string_view>;
  Id id() const { return {ends, local}; }
};

// `back`: as it was so many slices ago.
std::vector<Cell> Cells(const std::vector<QueuePairEnds>& queue_pairs, const Windows& windows, size_t back,
                        const SlowThresholds& thresholds);

// In how many of its newest slices in a row it was slow, or slow in the upper quantile where it is so now;
// slices in which it had fewer chunks than that say nothing.
size_t SlowSlices(const Cell& cell, const Windows& windows, double least_chunks,
                  const SlowThresholds& thresholds);

// In how many slices in a row a queue pair must be slow, so that of `count` none is so by chance: at least
// SlowThresholds::again_slices.
size_t SlicesAgainstChance(const Windows& windows, size_t count, const SlowThresholds& thresholds);

// What the vendor's engine moves between ranks, each way held against its own past whenever it had chunks: in
// a job of long steps no look shows all of them. Slow are those that were so in SlowThresholds::own_persist
// slices.
std::vector<Cell> CellsBySlices(const std::vector<QueuePairEnds>& queue_pairs, const Windows& windows,
                                const SlowThresholds& thresholds);

// That these are slow: their queue pairs, each once, and the evidence.
Finding DescribeCells(const std::vector<const Cell*>& cells);

}  // namespace c4::c4d
