// Sums up the operations that a process's rings report, per communicator and function, until a report
// takes them. Pure; belongs to the scanning thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "analysis/interval_union.h"
#include "c4a/clock_relation.h"
#include "c4a/segment_reader.h"

namespace c4::agent {

struct OperationTotals {
  uint64_t communicator_id = 0;
  uint8_t function = 0;  // wire::Function
  uint64_t operations = 0;
  uint64_t elements = 0;
  uint64_t duration_sum_ns = 0;
  uint64_t duration_max_ns = 0;
  uint64_t gap_max_ns = 0;  // longest time between the finishes of two operations in a row
};

class OperationTally {
 public:
  // Tells which communicator each slot stands for; to be called with each new snapshot, before its records.
  void Learn(const SegmentSnapshot& snapshot);
  // Gives how many records were left out because nobody knows their communicator any more.
  uint64_t Add(std::span<const wire::Record> records, const ClockRelation& clock);
  // Whose records these are; 0: nobody knows any more.
  uint64_t CommunicatorOf(uint32_t slot, uint32_t generation) const;
  uint32_t RankCountOf(uint32_t slot, uint32_t generation) const;  // of that communicator; 0: not known
  // What has come since the last time.
  std::vector<OperationTotals> Take();

  // Ever since: operations finished, and time with at least one under way, those of `snapshot` included that
  // have not finished by `now_ns`.
  uint64_t finished() const { return finished_; }
  uint64_t InOperationNs(const SegmentSnapshot& snapshot, const ClockRelation& clock, int64_t now_ns) const;
  // When the first one started; 0 before.
  int64_t first_started_ns() const { return first_started_ns_; }

 private:
  struct Owner {
    uint32_t generation = 0;
    uint64_t communicator_id = 0;
    uint32_t rank_count = 0;
    uint64_t last_finished_ticks = 0;
  };
  // The slot's owner now and the one before: its last records may come after the slot was taken anew.
  struct Owners {
    Owner now;
    Owner before;
  };
  const Owner* Find(uint32_t slot, uint32_t generation) const;

  analysis::IntervalUnion in_operation_;
  uint64_t finished_ = 0;
  int64_t first_started_ns_ = 0;
  std::map<uint32_t, Owners> owners_;                               // by slot
  std::map<std::pair<uint64_t, uint8_t>, OperationTotals> totals_;  // by communicator and function
};

}  // namespace c4::agent
