#include "ccl/transport/stream_info.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <linux/tcp.h>

namespace c4 {
namespace {

// So many unanswered probes of a closed window: whoever is only busy has a kernel that answers.
constexpr int kDeafProbes = 3;

void SetFlag(int fd, int level, int option) {
  const int on = 1;
  setsockopt(fd, level, option, &on, sizeof on);
}

int TryDial(const QpPath& path, const SocketAddress& source, Fd* fd) {
  fd->Reset(socket(path.destination.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd->valid()) return errno;
  SetFlag(fd->get(), IPPROTO_TCP, TCP_NODELAY);
  if (source.length != 0) {
    // One port can serve streams to several destinations; without one, the choice is left to connect.
    SetFlag(fd->get(), SOL_SOCKET, SO_REUSEADDR);
    if (source.port() == 0) SetFlag(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
    if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&source.storage), source.length) != 0) return errno;
  }
  const auto* to = reinterpret_cast<const sockaddr*>(&path.destination.storage);
  if (connect(fd->get(), to, path.destination.length) == 0 || errno == EINPROGRESS || errno == EINTR)
    return 0;
  return errno;
}

}  // namespace

StreamReading ReadStream(int fd) {
  StreamReading reading;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked) {
    return reading;
  }
  reading.acked_bytes = info.tcpi_bytes_acked;
  const bool knows_window = length >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  const bool closed = knows_window && info.tcpi_snd_wnd == 0;
  const bool deaf = info.tcpi_probes >= kDeafProbes;
  reading.outstanding = info.tcpi_unacked != 0 || deaf;
  reading.window_open = !closed || deaf;
  reading.patience_ns = (2 * uint64_t{info.tcpi_rtt} + 4 * uint64_t{info.tcpi_rttvar}) * 1000;
  return reading;
}

int Dial(const QpPath& path, Fd* fd, bool* other_port) {
  *other_port = false;
  int error = TryDial(path, path.source, fd);
  if (path.source.port() != 0 && (error == EADDRINUSE || error == EADDRNOTAVAIL)) {
    SocketAddress any_port = path.source;
    any_port.set_port(0);
    *other_port = true;
    error = TryDial(path, any_port, fd);
  }
  if (error != 0) fd->Reset();
  return error;
}

void Discard(Fd* fd) {
  if (!fd->valid()) return;
  const linger now{1, 0};
  setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd->Reset();
}

bool IsNetworkError(int error) {
  switch (error) {
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ENONET:
    case EADDRNOTAVAIL:
    case EADDRINUSE:
    case EACCES:  // what a filter says
    case EPERM:
      return true;
    default:
      return false;
  }
}

bool IsSameAddress(const SocketAddress& a, const SocketAddress& b) {
  wire::Endpoint first = ToEndpoint(a);
  wire::Endpoint second = ToEndpoint(b);
  return memcmp(first.address, second.address, sizeof first.address) == 0;
}

}  // namespace c4
