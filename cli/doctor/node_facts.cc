#include "cli/doctor/node_facts.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "service/address.h"
#include "service/printable.h"
#include "service/run_dir.h"
#include "service/version.h"
#include "wire/control.h"

namespace c4::cli {
namespace {

// Says hello as a library does, for a segment that is not there, which the agent takes for one that went.
RunDirFacts::Agent Converse(int fd, absl::Duration patience, uint32_t* agent_version) {
  wire::ControlHello hello{};
  hello.library_version = service::VersionNumber();
  const std::string segment = absl::StrCat("doctor-", getpid(), wire::kSegmentSuffix);
  segment.copy(hello.segment_name, sizeof hello.segment_name - 1);
  const auto packet = wire::MakeControlPacket(wire::kControlHello, wire::ProcessIdentity{}, hello);
  if (send(fd, &packet, sizeof packet, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof packet)) {
    return RunDirFacts::Agent::kHungUp;
  }
  pollfd entry = {fd, POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) {
    return RunDirFacts::Agent::kSilent;
  }
  char answer[wire::kControlMaxBytes];
  const ssize_t bytes = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  wire::ControlWelcome welcome{};
  if (bytes <= 0 || !wire::ReadControlBody(answer, static_cast<size_t>(bytes), &welcome, &fault)) {
    return RunDirFacts::Agent::kHungUp;
  }
  *agent_version = welcome.agent_version;
  return RunDirFacts::Agent::kAnswered;
}

RunDirFacts::Agent AskAgent(const std::string& folder, absl::Duration patience, uint32_t* agent_version) {
  const std::string path = absl::StrCat(folder, "/", wire::kControlSocketName);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  struct stat status {};
  if (path.size() >= sizeof address.sun_path || lstat(path.c_str(), &status) != 0 ||
      !S_ISSOCK(status.st_mode)) {
    return RunDirFacts::Agent::kNoSocket;
  }
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  // Not blocking: an agent that is stopped does not take anybody in.
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return RunDirFacts::Agent::kNoSocket;
  RunDirFacts::Agent agent = RunDirFacts::Agent::kNobody;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    agent = Converse(fd, patience, agent_version);
  } else if (errno == EAGAIN) {
    agent = RunDirFacts::Agent::kSilent;
  } else if (errno == EACCES || errno == EPERM) {
    agent = RunDirFacts::Agent::kNoRights;
  }
  close(fd);
  return agent;
}

bool IsOff(const char* variable) {
  const char* const value = getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr && strcmp(value, "0") == 0;
}

MasterFacts::Master Ask(const std::string& job, const service::MasterAddress& at,
                        const MasterOptions& options, absl::Duration patience) {
  MasterFacts::Master master = {.job = job, .address = at.address};
  const absl::StatusOr<std::unique_ptr<MasterClient>> client = MasterClient::Open(at, options);
  absl::StatusOr<v1::GetStatusReply> reply =
      client.ok() ? (*client)->GetStatus(patience) : absl::StatusOr<v1::GetStatusReply>(client.status());
  if (!reply.ok()) {
    master.fault = std::string(reply.status().message());
    return master;
  }
  if (master.job.empty()) master.job = reply->job();
  master.ranks = reply->ranks_size();
  master.agents = reply->agents_size();
  return master;
}

}  // namespace

RunDirFacts ReadRunDir(const std::string& path, absl::Duration patience) {
  RunDirFacts facts;
  facts.path = path;
  facts.monitor_off = IsOff("C4_MONITOR");
  facts.control_off = IsOff("C4_CONTROL");
  struct stat status {};
  facts.is_folder = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  if (!facts.is_folder) return facts;
  facts.writable = access(path.c_str(), W_OK | X_OK) == 0;
  struct statfs system {};
  facts.on_tmpfs =
      statfs(path.c_str(), &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
  facts.agent = AskAgent(path, patience, &facts.agent_version);
  return facts;
}

MasterFacts ReadMasters(const MasterOptions& options, absl::Duration patience) {
  MasterFacts facts;
  const std::string base = options.base_dir.empty() ? service::DefaultRunDir() : options.base_dir;
  const service::MasterDirectory directory(base + "/masters");
  facts.directory = directory.path();
  if (!options.address.empty()) {
    facts.masters.push_back(Ask(options.job, service::MasterAddress(options.address), options, patience));
    return facts;
  }
  const absl::StatusOr<std::vector<service::MasterEntry>> entries = directory.List(&facts.faults);
  if (!entries.ok()) {
    facts.faults.emplace_back(entries.status().message());
    return facts;
  }
  for (const service::MasterEntry& entry : *entries) {
    if (entry.job == service::kPathMasterName) {
      facts.path_master = entry.address;
    } else if (!options.job.empty() && entry.job != options.job) {
      continue;
    } else if (entry.host == service::HostName() &&
               !ReadProcessStat(static_cast<pid_t>(entry.pid)).has_value()) {
      facts.masters.push_back({.job = entry.job, .address = entry.address, .is_dead = true});
    } else {
      facts.masters.push_back(Ask(entry.job, service::AddressOf(entry), options, patience));
    }
  }
  if (!options.job.empty() && facts.masters.empty()) {
    facts.faults.push_back(
        absl::StrCat("job '", service::Printable(options.job), "' has no master in ", facts.directory));
  }
  return facts;
}

}  // namespace c4::cli
