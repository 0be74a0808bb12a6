#include "c4a/probe_socket.h"

#include <cerrno>
#include <cstring>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <time.h>
#include <unistd.h>

namespace c4::agent {
namespace {

using service::IpAddress;
using service::IpProtocol;
using service::IpSocketAddress;
using service::IpTuple;

// What one kernel interface calls differently for the two families.
bool SetTtl(int fd, const IpTuple& tuple, int ttl) {
  return tuple.source.is_v4() ? setsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl) == 0
                              : setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &ttl, sizeof ttl) == 0;
}

bool WantErrors(int fd, const IpTuple& tuple) {
  const int on = 1;
  return tuple.source.is_v4() ? setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0
                              : setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on) == 0;
}

bool IsQueuedError(const cmsghdr& part) {
  return (part.cmsg_level == IPPROTO_IP && part.cmsg_type == IP_RECVERR &&
          part.cmsg_len >= CMSG_LEN(sizeof(sock_extended_err) + sizeof(sockaddr_in))) ||
         (part.cmsg_level == IPPROTO_IPV6 && part.cmsg_type == IPV6_RECVERR &&
          part.cmsg_len >= CMSG_LEN(sizeof(sock_extended_err) + sizeof(sockaddr_in6)));
}

bool Bind(int fd, IpAddress address, uint16_t port) {
  const IpSocketAddress source = SocketAddressOf(address, port);
  return bind(fd, source.get(), source.length) == 0;
}

int Connect(int fd, IpAddress address, uint16_t port) {
  const IpSocketAddress destination = SocketAddressOf(address, port);
  return connect(fd, destination.get(), destination.length);
}

ProbeFault BindFault(int error) {
  if (error == EADDRINUSE) return ProbeFault::kPortInUse;
  if (error == EADDRNOTAVAIL) return ProbeFault::kNotOurAddress;
  return error == EACCES || error == EPERM ? ProbeFault::kRefused : ProbeFault::kSystem;
}

ProbeFault SendFault(int error) {
  switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
      return ProbeFault::kNoRoute;
    case EADDRNOTAVAIL:
      return ProbeFault::kPortInUse;  // a connection of that very tuple lives
    case EACCES:
    case EPERM:
      return ProbeFault::kRefused;
    case EINVAL:
      return ProbeFault::kBadTuple;
    default:
      return ProbeFault::kSystem;
  }
}

SendOutcome Failed(ProbeFault fault) {
  return {.fault = fault, .error = errno};
}

constexpr size_t kSegmentBytes = 20;

// A bare acknowledgement. Its checksum is left at 0, which no host takes in: that the right one of a segment
// is 0 happens once in 65536, and then the sequence number is one that its connection does not expect.
void WriteSegment(const IpTuple& tuple, uint32_t sequence, unsigned char* out) {
  const uint16_t ports[2] = {htons(tuple.source_port), htons(tuple.destination_port)};
  const uint32_t number = htonl(sequence);
  memset(out, 0, kSegmentBytes);
  memcpy(out, ports, sizeof ports);
  memcpy(out + 4, &number, sizeof number);
  out[12] = kSegmentBytes / 4 << 4;
  out[13] = 0x10;  // ACK
}

}  // namespace

void ProbeSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  segments_ = false;
}

SendOutcome ProbeSocket::OpenForSegments(const IpTuple& tuple) {
  Close();
  fd_ = socket(FamilyOf(tuple.source), SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd_ < 0) {
    const bool may = errno != EPERM && errno != EACCES;
    return may ? Failed(ProbeFault::kSystem)
               : SendOutcome{.fault = ProbeFault::kPortInUse, .error = EADDRINUSE};
  }
  segments_ = true;
  // It would be given a copy of whatever comes from there.
  sock_filter nothing[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog filter = {1, nothing};
  if (setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 || !WantErrors(fd_, tuple)) {
    return Failed(ProbeFault::kSystem);
  }
  if (!Bind(fd_, tuple.source, 0)) return Failed(BindFault(errno));
  if (Connect(fd_, tuple.destination, 0) != 0) return Failed(SendFault(errno));
  return {.opened = true};
}

SendOutcome ProbeSocket::SendSegment(const IpTuple& tuple, int ttl, uint64_t mark, int tried) {
  SendOutcome outcome;
  if (fd_ < 0) outcome = OpenForSegments(tuple);
  if (outcome.fault != ProbeFault::kNone) return outcome;
  if (!SetTtl(fd_, tuple, ttl)) return Failed(ProbeFault::kSystem);
  unsigned char segment[kSegmentBytes];
  WriteSegment(tuple, SegmentMark(mark, tried), segment);
  ssize_t sent = send(fd_, segment, sizeof segment, MSG_NOSIGNAL);
  // An earlier probe's error may be reported here instead, and is then out of the way.
  if (sent < 0) sent = send(fd_, segment, sizeof segment, MSG_NOSIGNAL);
  if (sent >= 0 || errno == EAGAIN || errno == ENOBUFS) return outcome;
  return Failed(SendFault(errno));
}

SendOutcome ProbeSocket::Open(const IpTuple& tuple) {
  const bool tcp = tuple.protocol == IpProtocol::kTcp;
  fd_ = socket(FamilyOf(tuple.source), (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return Failed(ProbeFault::kSystem);
  if (!WantErrors(fd_, tuple)) return Failed(ProbeFault::kSystem);
  if (tcp) {
    // A connection that does come about is reset, so that its port is free again at once.
    const linger reset = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  if (!Bind(fd_, tuple.source, tuple.source_port)) return Failed(BindFault(errno));
  if (tcp) return {.opened = true};
  // Connected: the kernel lets only errors and packets of this very tuple in.
  if (Connect(fd_, tuple.destination, tuple.destination_port) != 0) return Failed(SendFault(errno));
  return {.opened = true};
}

SendOutcome ProbeSocket::Send(const IpTuple& tuple, int ttl, uint64_t mark, int tried) {
  if (segments_) return SendSegment(tuple, ttl, mark, tried);
  const bool tcp = tuple.protocol == IpProtocol::kTcp;
  if (tcp) Close();
  SendOutcome outcome;
  if (fd_ < 0) outcome = Open(tuple);
  const bool opened = outcome.opened;
  if (outcome.fault == ProbeFault::kNone) {
    outcome = tcp ? SendConnect(tuple, ttl) : SendDatagram(tuple, ttl, mark, tried);
    outcome.opened = opened;
  }
  if (!tcp || outcome.fault != ProbeFault::kPortInUse) return outcome;
  Close();
  return SendSegment(tuple, ttl, mark, tried);
}

SendOutcome ProbeSocket::SendConnect(const IpTuple& tuple, int ttl) {
  if (!SetTtl(fd_, tuple, ttl)) return Failed(ProbeFault::kSystem);
  const int done = Connect(fd_, tuple.destination, tuple.destination_port);
  if (done == 0 || errno == ECONNREFUSED) return {.reached = true};
  return errno == EINPROGRESS ? SendOutcome() : Failed(SendFault(errno));
}

SendOutcome ProbeSocket::SendDatagram(const IpTuple& tuple, int ttl, uint64_t mark, int tried) {
  if (!SetTtl(fd_, tuple, ttl)) return Failed(ProbeFault::kSystem);
  unsigned char payload[kMarkBytes];
  WriteMark(mark, tried, payload);
  ssize_t sent = send(fd_, payload, sizeof payload, MSG_NOSIGNAL);
  // An earlier probe's error may be reported here instead, and is then out of the way.
  if (sent < 0) sent = send(fd_, payload, sizeof payload, MSG_NOSIGNAL);
  // Full queues on the way out: as if it had been lost.
  if (sent >= 0 || errno == EAGAIN || errno == ENOBUFS) return {};
  return Failed(SendFault(errno));
}

bool ProbeSocket::ReadError(QueuedError* error) {
  while (fd_ >= 0) {
    sockaddr_storage to{};
    iovec data = {quoted_.data(), quoted_.size()};
    alignas(cmsghdr) char control[512];
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t bytes = recvmsg(fd_, &message, MSG_ERRQUEUE);
    if (bytes < 0) return false;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (!IsQueuedError(*part)) continue;
      sock_extended_err extended;
      memcpy(&extended, CMSG_DATA(part), sizeof extended);
      *error = {};
      error->origin = extended.ee_origin;
      error->type = extended.ee_type;
      error->code = extended.ee_code;
      error->error = static_cast<int>(extended.ee_errno);
      error->offender = service::AddressOf(CMSG_DATA(part) + sizeof extended);
      error->destination = service::AddressOf(&to);
      error->destination_port = service::PortOf(&to);
      error->quoted = {quoted_.data(), static_cast<size_t>(bytes)};
      return true;
    }
  }
  return false;
}

bool ProbeSocket::ReadReached(const IpTuple& tuple) {
  if (fd_ < 0 || segments_) return false;
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (tuple.protocol == IpProtocol::kUdp) {
    char data[1];
    bool reached = false;
    while (recv(fd_, data, sizeof data, MSG_TRUNC | MSG_DONTWAIT) >= 0) reached = true;
    return reached;
  }
  if (error == ECONNREFUSED) return true;  // a reset: an ICMP message would have been in the queue
  sockaddr_storage peer{};
  socklen_t peer_bytes = sizeof peer;
  return error == 0 && getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0;
}

uint64_t PortKey(const IpTuple& tuple) {
  // Two that share a key by chance take turns as well.
  return std::hash<IpAddress>()(tuple.source) ^
         (static_cast<uint64_t>(tuple.source_port) << 8 | static_cast<uint64_t>(tuple.protocol));
}

bool CanBeProbed(const IpTuple& tuple) {
  return tuple.source.known() && tuple.destination.known() &&
         tuple.source.is_v4() == tuple.destination.is_v4() && !tuple.destination.is_group() &&
         !tuple.source.is_link_local_v6() && !tuple.destination.is_link_local_v6() &&
         tuple.source_port != 0 && tuple.destination_port != 0;
}

std::string FaultText(const IpTuple& tuple, ProbeFault fault, int error) {
  const std::string source = IpText(tuple.source), port = std::to_string(tuple.source_port);
  const std::string protocol = ProtocolName(tuple.protocol);
  const std::string reason = std::generic_category().message(error);
  switch (fault) {
    case ProbeFault::kNone:
      return "";
    case ProbeFault::kPortInUse:
      return protocol + " port " + port + " of " + source +
             " is in use: another port may be probed, and this one too by an agent with CAP_NET_RAW";
    case ProbeFault::kNotOurAddress:
      return source + " is no address of this host";
    case ProbeFault::kNoRoute:
      return "no way from " + source + " to " + IpText(tuple.destination) + ": " + reason;
    case ProbeFault::kRefused:
      return "this host does not let " + TupleText(tuple) + " out: " + reason +
             " (a port kept for root, or a packet filter)";
    case ProbeFault::kBadTuple:
      return TupleText(tuple) +
             " cannot be probed: it lacks an end, joins IPv4 to IPv6 or stays on one link, or " + reason;
    case ProbeFault::kCancelled:
      return TupleText(tuple) + " was cancelled";
    case ProbeFault::kSystem:
      return "no socket for " + TupleText(tuple) + ": " + reason;
  }
  return "";
}

}  // namespace c4::agent
