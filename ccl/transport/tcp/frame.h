// What goes over a TCP queue pair (docs/formats/tcp.md). At first a hello, from the side that connects; then
// message headers, each followed by its payload, one way, and acknowledgements the other way. Pure data and
// pure checks: every field comes from outside.
#pragma once

#include <cstring>

#include "wire/header.h"

namespace c4::tcp {

inline constexpr uint64_t kHelloMagic = wire::Magic("C4TCPHLO");
inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;

struct Hello {
  wire::Header header;
  uint64_t communicator_id;
  int32_t from_rank;
  int32_t to_rank;
  uint16_t channel;
  uint16_t queue_pair_index;
  uint32_t reserved;
  uint64_t queue_pair_number;  // the connecting side's
};
static_assert(sizeof(Hello) == 96);

inline constexpr uint32_t kFrameMark = 0x51503443;  // "C4PQ"

enum FrameKind : uint16_t {
  kMessage = 1,      // payload of `bytes` bytes follows
  kAcknowledge = 2,  // the receiver holds all messages up to and with `sequence`
  kGoodbye = 3,      // this side leaves in order; nothing follows
};

struct Frame {
  uint32_t mark;
  uint16_t kind;
  uint16_t reserved;
  uint64_t sequence;  // from 0
  uint64_t bytes;
};
static_assert(sizeof(Frame) == 24);

// nullptr when `frame` is one that may stand at this place, else what is wrong with it.
inline const char* CheckFrame(const Frame& frame, bool from_sender, uint64_t next_sequence) {
  if (frame.mark != kFrameMark) return "is no frame of ours";
  if (frame.kind == kGoodbye) return frame.bytes == 0 ? nullptr : "is a goodbye with a payload";
  if (from_sender) {
    if (frame.kind != kMessage) return "is of a kind that a sender never sends";
    if (frame.sequence != next_sequence) return "is out of sequence";
    return nullptr;
  }
  if (frame.kind != kAcknowledge) return "is of a kind that a receiver never sends";
  if (frame.bytes != 0) return "is an acknowledgement with a payload";
  // `next_sequence` is what was not posted yet.
  if (frame.sequence >= next_sequence) return "acknowledges what was not sent";
  return nullptr;
}

// nullptr when `bytes` bytes at `data` are a hello to `to_rank` of `communicator_id`, else what is wrong.
inline const char* CheckHello(const void* data, size_t bytes, uint64_t communicator_id, int from_rank,
                              int to_rank) {
  if (bytes < sizeof(Hello)) return "is too short";
  const wire::HeaderFault fault = wire::CheckHeader(data, bytes, kHelloMagic, kMajor, sizeof(Hello));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Hello hello;
  memcpy(&hello, data, sizeof hello);
  if (hello.header.total_bytes != sizeof(Hello)) return "is of a length that this version does not know";
  if (hello.communicator_id != communicator_id) return "belongs to another communicator";
  if (hello.to_rank != to_rank) return "is meant for another rank";
  if (hello.from_rank != from_rank) return "comes from a rank that is not expected here";
  return nullptr;
}

}  // namespace c4::tcp
