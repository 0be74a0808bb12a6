// Ends of processes and nodes: a crash (a process is gone without having left in order), a lost node (its
// agent is silent and its ranks are waited for), a mismatch (ranks called different collectives at the
// same sequence number), a rank that never joined a communicator. docs/verdicts.md has the rules.
//
// Pure functions of the snapshot; any thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct EndThresholds {
  int64_t together_ns = kSecondNs / 10;  // deaths that are not told apart
  // Who waited in an operation for so long before it gave its communicators up gave up waiting.
  int64_t gave_up_wait_ns = 10 * kSecondNs;
  // Deaths of a job that is ended as a whole; before, no crash of several that may have been ended from
  // outside is certain.
  int64_t ended_ns = 2 * kSecondNs;
  uint64_t ended_least = 3;                    // at least so many of these, and more than this share of
  double ended_share = 0.5;                    // their incarnation's processes
  int64_t lost_silence_ns = 5 * kSecondNs;     // of an agent whose ranks are waited for
  int64_t lost_standstill_ns = 3 * kSecondNs;  // of those who wait for them
  // A node that spoke for longer than `lost_before_ns` while the job stood still did not stop it by its end:
  // its agent may be starting anew. Silent for `lost_late_ns`, it is lost all the same.
  int64_t lost_before_ns = 2 * kSecondNs;
  int64_t lost_late_ns = 60 * kSecondNs;
  int64_t join_suspect_ns = 10 * kSecondNs;
  // Nodes of one job start minutes apart: images are pulled, caches filled, kernels compiled.
  int64_t join_idle_ns = 300 * kSecondNs;  // of one that is missing, is there, and does nothing
  int64_t join_limit_ns = 600 * kSecondNs;
};

std::vector<Finding> DetectCrashes(const JobSnapshot& snapshot, const EndThresholds& thresholds);
std::vector<Finding> DetectLostNodes(const JobSnapshot& snapshot, int64_t now_ns,
                                     const EndThresholds& thresholds);
std::vector<Finding> DetectMismatches(const JobSnapshot& snapshot);
std::vector<Finding> DetectNeverJoined(const JobSnapshot& snapshot, const EndThresholds& thresholds);

}  // namespace c4::c4d
