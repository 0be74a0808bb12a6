// Child processes, with the standard library alone: start one, wait for it, say how it ended. What
// cli/base/process.h gives to the rest of the command is made of these; `c4-install` links nothing more.
//
// StartProgram forks and executes; the child leads a process group of its own (so that its helpers can be
// reached by kill(-pid)), reads from /dev/null, keeps no other file open, and gets `death_signal` when the
// thread that called StartProgram ends. Call it only from the thread that lives as long as the children
// should. The caller reaps. Errors name the program and what to do.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "cli/base/status.h"

namespace c4::cli {

// Where in an emulated fabric a process runs (fabric/emulator); empty strings leave things as they are.
struct Place {
  std::string ns;              // network namespace, a name in /run/netns
  std::string host_name;       // it gets a UTS namespace of its own with that name
  std::string processes_file;  // cgroup.procs of its control group
};

struct SpawnRequest {
  std::string program;                   // a path, or a name to look up in PATH
  std::vector<std::string> arguments;    // what follows the program's name
  std::vector<std::string> environment;  // NAME=value, the whole of it
  int death_signal = 9;
  int stdout_fd = -1;  // -1: the caller's own
  int stderr_fd = -1;
  Place place = {};
};

// The path to execute: a name without '/' is looked up in the PATH of `environment`. NotFound when there is
// no such program, PermissionDenied when it is no executable file.
StatusOr<std::string> ProgramPath(const std::string& name, const std::vector<std::string>& environment);
// Errors as ProgramPath, and those of fork and exec.
StatusOr<pid_t> StartProgram(const SpawnRequest& request);

// Reaps `pid`, a child: its wait status. DeadlineExceeded after `limit`; it has then been killed, and reaped.
StatusOr<int> ReapWithin(pid_t pid, std::chrono::milliseconds limit);

// "exited with code 3", "was ended by signal 9 (SIGKILL)".
std::string DescribeExit(int wait_status);
// What a shell would report: the code, or 128 + the signal.
int ExitCode(int wait_status);
// "SIGTERM" for 15.
std::string SignalName(int signal);

// The process's own environment, as NAME=value.
std::vector<std::string> OwnEnvironment();
// The value of `name` in `environment`; nullopt when it is not set.
std::optional<std::string> EnvironmentValue(const std::vector<std::string>& environment,
                                            std::string_view name);
// The folder that holds this executable.
StatusOr<std::string> ExecutableFolder();

}  // namespace c4::cli
