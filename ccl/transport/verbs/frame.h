// What goes over a queue pair of RDMA beside the chunks themselves: frames, sent with SEND, either way. A
// chunk is a write with immediate into the receive that was described for its message. Pure data and pure
// checks: every field comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c4::verbs {

inline constexpr uint32_t kFrameMark = 0x51523443;  // "C4RQ"

enum FrameKind : uint16_t {
  kDescriptors = 1,  // receiver: where `count` messages go, from number `message` on
  kLength = 2,       // sender: message `message` is shorter than its receive; as long as the first row says
  kGoodbye = 3,      // this side leaves in order; nothing follows
  kProbe = 4,        // sender: nothing; that it is acknowledged says that the path works
};

struct Descriptor {
  uint64_t address;
  uint64_t bytes;  // room; of a length: the message's
  uint32_t key;
  int32_t tag;  // of its receive, where messages have tags
};
static_assert(sizeof(Descriptor) == 24);

inline constexpr uint32_t kRows = 2;

struct Frame {
  uint32_t mark;
  uint16_t kind;
  uint16_t count;
  uint64_t message;
  Descriptor rows[kRows];
};
static_assert(sizeof(Frame) == 64);

// The immediate of a chunk: the lower bits of its message's number, and its place in the message. Whoever
// receives knows which messages are open, and these are fewer.
inline constexpr uint32_t kMessageBits = 12;
inline constexpr uint32_t kIndexBits = 32 - kMessageBits;
inline constexpr uint64_t kMostOpen = 1u << (kMessageBits - 1);
inline constexpr uint32_t kMostChunks = 1u << kIndexBits;

constexpr uint32_t ImmediateOf(uint64_t message, uint32_t index) {
  return static_cast<uint32_t>(message << kIndexBits) | index;
}
constexpr uint32_t IndexOf(uint32_t immediate) {
  return immediate & (kMostChunks - 1);
}
// The first message from `oldest` on that has these bits.
constexpr uint64_t MessageOf(uint32_t immediate, uint64_t oldest) {
  const uint64_t mask = (1u << kMessageBits) - 1;
  return oldest + (((immediate >> kIndexBits) - oldest) & mask);
}

// nullptr, or what is wrong with it.
inline const char* CheckFrame(const Frame& frame, size_t bytes, bool from_receiver) {
  if (bytes != sizeof frame || frame.mark != kFrameMark) return "sent something that is no frame of C4's";
  if (frame.kind == kGoodbye) return nullptr;
  if (frame.kind == kDescriptors && from_receiver) {
    return frame.count >= 1 && frame.count <= kRows ? nullptr : "describes an impossible number of receives";
  }
  if ((frame.kind == kLength || frame.kind == kProbe) && !from_receiver) return nullptr;
  return "sent a frame of a kind that does not belong here";
}

}  // namespace c4::verbs
