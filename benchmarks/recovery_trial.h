// Faults, one after the other, in a training job on the emulated fabric, and what each cost. With C4D the
// job goes on by itself, on spare hosts, or that is said of it (hung); without it, a job that does not end by
// itself is ended after kHangWatchS, which says nothing of how long it would have hung. Healed and given back
// after each.
//
// One thread, the main one. Root.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/downtime_model.h"
#include "benchmarks/elastic_range.h"

namespace c4::benchmarks {

inline constexpr double kHangWatchS = 10;

struct PlayedFault {
  PlannedFault planned;
  std::string name;  // "stop rank3"
  FaultCost cost;
  double verdict_to_iteration_s = -1;  // -1: there was no verdict
  double lost_work_s = -1;             // since the checkpoint that it began with again
  double standstill_s = 0;             // between two iterations
  std::vector<std::string> isolated;
};

// A directory for checkpoints and the file of recovery, removed when it goes.
class TrialDir {
 public:
  TrialDir();
  ~TrialDir();
  TrialDir(const TrialDir&) = delete;
  TrialDir& operator=(const TrialDir&) = delete;
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TrainerTerms {
  double device_ms = 100;  // of an iteration
  int iterations = 1'000'000;
  std::string log_dir;
};
// 8 ranks on 12 hosts under 2 leaves and 2 spines, a checkpoint every kCheckpointEvery iterations.
inline constexpr int kCheckpointEvery = 10;
ElasticRangeOptions TrialOptions(const TrialDir& directory, bool with_c4d, unsigned seed,
                                 const TrainerTerms& terms);
// Until the job has done some iterations and written a checkpoint.
absl::Status AwaitAtWork(ElasticRange* range);
// The newest incident that is not over, and all nodes that are out.
absl::StatusOr<bool> IsQuiet(const ElasticRange& range);
std::vector<std::string> NodesOut(const v1::RecoveryState& state);
// Gives them back, and waits until they are free.
absl::Status GiveBack(ElasticRange* range);

absl::StatusOr<std::vector<PlayedFault>> PlayFaults(const std::vector<PlannedFault>& plan, bool with_c4d,
                                                    unsigned seed, const TrainerTerms& terms,
                                                    const ElasticRange::Say& say);

}  // namespace c4::benchmarks
