// Source ports for queue pairs that a program makes through verbs, as the path master advises (C4_TAP=2):
// asked for at the change to ready-to-receive, where the flow label becomes the port, and moved when a
// correction comes. The program waits at most C4_PATH_WAIT_MS, and its call fails for no reason of ours.
//
// A live queue pair is moved where that loses nothing: by the device's own call (mlx5). Others keep their
// port: through the state that pauses its sends (SQD) Soft-RoCE's broke, with the peer's "invalid request".
//
// Any thread. A thread of its own waits for corrections, from the first queue pair that is steered.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "ccl/base/thread.h"
#include "ccl/pathsel/pathsel.h"
#include "ccl/tap/watched_queue_pair.h"
#include "ccl/transport/verbs/library.h"

namespace c4::tap {

class Steering {
 public:
  // The process's own; nullptr where nothing is steered (C4_TAP is not 2, no agent, a forked child).
  static Steering* ForProcess();

  // Both outlive it; it is never destroyed once it has steered.
  Steering(PathSelector* selector, const verbs::Library* library);
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;
  ~Steering();

  // Before the change to ready-to-receive: the port that the path master wants; 0: none, or not in time.
  // Blocks. `rank`: the process's, for whoever reads paths.
  uint16_t Ask(const abi::QueuePair* queue_pair, const Route& route, int rank);
  // The change is made, with that route: by the port that was asked for or by the program's own.
  void Uses(abi::QueuePair* queue_pair, WatchedQueuePair* watched, const Route& route);
  // It is gone, or the change has failed. No move of it is under way when this returns.
  void Forget(const abi::QueuePair* queue_pair);
  // So that no change of the program's falls into a move.
  std::unique_lock<std::mutex> KeepStill() { return std::unique_lock(mutex_); }

 private:
  struct Steered {
    uint64_t number = 0;  // the selector's
    uint64_t epoch = 0;   // of the advice that it follows
    abi::QueuePair* queue_pair = nullptr;
    WatchedQueuePair* watched = nullptr;
    Route route;
    uint16_t wanted = 0;  // the port that a correction asks for; 0: none
  };

  void Run();
  void FollowAll();
  bool Move(const Steered& steered);
  void Tell(const Steered& steered);

  PathSelector* const selector_;
  const verbs::Library* const library_;
  Fd wake_;
  std::mutex mutex_;  // all that follows
  std::map<const abi::QueuePair*, Steered> steered_;
  Thread thread_;
  bool started_ = false;
  bool said_ = false;
  bool stop_ = false;
};

}  // namespace c4::tap
