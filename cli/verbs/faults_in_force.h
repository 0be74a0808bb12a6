// What is out of order in a running job because somebody asked for it: faults of its fabric, ranks and agents
// that are stopped. `c4 inject heal` says what it heals with this, whoever injected it.
//
// A look, which may be old when it returns. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric/inject/job_view.h"

namespace c4::cli {

struct FaultInForce {
  std::string kind;    // cut, slow, loss, break, quota, isolated, stopped
  std::string target;  // leaf0-spine1, host3, rank2, "the agent of host1"
};

// NotFound when the job's fabric is not up.
absl::StatusOr<std::vector<FaultInForce>> FaultsInForce(const fabric::JobView& job);

// "1795471061.250 heal: rank2 (stopped), leaf0-spine1 (cut)", or that there was nothing.
std::string HealedAllText(const std::vector<FaultInForce>& healed, double unix_s);
// The line of the plan file: {"event":"heal","id":0,"healed":[{"kind","target"},...],"unix_s":...}.
std::string HealedAllJson(const std::vector<FaultInForce>& healed, double unix_s);

}  // namespace c4::cli
