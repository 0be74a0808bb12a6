// Ranks whose own time between operations has grown, or has been far longer than that of all others since
// they began: one that is late while nobody else is, and one that may be, so that slow queue pairs which
// touch it are not held against the network. Part of DetectSlow (slow.h).
//
// Pure functions of the snapshot and the windows; any thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
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

// Ranks that are late together, all of them far beyond the others: one that slows many down would else be
// excused by these. A whole node, else all of a communicator (whose ranks are then candidates), else a few
// ranks, each by itself.
struct LateGroup {
  CulpritKind kind = CulpritKind::kRank;
  std::vector<Late> ranks;
  std::string host;              // of a node
  uint64_t communicator_id = 0;  // of candidates

  // Whether both say the same, at two moments.
  bool Names(const LateGroup& other) const;
};
std::vector<LateGroup> FindLateGroups(const JobSnapshot& snapshot, const std::vector<Late>& ranks,
                                      const SlowThresholds& thresholds);

// Whether it is late in more slices than one pause spoils, one for its data for instance.
bool IsLateBesidesAPause(const OwnMean& own, const SlowThresholds& thresholds);

// A rank that may be late: not enough to blame it, but enough not to blame the network for what touches it.
const Late* FindExplaining(const std::vector<Late>& ranks, const SlowThresholds& thresholds);

Finding DescribeLate(const JobSnapshot& snapshot, const Late& late, const std::vector<Late>& ranks);
Finding DescribeLateGroup(const JobSnapshot& snapshot, const LateGroup& group,
                          const std::vector<Late>& ranks);

}  // namespace c4::c4d
