// What a worker's program does between its operations, where it waits for each before it begins the next
// (all that runs on processors, and what a program on GPUs has marked): data that it loads and prepares, the
// loss, what launching costs. The paper's replay knows nothing of that, and has nobody wait for a send.
//
// A record of type own-time at the begin of a worker's step, of no duration, says that its program is such a
// one. AddOwnTime puts an operation of that type in front of each operation, for as long as nothing was under
// way that the program waited for. What it waited for: the nearest operation before it that was always over
// by then, and receives and collectives that ran beside others and were over for the first time. A send that
// ends later than the next operation begins was waited for by nobody.
//
// Pure; linear in the operations but for those that run beside each other.
#pragma once

#include "analysis/whatif/trace.h"

namespace c4::whatif {

// Does nothing where a stage has no record, or several in a step. Sets program, program_needs, follows, and
// measured_step_s: a worker that ends its step early begins the next one early, and waits in it, so that from
// the first start of all to the last end is longer than a step.
void AddOwnTime(Trace* trace);

}  // namespace c4::whatif
