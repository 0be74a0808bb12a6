// What a process records one by one at the fine level (its operations and what its program marks), until a
// report takes it: a bounded number of entries, what comes beyond is counted. Pure; belongs to the scanning
// thread.
#pragma once

#include <cstdint>
#include <span>

#include "c4/v1/telemetry.pb.h"
#include "c4a/clock_relation.h"
#include "c4a/operation_tally.h"
#include "wire/segment.h"

namespace c4::agent {

class ProfileLog {
 public:
  // Of one process between two reports: 30,000 a second at the usual interval, a third of a megabyte.
  static constexpr int kMaxEntries = 8192;

  // After `tally` has learnt of their communicators.
  void Add(std::span<const wire::Record> records, const OperationTally& tally, const ClockRelation& clock);
  // Moves what has come since the last time into the report; nothing where nothing ever came.
  void Take(v1::ProcessReport* report);

 private:
  void AddOperation(const wire::OperationRecord& operation, uint64_t communicator_id,
                    const ClockRelation& clock);
  void AddMark(const wire::MarkRecord& mark, const ClockRelation& clock);

  v1::Profile profile_;
  uint64_t left_out_ = 0;
};

}  // namespace c4::agent
