#include "c4a/rank_place.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <grp.h>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_split.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "" of the unified hierarchy, "cpu,cpuacct" of an old one; to its path.
std::map<std::string, std::string> GroupsOf(const std::string& pid) {
  std::map<std::string, std::string> groups;
  std::istringstream lines(ReadAll(Concat("/proc/", pid, "/cgroup")));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3) groups[parts[1]] = parts[2];
  }
  return groups;
}

bool Has(const std::string& list, const std::string& word) {
  for (const auto& item : absl::StrSplit(list, ',')) {
    if (std::string(item) == word) return true;
  }
  return false;
}

// Where the hierarchy of these controllers is mounted; empty: nowhere.
std::string MountOf(const std::string& controllers) {
  std::istringstream lines(ReadAll("/proc/self/mounts"));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    if (parts.size() < 4) continue;
    if (controllers.empty() ? parts[2] == "cgroup2" : parts[2] == "cgroup" && Has(parts[3], "cpu"))
      return parts[1];
  }
  return "";
}

}  // namespace

absl::StatusOr<RankPlace> RankPlace::Of(uint32_t pid) {
  const std::string proc = Concat("/proc/", pid);
  struct stat status {};
  if (stat(proc.c_str(), &status) != 0) return absl::NotFoundError(Concat("process ", pid, " is gone"));
  RankPlace place;
  place.uid_ = status.st_uid;
  place.gid_ = status.st_gid;
  place.has_processors_ =
      sched_getaffinity(static_cast<pid_t>(pid), sizeof place.processors_, &place.processors_) == 0;
  errno = 0;
  place.nice_ = getpriority(PRIO_PROCESS, pid);
  struct stat own {};
  struct stat its {};
  const std::string network = Concat(proc, "/ns/net");
  if (stat("/proc/self/ns/net", &own) == 0 && stat(network.c_str(), &its) == 0 && own.st_ino != its.st_ino) {
    place.network_ = open(network.c_str(), O_RDONLY | O_CLOEXEC);
  }
  const std::map<std::string, std::string> ours = GroupsOf("self");
  for (const auto& [controllers, path] : GroupsOf(Concat(pid))) {
    // Those that share out processors.
    if (!controllers.empty() && !Has(controllers, "cpu")) continue;
    const auto found = ours.find(controllers);
    if (found != ours.end() && found->second == path) continue;
    const std::string mount = MountOf(controllers);
    if (!mount.empty()) place.groups_.push_back(Concat(mount, path, "/cgroup.procs"));
  }
  std::istringstream environment(ReadAll(Concat(proc, "/environ")));
  for (std::string item; std::getline(environment, item, '\0');) {
    for (const char* const name :
         {"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=", "NVIDIA_VISIBLE_DEVICES="}) {
      if (item.rfind(name, 0) == 0) place.environment_.push_back(item);
    }
  }
  return place;
}

RankPlace::RankPlace(RankPlace&& other) noexcept
    : processors_(other.processors_),
      has_processors_(other.has_processors_),
      nice_(other.nice_),
      uid_(other.uid_),
      gid_(other.gid_),
      network_(std::exchange(other.network_, -1)),
      groups_(std::move(other.groups_)),
      environment_(std::move(other.environment_)) {}

RankPlace::~RankPlace() {
  if (network_ >= 0) close(network_);
}

int RankPlace::processors() const {
  return has_processors_ ? CPU_COUNT(&processors_) : 1;
}

const char* RankPlace::Enter() const {
  const char* fault = nullptr;
  for (const std::string& group : groups_) {
    const int fd = open(group.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) fault = "its control group";
    if (fd >= 0) close(fd);
  }
  if (has_processors_ && sched_setaffinity(0, sizeof processors_, &processors_) != 0)
    fault = "its processors";
  setpriority(PRIO_PROCESS, 0, nice_);
  if (network_ >= 0 && setns(network_, CLONE_NEWNET) != 0) fault = "its network";
  if (geteuid() != 0 && geteuid() != uid_) return "its user";
  if (geteuid() == 0 && uid_ != 0) {
    if (setgroups(0, nullptr) != 0 || setresgid(gid_, gid_, gid_) != 0 || setresuid(uid_, uid_, uid_) != 0) {
      return "its user";
    }
  }
  return fault;
}

}  // namespace c4::agent
