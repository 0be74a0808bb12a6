// Collectives that take longer than usual though no rank comes late to them and no queue pair is slow: what
// is slow is inside a node, NVLink or PCIe, where nothing is seen but how long an operation takes. Part of
// DetectSlow (slow.h).
//
// The ranks that are in all such communicators are candidates; one of them alone is named.
//
// Pure functions of the snapshot and the windows; any thread; no errors.
#pragma once

#include <set>
#include <vector>

#include "c4d_master/detectors/cells.h"
#include "c4d_master/detectors/slow.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/windows.h"

namespace c4::c4d {

// `late`: processes that explain what they take part in.
std::vector<Finding> DetectSlowInside(const JobSnapshot& snapshot, const Windows& windows,
                                      const std::set<const Process*>& late, const SlowThresholds& thresholds);

}  // namespace c4::c4d
