#include "fabric/emulator/cgroup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastQuotaUs = 1000;
constexpr int kLongestPeriodUs = 1000000;

bool IsV2(const std::string& hierarchy) {
  return access((hierarchy + "/cgroup.controllers").c_str(), F_OK) == 0;
}

std::string FabricGroup(const std::string& fabric) {
  return absl::StrCat(CpuHierarchy(), "/c4-", fabric);
}

absl::Status Make(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot make control group ", path, ": ", error.message()));
  return absl::OkStatus();
}

// In cgroup v2 a group's children have a controller only when the group hands it on.
absl::Status HandOn(const std::string& path) {
  return IsV2(path) ? WriteText(path + "/cgroup.subtree_control", "+cpu") : absl::OkStatus();
}

std::vector<int> Processes(const std::string& group) {
  std::vector<int> pids;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(ReadText(group + "/cgroup.procs"), '\n', absl::SkipEmpty()))) {
    int pid = 0;
    if (absl::SimpleAtoi(line, &pid)) pids.push_back(pid);
  }
  return pids;
}

// The groups below `path`, the deepest first.
std::vector<std::string> GroupsBelow(const std::string& path) {
  std::vector<std::string> groups;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) groups.push_back(entry.path());
  }
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

std::vector<std::string> JobGroups(const std::string& fabric, const std::string& job) {
  std::vector<std::string> groups;
  if (CpuHierarchy().empty()) return groups;
  for (const std::string& group : GroupsBelow(FabricGroup(fabric))) {
    if (fs::path(group).filename() == job) groups.push_back(group);
  }
  return groups;
}

}  // namespace

CpuLimit LimitFor(double quota_percent, int period_us) {
  if (quota_percent <= 0) return {period_us, 0};
  const double least_period = kLeastQuotaUs * 100 / quota_percent;
  const int period =
      std::min(std::max(period_us, static_cast<int>(std::ceil(least_period))), kLongestPeriodUs);
  return {period, std::max(kLeastQuotaUs, static_cast<int>(std::lround(period * quota_percent / 100)))};
}

std::string CpuHierarchy() {
  for (const char* v1 : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    if (access(absl::StrCat(v1, "/cpu.cfs_period_us").c_str(), F_OK) == 0 && access(v1, W_OK) == 0) return v1;
  }
  for (const char* v2 : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const std::vector<std::string> controllers =
        absl::StrSplit(ReadText(absl::StrCat(v2, "/cgroup.controllers")), absl::ByAnyChar(" \n"));
    if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end() &&
        access(v2, W_OK) == 0) {
      return v2;
    }
  }
  return "";
}

absl::Status MakeHostGroups(const FabricSpec& spec) {
  const std::string hierarchy = CpuHierarchy();
  if (hierarchy.empty()) {
    return absl::UnavailableError(
        "this machine lets us make no control groups with the cpu controller below /sys/fs/cgroup, so that "
        "hosts "
        "can have no CPU quota");
  }
  const std::string fabric = FabricGroup(spec.name);
  if (absl::Status fault = HandOn(hierarchy); !fault.ok()) return fault;
  if (absl::Status fault = Make(fabric); !fault.ok()) return fault;
  if (absl::Status fault = HandOn(fabric); !fault.ok()) return fault;
  for (int host = 0; host < HostCount(spec); ++host) {
    if (absl::Status fault = Make(absl::StrCat(fabric, "/", HostName(host))); !fault.ok()) return fault;
    if (absl::Status fault = SetHostQuota(spec, host, HostQuotaPercent(spec, host)); !fault.ok())
      return fault;
  }
  return absl::OkStatus();
}

absl::Status SetHostQuota(const FabricSpec& spec, int host, double quota_percent) {
  if (CpuHierarchy().empty()) return MakeHostGroups(spec);  // says why
  const std::string group = absl::StrCat(FabricGroup(spec.name), "/", HostName(host));
  const CpuLimit limit = LimitFor(quota_percent, spec.quota_period_us);
  if (IsV2(group)) {
    const std::string quota = limit.quota_us == 0 ? "max" : absl::StrCat(limit.quota_us);
    if (access((group + "/cpu.max.burst").c_str(), F_OK) == 0) {
      if (absl::Status fault = WriteText(group + "/cpu.max.burst", "0"); !fault.ok()) return fault;
    }
    if (absl::Status fault = WriteText(group + "/cpu.max", absl::StrCat(quota, " ", limit.period_us));
        !fault.ok()) {
      return fault;
    }
    if (limit.quota_us == 0 || access((group + "/cpu.max.burst").c_str(), F_OK) != 0) return absl::OkStatus();
    return WriteText(group + "/cpu.max.burst", absl::StrCat(limit.quota_us));
  }
  const std::string burst = group + "/cpu.cfs_burst_us";
  const bool has_burst = access(burst.c_str(), F_OK) == 0;
  // A burst may not exceed the quota: it goes first and comes last.
  if (has_burst) {
    if (absl::Status fault = WriteText(burst, "0"); !fault.ok()) return fault;
  }
  if (absl::Status fault = WriteText(group + "/cpu.cfs_quota_us", "-1"); !fault.ok()) return fault;
  if (absl::Status fault = WriteText(group + "/cpu.cfs_period_us", absl::StrCat(limit.period_us));
      !fault.ok()) {
    return fault;
  }
  if (limit.quota_us == 0) return absl::OkStatus();
  if (absl::Status fault = WriteText(group + "/cpu.cfs_quota_us", absl::StrCat(limit.quota_us));
      !fault.ok()) {
    return fault;
  }
  // What one period leaves over the next may use: a rank that waits in between still gets its share.
  return has_burst ? WriteText(burst, absl::StrCat(limit.quota_us)) : absl::OkStatus();
}

absl::StatusOr<std::string> JobProcessesFile(const FabricSpec& spec, const std::string& group,
                                             const std::string& job) {
  const std::string parent = absl::StrCat(FabricGroup(spec.name), "/", group);
  if (absl::Status fault = Make(parent); !fault.ok()) return fault;
  if (absl::Status fault = HandOn(parent); !fault.ok()) return fault;
  const std::string path = absl::StrCat(parent, "/", job);
  if (absl::Status fault = Make(path); !fault.ok()) return fault;
  return path + "/cgroup.procs";
}

std::vector<int> HostJobProcesses(const FabricSpec& spec, int host, const std::string& job) {
  return Processes(absl::StrCat(FabricGroup(spec.name), "/", HostName(host), "/", job));
}

std::vector<int> JobProcesses(const std::string& fabric, const std::string& job) {
  std::vector<int> pids;
  for (const std::string& group : JobGroups(fabric, job)) {
    const std::vector<int> here = Processes(group);
    pids.insert(pids.end(), here.begin(), here.end());
  }
  return pids;
}

void RemoveJobGroups(const std::string& fabric, const std::string& job) {
  for (const std::string& group : JobGroups(fabric, job)) rmdir(group.c_str());
}

std::vector<int> FabricProcesses(const std::string& fabric) {
  std::vector<int> pids;
  if (CpuHierarchy().empty()) return pids;
  for (const std::string& group : GroupsBelow(FabricGroup(fabric))) {
    const std::vector<int> here = Processes(group);
    pids.insert(pids.end(), here.begin(), here.end());
  }
  return pids;
}

void RemoveFabricGroups(const std::string& fabric) {
  if (CpuHierarchy().empty()) return;
  const std::string top = FabricGroup(fabric);
  for (const std::string& group : GroupsBelow(top)) rmdir(group.c_str());
  rmdir(top.c_str());
}

}  // namespace c4::fabric
