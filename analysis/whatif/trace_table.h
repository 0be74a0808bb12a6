// The records of a trace sorted into buckets (step, stage, data-parallel rank, type), each in order of
// sequence, without copies; what contradicts itself or the metadata is refused here. In between the records
// and the Trace, which keeps none of it.
//
// Reads the records through a pointer; they must outlive it. One thread. Linear in the records.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

class TraceTable {
 public:
  static absl::StatusOr<TraceTable> Make(const TraceRecords& records, const JobShape& shape);

  const TraceRecords& records() const { return *records_; }
  int dp_size() const { return dp_size_; }
  int pp_size() const { return pp_size_; }
  const std::vector<int32_t>& steps() const { return steps_; }
  const std::vector<int32_t>& ranks() const { return ranks_; }
  const std::vector<std::string>& notes() const { return notes_; }

  std::span<const uint32_t> Bucket(size_t step, int stage, int dp, OperationType type) const;
  size_t Count(size_t step, int stage, int dp, OperationType type) const {
    return counts_[Key(step, stage, dp, type)];
  }
  // How many of them most workers of that stage have in most steps; of gc, the most that any has.
  size_t Usual(int stage, OperationType type) const {
    return usual_[static_cast<size_t>(stage) * kOperationTypes + Index(type)];
  }
  std::string WorkerName(int dp, int stage) const;

 private:
  explicit TraceTable(const TraceRecords& records) : records_(&records) {}

  size_t Key(size_t step, int stage, int dp, OperationType type) const;
  size_t StepOf(int32_t step) const;
  absl::Status FindShape(const JobShape& shape);
  absl::Status FindRanks();
  absl::Status Fill();
  absl::Status SortBucket(size_t key);
  void FindUsual();

  const TraceRecords* records_;
  int dp_size_ = 0;
  int pp_size_ = 0;
  std::vector<int32_t> steps_;
  std::vector<int32_t> ranks_;
  std::vector<uint32_t> begins_;  // per bucket: into order_
  std::vector<uint32_t> counts_;  // per bucket, without copies
  std::vector<uint32_t> order_;   // indices of records
  std::vector<uint32_t> usual_;
  std::vector<std::string> notes_;
  size_t copies_ = 0;
  uint32_t copy_line_ = 0;
};

}  // namespace c4::whatif
