// The table of accepted verdicts (docs/verdicts.md) as the judge needs it: from what was injected to what has
// to be said. Pure; any thread.
#pragma once

#include <vector>

#include "cli/demonstration/fault_judge.h"
#include "fabric/inject/injector.h"

namespace c4::cli {

// What the job has to tell of links by.
struct NetworkTerms {
  bool paths_known = false;  // C4P runs and knows the paths: the link itself is to be named
  bool fail_over = false;    // the transport goes around links that are cut
};

ExpectedVerdict ExpectedVerdictOf(const fabric::Applied& applied, const NetworkTerms& network = {});

// For faults that are judged by connections: which of them have to be named, and which may be, by what
// `before` (when the fault came) and `now` (while it is in force) say of the same job.
struct ExpectedFlows {
  std::set<Flow> must;
  std::set<Flow> may;
  std::set<std::string>
      shared;  // links that all of `must` take (of `may` where there is none), the fault's left out
};
ExpectedFlows ExpectedFlowsOf(const fabric::Applied& applied, const std::vector<fabric::Flow>& now);

}  // namespace c4::cli
