// The launcher of an elastic job: the master decides, this carries it out.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "cli/launch/launcher.h"
#include "fabric/emulator/spec.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxRecoveryFile = size_t{1} << 20;

}  // namespace

absl::Status Launcher::PrepareElastic() {
  if (fabric_job_ == nullptr)
    return absl::FailedPreconditionError("--elastic needs a fabric, and this user may make none");
  std::string users;
  if (!options_.recovery.empty()) {
    absl::StatusOr<std::string> text =
        service::ReadSmallFile(options_.recovery, kMaxRecoveryFile, service::Links::kFollow);
    if (!text.ok()) return text.status();
    users = *std::move(text);
  }
  const std::string path = plan_.run_dir + "/elastic.sock";
  absl::StatusOr<ElasticSocket> listening = ElasticSocket::Listen(path);
  if (!listening.ok()) return listening.status();
  const absl::StatusOr<std::string> file = ElasticRecoveryFile(users, path);
  if (!file.ok()) return file.status();
  plan_.recovery = plan_.run_dir + "/recovery.json";
  C4_RETURN_IF_NOT_OK(service::WriteFileAtomically(plan_.recovery, *file, 0600));
  std::vector<std::string> hosts;
  for (const LaunchPlan::Host& host : plan_.hosts) hosts.push_back(host.name);
  elastic_.emplace(std::move(hosts), plan_.host_of_rank);
  elastic_socket_.emplace(*std::move(listening));
  return absl::OkStatus();
}

void Launcher::ServeMaster() {
  elastic_socket_->Serve([this](const std::string& line) {
    return elastic_->Answer(line, plan_.incarnation, elastic_until_.has_value(),
                            [this](const ElasticJob::Restart& restart) { return RestartOn(restart); });
  });
}

absl::StatusOr<double> Launcher::RestartOn(const ElasticJob::Restart& restart) {
  if (interrupted_ || terminate_at_.has_value()) {
    return absl::FailedPreconditionError("the job is being ended");
  }
  struct stat checkpoint {};
  double written_s = 0;
  if (!options_.checkpoint.empty() && stat(options_.checkpoint.c_str(), &checkpoint) == 0) {
    written_s = static_cast<double>(checkpoint.st_mtim.tv_sec) +
                static_cast<double>(checkpoint.st_mtim.tv_nsec) / 1e9;
  }
  // Nothing of the former incarnation is to be kept: no patience.
  SignalRanks(SIGKILL);
  fabric_job_->EndRanks();
  while (RanksRunning()) {
    int wait_status = 0;
    const pid_t pid = waitpid(-1, &wait_status, 0);
    if (pid < 0) break;
    for (Rank& rank : ranks_) {
      if (rank.pid == pid) rank.pid = 0;
    }
    for (const auto& daemon : daemons_) {
      if (daemon->pid() == pid) ReportDaemon(daemon.get(), daemon->Ended(wait_status, Clock::now()));
    }
  }
  plan_.host_of_rank = restart.host_of_rank;
  plan_.rendezvous = fabric::HostAddresses(fabric_job_->fabric().spec(), HostIndexOf(plan_, 0)).front();
  const absl::Status started = StartAgain(restart.incarnation);
  if (started.ok()) return written_s;
  // The master may try again, or somewhere else.
  SignalRanks(SIGKILL);
  outcome_.exit_code = kExitLauncher;
  AwaitMaster(absl::StrCat("the job cannot be started again: ", std::string(started.message())));
  return started;
}

void Launcher::AwaitMaster(const std::string& why) {
  elastic_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options_.elastic_wait_s));
  report_(absl::StrCat(why, "; the master decides what comes next"));
}

bool Launcher::AwaitsMaster() const {
  return elastic_until_.has_value() && !interrupted_;
}

}  // namespace c4::cli
