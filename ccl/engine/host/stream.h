// Streams of the host engine (ccl/include/c4/stream.h): an order in which operations run, whichever
// communicator they are on. An operation takes a ticket when it is enqueued; its communicator's thread waits
// for the ticket's turn, runs it, and hands the turn on. All calls are thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "ccl/base/result.h"

namespace c4::host {

class Stream {
 public:
  explicit Stream(uint64_t id) : id_(id) {}

  uint64_t id() const { return id_; }  // 0 is the null stream
  uint64_t TakeTicket();
  // Waits up to `ms` milliseconds for the turn of `ticket`; false when it has not come.
  bool WaitForTurn(uint64_t ticket, int ms);
  // The operation of `ticket` is over, with this result. An aborted one may be over before its turn.
  void Finish(uint64_t ticket, const Result& result);
  // Waits for all tickets taken so far; gives the first failure since the last call.
  Result Synchronize();

 private:
  const uint64_t id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;
  uint64_t finished_ = 0;  // all tickets up to this one are over
  std::set<uint64_t> early_;
  Result failure_;
};

// The stream behind a user's handle; the null stream for nullptr; nullptr for a handle that is none of ours.
std::shared_ptr<Stream> FindStream(cudaStream_t handle);

}  // namespace c4::host
