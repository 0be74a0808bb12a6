// Records of a ring, against a writer that never waits (wire/segment.h). While the records [a, b) are being
// copied the writer goes on; the head read after the copy says which of them it may have touched: it
// writes record `head` before it publishes head + 1, into the place of record head - capacity. So every
// index i with i + capacity <= head may be torn, and counts as lost.
#include <algorithm>
#include <cstring>

#include "c4a/segment_reader.h"

namespace c4::agent {
namespace {

using Code = ReadStatus::Code;

constexpr uint64_t kChunkRecords = 1024;  // copied at once

ReadStatus Unreadable(uint32_t ring) {
  return {Code::kUnreadable, "ring " + std::to_string(ring) + " cannot be read; was the file cut short?"};
}

uint64_t RingOffset(const wire::SegmentHeader& header, uint32_t ring) {
  return header.rings.offset + uint64_t{ring} * header.rings.stride_bytes;
}

// The order of reading is the order of the calls: ReadAt goes through the kernel or memcpy on this thread.
bool ReadHead(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring, uint64_t* head) {
  wire::RingHeader ring_header;
  if (!source->ReadAt(&ring_header, sizeof ring_header, RingOffset(header, ring))) return false;
  *head = ring_header.head;
  return true;
}

ReadStatus WentBack(uint32_t ring, uint64_t before, uint64_t now) {
  return {Code::kSuspect, "ring " + std::to_string(ring) + " went back from record " +
                              std::to_string(before) + " to " + std::to_string(now)};
}

// The first record that the writer cannot have touched when its head was `head`.
uint64_t FirstWhole(uint64_t head, uint64_t capacity) {
  return head >= capacity ? head - capacity + 1 : 0;
}

void Take(const wire::Record& record, const wire::SegmentHeader& header, RingRecords* out) {
  const bool operation = record.type == wire::kRecordOperation && record.slot < header.communicators.count;
  const bool message = record.type == wire::kRecordMessage && record.slot < header.queue_pairs.count;
  const bool mark = record.type == wire::kRecordMark && record.mark.kind >= wire::kMarkForwardCompute &&
                    record.mark.kind <= wire::kMarkStep;
  if (operation || message || mark) {
    out->records.push_back(record);
  } else {
    ++out->unknown;
  }
}

// Copies the records [from, to), at most one capacity of them, around the end of the ring.
bool CopyRecords(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring, uint64_t from,
                 uint64_t to, std::vector<char>* bytes) {
  const uint64_t capacity = header.ring_capacity;
  const uint64_t record_bytes = header.header.record_bytes;
  const uint64_t records_offset = RingOffset(header, ring) + sizeof(wire::RingHeader);
  bytes->resize((to - from) * record_bytes);
  for (uint64_t at = from; at < to;) {
    const uint64_t place = at % capacity;
    const uint64_t count = std::min(to - at, capacity - place);
    if (!source->ReadAt(bytes->data() + (at - from) * record_bytes, count * record_bytes,
                        records_offset + place * record_bytes)) {
      return false;
    }
    at += count;
  }
  return true;
}

}  // namespace

ReadStatus ReadRing(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring, RingCursor* cursor,
                    RingRecords* out) {
  if (ring >= header.rings.count) return {Code::kRefused, "no ring " + std::to_string(ring)};
  const uint64_t capacity = header.ring_capacity;
  uint64_t head = 0;
  if (!ReadHead(source, header, ring, &head)) return Unreadable(ring);
  if (head < cursor->next) return WentBack(ring, cursor->next, head);
  // Only what had come by now: a writer that is faster than we are must not hold us for ever.
  const uint64_t end = head;
  std::vector<char> bytes;
  while (cursor->next < end) {
    const uint64_t from = std::max(cursor->next, FirstWhole(head, capacity));
    if (from >= end) {  // the writer has been once around since
      out->lost += end - cursor->next;
      cursor->next = end;
      break;
    }
    const uint64_t to =
        from + std::min(end - from, kChunkRecords);  // a broken head may be near the end of 64 bits
    uint64_t head_after = 0;
    if (!CopyRecords(source, header, ring, from, to, &bytes) ||
        !ReadHead(source, header, ring, &head_after)) {
      return Unreadable(ring);
    }
    if (head_after < head) return WentBack(ring, head, head_after);
    head = head_after;
    const uint64_t first = std::min(std::max(from, FirstWhole(head, capacity)), to);
    out->lost += first - cursor->next;
    for (uint64_t i = first; i < to; ++i) {
      wire::Record record;
      memcpy(&record, bytes.data() + (i - from) * header.header.record_bytes, sizeof record);
      Take(record, header, out);
    }
    cursor->next = to;
  }
  return {};
}

ReadStatus SkipRing(ByteSource* source, const wire::SegmentHeader& header, uint32_t ring,
                    RingCursor* cursor) {
  if (ring >= header.rings.count) return {Code::kRefused, "no ring " + std::to_string(ring)};
  uint64_t head = 0;
  if (!ReadHead(source, header, ring, &head)) return Unreadable(ring);
  cursor->next = head;
  return {};
}

}  // namespace c4::agent
