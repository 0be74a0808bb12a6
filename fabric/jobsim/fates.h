// What becomes of each process of a job under a fault: when it ends and how, when its communicators fail,
// when its GPU, its loader or its CPU stands still. All of it is drawn before the job runs, because whoever
// ends a job (a launcher, a kernel out of memory) does not ask how far it has come.
//
// Plain values; no threads.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/jobsim/job.h"
#include "fabric/jobsim/layout.h"

namespace c4::jobsim {

struct Fate {
  int64_t ends_ns = kNeverNs;
  int exit_status = 0;  // where no signal ended it
  int signal = 0;
  bool for_memory = false;         // by the kernel, which says so in its log
  int64_t stops_ns = kNeverNs;     // by a signal: it is there, and runs no more
  int64_t gpu_ends_ns = kNeverNs;  // nothing on the GPU ends after that
  int64_t spins_ns = kNeverNs;     // a kernel of its own that begins or goes on then never ends
  int64_t loader_ends_ns = kNeverNs;
  int64_t loader_back_ns = kNeverNs;
  int64_t fails_ns = kNeverNs;  // communicators with `failed_with` fail: an error, or an abort
  uint32_t failed_with = 0;     // a rank
  bool aborts = false;          // all of its communicators, by the process itself
};

std::vector<Fate> MakeFates(const Shape& shape, const Layout& layout, const Fault& fault, uint64_t seed);

}  // namespace c4::jobsim
