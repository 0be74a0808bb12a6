// What goes over a TCP queue pair (docs/formats/tcp.md). At first a hello, from the side that connects; then
// chunk headers, each followed by its payload, one way, and reports the other way. Pure data and pure checks:
// every field comes from outside.
#pragma once

#include <cstring>

#include "wire/segment.h"

namespace c4::tcp {

inline constexpr uint64_t kHelloMagic = wire::Magic("C4TCPHLO");
inline constexpr uint16_t kMajor = 4;
inline constexpr uint16_t kMinor = 0;
inline constexpr size_t kMacBytes = 16;
inline constexpr uint32_t kMaxQueuePairs = 64;
inline constexpr uint32_t kMinChunkBytes = 1024;
inline constexpr uint32_t kMaxChunkBytes = 1u << 30;

struct Hello {
  wire::Header header;
  uint64_t communicator_id;
  int32_t from_rank;
  int32_t to_rank;
  uint16_t channel;
  uint16_t queue_pair_index;
  uint16_t queue_pair_count;   // of the connection
  uint16_t transport;          // wire::TransportKind of the data, or a StreamKind
  uint64_t queue_pair_number;  // the connecting side's
  uint32_t chunk_bytes;        // every chunk but a message's last is this long
  uint32_t epoch;              // of the queue pair or control stream: counts its streams, from 0
  uint8_t mac[kMacBytes];      // proves that the sender knows the communicator's secret (seal.h)
};
static_assert(sizeof(Hello) == 120);
// What `transport` says beside wire::TransportKind.
enum StreamKind : uint16_t {
  kFailOverTcp = 0x101,  // a queue pair over TCP whose connection has a control channel
  kControl = 0x102,      // a stream of that channel
};
// Longest hello: what a transport other than TCP needs follows, and header.total_bytes covers it.
inline constexpr size_t kMaxHelloBytes = sizeof(Hello) + 32;

inline bool FailsOver(const Hello& hello) {
  return hello.transport == kFailOverTcp;
}
inline bool IsTcp(const Hello& hello) {
  return hello.transport == wire::kTransportTcp || FailsOver(hello);
}
inline bool IsControl(const Hello& hello) {
  return hello.transport == kControl;
}
// Bytes of the hello that begins with `hello`; 0 when it asks for a transport that this version has not, or
// is of another length than that transport's.
inline size_t HelloBytes(const Hello& hello) {
  const bool shm = hello.transport == wire::kTransportShm;
  const size_t bytes = shm ? kMaxHelloBytes : sizeof(Hello);
  return (shm || IsTcp(hello) || IsControl(hello)) && hello.header.total_bytes == bytes ? bytes : 0;
}

inline constexpr uint32_t kFrameMark = 0x51503443;  // "C4PQ"

enum FrameKind : uint16_t {
  kChunk = 1,  // payload of `bytes` bytes follows
  kReport =
      2,  // the receiver holds `sequence` chunks of this queue pair, and has buffers for `message` messages
  kGoodbye = 3,  // this side leaves in order; nothing follows
  // On a control stream. Of queue pair `chunk` and its epoch `bytes`:
  kFence = 4,   // sender: it is dead; close it
  kFenced = 5,  // receiver: it is closed, `sequence` chunks had come; messages granted as in a report
  kCount = 6,   // receiver: the same, but it is not closed
  kPing = 7,    // sender: nothing
  kTags = 8,    // receiver, on any stream: tags of `chunk` messages from number `message` on
};
inline constexpr uint32_t kTagsAFrame = 4;
// A report carries the tags of the last `chunk` messages that it grants.
inline constexpr uint32_t kTagsAReport = 2;

struct Frame {
  uint32_t mark;
  uint16_t kind;
  uint16_t reserved;
  uint32_t chunk;          // of the message, from 0
  uint32_t bytes;          // of this chunk
  uint64_t sequence;       // chunks sent before on this queue pair; in a report: chunks received
  uint64_t message;        // of the connection, from 0; in a report: messages granted
  uint64_t message_bytes;  // the whole message
};
static_assert(sizeof(Frame) == 40);

// In a frame of tags, `sequence` and `message_bytes` hold two each, the first in the lower half.
inline int32_t TagIn(const Frame& frame, uint32_t i) {
  return static_cast<int32_t>(
      static_cast<uint32_t>((i < 2 ? frame.sequence : frame.message_bytes) >> (i % 2 * 32)));
}
inline void SetTag(Frame* frame, uint32_t i, int32_t tag) {
  uint64_t& word = i < 2 ? frame->sequence : frame->message_bytes;
  word |= static_cast<uint64_t>(static_cast<uint32_t>(tag)) << (i % 2 * 32);
}
// In a report they stand where a frame of tags has its third and fourth.
inline int32_t TagInReport(const Frame& frame, uint32_t i) {
  return TagIn(frame, kTagsAReport + i);
}
inline void SetTagInReport(Frame* frame, uint32_t i, int32_t tag) {
  SetTag(frame, kTagsAReport + i, tag);
}
inline const char* CheckTags(const Frame& frame) {
  const bool possible = frame.bytes == 0 && frame.chunk >= 1 && frame.chunk <= kTagsAFrame;
  return possible ? nullptr : "sent an impossible number of tags";
}

// nullptr when `frame` may come from the sender as its chunk number `sequence`, else what is wrong with it.
inline const char* CheckChunk(const Frame& frame, uint64_t sequence) {
  if (frame.mark != kFrameMark) return "sent what is no frame of ours";
  if (frame.kind == kGoodbye) return frame.bytes == 0 ? nullptr : "sent a goodbye with a payload";
  if (frame.kind != kChunk) return "sent a frame of a kind that a sender never sends";
  if (frame.sequence != sequence) return "sent a chunk out of sequence";
  if (frame.bytes > frame.message_bytes) return "sent a chunk larger than its message";
  return nullptr;
}

// The same for what comes from the receiver. `received` and `granted` are what it said before, `sent` the
// chunks that were sent.
inline const char* CheckReport(const Frame& frame, uint64_t received, uint64_t granted, uint64_t sent) {
  if (frame.mark != kFrameMark) return "sent what is no frame of ours";
  if (frame.bytes != 0) return "sent a report with a payload";
  if (frame.kind == kGoodbye) return nullptr;
  if (frame.kind == kTags) return CheckTags(frame);
  if (frame.kind != kReport) return "sent a frame of a kind that a receiver never sends";
  if (frame.sequence < received || frame.message < granted) return "took back what it had acknowledged";
  if (frame.chunk > kTagsAReport || frame.chunk > frame.message) return "sent an impossible number of tags";
  if (frame.sequence > sent) return "acknowledged what was not sent";
  return nullptr;
}

// nullptr when `frame` may come over a control stream of a connection of so many queue pairs.
inline const char* CheckControl(const Frame& frame, bool from_sender, uint32_t queue_pairs) {
  if (frame.mark != kFrameMark) return "sent what is no frame of ours";
  if (frame.kind == kGoodbye || (from_sender && frame.kind == kPing)) return nullptr;
  if (!from_sender && frame.kind == kTags) return CheckTags(frame);
  const bool known = from_sender ? frame.kind == kFence : frame.kind == kFenced || frame.kind == kCount;
  if (!known) return "sent a frame of a kind that does not belong on a control stream";
  return frame.chunk < queue_pairs ? nullptr : "spoke of a queue pair that its connection does not have";
}

// nullptr when `bytes` bytes at `data` begin a hello to `to_rank` of `communicator_id`, else what is wrong.
// Without ranks (`rank_count` 0) the number alone says whom it means.
inline const char* CheckHello(const void* data, size_t bytes, uint64_t communicator_id, int to_rank,
                              int rank_count) {
  if (bytes < sizeof(Hello)) return "is too short";
  const wire::HeaderFault fault = wire::CheckHeader(data, bytes, kHelloMagic, kMajor, sizeof(Hello));
  if (fault != wire::HeaderFault::kOk) return wire::HeaderFaultText(fault);
  Hello hello;
  memcpy(&hello, data, sizeof hello);
  if (!IsTcp(hello) && !IsControl(hello) && hello.transport != wire::kTransportShm) {
    return "asks for a transport that this version does not have";
  }
  if (HelloBytes(hello) == 0) return "is of a length that this version does not know";
  if (hello.communicator_id != communicator_id) return "belongs to another communicator";
  if (rank_count != 0 && hello.to_rank != to_rank) return "is meant for another rank";
  if (rank_count != 0 &&
      (hello.from_rank < 0 || hello.from_rank >= rank_count || hello.from_rank == to_rank)) {
    return "comes from a rank that is not expected here";
  }
  if (hello.queue_pair_count == 0 || hello.queue_pair_count > kMaxQueuePairs ||
      hello.queue_pair_index >= hello.queue_pair_count) {
    return "names a queue pair that its connection does not have";
  }
  if (hello.chunk_bytes < kMinChunkBytes || hello.chunk_bytes > kMaxChunkBytes) {
    return "names an impossible chunk size";
  }
  return nullptr;
}

}  // namespace c4::tcp
