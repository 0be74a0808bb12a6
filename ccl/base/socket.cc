#include "ccl/base/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "ccl/base/fork.h"

namespace c4 {
namespace {

constexpr unsigned kShortagePauseUs = 50000;

// Milliseconds for poll, rounded up; -1 for ever, 0 when the deadline has passed.
int PollMs(DeadlineNs deadline) {
  if (deadline == kNever) return -1;
  const uint64_t now = MonotonicNs();
  if (now >= deadline) return 0;
  const uint64_t ms = (deadline - now + 999999) / 1000000;
  return ms > 1000000 ? 1000000 : static_cast<int>(ms);
}

// True once `fd` has one of `events` (or an error to be read by the next call), false at the deadline.
bool WaitFor(int fd, short events, DeadlineNs deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, PollMs(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;
    if (deadline != kNever && MonotonicNs() >= deadline) return false;
  }
}

Result OpenSocket(int family, Fd* fd) {
  fd->Reset(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd->valid()) {
    return Fail(ncclSystemError, "cannot open a socket: %s", ErrnoText(errno).c_str());
  }
  return Ok();
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in& V4(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in&>(address.storage);
}
sockaddr_in6& V6(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in6&>(address.storage);
}
const sockaddr_in& V4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& V6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

}  // namespace

void Fd::Reset(int fd) {
  const auto forks = static_cast<uint32_t>(Forks());
  if (fd_ >= 0 && forks_ == forks) {
    ForgetDescriptor(fd_);
    close(fd_);
  }
  fd_ = fd;
  forks_ = forks;
  if (fd >= 0) TrackDescriptor(fd);
}

DeadlineNs AfterSeconds(int64_t seconds) {
  return seconds <= 0 ? kNever : MonotonicNs() + static_cast<uint64_t>(seconds) * 1000000000u;
}

uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? V6(*this).sin6_port : V4(*this).sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  (storage.ss_family == AF_INET6 ? V6(*this).sin6_port : V4(*this).sin_port) = htons(port);
}

std::string SocketAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &V6(*this).sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(port());
  }
  inet_ntop(AF_INET, &V4(*this).sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(port());
}

wire::Endpoint ToEndpoint(const SocketAddress& address) {
  wire::Endpoint endpoint{};
  endpoint.port = address.port();
  if (address.storage.ss_family == AF_INET6) {
    memcpy(endpoint.address, &V6(address).sin6_addr, 16);
  } else {
    endpoint.address[10] = endpoint.address[11] = 0xff;
    memcpy(endpoint.address + 12, &V4(address).sin_addr, 4);
  }
  return endpoint;
}

SocketAddress FromEndpoint(const wire::Endpoint& endpoint) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  SocketAddress address;
  if (memcmp(endpoint.address, kMapped, sizeof kMapped) == 0) {
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
    memcpy(&V4(address).sin_addr, endpoint.address + 12, 4);
  } else {
    address.storage.ss_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
    memcpy(&V6(address).sin6_addr, endpoint.address, 16);
  }
  address.set_port(endpoint.port);
  return address;
}

Result ParseAddress(const std::string& text, SocketAddress* address) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  char* end = nullptr;
  const unsigned long number = strtoul(port.c_str(), &end, 10);
  if (port.empty() || *end != '\0' || number > 65535) {
    return Fail(ncclInvalidArgument, "'%s' is not ADDRESS:PORT", text.c_str());
  }
  *address = SocketAddress();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    address->storage.ss_family = AF_INET6;
    address->length = sizeof(sockaddr_in6);
    if (inet_pton(AF_INET6, host.c_str(), &V6(*address).sin6_addr) != 1) {
      return Fail(ncclInvalidArgument, "'%s' is not an IPv6 address", host.c_str());
    }
  } else {
    address->storage.ss_family = AF_INET;
    address->length = sizeof(sockaddr_in);
    if (inet_pton(AF_INET, host.c_str(), &V4(*address).sin_addr) != 1) {
      return Fail(ncclInvalidArgument, "'%s' is not an IPv4 address (names are not looked up)", host.c_str());
    }
  }
  address->set_port(static_cast<uint16_t>(number));
  return Ok();
}

bool InterfaceAllowed(const std::string& filter, const std::string& name) {
  if (filter.empty()) return true;
  size_t at = 0;
  const bool exclude = filter[at] == '^';
  if (exclude) ++at;
  const bool exact = at < filter.size() && filter[at] == '=';
  if (exact) ++at;
  bool listed = false;
  while (at <= filter.size()) {
    const size_t comma = std::min(filter.find(',', at), filter.size());
    const std::string word = filter.substr(at, comma - at);
    if (!word.empty() && (exact ? name == word : name.compare(0, word.size(), word) == 0)) listed = true;
    at = comma + 1;
  }
  return listed != exclude;
}

Result InterfaceAddress(const std::string& filter, SocketAddress* address) {
  std::vector<SocketAddress> addresses;
  C4_RETURN_IF_ERROR(InterfaceAddresses(filter, &addresses));
  *address = addresses.front();
  return Ok();
}

Result InterfaceAddresses(const std::string& filter, std::vector<SocketAddress>* addresses) {
  std::vector<Interface> interfaces;
  C4_RETURN_IF_ERROR(Interfaces(filter, &interfaces));
  const bool named = !filter.empty() && filter[0] != '^';
  if (!named) interfaces.resize(1);
  addresses->clear();
  for (const Interface& interface : interfaces) addresses->push_back(interface.address);
  return Ok();
}

Result Interfaces(const std::string& filter, std::vector<Interface>* interfaces) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return Fail(ncclSystemError, "cannot list the network interfaces: %s", ErrnoText(errno).c_str());
  }
  // Best first: IPv4, then routable IPv6, then (IPv4 before IPv6) loopback.
  int best_rank = INT32_MAX;
  interfaces->clear();
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (!InterfaceAllowed(filter, at->ifa_name)) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr)) {
      continue;
    }
    const int rank = ((at->ifa_flags & IFF_LOOPBACK) != 0 ? 2 : 0) + (family == AF_INET6 ? 1 : 0);
    if (rank > best_rank) continue;
    if (rank < best_rank) interfaces->clear();
    best_rank = rank;
    const bool known = std::any_of(interfaces->begin(), interfaces->end(),
                                   [&](const Interface& other) { return other.name == at->ifa_name; });
    if (known) continue;
    Interface interface;
    interface.name = at->ifa_name;
    interface.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    memcpy(&interface.address.storage, at->ifa_addr, interface.address.length);
    interface.address.set_port(0);
    interfaces->push_back(interface);
  }
  freeifaddrs(all);
  if (interfaces->empty()) {
    return Fail(ncclSystemError, "no network interface is up that NCCL_SOCKET_IFNAME='%s' allows",
                filter.c_str());
  }
  return Ok();
}

Result Listen(SocketAddress* address, int backlog, Fd* listener) {
  C4_RETURN_IF_ERROR(OpenSocket(address->storage.ss_family, listener));
  const int on = 1;
  setsockopt(listener->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener->get(), reinterpret_cast<const sockaddr*>(&address->storage), address->length) != 0 ||
      listen(listener->get(), backlog) != 0) {
    return Fail(ncclSystemError, "cannot listen on %s: %s", address->ToString().c_str(),
                ErrnoText(errno).c_str());
  }
  return LocalAddress(listener->get(), address);
}

Result ListenWithin(const std::string& ports, SocketAddress* address, int backlog, Fd* listener) {
  if (ports.empty()) return Listen(address, backlog, listener);
  char* end = nullptr;
  const unsigned long low = strtoul(ports.c_str(), &end, 10);
  const unsigned long high = *end == '-' ? strtoul(end + 1, &end, 10) : low;
  if (*end != '\0' || low == 0 || high < low || high > 65535) {
    return Fail(ncclInvalidArgument, "C4_LISTEN_PORTS='%s' is not LOW-HIGH, two ports from 1 to 65535",
                ports.c_str());
  }
  for (unsigned long port = low; port <= high; ++port) {
    address->set_port(static_cast<uint16_t>(port));
    if (Listen(address, backlog, listener).ok()) return Ok();
  }
  return Fail(ncclSystemError, "none of the ports %s is free to listen on: widen C4_LISTEN_PORTS",
              ports.c_str());
}

Result Connect(const SocketAddress& address, DeadlineNs deadline, bool retry_refused, Fd* connected) {
  for (;;) {
    C4_RETURN_IF_ERROR(OpenSocket(address.storage.ss_family, connected));
    SetNoDelay(connected->get());
    int error = 0;
    if (connect(connected->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
      error = errno;
    }
    if (error == EINPROGRESS || error == EINTR) {
      if (!WaitFor(connected->get(), POLLOUT, deadline)) error = ETIMEDOUT;
      socklen_t length = sizeof error;
      if (error != ETIMEDOUT) getsockopt(connected->get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) return Ok();
    const bool retry =
        retry_refused && (error == ECONNREFUSED || error == ECONNRESET) && MonotonicNs() < deadline;
    if (!retry) {
      return Fail(error == ENETUNREACH || error == EADDRNOTAVAIL ? ncclSystemError : ncclRemoteError,
                  "cannot connect to %s: %s", address.ToString().c_str(), ErrnoText(error).c_str());
    }
    timespec pause{0, 20000000};
    nanosleep(&pause, nullptr);
  }
}

Result StartConnect(const SocketAddress& address, Fd* connecting) {
  C4_RETURN_IF_ERROR(OpenSocket(address.storage.ss_family, connecting));
  SetNoDelay(connecting->get());
  if (connect(connecting->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    const int error = errno;
    // Of what is on the way or at its end; the rest is this machine's.
    const bool remote = error == ECONNREFUSED || error == ECONNRESET || error == ETIMEDOUT ||
                        error == EHOSTUNREACH || error == ENETUNREACH;
    return Fail(remote ? ncclRemoteError : ncclSystemError, "cannot connect to %s: %s",
                address.ToString().c_str(), ErrnoText(error).c_str());
  }
  return Ok();
}

// Of descriptors or memory, of this process or the machine's: it may pass.
static bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Result TryAccept(int listener, Fd* accepted, SocketAddress* peer, bool* any, bool* shortage) {
  *any = false;
  if (shortage != nullptr) *shortage = false;
  for (;;) {
    peer->length = sizeof peer->storage;
    accepted->Reset(accept4(listener, reinterpret_cast<sockaddr*>(&peer->storage), &peer->length,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted->valid()) {
      SetNoDelay(accepted->get());
      *any = true;
      return Ok();
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Ok();
    if (IsShortage(errno)) {
      if (shortage != nullptr) *shortage = true;
      return Ok();
    }
    if (errno != EINTR && errno != ECONNABORTED) {
      return Fail(ncclSystemError, "cannot accept a connection: %s", ErrnoText(errno).c_str());
    }
  }
}

Result Accept(int listener, DeadlineNs deadline, Fd* accepted, SocketAddress* peer) {
  for (;;) {
    bool any = false;
    bool shortage = false;
    C4_RETURN_IF_ERROR(TryAccept(listener, accepted, peer, &any, &shortage));
    if (any) return Ok();
    // Who calls stays at the listener, which poll would report at once.
    if (shortage) usleep(kShortagePauseUs);
    if (!WaitFor(listener, POLLIN, deadline)) return Fail(ncclRemoteError, "nobody connected in time");
  }
}

Result SendAll(int fd, const void* data, size_t bytes, const Waiting& wait) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      C4_RETURN_IF_ERROR(wait(POLLOUT));
    } else if (errno != EINTR) {
      return Fail(ncclRemoteError, "cannot send: %s", ErrnoText(errno).c_str());
    }
  }
  return Ok();
}

Result SendAll(int fd, const void* data, size_t bytes, DeadlineNs deadline) {
  return SendAll(fd, data, bytes, [&](short events) {
    return WaitFor(fd, events, deadline) ? Ok() : Fail(ncclRemoteError, "the peer takes no data");
  });
}

Result ReceiveAll(int fd, void* data, size_t bytes, const Waiting& wait) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0) {
      return Fail(ncclRemoteError, "the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      C4_RETURN_IF_ERROR(wait(POLLIN));
    } else if (errno != EINTR) {
      return Fail(ncclRemoteError, "cannot receive: %s", ErrnoText(errno).c_str());
    }
  }
  return Ok();
}

Result ReceiveAll(int fd, void* data, size_t bytes, DeadlineNs deadline) {
  return ReceiveAll(fd, data, bytes, [&](short events) {
    return WaitFor(fd, events, deadline) ? Ok() : Fail(ncclRemoteError, "the peer sent nothing in time");
  });
}

Result LocalAddress(int fd, SocketAddress* address) {
  address->length = sizeof address->storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address->storage), &address->length) != 0) {
    return Fail(ncclSystemError, "cannot read a socket's address: %s", ErrnoText(errno).c_str());
  }
  return Ok();
}

Result PeerAddress(int fd, SocketAddress* address) {
  address->length = sizeof address->storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address->storage), &address->length) != 0) {
    return Fail(ncclRemoteError, "cannot read the peer's address: %s", ErrnoText(errno).c_str());
  }
  return Ok();
}

}  // namespace c4
