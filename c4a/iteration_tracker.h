// The iterations of a process from the records of its rings (analysis/failslow/rank_iterations.h).
//
// Records are written when an operation has finished, by several threads, and operations of several
// communicators overlap: here they are put into the order in which they were called again. A call is held
// back while an operation that was called before it may still come; who waits for longer than kHoldNs (a
// receive that was posted far ahead) holds nothing up any more, and what comes too late is left out. Where
// records were lost the sequence begins anew. Calls of a few bytes are left out: logs and flags have a rhythm
// of their own.
//
// Bounded memory: with what it holds back under 1 MB a process, nothing before its first operation. Pure;
// belongs to the scanning thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/failslow/rank_iterations.h"
#include "c4/v1/telemetry.pb.h"
#include "c4a/clock_relation.h"
#include "c4a/operation_tally.h"
#include "c4a/segment_reader.h"

namespace c4::agent {

class IterationTracker {
 public:
  static constexpr int64_t kHoldNs = 60'000'000'000;
  static constexpr size_t kMostHeld = 4096;

  // Of one ring, oldest first; after `tally` has learnt of their communicators.
  void Add(std::span<const wire::Record> records, const OperationTally& tally, const ClockRelation& clock);
  // Records were overwritten before they were read.
  void Lost();
  // All rings have been read; `snapshot` was read before them, at `now_ns`. What is certain to be complete
  // goes on.
  void Settle(const SegmentSnapshot& snapshot, int64_t now_ns);

  // Into the report: what has ended since the last time, and the changes.
  void Take(v1::ProcessReport* report);

  size_t MemoryBytes() const;

 private:
  struct Held {
    int64_t called_ns = 0;
    uint64_t sequence = 0;
    uint64_t token = 0;
    uint32_t stream = 0;      // slot of its communicator, and whether it is a send or receive
    uint32_t generation = 0;  // of that slot
    bool small = false;       // a log, a flag: not counted
  };
  // Operations of one kind in one communicator, which are numbered in the order of their calls.
  struct Stream {
    uint32_t number = 0;  // see Held::stream
    uint32_t generation = 0;
    uint64_t seen = 0;       // one more than the highest number that was recorded
    int64_t settled_ns = 0;  // when the last one that nothing before is missing of was called
    uint64_t finished = 0;   // as counted
    int64_t moved_ns = 0;    // when that was last seen to grow, or to be all that was called
    bool open = false;       // something that was called has not finished
    bool complete = true;    // all that had finished by the last time has been recorded
  };

  Stream* FindStream(uint32_t number, uint32_t generation);
  void UpdateStreams(const SegmentSnapshot& snapshot, int64_t now_ns);
  int64_t Barrier(int64_t now_ns) const;

  failslow::RankIterations iterations_;
  std::vector<Stream> streams_;  // by number
  std::vector<Held> held_;
  int64_t released_ns_ = 0;  // the last call that went on
  uint64_t small_in_a_row_ = 0;
};

// At most so many iterations wait for a master of one process.
inline constexpr int kMostWaitingIterations = 4096;

// What no master will see of `old` goes before what `next` says.
void MergeIterations(v1::ProcessReport* old, v1::ProcessReport* next);

}  // namespace c4::agent
