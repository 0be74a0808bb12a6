// What the kernel says of a process: /proc/PID/{stat,status,wchan,io} under a root that tests replace.
// Names of programs may hold spaces, parentheses and line ends. A process may vanish between two files:
// then what was read counts and the rest stays empty. Without privileges `wchan` and `io` of other users'
// processes are not readable: their fields stay empty, which is no error. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::agent {

struct ProcessStat {
  uint32_t pid = 0;
  std::string name;
  char state = '?';  // as in /proc/PID/stat: R, S, D, T, t, Z, X, I, …
  uint64_t cpu_ticks = 0;
  uint64_t start_time_ticks = 0;
};

struct ProcessInfo {
  ProcessStat stat;
  uint64_t cpu_ns = 0;
  std::optional<uint64_t> io_bytes;  // read and written, to files and to others
  std::string wait_channel;          // empty: not waiting, or not readable
  uint32_t pid_in_namespace = 0;     // as the process itself sees it; 0 where not known
};

// The pure part: the text of a stat file.
absl::StatusOr<ProcessStat> ParseProcessStat(std::string_view text);

class ProcReader {
 public:
  explicit ProcReader(std::string root = "/proc");

  // NotFound when there is no such process.
  absl::StatusOr<ProcessInfo> Read(uint32_t pid) const;
  absl::StatusOr<ProcessStat> ReadStat(uint32_t pid) const;
  // Whether that process is known to live in another time namespace than the agent.
  bool InOtherTimeNamespace(uint32_t pid) const;
  // Of this boot, as in wire::ProcessIdentity.
  absl::StatusOr<std::array<uint8_t, 16>> BootId() const;

 private:
  absl::StatusOr<std::string> ReadFile(const std::string& path) const;

  const std::string root_;
  const uint64_t ns_per_tick_;
};

// "0123…ef", 32 digits.
std::string BootIdText(const uint8_t (&id)[16]);

}  // namespace c4::agent
