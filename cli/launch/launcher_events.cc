// The launcher while the job runs and ends: signals, ended processes, deadlines, output, and cleaning up.
#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/exit_codes.h"
#include "cli/launch/launcher.h"
#include "service/directory.h"

namespace c4::cli {
namespace {

using std::chrono::milliseconds;

// From SIGTERM to SIGKILL: of a rank, and of a daemon.
constexpr std::chrono::seconds kRankPatience{5};
constexpr std::chrono::seconds kDaemonPatience{3};
constexpr int kLogLines = 10;
constexpr int kFirstFailureMs = 100;

void WriteOutput(const std::string& lines, FILE* to) {
  fwrite(lines.data(), 1, lines.size(), to);
  fflush(to);
}

}  // namespace

bool Launcher::Poll(milliseconds wait) {
  if (over_) return false;
  WaitForEvents(wait);
  TickDaemons();
  ApplyDeadlines();
  if (RanksRunning() || AwaitsMaster() || Restarts()) return true;
  if (!why_.empty()) TellEnd();
  CleanUp();
  over_ = true;
  return false;
}

bool Launcher::Restarts() {
  if (interrupted_ || !outcome_.failed.has_value() || options_.restarts <= 0) return false;
  --options_.restarts;
  const Outcome failed = outcome_;
  const absl::Status started = StartAgain(plan_.incarnation + 1);
  if (started.ok()) return true;
  report_(absl::StrCat("the job cannot be started again: ", std::string(started.message())));
  outcome_ = failed;
  options_.restarts = 0;
  terminate_at_ = Clock::now();
  return RanksRunning();
}

absl::Status Launcher::StartAgain(int incarnation) {
  plan_.incarnation = incarnation;
  EndStragglers();
  for (OutputPipe& pipe : pipes_) {
    ReadOutput(&pipe);
    CloseOutput(&pipe);
  }
  pipes_.clear();
  terminate_at_.reset();
  kill_at_.reset();
  elastic_until_.reset();
  why_.clear();
  open_then_.clear();
  outcome_ = Outcome();
  report_(absl::StrCat("starting the job again, incarnation ", plan_.incarnation));
  absl::Status started = ChoosePorts();
  if (started.ok()) started = StartRanks();
  return started;
}

void Launcher::WaitForEvents(milliseconds wait) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point until = NextDeadline(now + wait);
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now, Clock::duration(0)));
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  for (const OutputPipe& pipe : pipes_) fds.push_back({pipe.fd, POLLIN, 0});  // fd -1 is passed over
  if (feed_ != nullptr) fds.push_back({feed_->event_fd(), POLLIN, 0});
  if (elastic_socket_.has_value()) fds.push_back({elastic_socket_->fd(), POLLIN, 0});
  poll(fds.data(), fds.size(), static_cast<int>(left.count()));
  for (size_t i = 0; i < pipes_.size(); ++i) {
    if (fds[i + 1].revents != 0) ReadOutput(&pipes_[i]);
  }
  TellNews();
  ReadSignals();
  Reap();
  if (elastic_socket_.has_value() && fds.back().revents != 0) ServeMaster();
}

Launcher::Clock::time_point Launcher::NextDeadline(Clock::time_point latest) const {
  // Once SIGTERM was sent, only SIGKILL is left to wait for.
  const auto& end_at = kill_at_.has_value() ? kill_at_ : terminate_at_;
  if (end_at.has_value()) latest = std::min(latest, *end_at);
  if (timeout_at_.has_value()) latest = std::min(latest, *timeout_at_);
  if (elastic_until_.has_value()) latest = std::min(latest, *elastic_until_);
  if (!ending_daemons_) {
    for (const auto& daemon : daemons_) latest = std::min(latest, daemon->next_start().value_or(latest));
  }
  return latest;
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (interrupted_) {  // asked twice: no more patience
      kill_at_ = Clock::now();
      continue;
    }
    EndBegins(absl::StrCat("it was ended by ", SignalName(signal)));
    interrupted_ = true;
    if (outcome_.exit_code == 0) outcome_.exit_code = kExitSignalBase + signal;
    SignalRanks(signal);
    kill_at_ = Clock::now() + kRankPatience;
    terminate_at_.reset();
    timeout_at_.reset();
  }
}

void Launcher::ReadOutput(OutputPipe* pipe) {
  char buffer[16384];
  while (pipe->fd >= 0) {
    const ssize_t count = read(pipe->fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      CloseOutput(pipe);
      return;
    }
    WriteOutput(pipe->lines.Feed({buffer, static_cast<size_t>(count)}), pipe->to);
  }
}

void Launcher::CloseOutput(OutputPipe* pipe) {
  if (pipe->fd < 0) return;
  WriteOutput(pipe->lines.Flush(), pipe->to);
  close(pipe->fd);
  pipe->fd = -1;
}

void Launcher::Reap() {
  const bool ending = interrupted_ || outcome_.exit_code != 0 || terminate_at_.has_value();
  std::vector<RankEnd> ended;
  ReapInto(&ended);
  std::optional<RankEnd> failure = FirstFailure(ended);
  if (!failure.has_value() || ending) return;
  // A rank that dies takes the others with it, and they may be through with it first.
  if (!WIFSIGNALED(failure->wait_status) && RanksRunning()) {
    poll(nullptr, 0, kFirstFailureMs);
    ReapInto(&ended);
    failure = FirstFailure(ended);
  }
  RankFailed(*failure);
}

void Launcher::ReapInto(std::vector<RankEnd>* ended) {
  int wait_status = 0;
  for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [pid](const Rank& r) { return r.pid == pid; });
    if (rank != ranks_.end()) {
      rank->pid = 0;
      rank->wait_status = wait_status;
      ended->push_back({static_cast<int>(rank - ranks_.begin()), wait_status});
    }
    for (const auto& daemon : daemons_) {
      if (daemon->pid() != pid) continue;
      const std::string text = daemon->Ended(wait_status, Clock::now());
      if (!ending_daemons_) ReportDaemon(daemon.get(), text);
    }
  }
}

void Launcher::RankFailed(const RankEnd& end) {
  EndBegins(absl::StrCat("rank ", end.rank, " ", DescribeExit(end.wait_status)));
  outcome_.failed = end;
  failed_at_ = Clock::now();
  outcome_.exit_code = ExitCode(end.wait_status);
  if (elastic_socket_.has_value() && !interrupted_) {
    AwaitMaster(absl::StrCat("rank ", end.rank, " ", DescribeExit(end.wait_status)));
    return;
  }
  terminate_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options_.grace_s));
  std::string others;
  if (RanksRunning()) {
    others = options_.grace_s > 0 ? absl::StrCat("; the others have ", options_.grace_s, " s to end")
                                  : "; ending the others";
  }
  report_(absl::StrCat("rank ", end.rank, " ", DescribeExit(end.wait_status), others));
}

void Launcher::TickDaemons() {
  if (ending_daemons_) return;
  for (const auto& daemon : daemons_) {
    const std::optional<std::string> fault = daemon->Tick(Clock::now());
    if (fault.has_value()) ReportDaemon(daemon.get(), *fault);
  }
}

// A daemon that ended after it had been up is a note in passing; one that keeps ending is the one warning of
// the job.
void Launcher::ReportDaemon(Daemon* daemon, const std::string& text) {
  if (monitor_failed_) return;
  if (!daemon->ShouldReport()) {
    if (!daemon->EndedAtOnce()) report_(text);
    return;
  }
  monitor_failed_ = true;
  const std::string lines = daemon->LastLogLines(kLogLines, "    ");
  report_(
      absl::StrCat("warning: ", text, "; until it stays up, the job goes on without a monitor",
                   lines.empty() ? "" : absl::StrCat(". Last lines of ", daemon->log_path(), ":\n", lines)));
}

void Launcher::ApplyDeadlines() {
  const Clock::time_point now = Clock::now();
  if (timeout_at_.has_value() && now >= *timeout_at_) {
    timeout_at_.reset();
    options_.restarts = 0;
    if (outcome_.exit_code == 0) outcome_.exit_code = kExitTimeout;
    EndBegins(absl::StrCat("it did not end within ", options_.timeout_s, " s (--timeout)"));
    report_(absl::StrCat("the job did not end within ", options_.timeout_s, " s (--timeout); ending it"));
    terminate_at_ = now;
  }
  if (elastic_until_.has_value() && now >= *elastic_until_) {
    elastic_until_.reset();
    report_("the master has not started the job again in time");
    terminate_at_ = now;
  }
  if (terminate_at_.has_value() && now >= *terminate_at_ && !kill_at_.has_value()) {
    SignalRanks(SIGTERM);
    kill_at_ = now + kRankPatience;
  }
  if (kill_at_.has_value() && now >= *kill_at_) {
    SignalRanks(SIGKILL);
    kill_at_ = now + milliseconds(200);
  }
}

bool Launcher::RanksRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid != 0; });
}

void Launcher::SignalRanks(int signal) {
  for (const Rank& rank : ranks_) {
    if (rank.pid == 0) continue;
    // To the whole group, so that what a wrapper script started hears of it as well.
    kill(-rank.pid, IsStopped(rank.pid) ? SIGKILL : signal);
  }
}

void Launcher::EndDaemon(const Daemon& daemon) {
  const Clock::time_point kill_at = Clock::now() + kDaemonPatience;
  daemon.Stop(/*hard=*/false);
  while (daemon.running()) {
    if (Clock::now() >= kill_at) daemon.Stop(/*hard=*/true);
    WaitForEvents(milliseconds(50));
  }
}

// Helpers whose parents ended came to us, the subreaper. Those that leave children behind in their turn are
// met in the next round.
void Launcher::EndStragglers() const {
  for (int round = 0; round < 100; ++round) {
    std::vector<pid_t> children = ChildrenOf(getpid());
    // In a fabric also those that have left us: they are in the job's control groups.
    if (fabric_job_ != nullptr) fabric_job_->EndRanks();
    std::erase_if(children, [this](pid_t pid) {
      const bool daemon = std::any_of(daemons_.begin(), daemons_.end(),
                                      [pid](const auto& candidate) { return candidate->pid() == pid; });
      return daemon || (fabric_job_ != nullptr && fabric_job_->guard() == pid);
    });
    for (const pid_t pid : children) kill(pid, SIGKILL);
    // One by one: what became of a daemon is for Reap.
    for (const pid_t pid : children) waitpid(pid, nullptr, WNOHANG);
    if (children.empty()) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void Launcher::CleanUp() {
  ending_daemons_ = true;
  elastic_socket_.reset();
  timeout_at_.reset();
  terminate_at_.reset();
  kill_at_.reset();
  feed_.reset();
  // The agent first: it still hands over what it has.
  for (const auto& daemon : daemons_) EndDaemon(*daemon);
  EndStragglers();
  for (OutputPipe& pipe : pipes_) {
    ReadOutput(&pipe);
    CloseOutput(&pipe);
  }
  if (monitored() && options_.master.empty()) {
    // Still there only when the master was killed. Start made sure that the entry is of our master.
    const service::MasterDirectory directory(plan_.directory);
    const absl::StatusOr<service::MasterEntry> entry = directory.LookUp(plan_.job);
    if (entry.ok()) directory.Remove(plan_.job, entry->epoch).IgnoreError();
  }
  KeepRecord();
  fabric_job_.reset();
  job_dir_.reset();
}

}  // namespace c4::cli
