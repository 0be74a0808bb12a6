// IP addresses as values that compare, hash, print and go into sockets: IPv6, or IPv4 mapped into it
// (::ffff:10.0.3.2), as in wire::Endpoint. An address has one value, whatever it was written as.
//
// Header only, so that what links no gRPC can use it. Pure; any thread.
#pragma once

#include <arpa/inet.h>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>

namespace c4::service {

struct IpAddress {
  static constexpr uint64_t kMapped = uint64_t{0xffff} << 32;

  uint64_t high = 0;  // the first eight bytes, in host byte order
  uint64_t low = 0;   // the others; both 0: none

  // `bits`: in host byte order. 0.0.0.0 is none, as :: is.
  static IpAddress V4(uint32_t bits) { return {0, bits == 0 ? 0 : kMapped | bits}; }
  // 16 bytes in network byte order.
  static IpAddress FromBytes(const unsigned char* bytes) {
    IpAddress address;
    for (int i = 0; i < 8; ++i) address.high = address.high << 8 | bytes[i];
    for (int i = 8; i < 16; ++i) address.low = address.low << 8 | bytes[i];
    return address.is_v4() ? V4(address.v4()) : address;
  }
  void ToBytes(unsigned char* bytes) const {
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(high >> (56 - 8 * i));
    for (int i = 0; i < 8; ++i) bytes[8 + i] = static_cast<unsigned char>(low >> (56 - 8 * i));
  }

  bool known() const { return high != 0 || low != 0; }
  bool is_v4() const { return high == 0 && low >> 32 == kMapped >> 32; }
  uint32_t v4() const { return static_cast<uint32_t>(low); }  // of one that is
  // Multicast, and of IPv4 what is reserved beyond it.
  bool is_group() const { return is_v4() ? v4() >> 28 >= 14 : high >> 56 == 0xff; }
  // fe80::/10, which means another host on every link.
  bool is_link_local_v6() const { return high >> 54 == 0xfe80 >> 6; }
  bool is_loopback() const { return is_v4() ? v4() >> 24 == 127 : high == 0 && low == 1; }
  // One that a host or a router can have on a network beyond its own links.
  bool is_of_network() const {
    return known() && !is_group() && !is_loopback() && !is_link_local_v6() && !(is_v4() && v4() >> 24 == 0);
  }
  auto operator<=>(const IpAddress&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "10.0.3.2" or "fd00::2" and nothing else: no leading zeros in IPv4, no blanks, no zone.
inline std::optional<IpAddress> ParseIp(std::string_view text) {
  char terminated[INET6_ADDRSTRLEN] = "";
  if (text.size() >= sizeof terminated || text.find('\0') != std::string_view::npos) return std::nullopt;
  memcpy(terminated, text.data(), text.size());
  unsigned char bytes[16];
  if (inet_pton(AF_INET6, terminated, bytes) == 1) return IpAddress::FromBytes(bytes);
  in_addr v4;
  if (inet_pton(AF_INET, terminated, &v4) != 1) return std::nullopt;
  return IpAddress::V4(ntohl(v4.s_addr));
}

// Of none: "::".
inline std::string IpText(IpAddress address) {
  unsigned char bytes[16];
  address.ToBytes(bytes);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(address.is_v4() ? AF_INET : AF_INET6, address.is_v4() ? bytes + 12 : bytes, text, sizeof text);
  return text;
}

// "10.0.0.2:5000", "[fd00::2]:5000"
inline std::string IpPortText(IpAddress address, uint16_t port) {
  const std::string text = IpText(address);
  return (address.is_v4() ? text : "[" + text + "]") + ":" + std::to_string(port);
}

struct IpSocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

inline int FamilyOf(IpAddress address) {
  return address.is_v4() ? AF_INET : AF_INET6;
}

inline IpSocketAddress SocketAddressOf(IpAddress address, uint16_t port) {
  IpSocketAddress result;
  if (address.is_v4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(address.v4());
    memcpy(&result.storage, &v4, result.length = sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    address.ToBytes(v6.sin6_addr.s6_addr);
    memcpy(&result.storage, &v6, result.length = sizeof v6);
  }
  return result;
}

// None where it is of another family. `from` may lie anywhere.
inline IpAddress AddressOf(const void* from) {
  sa_family_t family = AF_UNSPEC;
  memcpy(&family, static_cast<const char*>(from) + offsetof(sockaddr, sa_family), sizeof family);
  if (family == AF_INET) {
    sockaddr_in v4;
    memcpy(&v4, from, sizeof v4);
    return IpAddress::V4(ntohl(v4.sin_addr.s_addr));
  }
  if (family != AF_INET6) return {};
  sockaddr_in6 v6;
  memcpy(&v6, from, sizeof v6);
  return IpAddress::FromBytes(v6.sin6_addr.s6_addr);
}

inline uint16_t PortOf(const sockaddr_storage* from) {
  // At one place for both families.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  uint16_t port = 0;
  memcpy(&port, reinterpret_cast<const char*>(from) + offsetof(sockaddr_in, sin_port), sizeof port);
  return ntohs(port);
}

// Spreads the bits of `value` over all 64.
inline uint64_t MixBits(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
  value = (value ^ value >> 27) * 0x94d049bb133111ebU;
  return value ^ value >> 31;
}

}  // namespace c4::service

template <>
struct std::hash<c4::service::IpAddress> {
  size_t operator()(c4::service::IpAddress address) const {
    return c4::service::MixBits(c4::service::MixBits(address.high) + address.low);
  }
};
