// Tells whether an address lies inside: on this machine, on its links, or in a private network. Services
// there trust whoever can reach them. So a request must not get there by accident when somebody else can
// choose its address, by a name that resolves to it or by a redirect. Header only. Pure; any thread.
#pragma once

#include "service/ip_address.h"

namespace c4::service {

// Loopback, link-local (cloud metadata among it), private, shared (100.64/10), benchmarking, reserved,
// groups, and IPv6 that carries such an IPv4 address (NAT64, 6to4).
inline bool IsInside(IpAddress address) {
  if (!address.known() || address.is_group() || address.is_loopback()) return true;
  const auto v4_inside = [](uint32_t bits) {
    const auto in = [bits](uint32_t network, int length) { return (bits ^ network) >> (32 - length) == 0; };
    return in(0x00000000, 8) || in(0x0a000000, 8) || in(0x64400000, 10) || in(0x7f000000, 8) ||
           in(0xa9fe0000, 16) || in(0xac100000, 12) || in(0xc0000000, 24) || in(0xc0a80000, 16) ||
           in(0xc6120000, 15) || in(0xe0000000, 3);
  };
  if (address.is_v4()) return v4_inside(address.v4());
  const uint64_t top = address.high;
  if (top == 0) return true;                // ::/64: IPv4-compatible and the like
  if (top >> 57 == 0xfc >> 1) return true;  // fc00::/7
  if (top >> 54 == 0xfe80 >> 6 || top >> 54 == 0xfec0 >> 6) return true;  // link-local, site-local
  if (top == 0x0064ff9b00000000) return v4_inside(static_cast<uint32_t>(address.low));  // NAT64
  if (top >> 32 == 0x0064ff9b && (top & 0xffffffff) != 0) return true;  // 64:ff9b:1::/48, of local use
  if (top >> 48 == 0x2002) return v4_inside(static_cast<uint32_t>(top >> 16));  // 6to4
  return false;
}

}  // namespace c4::service
