// Rings: each record once, none torn, all that is lost counted.
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "c4a/segment_reader.h"
#include "tests/unit/c4a/changing_source.h"
#include "tests/unit/c4a/segment_builder.h"

namespace c4::agent {
namespace {

using test::ChangingSource;
using test::SegmentBuilder;
using Code = ReadStatus::Code;

class RingTest : public testing::Test {
 protected:
  ReadStatus Read(ByteSource* source, uint32_t ring = 0) {
    out_ = {};
    return ReadRing(source, builder_.header(), ring, &cursor_, &out_);
  }
  ReadStatus Read() {
    MemorySource source(builder_.bytes().data(), builder_.bytes().size());
    return Read(&source);
  }
  void Push(int count) {
    for (int i = 0; i < count; ++i) builder_.PushOperation(0, 0, 10, 20);
  }
  std::vector<uint64_t> Sequences() const {
    std::vector<uint64_t> sequences;
    for (const wire::Record& record : out_.records) sequences.push_back(record.operation.sequence);
    return sequences;
  }

  SegmentBuilder builder_ = SegmentBuilder({.ring_capacity = 8});
  RingCursor cursor_;
  RingRecords out_;
};

TEST_F(RingTest, EachRecordOnce) {
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::IsEmpty());
  Push(3);
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(0, 1, 2));
  Push(7);  // around the end
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(out_.lost, 0u);
}

// With a full ring the writer may already be writing the next record in the place of the oldest.
TEST_F(RingTest, TheOldestOfAFullRingIsLost) {
  Push(8);
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(out_.lost, 1u);
  Push(100);
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(101, 102, 103, 104, 105, 106, 107));
  EXPECT_EQ(out_.lost, 93u);
}

// What the writer may have touched while we copied counts as lost, to the record.
TEST_F(RingTest, RecordsOverwrittenWhileTheyAreCopiedAreLost) {
  Push(6);
  ChangingSource source(&builder_.bytes());
  source.before_read = [&](int read) {
    if (read == 3) Push(5);  // head 11: 0..3 may be torn, 4 and 5 not
  };
  ASSERT_TRUE(Read(&source).ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(4, 5));
  EXPECT_EQ(out_.lost, 4u);
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(6, 7, 8, 9, 10));
  EXPECT_EQ(out_.lost, 0u);
}

TEST_F(RingTest, AWholeRoundWhileCopyingLosesAll) {
  Push(6);
  ChangingSource source(&builder_.bytes());
  source.before_read = [&](int read) {
    if (read == 3) Push(50);
  };
  ASSERT_TRUE(Read(&source).ok());
  EXPECT_TRUE(out_.records.empty());
  EXPECT_EQ(out_.lost, 6u);
}

TEST_F(RingTest, AHeadThatGoesBackIsSuspect) {
  Push(6);
  ASSERT_TRUE(Read().ok());
  builder_.ring(0).head = 5;
  EXPECT_EQ(Read().code(), Code::kSuspect);
  builder_.ring(0).head = 6;
  ChangingSource source(&builder_.bytes());
  Push(1);
  source.before_read = [&](int read) {
    if (read == 3) builder_.ring(0).head = 2;
  };
  EXPECT_EQ(Read(&source).code(), Code::kSuspect);
}

TEST_F(RingTest, AHeadFromNowhereIsBorne) {
  builder_.ring(0).head = ~uint64_t{0};
  EXPECT_TRUE(Read().ok());
  EXPECT_EQ(out_.lost + out_.records.size() + out_.unknown, ~uint64_t{0});
}

TEST_F(RingTest, UnknownTypesAndSlotsOutOfRangeAreSkipped) {
  Push(4);
  builder_.record(0, 1).type = 99;
  builder_.record(0, 2).slot = 4;
  builder_.record(0, 3).type = wire::kRecordMessage;
  builder_.record(0, 3).slot = 0xffffffff;
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(0));
  EXPECT_EQ(out_.unknown, 3u);
  EXPECT_FALSE(Read(nullptr, 2).ok());  // no such ring
}

TEST_F(RingTest, MarksOfUnknownKindsAreSkipped) {
  builder_.PushMark(0, wire::kMarkGc, 10, 20, -1);
  builder_.PushMark(0, wire::kMarkNone, 10, 20, -1);
  builder_.PushMark(0, static_cast<wire::MarkKind>(7), 10, 20, -1);
  builder_.record(0, 0).slot = 0xffffffff;  // of no slot: it does not count
  ASSERT_TRUE(Read().ok());
  ASSERT_EQ(out_.records.size(), 1u);
  EXPECT_EQ(out_.records[0].mark.kind, wire::kMarkGc);
  EXPECT_EQ(out_.unknown, 2u);
}

TEST_F(RingTest, SkipStartsBehindTheNewest) {
  Push(5);
  MemorySource source(builder_.bytes().data(), builder_.bytes().size());
  ASSERT_TRUE(SkipRing(&source, builder_.header(), 0, &cursor_).ok());
  Push(1);
  ASSERT_TRUE(Read().ok());
  EXPECT_THAT(Sequences(), testing::ElementsAre(5));
}

// A writer that never waits, in a file, against a reader: every record that comes out is whole, in order,
// and with those lost all are accounted for.
TEST(RingRace, NothingTornComesOut) {
  SegmentBuilder builder({.communicators = 1, .queue_pairs = 1, .rings = 1, .ring_capacity = 1024});
  const int fd = memfd_create("segment", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, builder.bytes().data(), builder.bytes().size()),
            static_cast<ssize_t>(builder.bytes().size()));
  auto* base =
      static_cast<char*>(mmap(nullptr, builder.bytes().size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(base, MAP_FAILED);
  const wire::SegmentHeader header = builder.header();
  auto* ring = reinterpret_cast<wire::RingHeader*>(base + header.rings.offset);
  auto* records = reinterpret_cast<wire::Record*>(ring + 1);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t head = 0; !stop; ++head) {
      std::atomic_thread_fence(std::memory_order_release);
      wire::Record& record = records[head % 1024];
      record.type = wire::kRecordOperation;
      record.slot = 0;
      record.operation.sequence = head;
      record.operation.called_ticks = head;
      record.operation.started_ticks = head;
      record.operation.finished_ticks = head;
      record.operation.info.count = head;
      std::atomic_ref<uint64_t>(ring->head).store(head + 1, std::memory_order_release);
      // Slow enough that the reader keeps up most of the time, and now and then does not.
      for (int spin = head % 5000 < 3000 ? 200 : 10; spin > 0; --spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  });
  FileSource source(fd);
  RingCursor cursor;
  uint64_t next = 0;
  uint64_t seen = 0;
  uint64_t lost_in_all = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  bool whole = true;
  while (whole && std::chrono::steady_clock::now() < end) {
    RingRecords out;
    ASSERT_TRUE(ReadRing(&source, header, 0, &cursor, &out).ok());
    for (const wire::Record& record : out.records) {
      const wire::OperationRecord& operation = record.operation;
      whole = whole && operation.sequence >= next && operation.called_ticks == operation.sequence &&
              operation.started_ticks == operation.sequence &&
              operation.finished_ticks == operation.sequence && operation.info.count == operation.sequence;
      next = operation.sequence + 1;
      ++seen;
    }
    lost_in_all += out.lost;
    whole = whole && seen + lost_in_all == cursor.next && out.unknown == 0;
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(whole) << "after " << seen << " records";
  EXPECT_GT(seen, 100u);
  munmap(base, builder.bytes().size());
  close(fd);
}

}  // namespace
}  // namespace c4::agent
