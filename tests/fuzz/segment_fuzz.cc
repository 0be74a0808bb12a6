// A segment as any process of the node can leave it in the run directory: whatever stands in it, the agent's
// reader stays within it, gives out terminated texts and indices in range, and comes to an end.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "c4a/segment_reader.h"
#include "tests/fuzz/check.h"

namespace {

using c4::agent::MemorySource;
using c4::agent::ReadStatus;
using c4::agent::RingCursor;
using c4::agent::RingRecords;
using c4::agent::SegmentSnapshot;

constexpr c4::agent::SegmentLimits kLimits;
constexpr uint32_t kMostRings = 8;

template <size_t kBytes>
bool Terminated(const char (&text)[kBytes]) {
  return memchr(text, '\0', kBytes) != nullptr;
}

void CheckSnapshot(const SegmentSnapshot& snapshot, size_t size) {
  const c4::wire::SegmentHeader& header = snapshot.header;
  C4_FUZZ_CHECK(header.header.total_bytes <= size);
  C4_FUZZ_CHECK(Terminated(header.host) && Terminated(header.job) && Terminated(header.program));
  for (const auto& entry : snapshot.communicators) {
    C4_FUZZ_CHECK(entry.index < header.communicators.count && Terminated(entry.slot.name));
  }
  for (const auto& entry : snapshot.queue_pairs) C4_FUZZ_CHECK(entry.index < header.queue_pairs.count);
  C4_FUZZ_CHECK(CheckProgress(snapshot, snapshot).ok());
}

void ReadRings(MemorySource* source, const c4::wire::SegmentHeader& header) {
  for (uint32_t ring = 0; ring < std::min(header.rings.count, kMostRings); ++ring) {
    RingCursor cursor;
    RingRecords records;
    const ReadStatus status = ReadRing(source, header, ring, &cursor, &records);
    C4_FUZZ_CHECK(records.records.size() <= header.ring_capacity);
    for (const c4::wire::Record& record : records.records) {
      if (record.type == c4::wire::kRecordMark) {
        C4_FUZZ_CHECK(record.mark.kind != c4::wire::kMarkNone && record.mark.kind <= c4::wire::kMarkStep);
        continue;
      }
      const bool operation = record.type == c4::wire::kRecordOperation;
      C4_FUZZ_CHECK(record.slot < (operation ? header.communicators.count : header.queue_pairs.count));
    }
    if (!status.ok()) continue;
    RingCursor skipped;
    C4_FUZZ_CHECK(SkipRing(source, header, ring, &skipped).ok() && skipped.next == cursor.next);
    C4_FUZZ_CHECK(records.records.size() + records.lost + records.unknown == cursor.next);
  }
  RingCursor cursor;
  RingRecords records;
  C4_FUZZ_CHECK(!ReadRing(source, header, header.rings.count, &cursor, &records).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Of just this size, so that the address sanitizer sees a read past its end.
  const auto copy = std::make_unique<uint8_t[]>(size);
  if (size > 0) memcpy(copy.get(), data, size);
  MemorySource source(copy.get(), size);
  SegmentSnapshot snapshot;
  const ReadStatus status = ReadSegment(&source, kLimits, &snapshot);
  C4_FUZZ_CHECK(status.ok() == status.text().empty());
  if (!status.ok()) return 0;
  CheckSnapshot(snapshot, size);
  ReadRings(&source, snapshot.header);
  return 0;
}
