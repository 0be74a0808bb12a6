// One simulated job (fabric/jobsim) under the master's own logic: learn, one fault, and what is said of it
// held against the table of accepted verdicts. Deterministic for a shape, a kind and a seed. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/jobsim/job.h"

namespace c4::benchmarks {

struct JobTrial {
  bool right = false;      // confirmed in time; of a healthy job: nothing was confirmed
  bool ambiguous = false;  // as one of several, where that is accepted
  size_t wrong = 0;        // confirmed verdicts that are not the accepted one
  double after_s = -1;     // from the fault to the confirmed verdict
  double limit_s = 0;      // in which it has to come
  std::string told;        // confirmed verdicts, one a line, with their evidence
};

// A shape of that many ranks, drawn by the seed. REQUIRES: ranks is a power of two from 16 on.
jobsim::Shape DrawShape(uint32_t ranks, uint64_t seed);

// A healthy job (kNone) is watched for `healthy_s`.
JobTrial RunJobTrial(const jobsim::Shape& shape, jobsim::FaultKind kind, uint64_t seed,
                     double healthy_s = 300);

}  // namespace c4::benchmarks
