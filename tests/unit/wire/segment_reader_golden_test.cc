// The agent's reader on segments that a library of another version left: those of earlier versions from their
// files, that in force as a later minor version would write it, and one of another major version.
#include <gmock/gmock.h>

#include "c4a/segment_reader.h"
#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

using agent::MemorySource;
using agent::ReadStatus;
using agent::SegmentLimits;
using agent::SegmentSnapshot;
using testing::HasSubstr;

std::string Segment10() {
  return Golden("segment-1.0.bin", "");
}

std::string Segment11() {
  return Golden("segment-1.1.bin", "");
}

// Puts `tail` bytes of noise, a later version's fields, behind each of `count` items.
std::string Lengthened(const std::string& bytes, size_t at, size_t item_bytes, size_t count, size_t tail) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += bytes.substr(at + i * item_bytes, item_bytes);
    out.append(tail, '\x5a');
  }
  return out;
}

// What a library of version 1.2 would write, had it lengthened the header, every slot and every record.
std::string LaterMinor() {
  const std::string bytes = Segment11();
  const auto before = At<SegmentHeader>(bytes, 0);
  SegmentHeader header = before;
  std::string tables;
  const auto move = [&](TableRef* table, const std::string& content) {
    table->offset = 640 + tables.size();
    table->stride_bytes = static_cast<uint32_t>(content.size() / table->count);
    tables += content;
  };
  move(&header.communicators, Lengthened(bytes, before.communicators.offset, sizeof(CommunicatorSlot),
                                         before.communicators.count, 64));
  move(&header.queue_pairs,
       Lengthened(bytes, before.queue_pairs.offset, sizeof(QueuePairSlot), before.queue_pairs.count, 128));
  std::string rings;
  for (uint32_t i = 0; i < before.rings.count; ++i) {
    const size_t at = before.rings.offset + i * before.rings.stride_bytes;
    rings += bytes.substr(at, sizeof(RingHeader));
    rings += Lengthened(bytes, at + sizeof(RingHeader), 64, before.ring_capacity, 64);
  }
  move(&header.rings, rings);
  header.header.minor = 2;
  header.header.header_bytes = 640;
  header.header.record_bytes = 128;
  header.header.total_bytes = 640 + tables.size();
  std::string out;
  Append(&out, header);
  out.append(128, '\x5a');
  return out + tables;
}

void ExpectGoldenContent(const std::string& bytes, bool since_11) {
  MemorySource source(bytes.data(), bytes.size());
  SegmentSnapshot snapshot;
  const ReadStatus status = ReadSegment(&source, SegmentLimits(), &snapshot);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_STREQ(snapshot.header.host, "node-17");
  EXPECT_STREQ(snapshot.header.job, "1234.0");
  EXPECT_EQ(snapshot.header.rank_label, 2);
  ASSERT_EQ(snapshot.communicators.size(), 1u);
  const CommunicatorSlot& communicator = snapshot.communicators[0].slot;
  EXPECT_EQ(communicator.communicator_id, 0xc4c4'0000'0000'0001u);
  EXPECT_EQ(communicator.called.count, 11u);
  EXPECT_EQ(communicator.finished.count, 14u);
  EXPECT_EQ(communicator.last_called.function, kAllReduce);
  EXPECT_STREQ(communicator.name, "tensor-parallel");
  ASSERT_EQ(snapshot.queue_pairs.size(), 2u);
  EXPECT_EQ(snapshot.queue_pairs[0].slot.queue_pair_number, 901u);
  EXPECT_EQ(snapshot.queue_pairs[1].slot.error, 104u);
  // What an earlier version did not write reads as 0: nothing of the next slot, nothing left from another.
  const QueuePairSlot& sender = snapshot.queue_pairs[0].slot;
  EXPECT_EQ(communicator.p2p_called.count, since_11 ? 15u : 0u);
  EXPECT_EQ(communicator.p2p_finished.ticks, since_11 ? 2018u : 0u);
  EXPECT_EQ(communicator.last_p2p_started.function, since_11 ? kRecv : kFunctionNone);
  EXPECT_EQ(sender.latency_histogram[0], since_11 ? 4000u : 0u);
  EXPECT_EQ(sender.latency_histogram[31], since_11 ? 4031u : 0u);
  EXPECT_EQ(sender.granted_messages, since_11 ? 30u : 0u);
  EXPECT_EQ(sender.first_wait_max_ticks, since_11 ? 2304u : 0u);

  agent::RingCursor cursor;
  agent::RingRecords records;
  ASSERT_TRUE(ReadRing(&source, snapshot.header, 0, &cursor, &records).ok());
  // Six were written into four places, and the writer may be at work on the oldest: 3, 4 and 5 are whole.
  EXPECT_EQ(cursor.next, 6u);
  EXPECT_EQ(records.lost, 3u);
  ASSERT_EQ(records.records.size(), 3u);
  EXPECT_EQ(records.records[0].message.sequence, 203u);
  EXPECT_EQ(records.records[1].operation.sequence, 100u);
  EXPECT_EQ(records.records[2].message.sequence, 201u);
}

TEST(SegmentReaderGolden, Reads10) {
  ExpectGoldenContent(Segment10(), false);
}

TEST(SegmentReaderGolden, Reads11) {
  ExpectGoldenContent(Segment11(), true);
}

TEST(SegmentReaderGolden, ReadsTheWorkerAndItsMarksSince14) {
  const std::string bytes = Golden("segment-1.4.bin", "");
  MemorySource source(bytes.data(), bytes.size());
  SegmentSnapshot snapshot;
  ASSERT_TRUE(ReadSegment(&source, SegmentLimits(), &snapshot).ok());
  EXPECT_EQ(snapshot.header.worker.declared, 1u);
  EXPECT_EQ(snapshot.header.worker.dp_rank, 3u);
  EXPECT_EQ(snapshot.header.worker.layers, 96u);
  // As the ring was before its first record was overwritten.
  std::string whole = bytes;
  auto ring = At<RingHeader>(whole, snapshot.header.rings.offset);
  ring.head = 4;
  memcpy(whole.data() + snapshot.header.rings.offset, &ring, sizeof ring);
  MemorySource four(whole.data(), whole.size());
  agent::RingCursor cursor{2};
  agent::RingRecords records;
  ASSERT_TRUE(ReadRing(&four, snapshot.header, 0, &cursor, &records).ok());
  ASSERT_EQ(records.records.size(), 2u);
  EXPECT_EQ(records.records[0].type, kRecordMark);
  EXPECT_EQ(records.records[0].mark.kind, kMarkBackwardCompute);
  EXPECT_EQ(records.records[0].mark.micro_batch, 7);
}

TEST(SegmentReaderGolden, ReadsALaterMinorVersionWithLongerItems) {
  ExpectGoldenContent(LaterMinor(), true);
}

TEST(SegmentReaderGolden, RefusesAnotherMajorVersionAndNamesBoth) {
  std::string bytes = Segment10();
  bytes[8] = 2;
  MemorySource source(bytes.data(), bytes.size());
  SegmentSnapshot snapshot;
  const ReadStatus status = ReadSegment(&source, SegmentLimits(), &snapshot);
  EXPECT_EQ(status.code(), ReadStatus::Code::kRefused);
  EXPECT_THAT(status.text(), HasSubstr("2.0"));
  EXPECT_THAT(status.text(), HasSubstr("1."));
}

// Found by the fuzzer: the sum of such a head and a block's length passed the end of 64 bits, and the reader
// never came to an end.
TEST(SegmentReaderGolden, AHeadNearTheEndOf64BitsDoesNotHoldTheReader) {
  std::string bytes = Segment10();
  const auto header = At<SegmentHeader>(bytes, 0);
  const uint64_t head = UINT64_MAX;
  memcpy(bytes.data() + header.rings.offset, &head, sizeof head);
  MemorySource source(bytes.data(), bytes.size());
  agent::RingCursor cursor;
  agent::RingRecords records;
  ASSERT_TRUE(ReadRing(&source, header, 0, &cursor, &records).ok());
  EXPECT_EQ(cursor.next, head);
  EXPECT_EQ(records.records.size(), 3u);
}

}  // namespace
}  // namespace c4::wire
