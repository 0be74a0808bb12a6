// Ranks whose own time between operations has grown, or has been far longer than that of all others since
// they began: one that is late while nobody else is, and one that may be, so that slow queue pairs which
// touch it are not held against the network. Part of DetectSlow (slow.h).
//
// Pure functions of the snapshot and the windows; any thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "c4d_master/detectors/slow.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/windows.h"

namespace c4::c4d {

struct Late {
  uint32_t process = 0;
  double ratio = 0;
  OwnTime own;
  bool from_start = false;  // told from the others, not from what was usual for it
};

// Everybody's own time against what is usual for them, largest first.
std::vector<Late> Lateness(const JobSnapshot& snapshot, const Windows& windows, size_t back);

// The rank that is late and alone in that, if there is one.
std::optional<Late> FindLate(const std::vector<Late>& ranks, const SlowThresholds& thresholds);

// A rank that may be late: not enough to blame it, but enough not to blame the network for what touches it.
const Late* FindExplaining(const std::vector<Late>& ranks, const SlowThresholds& thresholds);

Finding DescribeLate(const JobSnapshot& snapshot, const Late& late, const std::vector<Late>& ranks);

}  // namespace c4::c4d
