// A simulated rank as its node's agent reports it: v1::ProcessReport with the meanings that c4a/reporter.cc
// gives it. What is under way at that moment is told as far as it has come: chunks that were posted and are
// not acknowledged, receives that nobody fills.
//
// Pure but for the counters' summaries, which each report takes. One thread; no errors.
#pragma once

#include <cstdint>
#include <string>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health.h"
#include "fabric/jobsim/counters.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {

// Who the process is.
struct Identity {
  std::string host;
  std::string boot_id;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t incarnation = 0;
};

// `at_ns`: on the clock of the life, as are the health's times. The counters hold all events up to then.
void FillReport(const Physics& physics, uint32_t rank, const Identity& identity,
                const agent::ProcessHealth& health, int64_t at_ns, RankCounters* counters,
                v1::ProcessReport* report);

}  // namespace c4::jobsim
