// Finds what a worker's program does between its operations, where it waits for each before it begins the
// next: all programs that run on processors, and what a program on GPUs has marked. It is data to load and
// prepare, the loss, the cost of launching. The paper's replay does not know of it, and nobody waits for a
// send there.
//
// A record of type own-time at the begin of a worker's step, with no duration, says that the program waits
// so. AddOwnTime puts an operation of that type before each operation, for as long as nothing was under way
// that the program waited for. It waited for the nearest earlier operation that was always over by then, and
// for receives and collectives that ran beside others and were over for the first time. Nobody waited for a
// send that ends after the next operation begins.
//
// Pure. The time is linear in the operations, but for those that run beside each other.
#pragma once

#include "analysis/whatif/trace.h"

namespace c4::whatif {

// Does nothing where a stage has no record, or several in a step. Sets program, program_needs, follows, and
// measured_step_s: a worker that ends its step early begins the next one early, and waits in it, so that from
// the first start of all to the last end is longer than a step.
void AddOwnTime(Trace* trace);

}  // namespace c4::whatif
