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

// A job that waited for a host that was not heard gets as long to go on, now that it is back, as it had stood
// still before, but not for ever: retransmissions come that late, as each waits twice as long as the one
// before. What stood still before the host fell silent did so for another reason.
struct SilenceThresholds {
  int64_t before_ns = 2 * kSecondNs;
  int64_t most_to_go_on_ns = 10 * kSecondNs;
};
inline constexpr size_t kMostConnections = 4096;  // that a finding names

struct Thresholds {
  HangThresholds hang;
  CommunicationHangThresholds communication_hang;
  EndThresholds end;
  SlowThresholds slow;
  PathLostThresholds path_lost;
  SilenceThresholds silence;
};

std::vector<Finding> Diagnose(const JobSnapshot& snapshot, const NetworkView& network,
                              std::vector<Finding> slow, int64_t now_ns, const Thresholds& thresholds);

}  // namespace c4::c4d
