// A recorded training job as the analysis wants it: the same operations in every lane, a lane being one
// training step of one data-parallel rank, and each operation's times in all lanes beside each other.
// (the what-if paper, section 3.2: the tensor step x micro-batch x PP rank x DP rank of each type.)
//
// Records come in any order through TraceRecords; BuildTrace lays them out and judges them. What it leaves
// out of the analysis and why stands in Trace::notes; what would make every figure wrong is refused.
//
// Plain values: one thread while building, any number afterwards. Seconds; a duration has single precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/operation_type.h"

namespace c4::whatif {

// One operation of one worker. 40 bytes: a trace has millions.
struct OperationRecord {
  double start_s = 0;
  float duration_s = 0;
  int32_t step = 0;
  uint32_t line = 0;          // where it stands in the file, for messages
  int32_t rank = -1;          // global rank of the worker; -1: not said
  int32_t sequence = -1;      // of this type on this worker in this step, by start; -1: not said
  int32_t micro_batch = -1;   // of compute operations; -1: not said
  int16_t chunk = -1;         // model chunk within the stage (virtual stage)
  int16_t global_chunk = -1;  // model chunk within the model
  uint16_t dp_rank = 0;
  uint16_t stage : 12 = 0;
  uint16_t type : 4 = 0;
};

inline constexpr int kMaxStages = 4096;
inline constexpr int kMaxDpRanks = 65536;

// Everything that was read, in blocks: growing moves nothing.
class TraceRecords {
 public:
  // `lag_s`: how much of it the worker's tensor or context group waited for the member that lags
  // (SetLagging).
  void Add(const OperationRecord& record, float lag_s = 0);
  // A rank that belongs to a worker's tensor or context group, and the one of them that the others wait for.
  void AddMember(int32_t rank, int dp, int stage) { members_[rank] = {dp, stage}; }
  void SetLagging(int dp, int stage, int32_t rank) { lagging_[{dp, stage}] = rank; }
  // An operation that cannot be used (a negative duration); `why` is the end of "line 12: ...", or the whole
  // sentence where `line` is 0.
  void AddDamaged(int32_t step, uint32_t line, const std::string& why);

  size_t size() const { return size_; }
  const OperationRecord& operator[](size_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  bool has_lags() const { return !lags_s_.empty(); }
  float lag_s(size_t i) const { return i < lags_s_.size() ? lags_s_[i] : 0; }
  const std::map<int32_t, std::pair<int, int>>& members() const { return members_; }
  const std::map<std::pair<int, int>, int32_t>& lagging() const { return lagging_; }

  struct Damage {
    uint32_t line = 0;
    std::string why;
    std::string Sentence() const { return line == 0 ? why : "line " + std::to_string(line) + ": " + why; }
  };
  const std::map<int32_t, Damage>& damaged() const { return damaged_; }

 private:
  static constexpr size_t kBlock = 16384;

  std::vector<std::unique_ptr<OperationRecord[]>> blocks_;
  size_t size_ = 0;
  std::map<int32_t, Damage> damaged_;  // by step, the first of each
  std::vector<float> lags_s_;          // up to the last record that has one
  std::map<int32_t, std::pair<int, int>> members_;
  std::map<std::pair<int, int>, int32_t> lagging_;
};

// What the job's metadata say; 0: not said.
struct JobShape {
  std::string name;
  int dp_size = 0;
  int pp_size = 0;
  int tp_size = 0;
  int cp_size = 0;   // sequence or context parallelism ("dsp_size")
  int vpp_size = 0;  // model chunks a stage
  int world_size = 0;
  int layers = 0;  // of the model; for advice
};

// An operation of every lane, with its times in the lane that the dependencies are taken from.
struct TemplateOperation {
  OperationType type = OperationType::kGc;
  int stage = 0;
  int index = 0;  // among those of its type and stage, by sequence
  int chunk = -1;
  int global_chunk = -1;
  int micro_batch = -1;
  double start_s = 0;
  double end_s = 0;
};

struct Trace {
  JobShape shape;
  int dp_size = 0;
  int pp_size = 0;
  std::vector<int32_t> steps;  // identifiers, ascending
  std::vector<int32_t> ranks;  // [stage * dp_size + dp]: global rank

  std::vector<TemplateOperation> operations;  // by stage, type, index
  std::vector<size_t> first_of;  // [stage * kOperationTypes + type]: into operations; one more at the end

  std::vector<double> start_s;    // [operation * lanes() + lane]; NaN where a lane lacks it (gc only)
  std::vector<float> duration_s;  // the same order

  // Per step: from the first start to the last end; with own time from the last end of the step before, where
  // it follows that.
  std::vector<double> measured_step_s;

  // Of a program that waits for each operation before it begins the next (own_time.h); empty: not known.
  // [stage]: its operations in the program's order, and what each of their own times waits for.
  std::vector<std::vector<uint32_t>> program;
  std::vector<std::vector<std::vector<uint32_t>>> program_needs;
  std::vector<std::vector<size_t>> program_gc;  // [stage][gc]: in front of which operation in `program`
  std::vector<uint8_t> follows;                 // [step]: each worker began it where it ended the step before
  bool has_own_time() const { return !program.empty(); }

  // Of tensor and context groups, of which one rank stands for the worker.
  std::vector<float> lag_s;           // [operation * lanes() + lane]: waiting for `lagging`; empty: not known
  std::vector<int32_t> lagging;       // [worker]: the member that the others wait for; -1: none; may be empty
  std::map<int32_t, size_t> members;  // rank: worker

  // Every start is a number of single precision: so was the clock of the profile, and ends are rounded as
  // there. (Otherwise the short transfers of such a profile differ from what its own analyser makes of them
  // by 1e-5.)
  bool single_precision = false;

  double End_s(double started_s, float lasted_s) const {
    const double end_s = started_s + static_cast<double>(lasted_s);
    return single_precision ? static_cast<double>(static_cast<float>(end_s)) : end_s;
  }

  std::vector<std::string> notes;           // what was left out, taken together or filled in; sentences
  std::map<int32_t, std::string> left_out;  // step: why

  size_t lanes() const { return steps.size() * static_cast<size_t>(dp_size); }
  size_t Lane(size_t step, int dp) const {
    return step * static_cast<size_t>(dp_size) + static_cast<size_t>(dp);
  }
  size_t Count(int stage, OperationType type) const;
  // The operation of that type and stage; `index` below Count.
  size_t Find(int stage, OperationType type, size_t index) const;
  // Where a worker stands in `ranks` and in whatever else has one entry a worker.
  size_t Worker(int dp, int stage) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(dp_size) + static_cast<size_t>(dp);
  }
  int Rank(int dp, int stage) const { return ranks[Worker(dp, stage)]; }
  int workers() const { return dp_size * pp_size; }
};

// InvalidArgument with a sentence that says what is wrong and what to do. `shape` is taken from the records
// where it says nothing, and must agree with them where it does.
absl::StatusOr<Trace> BuildTrace(const TraceRecords& records, const JobShape& shape);

}  // namespace c4::whatif
