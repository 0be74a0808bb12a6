#include "ccl/bootstrap/wait.h"

#include <cerrno>
#include <ctime>
#include <netinet/tcp.h>
#include <poll.h>

#include "ccl/base/clock.h"

namespace c4::bootstrap {
namespace {

// Waits for `events`, or for an error that the next call will tell; a deadline that has passed is `late`.
Result WaitFor(int fd, short events, const Patience& patience, const char* late) {
  for (;;) {
    C4_RETURN_IF_ERROR(patience.Check());
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, kLookMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return Ok();
    if (patience.over()) return Fail(ncclRemoteError, "%s", late);
  }
}

// One attempt; *error is 0 or the reason for which nobody answered. Not Ok: the waiting is over.
Result TryConnect(const SocketAddress& address, const Patience& patience, Fd* fd, int* error) {
  fd->Reset(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd->valid()) return Fail(ncclSystemError, "cannot open a socket: %s", ErrnoText(errno).c_str());
  const int on = 1;
  setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  *error = 0;
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0)
    return Ok();
  *error = errno;
  if (*error != EINPROGRESS && *error != EINTR) return Ok();
  C4_RETURN_IF_ERROR(WaitFor(fd->get(), POLLOUT, patience, "nobody answers"));
  socklen_t length = sizeof *error;
  if (getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, error, &length) != 0) *error = errno;
  return Ok();
}

}  // namespace

Result Patience::Check() const {
  if (cancelled != nullptr && cancelled->load()) {
    return Fail(ncclInvalidUsage, "the communicator was aborted");
  }
  return stop ? stop() : Ok();
}

bool Patience::over() const {
  return deadline != kNever && MonotonicNs() >= deadline;
}

Result PatientConnect(const SocketAddress& address, const Patience& patience, Fd* connected) {
  for (;;) {
    int error = 0;
    Result tried = TryConnect(address, patience, connected, &error);
    if (!tried.ok()) {
      return Fail(tried.code(), "cannot connect to %s: %s", address.ToString().c_str(),
                  tried.message().c_str());
    }
    if (error == 0) return Ok();
    // A listener that is not there yet, or is full for the moment, is waited for.
    if ((error != ECONNREFUSED && error != ECONNRESET) || patience.over()) {
      return Fail(error == ENETUNREACH || error == EADDRNOTAVAIL ? ncclSystemError : ncclRemoteError,
                  "cannot connect to %s: %s", address.ToString().c_str(), ErrnoText(error).c_str());
    }
    C4_RETURN_IF_ERROR(patience.Check());
    timespec pause{0, kLookMs * 1000000};
    nanosleep(&pause, nullptr);
  }
}

Result PatientSend(int fd, const void* data, size_t bytes, const Patience& patience) {
  return SendAll(fd, data, bytes,
                 [&](short events) { return WaitFor(fd, events, patience, "the peer takes no data"); });
}

Result PatientReceive(int fd, void* data, size_t bytes, const Patience& patience) {
  return ReceiveAll(fd, data, bytes, [&](short events) {
    return WaitFor(fd, events, patience, "the peer sent nothing in time");
  });
}

}  // namespace c4::bootstrap
