// Makes the records of the what-if analysis of what the processes of a job did: which worker each is (as the
// programs say), which step an operation belongs to (by the marks around its call), and what it is for (by
// the workers that its communicator joins).
//
// Only tensor and context rank 0 of each worker is taken, as in the analysis, and only steps that all of them
// marked. What lies within a mark is part of what is marked. Times of nodes are put on the master's clock.
// Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "c4d_master/smon/profile.h"
#include "c4d_master/smon/profile_source.h"

namespace c4::c4d {

// NotFound with a sentence that says what is missing and how to get it, where nothing can be analysed.
absl::StatusOr<ProfiledJob> JoinProfile(const Profile& profile);

}  // namespace c4::c4d
