// What an experiment means for its verdict: the finding that takes over from what the detectors said, with
// the experiment's sentences as evidence; and the record of it that the verdict carries.
//
// Pure; any thread; no errors.
#pragma once

#include <optional>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/finding.h"
#include "c4d_master/intervention/experiment.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

// None: it has told nothing, and the verdict stays as it is. `verdict`: as it was before the experiment.
std::optional<Finding> SettledFinding(const Experiment& experiment, const v1::Verdict& verdict,
                                      const JobSnapshot& snapshot, Now now,
                                      const InterventionThresholds& thresholds);

v1::Intervention RecordOf(const Experiment& experiment);

// Whether they have a queue pair in common.
bool SharesConnection(const Finding& a, const Finding& b);

}  // namespace c4::c4d
