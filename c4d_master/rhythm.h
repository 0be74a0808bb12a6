// The rhythm of a job: the longest standstill that is usual for each communicator, so that the time
// after which a wait looks like a hang fits the job.
//
// Only standstills in which somebody waits count (a communicator that nobody is in stands still for as
// long as the computation takes, which says nothing), only after the first operations (the first
// iteration compiles, allocates and warms up), and not those that were part of a confirmed verdict.
// Beside that, which calls have gone well in each communicator: one that has not been seen before and does
// not match the others' is the one to doubt. Time comes with the snapshot. One thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

inline constexpr uint64_t kWarmUpOperations = 10;
inline constexpr size_t kMostCalls = 256;

class Rhythm {
 public:
  // Looks at every communicator of the snapshot that has changed, at all of them where the snapshot has
  // another structure than the last one, and fills in its longest_standstill_ns and usual_calls. What belongs
  // to communicators that are no longer there is forgotten.
  void Observe(JobSnapshot* snapshot);

  // The standstill that this communicator is in now is not usual.
  void ExcludeStandstill(uint64_t communicator_id);

 private:
  struct Learnt {
    uint64_t progress_mark = 0;
    int64_t current_ns = 0;  // of the standstill under way, with somebody waiting
    int64_t longest_ns = 0;
    bool excluded = false;  // the one under way
    uint64_t round = 0;
    std::vector<OperationInfo> calls;  // that have finished, kMostCalls different ones
  };

  void Look(Communicator* communicator, Learnt* learnt);

  std::map<uint64_t, Learnt> learnt_;
  uint64_t structure_ = 0;      // of the last snapshot
  std::vector<Learnt*> known_;  // of each of its communicators
  uint64_t round_ = 0;
};

}  // namespace c4::c4d
