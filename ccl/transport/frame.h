// What goes over the streams between two ranks behind their hello (docs/formats/tcp.md): chunk headers, each
// followed by its payload, one way, and reports the other way; over streams of the fence channel fences and
// their answers. Pure data and pure checks: every field comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c4 {

inline constexpr uint32_t kFrameMark = 0x51503443;  // "C4PQ"

enum FrameKind : uint16_t {
  kFrameChunk = 1,  // payload of `bytes` bytes follows
  kFrameReport =
      2,  // the receiver holds `sequence` chunks of this queue pair, and has buffers for `message` messages
  kFrameGoodbye = 3,  // this side leaves in order; nothing follows
  // On a fence stream. Of queue pair `chunk` and its epoch `bytes`:
  kFrameFence = 4,   // sender: it is dead; close it
  kFrameFenced = 5,  // receiver: it is closed, `sequence` chunks had come; messages granted as in a report
  kFrameCount = 6,   // receiver: the same, but it is not closed
  kFramePing = 7,    // sender: nothing
  kFrameTags = 8,    // receiver, on any stream: tags of `chunk` messages from number `message` on
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
  if (frame.kind == kFrameGoodbye) return frame.bytes == 0 ? nullptr : "sent a goodbye with a payload";
  if (frame.kind != kFrameChunk) return "sent a frame of a kind that a sender never sends";
  if (frame.sequence != sequence) return "sent a chunk out of sequence";
  if (frame.bytes > frame.message_bytes) return "sent a chunk larger than its message";
  return nullptr;
}

// The same for what comes from the receiver. `received` and `granted` are what it said before, `sent` the
// chunks that were sent.
inline const char* CheckReport(const Frame& frame, uint64_t received, uint64_t granted, uint64_t sent) {
  if (frame.mark != kFrameMark) return "sent what is no frame of ours";
  if (frame.bytes != 0) return "sent a report with a payload";
  if (frame.kind == kFrameGoodbye) return nullptr;
  if (frame.kind == kFrameTags) return CheckTags(frame);
  if (frame.kind != kFrameReport) return "sent a frame of a kind that a receiver never sends";
  if (frame.sequence < received || frame.message < granted) return "took back what it had acknowledged";
  if (frame.chunk > kTagsAReport || frame.chunk > frame.message) return "sent an impossible number of tags";
  if (frame.sequence > sent) return "acknowledged what was not sent";
  return nullptr;
}

// nullptr when `frame` may come over a fence stream of a connection of so many queue pairs.
inline const char* CheckFenceFrame(const Frame& frame, bool from_sender, uint32_t queue_pairs) {
  if (frame.mark != kFrameMark) return "sent what is no frame of ours";
  if (frame.kind == kFrameGoodbye || (from_sender && frame.kind == kFramePing)) return nullptr;
  if (!from_sender && frame.kind == kFrameTags) return CheckTags(frame);
  const bool known =
      from_sender ? frame.kind == kFrameFence : frame.kind == kFrameFenced || frame.kind == kFrameCount;
  if (!known) return "sent a frame of a kind that does not belong on a fence stream";
  return frame.chunk < queue_pairs ? nullptr : "spoke of a queue pair that its connection does not have";
}

}  // namespace c4
