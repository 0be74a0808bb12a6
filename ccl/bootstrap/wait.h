// Socket calls of a set-up that another thread may end: like those of ccl/base/socket.h, but while they wait
// they look, every few milliseconds, whether they still should.
//
// A Patience belongs to one set-up and to the thread that runs it; what it points to outlives it. Errors:
// ncclInvalidUsage when the set-up was cancelled, what `stop` gave, ncclRemoteError at the deadline.
#pragma once

#include <atomic>
#include <functional>

#include "ccl/base/socket.h"

namespace c4::bootstrap {

struct Patience {
  DeadlineNs deadline = kNever;
  const std::atomic<bool>* cancelled = nullptr;  // nullptr: nobody will
  std::function<Result()> stop;                  // empty: nothing to be asked; not Ok ends the waiting

  // Ok while there is reason to wait, but for the deadline.
  Result Check() const;
  bool over() const;
};

inline constexpr int kLookMs = 20;

Result PatientConnect(const SocketAddress& address, const Patience& patience, Fd* connected);
Result PatientSend(int fd, const void* data, size_t bytes, const Patience& patience);
// ncclRemoteError when the peer closes first.
Result PatientReceive(int fd, void* data, size_t bytes, const Patience& patience);

}  // namespace c4::bootstrap
