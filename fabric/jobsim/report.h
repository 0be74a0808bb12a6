// A simulated rank as its node's agent reports it: v1::ProcessReport with the meanings that c4a/reporter.cc
// gives it. What is under way at that moment is told as far as it has come: chunks that were posted and are
// not acknowledged, receives that nobody fills.
//
// Reports are written over what stood there: a job of thousands of ranks is told a hundred thousand times.
// One thread; no errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health.h"
#include "fabric/jobsim/counters.h"
#include "fabric/jobsim/physics.h"
#include "fabric/jobsim/under_way.h"

namespace c4::jobsim {

// Who the process is.
struct Identity {
  std::string host;
  std::string boot_id;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t incarnation = 0;
};

class Reporter {
 public:
  explicit Reporter(const Physics& physics) : physics_(physics) {}

  // `at_ns`: on the clock of the life, as are the health's times. The counters hold all events up to then;
  // their summaries are taken. REQUIRES: `report` is empty, or of the same process at an earlier moment.
  void Fill(uint32_t rank, const Identity& identity, const agent::ProcessHealth& health, int64_t at_ns,
            RankCounters* counters, v1::ProcessReport* report);

 private:
  class Filler;

  // Of one edge at a time, by flow; kept for their memory.
  struct Scratch {
    std::vector<OpenOperation> open;
    std::vector<Under> under;
    std::vector<FlowCount> latencies;
  };

  const Physics& physics_;
  Scratch scratch_;
};

}  // namespace c4::jobsim
