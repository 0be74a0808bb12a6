// One daemon (agent or master) that the launcher keeps alive: started, its output appended to a log file,
// started again with back-off when it ends.
//
// Owned and driven by the launcher, on its thread: Tick starts it when it is time, Ended takes what waitpid
// said. It never fails the job; what the user should know comes back as text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "cli/base/process.h"
#include "cli/launch/launch_plan.h"

namespace c4::cli {

class Daemon {
 public:
  using Clock = std::chrono::steady_clock;

  Daemon(std::string name, std::string program, std::vector<std::string> arguments,
         std::vector<std::string> environment, std::string log_path, Place place = {});

  const std::string& name() const { return name_; }
  const std::string& log_path() const { return log_path_; }
  pid_t pid() const { return pid_; }  // 0 while it does not run
  bool running() const { return pid_ != 0; }
  // When Tick has something to do; nullopt while it runs.
  std::optional<Clock::time_point> next_start() const;

  // Starts it when it does not run and its pause is over. A sentence when it could not be started.
  std::optional<std::string> Tick(Clock::time_point now);
  // The process of that pid ended; the sentence says how and what comes next.
  std::string Ended(int wait_status, Clock::time_point now);
  // True once, when it has failed several times in a row (or never started).
  bool ShouldReport() { return back_off_.ShouldReport(); }
  // It ended as soon as it was started: no news until it keeps doing so.
  bool EndedAtOnce() const { return back_off_.quick(); }
  // What it last logged, since its last start.
  std::string LastLogLines(int lines, const std::string& indent) const;
  // SIGTERM, or SIGKILL for a stopped one, or when `hard`.
  void Stop(bool hard) const;

 private:
  const std::string name_;
  const std::string program_;
  const std::vector<std::string> arguments_;
  const std::vector<std::string> environment_;
  const std::string log_path_;
  const Place place_;
  pid_t pid_ = 0;
  int64_t log_start_ = 0;  // size of the log when it was last started
  BackOff back_off_;
  Clock::time_point started_;
  Clock::time_point next_start_;
};

}  // namespace c4::cli
