#include "c4d_master/sources/ras_client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "c4d_master/sources/ras_status.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr absl::Duration kLook = absl::Milliseconds(100);
// All processes of a host share the port, and the kernel picks one: where that is stopped, nothing is heard,
// and another try may meet another.
constexpr absl::Duration kFirstWord = absl::Milliseconds(1500);
constexpr size_t kReadBytes = size_t{64} << 10;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

class Asking {
 public:
  Asking(const service::HostPort& address, absl::Duration timeout, const std::function<bool()>& stop)
      : name_(service::JoinHostPort(address.host, address.port)), end_(absl::Now() + timeout), stop_(stop) {}

  // Until the descriptor is ready for it.
  absl::Status Await(int fd, int16_t events) const { return AwaitUntil(fd, events, end_); }
  absl::Status AwaitUntil(int fd, int16_t events, absl::Time end) const {
    for (;;) {
      if (stop_()) return absl::CancelledError("stopped");
      const absl::Duration left = end - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(Concat("RAS at ", name_, " has not answered in time"));
      }
      pollfd entry = {.fd = fd, .events = events, .revents = 0};
      const auto ms = static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kLook))) + 1;
      const int ready = poll(&entry, 1, ms);
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return Failed("poll", errno);
    }
  }

  absl::Status Connect(int fd, const addrinfo& to) const {
    if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return Nobody(errno);
    C4_RETURN_IF_NOT_OK(Await(fd, POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    return error == 0 ? absl::OkStatus() : Nobody(error);
  }

  absl::Status Send(int fd, const std::string& request) const {
    for (size_t sent = 0; sent < request.size();) {
      C4_RETURN_IF_NOT_OK(Await(fd, POLLOUT));
      const ssize_t bytes = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (bytes < 0 && errno != EAGAIN && errno != EINTR) return Failed("send", errno);
      if (bytes > 0) sent += static_cast<size_t>(bytes);
    }
    return absl::OkStatus();
  }

  // *silent: nothing at all has come for a while, and there is time for another try.
  absl::StatusOr<std::string> Receive(int fd, bool* silent) const {
    std::string reply;
    const auto buffer = std::make_unique<char[]>(kReadBytes);
    const absl::Time first = std::min(end_, absl::Now() + kFirstWord);
    for (;;) {
      const absl::Status ready = AwaitUntil(fd, POLLIN, reply.empty() ? first : end_);
      *silent = absl::IsDeadlineExceeded(ready) && reply.empty() && absl::Now() < end_;
      C4_RETURN_IF_NOT_OK(ready);
      const ssize_t bytes = recv(fd, buffer.get(), kReadBytes, 0);
      if (bytes == 0) return reply;
      if (bytes < 0) {
        if (errno == EAGAIN || errno == EINTR) continue;
        return Failed("recv", errno);
      }
      if (reply.size() + static_cast<size_t>(bytes) > kMostRasBytes) {
        return absl::ResourceExhaustedError(
            Concat("RAS at ", name_, " answers with more than ", kMostRasBytes >> 20, " MiB"));
      }
      reply.append(buffer.get(), static_cast<size_t>(bytes));
    }
  }

  absl::Status Nobody(int error) const {
    return absl::UnavailableError(Concat(
        "nobody listens at ", name_, " (", std::strerror(error),  // NOLINT(concurrency-mt-unsafe)
        "): name the port of a rank that runs (NCCL_RAS_ADDR, by default localhost:28028 on its node)"));
  }
  absl::Status Failed(const char* what, int error) const {
    return absl::UnavailableError(
        Concat("RAS at ", name_, ": ", what, ": ", std::strerror(error)));  // NOLINT(concurrency-mt-unsafe)
  }

 private:
  const std::string name_;
  const absl::Time end_;
  const std::function<bool()>& stop_;
};

}  // namespace

absl::StatusOr<std::string> AskRas(const service::HostPort& address, const std::string& request,
                                   absl::Duration timeout, const std::function<bool()>& stop) {
  const Asking asking(address, timeout, stop);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(address.host.c_str(), Concat(address.port).c_str(), &hints, &list);
  if (code != 0 || list == nullptr) {
    return absl::UnavailableError(
        Concat("the address of ", address.host, " cannot be found: ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, freeaddrinfo);
  absl::Status status;
  for (const addrinfo* to = found.get(); to != nullptr;) {
    const Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) return asking.Failed("socket", errno);
    status = asking.Connect(socket.fd(), *to);
    if (status.code() == absl::StatusCode::kUnavailable) {
      to = to->ai_next;  // the next of the name's addresses
      continue;
    }
    if (status.ok()) status = asking.Send(socket.fd(), request);
    if (!status.ok()) return status;
    bool silent = false;
    absl::StatusOr<std::string> reply = asking.Receive(socket.fd(), &silent);
    if (!silent) return reply;
  }
  return status;
}

}  // namespace c4::c4d
