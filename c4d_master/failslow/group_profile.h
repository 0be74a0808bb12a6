// Which part of a job takes longer than others of its kind, in the records of a few iterations: ranks that
// compute (what is between their operations), and communicators that transfer (from when the last member has
// started an operation to its end, so that who waits for a late rank is not slow). Groups of one kind do the
// same calls; what they are is told by the program's marks, else by their calls.
//
// A pure function of the profile and of what C4D's windows know; any thread.
#pragma once

#include <functional>
#include <vector>

#include "c4d_master/failslow/episode.h"
#include "c4d_master/finding.h"
#include "c4d_master/smon/profile.h"

namespace c4::c4d {

struct GroupProfile {
  std::vector<SlowGroup> ranks;          // that compute longer, the worst first; of kind "stage"
  std::vector<SlowGroup> communicators;  // that transfer longer, the worst first
  double iterations = 0;                 // that were looked at
};

// How much a rank's own time has grown against what is usual for it (windows.h); 0: not known.
using Growth = std::function<double(const ProcessKey& process)>;

GroupProfile CompareGroups(const Profile& profile, const Episode& episode, const Growth& growth,
                           const FailSlowThresholds& thresholds);

}  // namespace c4::c4d
