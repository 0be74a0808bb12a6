// A model checker of recovery's state machine: walks every interleaving of its events in a small world, to a
// depth, and looks after each step whether what the machine guarantees (c4d_master/recovery/machine.h) holds.
//
// The world: a job on two nodes, a spare one, verdicts about each of them in two incarnations, a driver that
// does as it is told, refuses, does not answer, or answers late, a scheduler in which others take and put
// back nodes, people who approve, deny, isolate and release, and masters that begin again. What must hold is
// judged by what the world has seen, never by what the machine remembers. Time passes only by ticks, so that
// orders of events that lead to the same state meet. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "c4d_master/recovery/machine.h"

namespace c4::test {

struct WalkResult {
  size_t states = 0;               // different ones
  size_t transitions = 0;          // events that were tried
  std::string violation;           // empty: none was found
  std::vector<std::string> trace;  // the events that lead to it
};

// Breadth first, so that the trace is as short as one can be.
WalkResult Walk(const c4d::recovery::Rules& rules, int depth);

// Rules under which the machine does something in each mode.
c4d::recovery::Rules RulesOfTheWalk(c4d::recovery::Mode mode);

}  // namespace c4::test
