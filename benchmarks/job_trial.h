// One simulated job (fabric/jobsim) under the master's own logic: learn, one fault, and what is said of it
// held against the table of accepted verdicts. Deterministic for a shape, a kind and a seed. One thread.
#pragma once

#include <cstdint>
#include <string>

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
  double judged_s = 0;  // of these, the time that the master heard of
  std::string told;     // what was suspected and confirmed, one a line, with its evidence
};

// A shape of about that many ranks and a fault of that kind in it that does something to the job.
void DrawTrial(uint32_t ranks, jobsim::FaultKind kind, uint64_t seed, jobsim::Shape* shape,
               jobsim::Fault* fault);

JobTrial RunJobTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed);

struct HealthyOptions {
  double lasts_s = 86'400;
  bool busy = false;  // something happens every some minutes
  bool skip = true;   // of long stretches of nothing but training a sample is watched
};

// A healthy job with all that its life brings.
JobTrial RunHealthyTrial(uint32_t ranks, uint64_t seed, const HealthyOptions& options);

}  // namespace c4::benchmarks
