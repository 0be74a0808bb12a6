// The rhythm of a job: the longest standstill that is usual for each communicator, so that the time
// after which a wait looks like a hang fits the job.
//
// Only standstills in which somebody waits count (a communicator that nobody is in stands still for as
// long as the computation takes, which says nothing), only after the first operations (the first
// iteration compiles, allocates and warms up), and not those that were part of a confirmed verdict.
// Beside that, its pace: the longest time between two steps of late, whatever they were spent with. One
// that is not seen again fades: it halves in kFades times itself. Beside that, which calls have gone well in
// each communicator: one that has not been seen before and does not match the others' is the one to doubt.
// Time comes with the snapshot. One thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct RhythmThresholds {
  uint64_t warm_up_operations = 10;
};

inline constexpr size_t kMostCalls = 256;

class Rhythm {
 public:
  void SetThresholds(const RhythmThresholds& thresholds) { thresholds_ = thresholds; }

  // Looks at every communicator of the snapshot that has changed, at all of them where the snapshot has
  // another structure than the last one, and fills in its longest_standstill_ns, pace_ns and usual_calls. Of
  // communicators that are no longer there only the longest standstill is kept, for those of the same name
  // and size, and the longest of all: a job that was started again, on fewer nodes or other ones, pauses as
  // long for its checkpoints as before.
  void Observe(JobSnapshot* snapshot);

  // The standstill that this communicator is in now is not usual.
  void ExcludeStandstill(uint64_t communicator_id);

 private:
  using Role = std::pair<std::string, uint32_t>;  // name and size
  static constexpr size_t kMostFormer = 4096;
  static constexpr double kFades = 8;

  struct Learnt {
    Role role;
    uint64_t progress_mark = 0;
    int64_t current_ns = 0;  // of the standstill under way, with somebody waiting
    int64_t longest_ns = 0;
    bool excluded = false;  // the one under way
    int64_t stepped_at_ns = kNever;
    double pace_ns = 0;
    std::vector<OperationInfo> calls;  // that have finished, kMostCalls different ones
  };

  void ForgetGone(const JobSnapshot& snapshot);
  void Look(Communicator* communicator, Learnt* learnt);
  static void Pace(int64_t step_at_ns, Learnt* learnt);

  RhythmThresholds thresholds_;
  std::map<uint64_t, Learnt> learnt_;
  std::map<Role, int64_t> former_;  // the longest standstill of those that are gone
  int64_t longest_ns_ = 0;          // of all that were
  uint64_t structure_ = 0;          // of the last snapshot
  std::vector<Learnt*> known_;      // of each of its communicators
};

}  // namespace c4::c4d
