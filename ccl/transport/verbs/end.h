// What one end of a queue pair tells the other before they can connect: the tail of a hello over TCP and of
// its answer, whose header has said version and byte order. Pure data and pure checks: every field comes from
// outside.
#pragma once

#include <cstring>

#include "ccl/transport/verbs/abi.h"

namespace c4::verbs {

struct End {
  uint32_t number;     // of the queue pair, 24 bits
  uint32_t first_psn;  // of its packets, 24 bits
  uint8_t gid[16];
  uint16_t lid;         // InfiniBand only
  uint8_t link_layer;   // abi::LinkLayer
  uint8_t mtu;          // the largest that its port takes now, as abi counts
  uint32_t flow_label;  // that its packets carry; 0: the kernel's choice
};
static_assert(sizeof(End) == 32);

inline constexpr uint32_t kMost24 = 0xffffff;
inline constexpr uint32_t kMost20 = 0xfffff;

// nullptr: a port with that link layer can connect to it. Else what is wrong, to be put behind "the peer's
// end of the queue pair".
inline const char* CheckEnd(const End& end, uint8_t own_link_layer) {
  if (end.number == 0 || end.number > kMost24) return "has an impossible number";
  if (end.first_psn > kMost24) return "begins with an impossible packet number";
  if (end.link_layer != own_link_layer)
    return "is on another kind of network: one is InfiniBand, one Ethernet";
  if (end.mtu < 1 || end.mtu > 5) return "names an impossible MTU";
  if (end.flow_label > kMost20) return "names an impossible flow label";
  static constexpr uint8_t kNone[16] = {};
  const bool ethernet = own_link_layer == abi::kLinkEthernet;
  if (ethernet && memcmp(end.gid, kNone, sizeof kNone) == 0) return "has no GID";
  if (!ethernet && end.lid == 0) return "has no LID";
  return nullptr;
}

}  // namespace c4::verbs
