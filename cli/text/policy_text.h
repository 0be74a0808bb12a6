// The thresholds of a policy as `c4 policy` and docs/policy.md show them. Pure; any thread.
#pragma once

#include <string>

#include "c4d_master/policy.h"

namespace c4::cli {

// A file of that policy: every threshold with what it means; those at their default behind a '#'.
std::string PolicyAsFile(const c4d::Policy& policy);
std::string PolicyAsJson(const c4d::Policy& policy);
// docs/policy.md: the defaults.
std::string PolicyAsMarkdown();

}  // namespace c4::cli
