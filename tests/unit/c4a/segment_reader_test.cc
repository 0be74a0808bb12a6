#include "c4a/segment_reader.h"

#include <atomic>
#include <functional>
#include <gmock/gmock.h>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/unit/c4a/segment_builder.h"

namespace c4::agent {
namespace {

using test::SegmentBuilder;
using testing::AllOf;
using testing::HasSubstr;
using Code = ReadStatus::Code;

const SegmentLimits kLimits;

ReadStatus Read(const std::vector<char>& bytes, SegmentSnapshot* snapshot) {
  MemorySource source(bytes.data(), bytes.size());
  return ReadSegment(&source, kLimits, snapshot);
}

// All that a reader ever does with a segment; must come back from whatever bytes there are.
void ReadAll(const std::vector<char>& bytes) {
  MemorySource source(bytes.data(), bytes.size());
  SegmentSnapshot snapshot;
  if (!ReadSegment(&source, kLimits, &snapshot).ok()) return;
  EXPECT_TRUE(CheckProgress(snapshot, snapshot).ok());
  for (uint32_t ring = 0; ring < snapshot.header.rings_used; ++ring) {
    RingCursor cursor;
    RingRecords out;
    (void)ReadRing(&source, snapshot.header, ring, &cursor, &out);
    for (const wire::Record& record : out.records) {
      EXPECT_LT(record.slot, record.type == wire::kRecordOperation ? snapshot.header.communicators.count
                                                                   : snapshot.header.queue_pairs.count);
    }
  }
}

// Changes the memory at a chosen read, as a writer between two reads would.
class ChangingSource final : public ByteSource {
 public:
  explicit ChangingSource(std::vector<char>* bytes) : bytes_(bytes) {}
  bool ReadAt(void* to, size_t bytes, uint64_t offset) override {
    if (before_read) before_read(++reads);
    return MemorySource(bytes_->data(), bytes_->size()).ReadAt(to, bytes, offset);
  }
  uint64_t Size() override { return bytes_->size(); }

  std::function<void(int)> before_read;
  int reads = 0;

 private:
  std::vector<char>* const bytes_;
};

SegmentBuilder Filled() {
  SegmentBuilder builder;
  builder.AddCommunicator(0, 0x1111, 2).called = {.count = 5, .ticks = 50, .stream = 7};
  builder.AddCommunicator(2, 0x2222, 1);
  builder.queue_pair(1).phase = wire::kPhaseReady;
  builder.queue_pair(1).posted_bytes = 77;
  for (int i = 0; i < 5; ++i) builder.PushOperation(0, 0, 10, 20);
  return builder;
}

TEST(SegmentReader, ReadsWhatWasWritten) {
  SegmentBuilder builder = Filled();
  SegmentSnapshot snapshot;
  const ReadStatus status = Read(builder.bytes(), &snapshot);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_STREQ(snapshot.header.job, "job-1");
  ASSERT_EQ(snapshot.communicators.size(), 2u);  // the free slot between them is left out
  EXPECT_EQ(snapshot.communicators[0].slot.called.count, 5u);
  EXPECT_EQ(snapshot.communicators[1].index, 2u);
  EXPECT_EQ(snapshot.communicators[1].slot.communicator_id, 0x2222u);
  ASSERT_EQ(snapshot.queue_pairs.size(), 1u);
  EXPECT_EQ(snapshot.queue_pairs[0].slot.posted_bytes, 77u);
}

TEST(SegmentReader, RefusesEveryTruncation) {
  const std::vector<char> whole = Filled().bytes();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    SegmentSnapshot snapshot;
    const ReadStatus status =
        Read(std::vector<char>(whole.begin(), whole.begin() + static_cast<long>(bytes)), &snapshot);
    ASSERT_EQ(status.code(), Code::kUnreadable) << bytes << " bytes";
    ASSERT_FALSE(status.text().empty());
  }
}

TEST(SegmentReader, BytesBehindTheSegmentAreNoFault) {
  std::vector<char> bytes = Filled().bytes();
  bytes.resize(bytes.size() + 1000, '\x55');
  SegmentSnapshot snapshot;
  EXPECT_TRUE(Read(bytes, &snapshot).ok());
}

TEST(SegmentReader, NamesBothVersionsWhenTheMajorDiffers) {
  SegmentBuilder builder = Filled();
  builder.header().header.major = 2;
  builder.header().header.minor = 3;
  SegmentSnapshot snapshot;
  const ReadStatus status = Read(builder.bytes(), &snapshot);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_THAT(status.text(), AllOf(HasSubstr("2.3"), HasSubstr("1.x")));
}

// A later minor version: longer header, slots and records, with content that we do not know.
TEST(SegmentReader, SkipsTailsOfALaterMinorVersion) {
  SegmentBuilder old = Filled();
  const wire::SegmentHeader was = old.header();
  wire::SegmentHeader now = was;
  now.header.minor = 9;
  now.header.header_bytes = 640;
  now.header.record_bytes = 128;
  now.communicators = {640, was.communicators.count, 320};
  now.queue_pairs = {640 + 4 * 320, was.queue_pairs.count, 512};
  now.rings = {now.queue_pairs.offset + 4 * 512, was.rings.count, 64 + 8 * 128};
  now.header.total_bytes = now.rings.offset + 2 * now.rings.stride_bytes;
  std::vector<char> bytes(now.header.total_bytes, '\x77');
  memcpy(bytes.data(), &now, sizeof now);
  for (uint32_t i = 0; i < 4; ++i) {
    memcpy(bytes.data() + now.communicators.offset + i * 320, &old.communicator(i),
           sizeof(wire::CommunicatorSlot));
    memcpy(bytes.data() + now.queue_pairs.offset + i * 512, &old.queue_pair(i), sizeof(wire::QueuePairSlot));
  }
  for (uint32_t ring = 0; ring < 2; ++ring) {
    char* at = bytes.data() + now.rings.offset + ring * now.rings.stride_bytes;
    memcpy(at, &old.ring(ring), sizeof(wire::RingHeader));
    for (uint64_t i = 0; i < 8; ++i) memcpy(at + 64 + i * 128, &old.record(ring, i), sizeof(wire::Record));
  }
  SegmentSnapshot snapshot;
  const ReadStatus status = Read(bytes, &snapshot);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(snapshot.communicators.size(), 2u);
  EXPECT_EQ(snapshot.communicators[1].slot.communicator_id, 0x2222u);
  MemorySource source(bytes.data(), bytes.size());
  RingCursor cursor;
  RingRecords out;
  ASSERT_TRUE(ReadRing(&source, snapshot.header, 0, &cursor, &out).ok());
  ASSERT_EQ(out.records.size(), 5u);
  EXPECT_EQ(out.records[4].operation.sequence, 4u);
}

TEST(SegmentReader, RefusesContradictions) {
  const std::vector<std::pair<const char*, std::function<void(wire::SegmentHeader*)>>> faults = {
      {"magic", [](auto* h) { h->header.magic ^= 1; }},
      {"byte order", [](auto* h) { h->header.endian = 0x04030201; }},
      {"short header", [](auto* h) { h->header.header_bytes = 511; }},
      {"header past the end", [](auto* h) { h->header.header_bytes = 0xffffffff; }},
      {"total", [](auto* h) { h->header.total_bytes = ~uint64_t{0}; }},
      {"record bytes", [](auto* h) { h->header.record_bytes = 63; }},
      {"huge records", [](auto* h) { h->header.record_bytes = 0x80000000; }},
      {"capacity", [](auto* h) { h->ring_capacity = 7; }},
      {"no capacity", [](auto* h) { h->ring_capacity = 0; }},
      {"huge capacity", [](auto* h) { h->ring_capacity = 0x80000000; }},
      {"clock", [](auto* h) { h->clock_kind = 3; }},
      {"clock rate", [](auto* h) { h->ticks_per_second = 0; }},
      {"communicators used", [](auto* h) { h->communicators_used = h->communicators.count + 1; }},
      {"queue pairs used", [](auto* h) { h->queue_pairs_used = 0xffffffff; }},
      {"rings used", [](auto* h) { h->rings_used = h->rings.count + 1; }},
      {"stride", [](auto* h) { h->communicators.stride_bytes = 192; }},
      {"odd stride", [](auto* h) { h->queue_pairs.stride_bytes = 257; }},
      {"ring stride", [](auto* h) { h->rings.stride_bytes -= 64; }},
      {"offset in the header", [](auto* h) { h->communicators.offset = 0; }},
      {"offset past the end", [](auto* h) { h->rings.offset = h->header.total_bytes + 64; }},
      {"offset overflow", [](auto* h) { h->rings.offset = ~uint64_t{63}; }},
      {"odd offset", [](auto* h) { h->queue_pairs.offset += 8; }},
      {"count past the end", [](auto* h) { h->communicators.count = 60000; }},
      {"huge count", [](auto* h) { h->rings.count = 0xffffffff; }},
  };
  for (const auto& [name, spoil] : faults) {
    SegmentBuilder builder = Filled();
    spoil(&builder.header());
    SegmentSnapshot snapshot;
    const ReadStatus status = Read(builder.bytes(), &snapshot);
    EXPECT_TRUE(status.code() == Code::kRefused || status.code() == Code::kUnreadable) << name;
    EXPECT_FALSE(status.text().empty()) << name;
  }
}

TEST(SegmentReader, TextsNeedNoTerminator) {
  SegmentBuilder builder = Filled();
  memset(builder.header().job, 'j', sizeof builder.header().job);
  memset(builder.communicator(0).name, 'n', sizeof builder.communicator(0).name);
  SegmentSnapshot snapshot;
  ASSERT_TRUE(Read(builder.bytes(), &snapshot).ok());
  EXPECT_EQ(strnlen(snapshot.header.job, sizeof snapshot.header.job), 127u);
  EXPECT_EQ(strnlen(snapshot.communicators[0].slot.name, 32), 31u);
}

TEST(SegmentReader, NoiseAndFlippedBytesAreSurvived) {
  const unsigned seed = 20260701;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<char> noise(6000);
  for (int round = 0; round < 200; ++round) {
    for (char& byte : noise) byte = static_cast<char>(random());
    ReadAll(noise);
  }
  const std::vector<char> whole = Filled().bytes();
  for (int round = 0; round < 3000; ++round) {
    std::vector<char> bytes = whole;
    for (int flips = 0; flips < 3; ++flips) {
      // Mostly in the header, where it hurts.
      const size_t range = round % 3 == 0 ? bytes.size() : sizeof(wire::SegmentHeader);
      bytes[random() % range] = static_cast<char>(random());
    }
    ReadAll(bytes);
  }
}

TEST(SegmentReader, ATornSlotIsReadAgain) {
  SegmentBuilder builder = Filled();
  ChangingSource source(&builder.bytes());
  // The writer steps on once, in the middle of our reading: count new, ticks still old.
  source.before_read = [&](int read) {
    wire::Counter& called = builder.communicator(0).called;
    if (read == 4) called.count = 6;
    if (read == 5) called.ticks = 60;
  };
  SegmentSnapshot snapshot;
  ASSERT_TRUE(ReadSegment(&source, kLimits, &snapshot).ok());
  EXPECT_EQ(snapshot.communicators[0].slot.called.count, 6u);
  EXPECT_EQ(snapshot.communicators[0].slot.called.ticks, 60u);
}

TEST(SegmentReader, ASlotThatNeverSettlesIsLeftOut) {
  SegmentBuilder builder = Filled();
  ChangingSource source(&builder.bytes());
  source.before_read = [&](int) { ++builder.communicator(0).generation; };
  SegmentSnapshot snapshot;
  ASSERT_TRUE(ReadSegment(&source, kLimits, &snapshot).ok());
  EXPECT_EQ(snapshot.slots_unsettled, 1u);
  ASSERT_EQ(snapshot.communicators.size(), 1u);
  EXPECT_EQ(snapshot.communicators[0].index, 2u);
  // Counters that move all the time are no reason to leave a slot out.
  ChangingSource busy(&builder.bytes());
  busy.before_read = [&](int) { ++builder.communicator(0).called.count; };
  ASSERT_TRUE(ReadSegment(&busy, kLimits, &snapshot).ok());
  EXPECT_EQ(snapshot.communicators.size(), 2u);
}

TEST(CheckProgress, CountersOnlyGoForwardWithinAGeneration) {
  SegmentBuilder builder = Filled();
  SegmentSnapshot before;
  SegmentSnapshot now;
  ASSERT_TRUE(Read(builder.bytes(), &before).ok());
  builder.communicator(0).called.count = 6;
  builder.queue_pair(1).posted_bytes = 78;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());

  builder.communicator(0).called.count = 4;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  const ReadStatus back = CheckProgress(before, now);
  EXPECT_EQ(back.code(), Code::kSuspect);
  EXPECT_THAT(back.text(), AllOf(HasSubstr("communicator 0"), HasSubstr("from 5 to 4")));

  builder.communicator(0).generation = 2;  // another communicator in the slot: it starts from 0
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());

  builder.queue_pair(1).posted_bytes = 76;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_THAT(CheckProgress(before, now).text(), HasSubstr("queue pair 1"));
  builder.queue_pair(1).posted_bytes = 78;
  builder.communicator(2).communicator_id = 5;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_THAT(CheckProgress(before, now).text(), HasSubstr("identity"));
}

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
