// CPU quotas of emulated hosts. Each host has a control group, and in it each job that has ranks there has
// one. A slow rank is a host with a lower quota. Whatever a job leaves behind is found in its group.
//
//   <hierarchy>/c4-FABRIC/hostN           the quota
//   <hierarchy>/c4-FABRIC/hostN/JOB       the processes
//   <hierarchy>/c4-FABRIC/unlimited/JOB   processes without a quota: agents
//
// The hierarchy is the cpu controller of cgroup v1, or cgroup v2 where it has that controller. Stateless:
// any thread; errors name the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/spec.h"

namespace c4::fabric {

// What is written for a quota.
struct CpuLimit {
  int period_us = 0;
  int quota_us = 0;  // 0: none
};
// The kernel's least quota is 1 ms: where the period is too short for the share, it is lengthened.
CpuLimit LimitFor(double quota_percent, int period_us);

// Empty when this machine has no hierarchy that we can write to.
std::string CpuHierarchy();

// Makes the groups of the fabric's hosts. Unavailable when there is no hierarchy.
absl::Status MakeHostGroups(const FabricSpec& spec);
absl::Status SetHostQuota(const FabricSpec& spec, int host, double quota_percent);
inline constexpr char kUnlimited[] = "unlimited";
// The file that takes the processes of `job` in the group of a host ("host3") or kUnlimited; makes it.
absl::StatusOr<std::string> JobProcessesFile(const FabricSpec& spec, const std::string& group,
                                             const std::string& job);
std::vector<int> HostJobProcesses(const FabricSpec& spec, int host, const std::string& job);
// Processes in a job's groups on all hosts.
std::vector<int> JobProcesses(const std::string& fabric, const std::string& job);
// Removes a job's groups, which must be empty; what is not there is no error.
void RemoveJobGroups(const std::string& fabric, const std::string& job);
// Processes in any group of the fabric.
std::vector<int> FabricProcesses(const std::string& fabric);
void RemoveFabricGroups(const std::string& fabric);

}  // namespace c4::fabric
