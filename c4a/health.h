// What the agent has seen of a process's health over time: since when it is in its state, since when it
// has not worked. Pure: the times are given. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "c4a/exit_watch.h"
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
  // When cpu_ns or io_bytes last moved, as part of some work: threads that look around a few times a second
  // (watchdogs, proxies) make no progress, however long they go on.
  int64_t progress_ns = 0;
  // The same of io_bytes alone, or when it was last seen blocked in the kernel; 0: neither yet.
  int64_t io_progress_ns = 0;
  uint64_t cpu_ns = 0;
  uint64_t io_bytes = 0;  // 0 where not readable
  std::string wait_channel;
  std::optional<ProcessExit> exit;  // of one that is gone, where that was seen
};

class HealthTracker {
 public:
  // Work is at least that much within this time.
  static constexpr int64_t kWorkWindowNs = 2'000'000'000;
  static constexpr double kWorkShare = 0.01;  // of a processor
  static constexpr uint64_t kWorkIoBytes = 4096;

  // `info`: nothing when the process cannot be seen.
  void Update(const std::optional<ProcessInfo>& info, int64_t now_ns);
  void Gone(int64_t now_ns);
  // How it ended, of one that is gone.
  void Exited(const ProcessExit& exit);
  const ProcessHealth& health() const { return health_; }

 private:
  struct Sample {
    int64_t at_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t io_bytes = 0;
  };

  void Enter(ProcessState state, int64_t now_ns);
  void TakeSample(const Sample& sample);

  ProcessHealth health_;
  bool seen_ = false;
  std::deque<Sample> samples_;  // of the window, and the last one before it; oldest first
  int64_t moved_ns_ = 0;        // when anything last moved
  int64_t io_moved_ns_ = 0;     // when io_bytes did
};

}  // namespace c4::agent
