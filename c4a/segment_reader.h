// Reads a segment (wire/segment.h) into memory of the agent's own. The writer is another program, perhaps
// of another version, perhaps gone wrong: every size and index is checked, texts are never trusted to be
// terminated, and nothing is given out that was read while it was being written.
//
// No state between calls apart from what the caller keeps (SegmentSnapshot, RingCursor). One thread at a
// time for one ByteSource. Links without gRPC: only wire/ and the standard library.
#pragma once

#include <string>
#include <vector>

#include "c4a/byte_source.h"
#include "wire/segment.h"

namespace c4::agent {

// How a read ended, and one sentence when not well.
class [[nodiscard]] ReadStatus {
 public:
  enum class Code {
    kOk,
    kUnreadable,  // cut short, or the file cannot be read
    kRefused,     // not a segment that this program can read
    kSuspect,     // its content contradicts itself
  };
  ReadStatus() = default;
  ReadStatus(Code code, std::string text) : code_(code), text_(std::move(text)) {}
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  Code code_ = Code::kOk;
  std::string text_;
};

// What one segment may hold at most; a larger one is refused.
struct SegmentLimits {
  uint64_t total_bytes = uint64_t{1} << 30;
  uint32_t communicators = 1u << 16;
  uint32_t queue_pairs = 1u << 17;
  uint32_t rings = 1u << 10;
  uint32_t ring_capacity = 1u << 16;
};

template <typename Slot>
struct IndexedSlot {
  uint32_t index = 0;
  Slot slot{};
};

// Slots that are in use, by index. Texts in it are terminated.
struct SegmentSnapshot {
  wire::SegmentHeader header{};
  std::vector<IndexedSlot<wire::CommunicatorSlot>> communicators;
  std::vector<IndexedSlot<wire::QueuePairSlot>> queue_pairs;
  uint32_t slots_unsettled = 0;  // left out: they changed at every attempt to read them
};

// Reads and checks the header alone.
ReadStatus ReadSegmentHeader(ByteSource* source, const SegmentLimits& limits, wire::SegmentHeader* header);

// Reads the header and all slots in use.
ReadStatus ReadSegment(ByteSource* source, const SegmentLimits& limits, SegmentSnapshot* snapshot);

// A counter that goes backwards while its slot has the same owner means that the writer is broken or the
// memory was overwritten: kSuspect. `before` is an earlier snapshot of the same segment.
ReadStatus CheckProgress(const SegmentSnapshot& before, const SegmentSnapshot& now);

// How far one ring has been read.
struct RingCursor {
  uint64_t next = 0;  // index of the record to read next
};

struct RingRecords {
  std::vector<wire::Record> records;  // oldest first; types known, slots in range
  uint64_t lost = 0;                  // overwritten before they could be read
  uint64_t unknown = 0;               // of types that this version does not know
};

// Reads what has come since `cursor`, appends it to `out` and moves the cursor on. `header` was read from
// the same source before. On an error the cursor stands where the reading ended.
ReadStatus ReadRing(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring, RingCursor* cursor,
                    RingRecords* out);

// Moves the cursor to the newest record: for a segment that was there before the agent, whose records an
// earlier agent has read.
ReadStatus SkipRing(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring, RingCursor* cursor);

}  // namespace c4::agent
