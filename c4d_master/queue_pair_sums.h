// What the queue pairs of a membership come to. Whoever takes telemetry in adds them up while they lie at
// hand; who looks at the job a moment later needs the sums of some, and not to walk over half a million queue
// pairs.
//
// Pure functions; one thread; no errors.
#pragma once

#include "c4d_master/job_state.h"

namespace c4::c4d {

// Those that stand with it, where they are of now; else they are added up.
QueuePairSums SumsOf(const Membership& membership);

// From now on they stand with it, until its revision changes.
void AddUp(Membership* membership);

}  // namespace c4::c4d
