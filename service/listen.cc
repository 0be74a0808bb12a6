#include "service/listen.h"

#include <arpa/inet.h>
#include <cerrno>
#include <ctime>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service/address.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int kBacklog = 512;

absl::StatusOr<Listener> TryOne(const addrinfo& at) {
  const int fd = socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol);
  if (fd < 0) return ErrnoStatus(errno, "cannot make a socket");
  const int yes = 1;
  const int no = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (at.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, kBacklog) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, "cannot bind the port");
  }
  const uint16_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                    : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return Listener{fd, ntohs(port)};
}

std::string Numeric(const sockaddr_storage& address, socklen_t bytes) {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  return JoinHostPort(host, static_cast<uint16_t>(strtoul(port, nullptr, 10)));
}

}  // namespace

absl::StatusOr<Listener> ListenTcp(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));
  absl::StatusOr<Listener> result = absl::NotFoundError("the name has no address");
  for (const addrinfo* at = found; at != nullptr && !result.ok(); at = at->ai_next) result = TryOne(*at);
  freeaddrinfo(found);
  return result;
}

std::string NumericPeer(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 ? Numeric(address, bytes) : "";
}

std::string NumericLocal(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 ? Numeric(address, bytes) : "";
}

int64_t MonotonicMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace c4::service
