#include "cli/launch/fabric_job.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric/emulator/cgroup.h"
#include "fabric/emulator/command.h"

namespace c4::cli {
namespace {

using fabric::Fabric;

// Fabrics that jobs made for themselves are called j<pid of the launcher>.
std::string OwnName() {
  return absl::StrCat("j", getpid());
}

// What launchers left whose guard was killed with them.
void TakeDownAbandoned() {
  for (const std::string& name : Fabric::Names()) {
    int pid = 0;
    if (!name.starts_with("j") || !absl::SimpleAtoi(name.substr(1), &pid)) continue;
    if (kill(pid, 0) != 0 && errno == ESRCH) Fabric::Down(name).IgnoreError();
  }
}

void EndAll(const std::vector<int>& pids) {
  for (const int pid : pids) {
    if (pid != getpid()) kill(pid, SIGKILL);
  }
}

// Until the groups are empty: what was ended may have had children on the way.
void EndJob(const std::string& name, const std::string& run) {
  for (int round = 0; round < 300; ++round) {
    const std::vector<int> pids = fabric::JobProcesses(name, run);
    if (pids.empty()) break;
    EndAll(pids);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fabric::RemoveJobGroups(name, run);
}

}  // namespace

int HostOfRank(int rank, const std::vector<int>& ranks_per_host, int hosts) {
  if (ranks_per_host.empty()) return rank % hosts;
  int host = 0;
  for (; static_cast<size_t>(host) + 1 < ranks_per_host.size(); ++host) {
    const int here = ranks_per_host[static_cast<size_t>(host)];
    if (rank < here) return host;
    rank -= here;
  }
  return host + rank / ranks_per_host.back();
}

absl::StatusOr<std::unique_ptr<FabricJob>> FabricJob::Enter(const Request& request) {
  if (absl::Status fault = fabric::CheckRights(); !fault.ok()) return fault;
  TakeDownAbandoned();
  const bool own = fabric::LooksLikeSize(request.fabric);
  absl::StatusOr<Fabric> opened = absl::UnknownError("");
  if (own) {
    fabric::FabricSpec spec;
    spec.name = OwnName();
    if (absl::Status fault = fabric::ParseSize(request.fabric, &spec); !fault.ok()) return fault;
    opened = Fabric::Up(spec);
  } else {
    opened = Fabric::Open(request.fabric);
  }
  if (!opened.ok()) return opened.status();
  std::unique_ptr<FabricJob> job(new FabricJob(*std::move(opened), request, own));
  if (absl::Status fault = job->StartGuard(); !fault.ok()) return fault;
  if (absl::Status fault = job->CheckFits(); !fault.ok()) return fault;
  return job;
}

FabricJob::~FabricJob() {
  EndJob(fabric_.spec().name, request_.run);
  if (own_) Fabric::Down(fabric_.spec().name).IgnoreError();
  if (guard_fd_ >= 0) {
    [[maybe_unused]] const ssize_t written = write(guard_fd_, "x", 1);  // nothing left to do
    close(guard_fd_);
    waitpid(guard_, nullptr, 0);
  }
}

absl::Status FabricJob::StartGuard() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return service::ErrnoStatus(errno, "cannot make a pipe");
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    return service::ErrnoStatus(error, "cannot start the job's guard");
  }
  if (pid > 0) {
    close(ends[0]);
    guard_ = pid;
    guard_fd_ = ends[1];
    return absl::OkStatus();
  }
  // The guard: nothing that ends the job may end it, and it holds nothing of the job's open.
  setsid();
  prctl(PR_SET_NAME, "c4-guard");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const int wait_fd = ends[0];
  dup2(wait_fd, 3);
  for (int fd = 0; fd < 3; ++fd) {
    const int null_fd = open("/dev/null", O_RDWR);
    if (null_fd >= 0 && null_fd != fd) {
      dup2(null_fd, fd);
      close(null_fd);
    }
  }
  close_range(4, ~0U, 0);
  char byte = 0;
  ssize_t count;
  do {
    count = read(3, &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) {
    EndJob(fabric_.spec().name, request_.run);
    if (own_) Fabric::Down(fabric_.spec().name).IgnoreError();
  }
  _exit(0);
}

// Without a filling: all hosts but the spare ones.
int FabricJob::HostsToSpreadOver() const {
  return fabric::HostCount(fabric_.spec()) - std::max(request_.spares, 0);
}

int FabricJob::HostOfRank(int rank) const {
  return cli::HostOfRank(rank, request_.ranks_per_host, HostsToSpreadOver());
}

int FabricJob::HostsInUse() const {
  const int hosts = fabric::HostCount(fabric_.spec());
  if (request_.spares == kAllOthers) return hosts;
  const int with_ranks = request_.ranks_per_host.empty() ? std::min(HostsToSpreadOver(), request_.ranks)
                                                         : HostOfRank(request_.ranks - 1) + 1;
  return std::min(hosts, with_ranks + request_.spares);
}

absl::Status FabricJob::CheckFits() const {
  const int hosts = fabric::HostCount(fabric_.spec());
  const std::string filled =
      request_.ranks_per_host.empty()
          ? ""
          : absl::StrCat(" with ", absl::StrJoin(request_.ranks_per_host, ", "), " ranks each");
  if (request_.spares > 0 &&
      (HostsToSpreadOver() < 1 || HostOfRank(request_.ranks - 1) + request_.spares >= hosts)) {
    return absl::InvalidArgumentError(absl::StrCat(request_.ranks, " ranks and ", request_.spares,
                                                   " spare hosts do not fit on ", hosts, " hosts", filled,
                                                   "; name a larger fabric or fewer spare ones"));
  }
  if (!request_.ranks_per_host.empty() && HostOfRank(request_.ranks - 1) >= hosts) {
    return absl::InvalidArgumentError(
        absl::StrCat(request_.ranks, " ranks do not fit on ", hosts, " hosts", filled));
  }
  return absl::OkStatus();
}

absl::StatusOr<Place> FabricJob::RankPlace(int host) const {
  Place place = {fabric::HostNamespace(fabric_.spec(), host), fabric::HostName(host), ""};
  if (fabric::CpuHierarchy().empty()) return place;
  absl::StatusOr<std::string> file =
      fabric::JobProcessesFile(fabric_.spec(), fabric::HostName(host), request_.run);
  if (!file.ok()) return file.status();
  place.processes_file = *std::move(file);
  return place;
}

absl::StatusOr<Place> FabricJob::AgentPlace(int host) const {
  absl::StatusOr<Place> place = RankPlace(host);
  if (!place.ok() || place->processes_file.empty()) return place;
  absl::StatusOr<std::string> file =
      fabric::JobProcessesFile(fabric_.spec(), fabric::kUnlimited, request_.run);
  if (!file.ok()) return file.status();
  place->processes_file = *std::move(file);
  return place;
}

void FabricJob::EndRanks() const {
  for (int host = 0; host < HostsInUse(); ++host) {
    EndAll(fabric::HostJobProcesses(fabric_.spec(), host, request_.run));
  }
}

}  // namespace c4::cli
