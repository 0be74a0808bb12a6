// What the windows say once the queue pairs of a step are where they were to go: whether the moved ones are
// fast there or as slow as before, whether the neighbours that moved beside them changed as well (then the
// load did, and nothing follows), and whether those that stayed are slow still (else it went away by itself).
//
// Pure; any thread; no errors.
#pragma once

#include <string>
#include <vector>

#include "c4d_master/intervention/step_plan.h"

namespace c4::c4d {

enum class Reading {
  kNotYet,       // too few chunks so far
  kFast,         // the moved ones are fast; of kOnto: the neighbour is
  kSlow,         // they are as slow as before; of kOnto: the neighbour became slow
  kMixed,        // neither
  kLoadChanged,  // the controls changed as well
  kWentAway,     // the suspects that stayed are fast, too
};

struct StepReading {
  Reading reading = Reading::kNotYet;
  std::vector<Observation> seen;
  std::string line;  // a sentence with the figures
};

// `moved`: the moved suspects or the probe as they were before, on the way that they had; `flows`: as they
// are now. `returned`: the moved ones were moved back again, and are read there.
StepReading ReadStep(const StepPlan& plan, const std::vector<Flow>& moved, const std::vector<Flow>& flows,
                     bool returned, const InterventionThresholds& thresholds);

}  // namespace c4::c4d
