// Streams of the host engine (ccl/include/c4/stream.h): an order in which operations run, whichever
// communicator they are on. An operation takes a ticket when it is enqueued; whoever runs its communicator
// waits for the ticket's turn, runs it, and hands the turn on. A wait for another stream's event takes a
// ticket, too, which is over when the event is. All calls are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ccl/base/fork.h"
#include "ccl/base/result.h"

namespace c4::host {

// What runs operations: a communicator, as long as it lives.
class Driver {
 public:
  virtual ~Driver() = default;
  // It runs in the process that this one was forked from, never here.
  bool inherited() const { return forks_ != Forks(); }
  // Runs what is queued, in the calling thread, until `enough` says so or nothing more can be run now. False
  // when another thread does it already.
  virtual bool TryDrive(const std::function<bool()>& enough) = 0;

 protected:
  Driver() = default;

 private:
  const uint64_t forks_ = Forks();
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(uint64_t id) : id_(id) {}

  uint64_t id() const { return id_; }  // 0 is the null stream
  cudaStream_t handle() { return id_ == 0 ? nullptr : reinterpret_cast<cudaStream_t>(this); }
  // Its handle is no longer one; what was enqueued still runs.
  void Destroy() { destroyed_.store(true); }
  bool destroyed() const { return destroyed_.load(); }
  uint64_t TakeTicket(std::weak_ptr<Driver> driver);
  bool IsTurn(uint64_t ticket);
  // Waits up to `ms` milliseconds for the turn of `ticket`; false when it has not come.
  bool WaitForTurn(uint64_t ticket, int ms);
  // The operation of `ticket` is over, with this result. An aborted one may be over before its turn.
  void Finish(uint64_t ticket, const Result& result);
  // Waits for all tickets taken so far, and runs them where nobody else does; gives the first failure since
  // the last call.
  Result Synchronize();
  // The ticket taken last: an event is over when it is.
  uint64_t LastTicket();
  bool IsOver(uint64_t ticket);
  // Runs or waits until the ticket is over. Fails when that cannot be in this process.
  Result AwaitTicket(uint64_t ticket);
  // What is enqueued from now on waits for that ticket of the other stream.
  Result WaitFor(const std::shared_ptr<Stream>& other, uint64_t ticket);

 private:
  // A thread that sleeps for a ticket, on its own stack. One that is woken for another ticket takes the
  // processor from who runs them.
  struct Sleeper {
    uint64_t ticket;
    Sleeper* next;
  };

  // `over` is called once the ticket is over, at once when it is: never under a lock.
  void CallWhenOver(uint64_t ticket, std::function<void()> over);
  std::shared_ptr<Driver> NextDriver();
  // Waits until the ticket is over; false when the time is up before.
  bool WaitUntilOver(uint64_t ticket, std::chrono::milliseconds limit);
  // Under the lock: one more ticket is over, and with it those after it that were over early.
  void Advance();

  const uint64_t id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Both change under the lock, and are read also without it.
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> finished_{0};  // all tickets up to this one are over
  std::atomic<bool> failed_{false};    // failure_ is one
  std::atomic<bool> destroyed_{false};
  // Only what enqueues takes memory: what runs, waits and finishes can do so where there is none.
  std::vector<uint64_t> early_;  // over before their turn; has room for all tickets after finished_
  Sleeper* sleepers_ = nullptr;
  std::deque<std::weak_ptr<Driver>> drivers_;  // of the tickets after finished_
  std::list<std::pair<uint64_t, std::function<void()>>> waiting_;
  Result failure_;
};

// The stream behind a user's handle; the null stream for nullptr; nullptr for a handle that is none of ours.
std::shared_ptr<Stream> FindStream(cudaStream_t handle);

// From when on several ranks of a communicator are in this process: on the null stream, which is one for all
// of them, an operation of one would wait for the turn of the other's, and that for it.
void ForbidNullStream();
bool IsNullStreamForbidden();

}  // namespace c4::host
