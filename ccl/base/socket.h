// Sockets as the library uses them: owned descriptors, addresses, choice of interface, and whole reads and
// writes with a deadline. All sockets are close-on-exec and non-blocking. No function here sends a signal
// (MSG_NOSIGNAL) or waits past its deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "ccl/base/result.h"
#include "wire/segment.h"

namespace c4 {

// The child of a fork closes what it inherited once at most (ccl/base/fork.h): its copy of an Fd leaves the
// number alone, which may be another descriptor's by then.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) { Reset(fd); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    forks_ = other.forks_;
    return *this;
  }
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
  uint32_t forks_ = 0;  // of the process that owns it, as Forks() counts
};

// A moment of CLOCK_MONOTONIC; kNever waits for ever.
using DeadlineNs = uint64_t;
inline constexpr DeadlineNs kNever = UINT64_MAX;
DeadlineNs AfterSeconds(int64_t seconds);  // 0 seconds: kNever

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  uint16_t port() const;
  void set_port(uint16_t port);
  std::string ToString() const;  // 10.0.0.1:4791, [fe80::1]:4791
};

wire::Endpoint ToEndpoint(const SocketAddress& address);
SocketAddress FromEndpoint(const wire::Endpoint& endpoint);

// "host:port", "[v6]:port"; the host has to be an address, names are not looked up.
Result ParseAddress(const std::string& text, SocketAddress* address);

// The address that peers reach this process at: the first interface that NCCL_SOCKET_IFNAME allows, loopback
// only when nothing else is up or when it is asked for. `filter` is the knob's value; port 0.
Result InterfaceAddress(const std::string& filter, SocketAddress* address);
// All of them, one an interface, in the order of their indices; only those that are as good as the first, and
// only where the filter names interfaces.
Result InterfaceAddresses(const std::string& filter, std::vector<SocketAddress>* addresses);
// The same with names, and whether the filter names them or not.
struct Interface {
  std::string name;
  SocketAddress address;  // port 0
};
Result Interfaces(const std::string& filter, std::vector<Interface>* interfaces);
// Whether an interface's name passes NCCL_SOCKET_IFNAME: prefixes, ^ excludes, = is exact.
bool InterfaceAllowed(const std::string& filter, const std::string& name);

// Listens on `address`; its port 0 becomes the one that the kernel chose.
Result Listen(SocketAddress* address, int backlog, Fd* listener);
// The same on the first free port of `ports` ("low-high"; empty: any).
Result ListenWithin(const std::string& ports, SocketAddress* address, int backlog, Fd* listener);
// Connects before the deadline. With `retry_refused`, a listener that is not there yet is waited for.
Result Connect(const SocketAddress& address, DeadlineNs deadline, bool retry_refused, Fd* connected);
// Begins to connect and returns; what becomes of it shows when the socket is used.
Result StartConnect(const SocketAddress& address, Fd* connecting);
// A connection from `listener`, if one is there. *shortage: there may be one, and no descriptor or memory for
// it; it stays at the listener, so whoever polls that had better pause.
Result TryAccept(int listener, Fd* accepted, SocketAddress* peer, bool* any, bool* shortage = nullptr);
// One connection from `listener`, before the deadline.
Result Accept(int listener, DeadlineNs deadline, Fd* accepted, SocketAddress* peer);

// How a call waits for its socket to be ready (POLLIN, POLLOUT); not Ok ends the call with that.
using Waiting = std::function<Result(short events)>;

Result SendAll(int fd, const void* data, size_t bytes, const Waiting& wait);
Result SendAll(int fd, const void* data, size_t bytes, DeadlineNs deadline);
// ncclRemoteError when the peer closes first.
Result ReceiveAll(int fd, void* data, size_t bytes, const Waiting& wait);
Result ReceiveAll(int fd, void* data, size_t bytes, DeadlineNs deadline);

Result LocalAddress(int fd, SocketAddress* address);
Result PeerAddress(int fd, SocketAddress* address);

}  // namespace c4
