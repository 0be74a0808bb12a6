#include "cli/launcher.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <random>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/exit_codes.h"
#include "cli/process.h"
#include "service/directory.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// How long the start of the job waits for its monitor; without it the first operations go unseen.
constexpr milliseconds kMonitorStart{3000};

// A port that nobody listens on, below the range that the kernel gives to outgoing connections, so that
// none of the job's own connections takes it before its owner opens it.
absl::StatusOr<int> FreePort(std::mt19937* random) {
  std::uniform_int_distribution<int> ports(20000, 32000);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int port = ports(*random);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return service::ErrnoStatus(errno, "cannot open a socket");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return port;
  }
  return absl::UnavailableError("no free TCP port on 127.0.0.1 between 20000 and 32000");
}

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
  plan_.library_dir = (fs::path(*folder).parent_path() / "lib").string();

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
  std::mt19937 random(std::random_device{}());
  for (int* port : {&plan_.master_port, &plan_.communicator_port}) {
    const absl::StatusOr<int> free = FreePort(&random);
    if (!free.ok()) return free.status();
    *port = *free;
  }
  if (options_.monitor && options_.master.empty()) return CheckJobIsFree();
  return absl::OkStatus();
}

absl::Status Launcher::CheckJobIsFree() const {
  const absl::StatusOr<service::MasterEntry> entry =
      service::MasterDirectory(plan_.directory).LookUp(plan_.job);
  if (!entry.ok() || !ReadProcessStat(static_cast<pid_t>(entry->pid)).has_value()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("job '", plan_.job, "' has a master already (pid ", entry->pid, ", ", entry->address,
                   "); name this one differently with --job, or join it with --master"));
}

void Launcher::StartMonitor() {
  struct Kind {
    const char* name;
    std::vector<std::string> arguments;
  };
  std::vector<Kind> kinds = {{"c4a", AgentArguments(options_, plan_)}};
  if (options_.master.empty()) kinds.push_back({"c4d_master", MasterArguments(plan_)});
  for (const Kind& kind : kinds) {
    const std::string program = absl::StrCat(plan_.binary_dir, "/", kind.name);
    if (access(program.c_str(), X_OK) != 0) {
      report_(absl::StrCat("warning: there is no ", program, "; the job runs without a monitor"));
      daemons_.clear();
      return;
    }
    const std::string log_dir = options_.log_dir.empty() ? plan_.run_dir : options_.log_dir;
    std::error_code ignored;
    fs::create_directories(log_dir, ignored);
    daemons_.push_back(std::make_unique<Daemon>(kind.name, program, kind.arguments, OwnEnvironment(),
                                                absl::StrCat(log_dir, "/", kind.name, ".log")));
  }
  TickDaemons();
}

bool Launcher::MonitorIsUp() const {
  std::error_code ignored;
  if (!fs::exists(plan_.run_dir + "/agent.sock", ignored)) return false;
  return !options_.master.empty() || service::MasterDirectory(plan_.directory).LookUp(plan_.job).ok();
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
  ranks_.resize(static_cast<size_t>(options_.ranks));
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (absl::Status fault = StartRank(rank, RankEnvironment(inherited, options_, plan_, rank));
        !fault.ok()) {
      return fault;
    }
  }
  if (options_.timeout_s > 0) {
    timeout_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options_.timeout_s));
  }
  return absl::OkStatus();
}

absl::Status Launcher::StartRank(int rank, const std::vector<std::string>& environment) {
  SpawnRequest request = {
      options_.command.front(), {options_.command.begin() + 1, options_.command.end()}, environment};
  request.death_signal = SIGKILL;  // SIGTERM would not end a stopped rank
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
