// All detectors together: what each finds, and what of it is one cause seen twice. A mismatch ends the job
// in many ways, a dead process makes others wait, a stopped one makes connections stall, a late one makes
// cells slow: the cause is told, its consequences are not.
//
// A function of the snapshot, the network, what DetectSlow found last and the moment; any thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/detectors/communication_hang.h"
#include "c4d_master/detectors/crash.h"
#include "c4d_master/detectors/hang.h"
#include "c4d_master/detectors/path_lost.h"
#include "c4d_master/detectors/slow.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

inline constexpr size_t kMostConnections = 4096;  // that a finding names

struct Thresholds {
  HangThresholds hang;
  CommunicationHangThresholds communication_hang;
  EndThresholds end;
  SlowThresholds slow;
  PathLostThresholds path_lost;
};

std::vector<Finding> Diagnose(const JobSnapshot& snapshot, const NetworkView& network,
                              std::vector<Finding> slow, int64_t now_ns, const Thresholds& thresholds);

}  // namespace c4::c4d
