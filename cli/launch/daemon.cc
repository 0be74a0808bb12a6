#include "cli/launch/daemon.h"

#include <cerrno>
#include <fcntl.h>
#include <signal.h>
#include <system_error>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/launch/job_dir.h"

namespace c4::cli {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

Daemon::Daemon(std::string name, std::string program, std::vector<std::string> arguments,
               std::vector<std::string> environment, std::string log_path, Place place)
    : name_(std::move(name)),
      program_(std::move(program)),
      arguments_(std::move(arguments)),
      environment_(std::move(environment)),
      log_path_(std::move(log_path)),
      place_(std::move(place)) {}

std::optional<Daemon::Clock::time_point> Daemon::next_start() const {
  if (running()) return std::nullopt;
  return next_start_;
}

std::optional<std::string> Daemon::Tick(Clock::time_point now) {
  if (running() || now < next_start_) return std::nullopt;
  std::string fault;
  const int log_fd = open(log_path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log_fd < 0) {
    fault = absl::StrCat("cannot write ", log_path_, ": ", std::generic_category().message(errno));
  } else {
    log_start_ = lseek(log_fd, 0, SEEK_END);
    SpawnRequest request = {program_, arguments_, environment_};
    // A daemon gets to remove its traces (socket, directory file) also when the launcher was killed.
    request.death_signal = SIGTERM;
    request.stdout_fd = log_fd;
    request.stderr_fd = log_fd;
    request.place = place_;
    const absl::StatusOr<pid_t> pid = Spawn(request);
    close(log_fd);
    if (pid.ok()) {
      pid_ = *pid;
      started_ = now;
      return std::nullopt;
    }
    fault = std::string(pid.status().message());
  }
  next_start_ = now + back_off_.Ended(milliseconds(0));
  return absl::StrCat(name_, " did not start: ", fault);
}

std::string Daemon::Ended(int wait_status, Clock::time_point now) {
  const pid_t pid = pid_;
  pid_ = 0;
  const milliseconds pause = back_off_.Ended(duration_cast<milliseconds>(now - started_));
  next_start_ = now + pause;
  return absl::StrCat(name_, " (pid ", pid, ") ", DescribeExit(wait_status), "; starting it again in ",
                      pause.count(), " ms");
}

std::string Daemon::LastLogLines(int lines, const std::string& indent) const {
  return LastLines(log_path_, lines, indent, log_start_);
}

void Daemon::Stop(bool hard) const {
  if (!running()) return;
  kill(-pid_, hard || IsStopped(pid_) ? SIGKILL : SIGTERM);
}

}  // namespace c4::cli
