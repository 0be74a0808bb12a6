// Who is to blame for a fail-slow by the comparison of groups (group_profile.h): a rank, a node, or
// candidates; computation, communication or both. Pure functions; any thread.
#pragma once

#include "c4d_master/failslow/group_profile.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

// What the comparison has shown, as evidence and as facts. REQUIRES: finding->fail_slow.
void AddGroups(const GroupProfile& profile, Finding* finding);

// False: nobody stands out. REQUIRES: finding->fail_slow.
bool BlameByProfile(const GroupProfile& profile, const JobSnapshot& snapshot, Finding* finding);

}  // namespace c4::c4d
