// Draws jobs by a seed: layouts, sizes, speeds, lives and faults, over wide ranges that include odd numbers
// of ranks. Pure functions.
#pragma once

#include <cstdint>

#include "fabric/jobsim/job.h"

namespace c4::jobsim {

// About that many ranks: what a job of the drawn layout makes of them, never more. REQUIRES: from 8 on.
Shape DrawShape(uint32_t ranks, uint64_t seed);

// What its life brings: checkpoints, evaluations, data that come late, a slow start. `busy`: every some
// steps, else as often as on a real day.
void DrawLife(uint64_t seed, bool busy, Shape* shape);

// Somewhere in the job, some time after `from_ns`.
Fault DrawFault(const Shape& shape, FaultKind kind, int64_t from_ns, uint64_t seed);

// Whether the fault does anything to that job: a NIC that nothing crosses is nobody's trouble, and what makes
// a job's steps longer by less than a fifth gets nobody out of bed.
bool Matters(const Shape& shape, const Fault& fault);

// What a step takes, about, while the fault lasts.
int64_t SlowedStepNs(const Shape& shape, Fault fault);

}  // namespace c4::jobsim
