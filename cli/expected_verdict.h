// The table of accepted verdicts (docs/verdicts.md) as the judge needs it: from what was injected to what has
// to be said. Pure; any thread.
#pragma once

#include <vector>

#include "cli/fault_judge.h"
#include "fabric/inject/injector.h"

namespace c4::cli {

ExpectedVerdict ExpectedVerdictOf(const fabric::Applied& applied);

// For faults that are judged by connections: which of them have to be named, and which may be, by what
// `before` (when the fault came) and `now` (while it is in force) say of the same job.
struct ExpectedFlows {
  std::set<Flow> must;
  std::set<Flow> may;
};
ExpectedFlows ExpectedFlowsOf(const fabric::Applied& applied, const std::vector<fabric::Flow>& now);

}  // namespace c4::cli
