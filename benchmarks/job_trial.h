// One simulated job (fabric/jobsim) under the master's own logic: learn, one fault, and what is said of it
// held against the table of accepted verdicts. Deterministic for a shape, a kind and a seed. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "c4d_master/hearing.h"
#include "fabric/jobsim/job.h"
#include "fabric/jobsim/life.h"

namespace c4::benchmarks {

struct JobTrial {
  bool right = false;      // confirmed in time; of a healthy job: nothing was confirmed
  bool ambiguous = false;  // as one of several, where that is accepted
  size_t wrong = 0;        // confirmed verdicts that are not the accepted one
  double after_s = -1;     // from when the fault showed to the confirmed verdict
  double limit_s = 0;      // in which it has to come
  double simulated_s = 0;
  size_t batches = 0;  // that the master took in
  std::string told;    // what was suspected and confirmed, one a line, with its evidence
};

// A shape of about that many ranks and a fault of that kind in it that does something to the job.
void DrawTrial(uint32_t ranks, jobsim::FaultKind kind, uint64_t seed, jobsim::Shape* shape,
               jobsim::Fault* fault);

// `per_host_ns`: see c4d::Hearing; agents report as their master asks (c4a/cadence.h).
JobTrial RunJobTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed,
                     int64_t per_host_ns = c4d::Hearing::kPerHostNs);

// A healthy job with all that its life brings is watched for so long.
JobTrial RunHealthyTrial(uint32_t ranks, uint64_t seed, double healthy_s, int64_t report_ns,
                         int64_t per_host_ns = c4d::Hearing::kPerHostNs);

}  // namespace c4::benchmarks
