// Non-communication hang: some rank has not entered an operation, or cannot go on inside it, while others
// wait in it. docs/verdicts.md explains the rules with examples; in short:
//
// - A member waits in operation k when it has started more than it has finished, k of them. It waits for
//   the members that have not called k, and for those that cannot run (stopped, traced, dead) and have not
//   finished k. A process that cannot run waits for nobody, whatever its counters say. Where not all
//   members are known (an agent is silent, a process is not monitored), only who cannot run is blamed.
// - Over all communicators this makes a wait-for graph; the processes in which it ends are to blame.
//   An operation that all have entered with nobody stopped, and a communicator that cannot be judged,
//   are ends as well; of the first DetectStuckInside speaks.
// - It is a suspicion when the communicator, and the culprit itself, have stood still for longer than
//   usual here; it is certain when the culprit cannot run, makes no progress of its own, or the wait
//   exceeds every reasonable limit.
//
// Pure functions of the snapshot and the moment; any thread; no errors.
#pragma once

#include <cstdint>
#include <vector>

#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct HangThresholds {
  int64_t suspect_ns = 2 * kSecondNs;      // at least
  int64_t suspect_max_ns = 5 * kSecondNs;  // at most, whatever is usual
  int64_t no_progress_ns = 10 * kSecondNs;
  int64_t limit_ns = 120 * kSecondNs;
  // Of who reads or writes files, or is blocked in the kernel: a checkpoint on a busy file system takes ten
  // minutes.
  int64_t io_limit_ns = 900 * kSecondNs;
  int64_t io_recent_ns = 10 * kSecondNs;  // who has moved data since then does
  // All are inside and nothing moves: suspected after so long, as the network's own detectors come first.
  int64_t inside_ns = 30 * kSecondNs;
  double usual_factor = 1.5;                  // of the longest usual standstill: suspected
  double certain_factor = 5;                  // of the same: certain,
  int64_t certain_more_ns = 300 * kSecondNs;  // or so much more than it
  double deadlock_factor = 2;                 // of the time of a suspicion: a ring is certain
};

// After how long a standstill somebody is suspected in a communicator, and after how long it is certain.
int64_t SuspectAfterNs(const Communicator& communicator, const HangThresholds& thresholds);
int64_t CertainAfterNs(const Communicator& communicator, const HangThresholds& thresholds);
// Whether the process moves data from or to files, or is blocked in the kernel, which mostly does that.
bool DoesIo(const ProcessRef& ref, const HangThresholds& thresholds);

// Communicators all of whose members are inside an operation of which nothing moves any more: its ranks are
// candidates. For jobs in which nothing else explains the standstill.
std::vector<Finding> DetectStuckInside(const JobSnapshot& snapshot, const HangThresholds& thresholds);

// By culprit's rank; one finding per culprit.
std::vector<Finding> DetectHangs(const JobSnapshot& snapshot, const HangThresholds& thresholds);

}  // namespace c4::c4d
