// Watches processes for their end, to tell exactly when each ended, and how: a launcher that loses one rank
// ends the others within milliseconds, and only the order and the manner of the ends tell who was first.
//
// A pidfd tells the moment (Linux 5.3). The manner comes from the pidfd itself (Linux 6.15), or from
// /proc/PID/stat, where it stands until the parent has taken it, which it may have done already: then it
// stays unknown. No right is needed but that to see the process.
//
// Watch, ExitOf and Forget from one thread; a thread of its own waits. Where pidfds cannot be had nothing is
// watched, and nobody's end is known.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace c4::agent {

struct ProcessExit {
  int64_t at_ns = 0;              // CLOCK_MONOTONIC
  std::optional<int32_t> status;  // as wait(2) tells it; nothing where that was not seen

  friend bool operator==(const ProcessExit&, const ProcessExit&) = default;
};

// The exit code in the text of /proc/PID/stat of a process that has ended; nothing where none stands there.
// To who may not look at the process the kernel says 0.
std::optional<int32_t> ExitCodeOfStat(const std::string& text);

class ExitWatch {
 public:
  explicit ExitWatch(std::string proc_root = "/proc");
  ~ExitWatch();
  ExitWatch(const ExitWatch&) = delete;
  ExitWatch& operator=(const ExitWatch&) = delete;

  // Of the process that has this pid now. Tells whether it is watched; again for one that is changes nothing.
  bool Watch(uint32_t pid);
  // Nothing: it runs, or it is not watched.
  std::optional<ProcessExit> ExitOf(uint32_t pid) const;
  void Forget(uint32_t pid);

 private:
  struct Watched {
    int fd = -1;
    std::optional<ProcessExit> exit;
  };

  void Run();
  void TakeExit(uint32_t pid);

  const std::string proc_root_;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;
  mutable std::mutex mutex_;
  std::map<uint32_t, Watched> watched_;
  std::thread thread_;
};

}  // namespace c4::agent
