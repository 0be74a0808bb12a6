// One end of a communicator of the library's, and a stream of its own: what is enqueued runs in the order of
// its calls, and fails together once one of it has failed or somebody aborts.
//
// Shared by the group and by all work that is under way. Any thread may call anything at any time; nothing of
// PyTorch's is in here.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>

#include "library.h"

namespace c4_torch {

using Deadline = std::chrono::steady_clock::time_point;

// A place in the stream's order: over when all that was enqueued before it is. In the child of a fork nothing
// of it exists.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(other.event_), process_(other.process_) { other.event_ = nullptr; }
  Event& operator=(Event&& other) = delete;

  c4Event_t get() const { return event_; }

 private:
  c4Event_t event_ = nullptr;
  pid_t process_ = getpid();
};

class Channel {
 public:
  // Waits for all ranks to join; throws std::runtime_error when they have not by the deadline, when that
  // fails, or once `*cancelled`.
  Channel(const ncclUniqueId& id, int rank, int size, const std::string& name, Deadline deadline,
          const std::atomic<bool>& cancelled);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // `enqueue` makes the calls. Throws std::runtime_error with the sentence of the one that failed.
  using Enqueue = std::function<ncclResult_t(const Library&, ncclComm_t, cudaStream_t)>;
  Event Submit(const Enqueue& enqueue);

  bool IsOver(const Event& event) const;
  // Until the event is over; the thread runs what it waits for where nobody else does.
  void Await(const Event& event) const;

  // Why what was enqueued has failed; empty while nothing has.
  std::string Failure();
  // Ends all that is under way, for this reason; only the first one counts. Waits for no peer.
  void Abort(const std::string& reason);
  // Leaves in order. REQUIRES: all that was enqueued is over.
  void Leave();

 private:
  bool Inherited() const { return getpid() != process_; }
  void CheckProcess() const;

  const Library& library_ = TheLibrary();
  const pid_t process_ = getpid();
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;  // nullptr once left or aborted
  std::string failure_;
};

// An id that all ranks of one new communicator need. Throws std::runtime_error.
ncclUniqueId NewId();

}  // namespace c4_torch
