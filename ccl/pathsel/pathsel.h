// The library's share of path allocation: asks the path master, through the node's agent, from which ports a
// connection's queue pairs should come, hears of corrections, and says what is in use.
//
// A port is advice: where nobody answers in C4_PATH_WAIT_MS the kernel's choice does, and a late answer comes
// as a correction. After a wait in vain nobody waits for a while, so that many connections do not add their
// waits up; without an agent nobody waits at all. What is in use is remembered and said again to an agent
// that is new. Any thread; one selector a process. (C4 paper, section 3.2.)
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/control/control.h"

namespace c4 {

struct PathEnds {
  SocketAddress source;
  SocketAddress destination;  // with the port that is connected to
};

struct PathQuestion {
  uint64_t communicator_id = 0;
  int from_rank = 0;
  int to_rank = 0;
  uint16_t channel = 0;
  uint16_t protocol = IPPROTO_TCP;  // or IPPROTO_UDP: what switches see
  uint32_t queue_pairs = 1;
  std::vector<PathEnds> ends;  // by plane
};

struct PathAdvice {
  uint64_t epoch = 0;                    // 0: none
  std::vector<wire::ControlPath> paths;  // by queue pair; empty: none
};

class PathSelector final : private ControlListener {
 public:
  // `monitor` outlives the selector.
  explicit PathSelector(Monitor* monitor) : client_(monitor), monitor_(monitor) {}
  PathSelector(const PathSelector&) = delete;
  PathSelector& operator=(const PathSelector&) = delete;
  ~PathSelector() { client_.Stop(); }

  Result Start() { return client_.Start(this); }
  // The process's own, over its own monitor; nullptr where it has no agent to talk to (C4_CONTROL=0, nothing
  // recorded, a forked child).
  static PathSelector* ForProcess();

  // A connection is about to be made: its number, and advice if there is some in time. `wake_fd`: an eventfd
  // that is raised when there is a correction; it outlives the connection. Blocks, at most C4_PATH_WAIT_MS.
  uint64_t Open(const PathQuestion& question, int wake_fd, PathAdvice* advice);
  // The same without waiting: an answer comes as a correction, in time as long as Expects says so.
  uint64_t Ask(const PathQuestion& question, int wake_fd);
  bool Expects(uint64_t connection);
  // Grows with each correction of any connection.
  uint64_t news() const { return news_.load(std::memory_order_acquire); }
  // The newest correction that was not taken yet.
  bool TakeCorrection(uint64_t connection, PathAdvice* advice);
  // What the connection uses from now on, by queue pair.
  void Use(uint64_t connection, uint64_t epoch, const std::vector<wire::ControlPathInUse>& paths);
  void Close(uint64_t connection);

 private:
  enum class Agent { kUnknown, kThere, kAlone };
  struct Connection {
    wire::ControlPathAsk ask;
    wire::ControlPathUse use;
    int wake_fd;
    bool asked = false;     // this agent
    bool waiting = true;    // Open is
    bool answered = false;  // if only that nobody can advise
    uint64_t until_ns = 0;  // that Expects waits
    std::optional<PathAdvice> advice;
    uint64_t epoch = 0;  // of the newest
  };

  void Connected() override;
  void Alone() override;
  void Answered(const wire::ControlPathAnswer& answer) override;
  Connection* Add(const PathQuestion& question, int wake_fd, uint64_t* number);
  bool Wait(std::unique_lock<std::mutex>* lock, uint64_t connection);
  void WaitedInVain();

  ControlClient client_;
  Monitor* const monitor_;
  std::mutex mutex_;
  std::condition_variable answered_;
  Agent agent_ = Agent::kUnknown;
  uint64_t next_ = 1;
  uint64_t wait_again_ns_ = 0;  // nobody waits before
  bool warned_ = false;
  std::map<uint64_t, Connection> connections_;
  std::atomic<uint64_t> news_{0};
};

}  // namespace c4
