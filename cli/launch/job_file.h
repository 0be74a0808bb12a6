// job.json in a job's directory: who runs where, for whoever injects faults into the job (fabric/inject reads
// it; docs/inject.md has the format). No part of the monitor reads it. Pure; any thread.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "cli/launch/launch_plan.h"

namespace c4::cli {

inline constexpr char kJobFileName[] = "job.json";

// `agents`: one a host of the plan (one alone without hosts); 0 where none runs.
std::string JobFileText(const LaunchPlan& plan, pid_t launcher, const std::vector<pid_t>& ranks,
                        const std::vector<pid_t>& agents);

}  // namespace c4::cli
