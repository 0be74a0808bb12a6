#include "service/peer_uid.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

#include "service/address.h"
#include "service/file_handle.h"
#include "service/text.h"

namespace c4::service {
namespace {

struct Numeric {
  uint8_t family = 0;
  std::array<uint32_t, 4> address{};  // network order; IPv4 in the first
  uint16_t port = 0;                  // network order
};

std::optional<Numeric> ParseNumeric(const std::string& host, uint16_t port) {
  Numeric result;
  result.port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), result.address.data()) == 1) {
    result.family = AF_INET;
    return result;
  }
  if (inet_pton(AF_INET6, host.c_str(), result.address.data()) != 1) return std::nullopt;
  result.family = AF_INET6;
  return result;
}

absl::StatusOr<Numeric> ParseEnd(const std::string& text) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(text);
  if (!parts.ok()) return parts.status();
  const std::optional<Numeric> end = ParseNumeric(parts->host, parts->port);
  if (!end.has_value()) return absl::InvalidArgumentError(Concat("\"", text, "\" is no numeric address"));
  return *end;
}

bool IsLoopback(const Numeric& numeric) {
  if (numeric.family == AF_INET) return ntohl(numeric.address[0]) >> 24 == 127;
  in6_addr address;
  memcpy(&address, numeric.address.data(), sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) return ntohl(numeric.address[3]) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&address);
}

bool OnAnInterface(const Numeric& numeric) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != numeric.family) continue;
    if (numeric.family == AF_INET) {
      sockaddr_in known;
      memcpy(&known, at->ifa_addr, sizeof known);
      if (known.sin_addr.s_addr == numeric.address[0]) return true;
    } else {
      sockaddr_in6 known;
      memcpy(&known, at->ifa_addr, sizeof known);
      if (memcmp(&known.sin6_addr, numeric.address.data(), sizeof known.sin6_addr) == 0) return true;
    }
  }
  return false;
}

template <typename Holds>
bool AllAddresses(const std::string& host, const Holds& holds) {
  if (const std::optional<Numeric> numeric = ParseNumeric(host, 0)) return holds(*numeric);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0 || list == nullptr) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    char text[INET6_ADDRSTRLEN] = "";
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
      return false;
    const std::optional<Numeric> numeric = ParseNumeric(text, 0);
    if (!numeric.has_value() || !holds(*numeric)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<int64_t> UidOfPeer(const std::string& peer, const std::string& local) {
  // Of the other end's socket: its own address is the source.
  const absl::StatusOr<Numeric> source = ParseEnd(peer);
  if (!source.ok()) return source.status();
  const absl::StatusOr<Numeric> destination = ParseEnd(local);
  if (!destination.ok()) return destination.status();
  if (source->family != destination->family) return absl::NotFoundError("the families differ");
  const FileHandle netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (netlink.get() < 0) return ErrnoStatus(errno, "cannot ask the kernel about sockets");
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = source->family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0U;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = source->port;
  id.idiag_dport = destination->port;
  memcpy(id.idiag_src, source->address.data(), sizeof id.idiag_src);
  memcpy(id.idiag_dst, destination->address.data(), sizeof id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(netlink.get(), &question, sizeof question, 0) != static_cast<ssize_t>(sizeof question)) {
    return ErrnoStatus(errno, "cannot ask the kernel about sockets");
  }
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t bytes = recv(netlink.get(), answer.data(), answer.size(), 0);
  nlmsghdr header;
  inet_diag_msg message;
  if (bytes < static_cast<ssize_t>(NLMSG_LENGTH(sizeof message)))
    return absl::NotFoundError("no such socket here");
  memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return absl::NotFoundError("no such socket here");
  memcpy(&message, answer.data() + NLMSG_HDRLEN, sizeof message);
  // The kernel looks for listeners too where there is no connection: those are nobody's other end.
  if (message.id.idiag_sport != id.idiag_sport || message.id.idiag_dport != id.idiag_dport) {
    return absl::NotFoundError("no such socket here");
  }
  return static_cast<int64_t>(message.idiag_uid);
}

std::string AddressOfGrpcPeer(std::string_view peer) {
  if (peer.starts_with("ipv4:")) return std::string(peer.substr(5));
  if (!peer.starts_with("ipv6:")) return {};
  std::string result;
  for (peer.remove_prefix(5); !peer.empty();) {
    const bool open = peer.starts_with("%5B");
    if (open || peer.starts_with("%5D")) {
      result += open ? '[' : ']';
      peer.remove_prefix(3);
    } else {
      result += peer.front();
      peer.remove_prefix(1);
    }
  }
  return result;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" ||
         AllAddresses(host, [](const Numeric& address) { return IsLoopback(address); });
}

bool IsThisMachine(const std::string& host) {
  return host == "localhost" || AllAddresses(host, [](const Numeric& address) {
           return IsLoopback(address) || OnAnInterface(address);
         });
}

}  // namespace c4::service
