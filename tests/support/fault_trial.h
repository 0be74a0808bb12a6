// One trial of the whole master logic against a simulated job: learn, inject, wait, heal; then what was
// said is compared with the table of accepted verdicts (docs/verdicts.md). Deterministic for a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "tests/support/training_sim.h"

namespace c4::simulation {

struct TrialResult {
  bool found = false;      // the right verdict was confirmed in time (or none was right and none came)
  size_t wrong = 0;        // confirmed verdicts besides
  bool cleared = true;     // nothing was left open at the end
  bool applicable = true;  // the fault could have an effect in this job
  bool ambiguous = false;  // found, as one of several links that no queue pair tells apart
  double confirmed_after_s = -1;
  std::string told;  // the confirmed verdicts, one a line
};

const char* FaultName(Fault fault);

// `paths_known`: C4P tells the paths, and faults of links are right as the link only.
TrialResult RunTrial(Fault fault, const TrainingShape& shape, uint64_t seed, bool paths_known = false);

}  // namespace c4::simulation
