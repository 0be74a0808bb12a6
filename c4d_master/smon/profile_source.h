// Where SMon gets the profiles of a job from: a session collects the operations of some training steps, as
// the agents send them, and gives them as the what-if analysis reads them.
//
// One thread, the master's state thread. What is collected belongs to the source until Finish gives it away.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"
#include "c4d_master/job_state.h"

namespace c4::c4d {

struct ProfiledJob {
  whatif::TraceRecords records;
  whatif::JobShape shape;
  // What the profile lacks and why, a sentence each ("rank 3 marks no computation: ..."). Where it says
  // anything, figures are not to be relied on without it.
  std::vector<std::string> not_seen;
};

class ProfileSource {
 public:
  virtual ~ProfileSource() = default;

  // Begins to collect: the job's processes are asked for every operation from now on. FailedPrecondition:
  // a session runs already.
  virtual absl::Status Start(Now now) = 0;

  // Steps that every worker seen has ended since Start; a session is over after enough of them or by time.
  virtual int CompleteSteps() const = 0;

  // Ends the session, gives back the processes' usual level of recording, and what was collected.
  // FailedPrecondition: none runs. NotFound: nothing can be analysed; the sentence says what is missing and
  // how to get it (no marks: which header to call; no telemetry).
  virtual absl::StatusOr<ProfiledJob> Finish(Now now) = 0;
};

}  // namespace c4::c4d
