#include "cli/launch/launcher.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/exit_codes.h"
#include "cli/launch/job_file.h"
#include "fabric/emulator/topology.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/free_port.h"
#include "service/run_dir.h"
#include "service/token.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// How long the start of the job waits for its monitor; without it the first operations go unseen.
constexpr milliseconds kMonitorStart{3000};

absl::StatusOr<int> OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&set, signal);
  // Under nohup a hang-up is to be ignored; a blocked one would come to us all the same.
  struct sigaction hang_up = {};
  if (sigaction(SIGHUP, nullptr, &hang_up) != 0 || hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // the reader of our output may leave; the job is still to be ended in order
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return service::ErrnoStatus(errno, "cannot open a signalfd");
  return fd;
}

}  // namespace

Launcher::Launcher(LaunchOptions options, Report report)
    : options_(std::move(options)), report_(std::move(report)) {}

Launcher::~Launcher() {
  End();
  if (signal_fd_ >= 0) close(signal_fd_);
}

absl::StatusOr<std::unique_ptr<Launcher>> Launcher::Start(LaunchOptions options, Report report) {
  if (absl::Status fault = CheckLaunchOptions(options); !fault.ok()) return fault;
  std::unique_ptr<Launcher> launcher(new Launcher(std::move(options), std::move(report)));
  if (absl::Status fault = launcher->Prepare(); !fault.ok()) return fault;
  if (launcher->options_.monitor) {
    launcher->StartMonitor();
    launcher->AwaitMonitor();
  }
  if (launcher->interrupted_) return launcher;
  if (launcher->monitored() && launcher->options_.verdict_lines) {
    MasterOptions master;
    master.job = launcher->plan_.job;
    master.address = launcher->options_.master;
    master.base_dir = launcher->options_.base_dir;
    master.security.key_file = launcher->plan_.key_file;
    launcher->feed_ = std::make_unique<VerdictFeed>(std::move(master));
  }
  launcher->plan_.agent = launcher->monitored() && !launcher->monitor_failed_;
  if (absl::Status fault = launcher->StartRanks(); !fault.ok()) return fault;
  return launcher;
}

absl::Status Launcher::Prepare() {
  absl::StatusOr<int> signals = OpenSignals();
  if (!signals.ok()) return signals.status();
  signal_fd_ = *signals;
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  const std::vector<std::string> environment = OwnEnvironment();
  const absl::StatusOr<std::string> program = FindProgram(options_.command.front(), environment);
  if (!program.ok()) return program.status();
  const absl::StatusOr<std::string> folder = OwnFolder();
  if (!folder.ok()) return folder.status();
  plan_.binary_dir = *folder;
  // As packages lay it out, in a folder of ours below /usr/lib; or a build folder.
  const fs::path libraries = fs::path(*folder).parent_path() / "lib";
  plan_.library_dir = (fs::exists(libraries / "c4" / "libnccl.so.2") ? libraries / "c4" : libraries).string();
  if (const fs::path tap = fs::path(plan_.library_dir) / kTapLibrary; options_.tap && !fs::exists(tap)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tap needs ", tap.string(), ", which is not there: install C4 as a whole"));
  }

  if (options_.base_dir.empty()) options_.base_dir = service::DefaultRunDir();
  plan_.directory = options_.base_dir + "/masters";
  plan_.job = options_.job;
  if (plan_.job.empty()) plan_.job = EnvironmentValue(environment, "C4_JOB_ID").value_or("");
  absl::StatusOr<std::unique_ptr<JobDirectory>> job_dir = JobDirectory::Create(options_.base_dir);
  if (job_dir.ok()) {
    job_dir_ = *std::move(job_dir);
    plan_.run_dir = job_dir_->path();
    if (plan_.job.empty()) plan_.job = job_dir_->name();
  } else if (options_.rank_logs) {
    return job_dir.status();
  } else {
    report_(absl::StrCat("warning: ", std::string(job_dir.status().message()),
                         "; the job runs without a monitor (name another directory with --run-dir)"));
    options_.monitor = false;
    plan_.run_dir = options_.base_dir;
    if (plan_.job.empty()) plan_.job = absl::StrCat("run-", getpid());
  }
  C4_RETURN_IF_NOT_OK(service::CheckJobName(plan_.job));
  OpenLog();
  const std::string incarnation = EnvironmentValue(environment, "C4_INCARNATION").value_or("");
  if (!absl::SimpleAtoi(incarnation, &plan_.incarnation) || plan_.incarnation < 0) plan_.incarnation = 0;
  if (options_.monitor) C4_RETURN_IF_NOT_OK(MakeKey());
  if (options_.monitor && options_.master.empty()) C4_RETURN_IF_NOT_OK(CheckJobIsFree());
  plan_.topology = options_.topology;
  plan_.intervene = options_.intervene;
  if (!options_.fabric.empty()) C4_RETURN_IF_NOT_OK(EnterFabric());
  if (options_.tls) C4_RETURN_IF_NOT_OK(MakeCertificates());
  if (options_.elastic) C4_RETURN_IF_NOT_OK(PrepareElastic());
  return ChoosePorts();
}

void Launcher::OpenLog() {
  plan_.log_dir = plan_.run_dir;
  if (!options_.keep_log) return;
  JobRecord record;
  record.job = plan_.job;
  record.command = options_.command;
  record.ranks = options_.ranks;
  absl::StatusOr<std::unique_ptr<JobLog>> log = JobLog::Create(
      options_.log_dir.empty() ? DefaultLogDir() : options_.log_dir, std::move(record), options_.retention);
  if (!log.ok()) {
    report_(absl::StrCat("warning: ", std::string(log.status().message()),
                         "; nothing of this job will be kept when it is over"));
    return;
  }
  log_ = *std::move(log);
  plan_.log_dir = log_->path();
  plan_.recording = true;
}

// Of this job alone, for as long as it runs: its daemons and its owner's commands make their tokens with it.
absl::Status Launcher::MakeKey() {
  if (geteuid() != 0) plan_.owner_uid = geteuid();
  plan_.key_file = options_.key_file;
  if (!plan_.key_file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> key = service::NewKeyLine();
  if (!key.ok()) return key.status();
  plan_.key_file = plan_.run_dir + "/job.key";
  return service::WriteFileAtomically(plan_.key_file, *key + "\n", 0600);
}

absl::Status Launcher::MakeCertificates() {
  if (!options_.monitor) return absl::OkStatus();  // the run directory could not be made
  if (options_.paths && IsServed(service::kPathMasterName)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the path master published in ", plan_.directory,
                     " knows nothing of the certificates that --tls makes; leave --c4p or --tls out, or "
                     "name another directory with --run-dir"));
  }
  std::vector<std::string> hosts;
  for (const LaunchPlan::Host& host : plan_.hosts) hosts.push_back(host.name);
  if (hosts.empty()) hosts.push_back(service::HostName());
  absl::StatusOr<JobCertificates> made = MakeJobCertificates(plan_.key_file, plan_.job, hosts);
  if (!made.ok()) return made.status();
  plan_.certificates = *std::move(made);
  return absl::OkStatus();
}

absl::Status Launcher::ChoosePorts() {
  std::mt19937 random(std::random_device{}());
  for (int* port : {&plan_.master_port, &plan_.communicator_port}) {
    const absl::StatusOr<int> free = service::FreePort(&random);
    if (!free.ok()) return free.status();
    *port = *free;
  }
  return absl::OkStatus();
}

absl::Status Launcher::EnterFabric() {
  if (job_dir_ == nullptr) {
    return absl::FailedPreconditionError("a job in a fabric needs its directory: name one with --run-dir");
  }
  absl::StatusOr<std::unique_ptr<FabricJob>> entered =
      FabricJob::Enter({options_.fabric, options_.ranks, options_.ranks_per_host,
                        options_.elastic ? options_.spares : 0, job_dir_->name()});
  if (absl::IsPermissionDenied(entered.status())) {
    report_(
        absl::StrCat("warning: ", std::string(entered.status().message()), "; the job runs over loopback"));
    options_.paths = false;  // there are none to choose among
    return absl::OkStatus();
  }
  if (!entered.ok()) return entered.status();
  fabric_job_ = *std::move(entered);
  const fabric::FabricSpec& spec = fabric_job_->fabric().spec();
  plan_.fabric = spec.name;
  for (int host = 0; host < fabric_job_->HostsInUse(); ++host) {
    const std::string name = fabric::HostName(host);
    plan_.hosts.push_back({name, absl::StrCat(plan_.run_dir, "/", name)});
    std::error_code error;
    if (!fs::create_directory(plan_.hosts.back().run_dir, error)) {
      return absl::UnavailableError(absl::StrCat("cannot make ", plan_.hosts.back().run_dir));
    }
  }
  for (int rank = 0; rank < options_.ranks; ++rank)
    plan_.host_of_rank.push_back(fabric_job_->HostOfRank(rank));
  plan_.rendezvous = fabric::HostAddresses(spec, HostIndexOf(plan_, 0)).front();
  plan_.interfaces = fabric::DataInterfaces(spec);
  plan_.master_host = fabric::ManagementRootAddress(fabric_job_->fabric().management_block());
  if (options_.paths && plan_.topology.empty()) {
    plan_.topology = plan_.run_dir + "/topology.json";
    C4_RETURN_IF_NOT_OK(service::WriteFileAtomically(plan_.topology, fabric::TopologyFile(spec), 0644));
  }
  return absl::OkStatus();
}

void Launcher::WriteJobFile() const {
  if (job_dir_ == nullptr) return;
  std::vector<pid_t> pids;
  for (const Rank& rank : ranks_) pids.push_back(rank.pid);
  std::vector<pid_t> agents;
  for (const auto& daemon : daemons_) {
    if (daemon->name().starts_with("c4a")) agents.push_back(daemon->pid());
  }
  const absl::Status written = service::WriteFileAtomically(absl::StrCat(plan_.run_dir, "/", kJobFileName),
                                                            JobFileText(plan_, getpid(), pids, agents), 0644);
  if (!written.ok()) report_(absl::StrCat("warning: ", std::string(written.message())));
}

// By a master that lives.
bool Launcher::IsServed(const std::string& name) const {
  const absl::StatusOr<service::MasterEntry> entry = service::MasterDirectory(plan_.directory).LookUp(name);
  return entry.ok() && ReadProcessStat(static_cast<pid_t>(entry->pid)).has_value();
}

absl::Status Launcher::CheckJobIsFree() const {
  if (!IsServed(plan_.job)) return absl::OkStatus();
  const absl::StatusOr<service::MasterEntry> entry =
      service::MasterDirectory(plan_.directory).LookUp(plan_.job);
  if (!entry.ok()) return absl::OkStatus();  // it has just left
  return absl::AlreadyExistsError(
      absl::StrCat("job '", plan_.job, "' has a master already (pid ", entry->pid, ", ", entry->address,
                   "); name this one differently with --job, or join it with --master"));
}

void Launcher::StartMonitor() {
  struct Kind {
    const char* program;
    std::string name;
    std::vector<std::string> arguments;
    Place place;
  };
  std::vector<Kind> kinds;
  for (size_t host = 0; host < plan_.hosts.size(); ++host) {
    const absl::StatusOr<Place> place = fabric_job_->AgentPlace(static_cast<int>(host));
    if (!place.ok()) {
      report_(absl::StrCat("warning: ", std::string(place.status().message()),
                           "; the job runs without a monitor"));
      return;
    }
    kinds.push_back({"c4a", "c4a-" + plan_.hosts[host].name,
                     AgentArguments(options_, plan_, static_cast<int>(host)), *place});
  }
  if (plan_.hosts.empty()) kinds.push_back({"c4a", "c4a", AgentArguments(options_, plan_), {}});
  if (options_.paths && !IsServed(service::kPathMasterName)) {
    kinds.push_back({"c4p_master", "c4p_master", PathMasterArguments(plan_), {}});
  }
  if (options_.master.empty()) kinds.push_back({"c4d_master", "c4d_master", MasterArguments(plan_), {}});
  for (const Kind& kind : kinds) {
    const std::string program = absl::StrCat(plan_.binary_dir, "/", kind.program);
    if (access(program.c_str(), X_OK) != 0) {
      report_(absl::StrCat("warning: there is no ", program, "; the job runs without a monitor"));
      daemons_.clear();
      return;
    }
    daemons_.push_back(std::make_unique<Daemon>(kind.name, program, kind.arguments, OwnEnvironment(),
                                                absl::StrCat(plan_.log_dir, "/", kind.name, ".log"),
                                                kind.place));
  }
  TickDaemons();
}

bool Launcher::MonitorIsUp() const {
  std::error_code ignored;
  if (plan_.hosts.empty() && !fs::exists(plan_.run_dir + "/agent.sock", ignored)) return false;
  for (const LaunchPlan::Host& host : plan_.hosts) {
    if (!fs::exists(host.run_dir + "/agent.sock", ignored)) return false;
  }
  const service::MasterDirectory directory(plan_.directory);
  if (options_.paths && !directory.LookUp(service::kPathMasterName).ok()) return false;
  return !options_.master.empty() || directory.LookUp(plan_.job).ok();
}

void Launcher::AwaitMonitor() {
  const Clock::time_point until = Clock::now() + kMonitorStart;
  while (monitored() && !monitor_failed_ && !interrupted_ && !MonitorIsUp()) {
    if (Clock::now() >= until) {
      report_("warning: the monitor is not up yet; the job starts without it");
      return;
    }
    WaitForEvents(milliseconds(20));
    TickDaemons();
  }
}

absl::Status Launcher::StartRanks() {
  const std::vector<std::string> inherited = OwnEnvironment();
  ranks_.assign(static_cast<size_t>(options_.ranks), Rank());
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (absl::Status fault = StartRank(rank, RankEnvironment(inherited, options_, plan_, rank));
        !fault.ok()) {
      return fault;
    }
  }
  WriteJobFile();
  if (options_.timeout_s > 0 && !timeout_at_.has_value()) {
    timeout_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options_.timeout_s));
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartRank(int rank, const std::vector<std::string>& environment) {
  SpawnRequest request = {
      options_.command.front(), {options_.command.begin() + 1, options_.command.end()}, environment};
  request.death_signal = SIGKILL;  // SIGTERM would not end a stopped rank
  if (fabric_job_ != nullptr) {
    absl::StatusOr<Place> place = fabric_job_->RankPlace(HostIndexOf(plan_, rank));
    if (!place.ok()) return place.status();
    request.place = *std::move(place);
  }
  std::vector<int> to_close;
  if (options_.rank_logs) {
    const int fd = open(RankLogPath(rank).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return service::ErrnoStatus(errno, "cannot write " + RankLogPath(rank));
    request.stdout_fd = request.stderr_fd = fd;
    to_close.push_back(fd);
  } else if (options_.prefix) {
    for (const bool is_error : {false, true}) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) return service::ErrnoStatus(errno, "cannot make a pipe");
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      pipes_.push_back(
          {ends[0], rank, is_error ? stderr : stdout, LinePrefixer(absl::StrCat("[", rank, "] "))});
      (is_error ? request.stderr_fd : request.stdout_fd) = ends[1];
      to_close.push_back(ends[1]);
    }
  }
  const absl::StatusOr<pid_t> pid = Spawn(request);
  for (const int fd : to_close) close(fd);
  if (!pid.ok()) return pid.status();
  ranks_[static_cast<size_t>(rank)].pid = *pid;
  return absl::OkStatus();
}

pid_t Launcher::RankPid(int rank) const {
  const size_t index = static_cast<size_t>(rank);
  return rank >= 0 && index < ranks_.size() ? ranks_[index].pid : 0;
}

absl::Status Launcher::SignalRank(int rank, int signal) const {
  const pid_t pid = RankPid(rank);
  if (pid == 0) return absl::NotFoundError(absl::StrCat("rank ", rank, " is not running"));
  if (kill(pid, signal) != 0) return service::ErrnoStatus(errno, absl::StrCat("cannot signal rank ", rank));
  return absl::OkStatus();
}

std::string Launcher::RankLogPath(int rank) const {
  return absl::StrCat(plan_.run_dir, "/rank-", rank, ".log");
}

void Launcher::End() {
  if (over_) return;
  const Clock::time_point now = Clock::now();
  if (!terminate_at_.has_value() || *terminate_at_ > now) terminate_at_ = now;
  while (Poll(milliseconds(100))) {
  }
}

}  // namespace c4::cli
