// The state machine of recovery: from a confirmed verdict to a job that runs again without the node that was
// to blame. Pure: a state and an event in, actions out; the same in, the same out.
//
// What it guarantees, whatever comes in whichever order (tests/unit/c4d_master/recovery/checker_test.cc walks
// them all to a depth):
//   - by itself it isolates no more nodes than the rules' share and rate allow, counting those on their way;
//   - a node that is out, or on its way out, is not isolated again;
//   - nothing is done for a verdict of a former incarnation, one that was acted on before, one that is
//   cleared,
//     or one that telemetry has not shown for too long;
//   - what a person says wins: a denied incident does nothing more, a node that a person gave back is left
//   alone
//     (in the scheduler as well), one that a person took out is not given back;
//   - one command is under way at a time; an answer to any other changes nothing;
//   - a master that begins again goes on with the same command under the same number.
//
// One thread.
#pragma once

#include <string>
#include <vector>

#include "c4d_master/recovery/model.h"

namespace c4::c4d::recovery {

// How many nodes may be isolated by itself at a time.
int CapOf(const Rules& rules, const State& state);
// Those that are, and those that are about to be.
int AutomatedOut(const State& state);

// Moves `state` by `event`; what is to be done, in this order.
std::vector<Action> Step(const Rules& rules, State* state, const Event& event);

// nullptr where there is none.
const Incident* FindIncident(const State& state, uint64_t id);
// The one whose commands are being carried out.
const Incident* UnderWay(const State& state);

}  // namespace c4::c4d::recovery
