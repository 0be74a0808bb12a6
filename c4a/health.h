// What the agent has seen of a process's health over time: since when it is in its state, since when it
// used neither processor nor I/O. Pure: the times are given. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "c4a/proc_reader.h"

namespace c4::agent {

enum class ProcessState {
  kUnknown,  // the agent cannot see the process (another pid namespace)
  kRunning,  // or ready to
  kSleeping,
  kBlocked,  // uninterruptible sleep, mostly I/O
  kStopped,  // by a signal
  kTraced,   // held by a debugger
  kZombie,
  kGone,
};

ProcessState StateOfLetter(char letter);  // of /proc/PID/stat

struct ProcessHealth {
  ProcessState state = ProcessState::kUnknown;
  int64_t state_since_ns = 0;  // CLOCK_MONOTONIC, when the agent first saw this state
  int64_t progress_ns = 0;     // when cpu_ns or io_bytes last moved
  uint64_t cpu_ns = 0;
  uint64_t io_bytes = 0;  // 0 where not readable
  std::string wait_channel;
};

class HealthTracker {
 public:
  // `info`: nothing when the process cannot be seen.
  void Update(const std::optional<ProcessInfo>& info, int64_t now_ns);
  void Gone(int64_t now_ns);
  const ProcessHealth& health() const { return health_; }

 private:
  void Enter(ProcessState state, int64_t now_ns);

  ProcessHealth health_;
  bool seen_ = false;
};

}  // namespace c4::agent
