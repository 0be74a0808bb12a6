// Removes one cause from a job: it takes the cause's part (compute_parts.h) out of the recorded
// durations. FindCauses and `--fix cause=...` both use it, so every gain that is quoted can be asked
// for.
//
// Refers to the job; immutable once made, any thread. Seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "analysis/whatif/compute_parts.h"

namespace c4::whatif {

enum class CauseKind : uint8_t {
  kWorker,
  kStageImbalance,
  kSequenceLengths,
  kPauses,
  kCommunication,
  kLaunchDelay,
};
inline constexpr size_t kCauseKinds = 6;

const char* CauseName(CauseKind kind);

// Sets of causes.
constexpr uint32_t CauseBit(CauseKind kind) {
  return uint32_t{1} << static_cast<uint32_t>(kind);
}
// Sequence lengths again, as far as dealing out whole micro-batches over the ranks evens them out.
inline constexpr uint32_t kDealMicroBatches = uint32_t{1} << kCauseKinds;

// "stage-imbalance": the words of `--fix cause=...`; "micro-batch-dealing" is kDealMicroBatches.
std::optional<uint32_t> ParseCause(std::string_view word);
const char* CauseWord(uint32_t bit);

// Operations that are idealised, and causes that are removed.
struct Fix {
  std::vector<Selection> chosen;
  uint32_t causes = 0;
};

class Remedies {
 public:
  explicit Remedies(const Job& job);

  const ComputeParts& parts() const { return parts_; }
  Durations Without(uint32_t causes) const;
  double StepTime_s(const Fix& fix, int threads) const;
  // What `--fix` says. Without launch delays: over the measured step, which alone contains them, but where
  // the replay has them as own time.
  Answer Ask(const Analysis& analysis, const Fix& fix, int threads) const;

 private:
  std::vector<double> StageScales() const;
  std::vector<float> DealtOut() const;
  void AddOwnTimes(std::vector<Selection>* chosen) const;

  const Job& job_;
  const Trace& trace_;
  const ComputeParts parts_;
  std::vector<double> slow_factor_;          // by worker
  std::vector<double> own_scale_;            // by worker: the usual own time over its own; 1: it is usual
  std::vector<double> stage_scale_;          // by operation: the stages' mean over its own stage
  std::vector<float> dealt_;                 // [micro-batch][lane]: work after dealing out
  std::vector<std::vector<size_t>> paused_;  // by operation: lanes, ascending
};

}  // namespace c4::whatif
