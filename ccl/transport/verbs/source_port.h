// The UDP source port of RoCE v2, which switches hash: what a flow label becomes, and a label for a port.
// This is the kernel's own convention, which providers share where they know no better. Pure.
#pragma once

#include <cstdint>

namespace c4::verbs {

inline constexpr uint16_t kRoceUdpPort = 4791;  // the destination port
inline constexpr uint16_t kLeastSourcePort = 0xc000;
inline constexpr uint32_t kFlowLabelBits = 20;

constexpr bool CanBeSourcePort(uint16_t port) {
  return port >= kLeastSourcePort;
}

// Of a label other than 0; 0 leaves the choice to the kernel.
constexpr uint16_t SourcePortOf(uint32_t flow_label) {
  const uint32_t low = flow_label & 0x3fff;
  const uint32_t high = (flow_label >> 14) & 0x3f;
  return static_cast<uint16_t>(kLeastSourcePort | (low ^ high));
}

// What the kernel takes for a label of 0, from the numbers of the two queue pairs. Never 0, but for numbers
// whose product has none of these bits; no port is sure then.
constexpr uint32_t FlowLabelBetween(uint32_t number, uint32_t peer_number) {
  uint64_t mixed = static_cast<uint64_t>(number) * peer_number;
  mixed ^= mixed >> 20;
  mixed ^= mixed >> 40;
  return static_cast<uint32_t>(mixed & ((1u << kFlowLabelBits) - 1));
}

// For those whom nobody has told which: near numbers get ports far apart.
constexpr uint16_t AnyPort(uint32_t number) {
  return static_cast<uint16_t>(kLeastSourcePort | (number * 2654435761u >> 18));
}

// Never 0: port 0xc000 has labels, too, with bits above the fourteenth.
constexpr uint32_t FlowLabelOf(uint16_t port) {
  const uint32_t low = port & 0x3fffu;
  return low != 0 ? low : (1u << 14 | 1u);
}

}  // namespace c4::verbs
