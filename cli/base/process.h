// Child processes: start one, say how one ended, look at /proc. How a child is started, and what says how it
// ended, stands in cli/base/child.h; here with abseil's statuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "cli/base/child.h"
#include "service/status.h"

namespace c4::cli {

// ProgramPath and StartProgram.
absl::StatusOr<std::string> FindProgram(const std::string& name, const std::vector<std::string>& environment);
absl::StatusOr<pid_t> Spawn(const SpawnRequest& request);

struct ProcessStat {
  char state = '?';  // as in /proc/PID/stat: R S D T t Z X
  pid_t parent = 0;
  pid_t group = 0;
  uint64_t start_time_ticks = 0;
};
// From the text of /proc/PID/stat; nullopt when it is malformed.
std::optional<ProcessStat> ParseProcessStat(std::string_view text);
// nullopt when there is no such process.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);
// Stopped by a signal, or held by a debugger: no signal but SIGKILL ends it.
bool IsStopped(pid_t pid);
// The live processes (no zombies) whose parent is `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent);

// The folder that holds this executable.
absl::StatusOr<std::string> OwnFolder();

}  // namespace c4::cli
