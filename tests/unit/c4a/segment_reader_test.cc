#include "c4a/segment_reader.h"

#include <functional>
#include <gmock/gmock.h>
#include <random>

#include "tests/unit/c4a/changing_source.h"
#include "tests/unit/c4a/segment_builder.h"

namespace c4::agent {
namespace {

using test::ChangingSource;
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
  now.communicators = {640, was.communicators.count, 448};
  now.queue_pairs = {640 + 4 * 448, was.queue_pairs.count, 640};
  now.rings = {now.queue_pairs.offset + 4 * 640, was.rings.count, 64 + 8 * 128};
  now.header.total_bytes = now.rings.offset + 2 * now.rings.stride_bytes;
  std::vector<char> bytes(now.header.total_bytes, '\x77');
  memcpy(bytes.data(), &now, sizeof now);
  for (uint32_t i = 0; i < 4; ++i) {
    memcpy(bytes.data() + now.communicators.offset + i * 448, &old.communicator(i),
           sizeof(wire::CommunicatorSlot));
    memcpy(bytes.data() + now.queue_pairs.offset + i * 640, &old.queue_pair(i), sizeof(wire::QueuePairSlot));
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

// Version 1.0, and a writer in between: what its slots do not have reads as 0, also after a longer one was
// there.
TEST(SegmentReader, FieldsBeyondAShorterStrideAreZero) {
  SegmentBuilder full = Filled();
  const wire::SegmentHeader was = full.header();
  for (uint32_t i = 0; i < 4; ++i) {
    full.communicator(i).p2p_called.count = 8;
    full.communicator(i).p2p_started.count = 9;
    full.queue_pair(i).latency_histogram[0] = 10;
    full.queue_pair(i).wanted_messages = 11;
    full.queue_pair(i).first_waits = 12;
  }
  struct Stride {
    uint32_t communicator;
    uint32_t queue_pair;
  };
  for (const Stride stride : {Stride{256, 256}, Stride{320, 384}, Stride{384, 512}}) {
    wire::SegmentHeader now = was;
    now.header.minor = stride.communicator == 256 ? 0 : 1;
    now.communicators = {512, 4, stride.communicator};
    now.queue_pairs = {512 + 4 * stride.communicator, 4, stride.queue_pair};
    now.rings.offset = now.queue_pairs.offset + 4 * stride.queue_pair;
    now.header.total_bytes = now.rings.offset + 2 * now.rings.stride_bytes;
    std::vector<char> bytes(now.header.total_bytes);
    memcpy(bytes.data(), &now, sizeof now);
    for (uint32_t i = 0; i < 4; ++i) {
      memcpy(bytes.data() + now.communicators.offset + i * stride.communicator, &full.communicator(i),
             stride.communicator);
      memcpy(bytes.data() + now.queue_pairs.offset + i * stride.queue_pair, &full.queue_pair(i),
             stride.queue_pair);
    }
    SegmentSnapshot snapshot;
    ASSERT_TRUE(Read(full.bytes(), &snapshot).ok());
    const ReadStatus status = Read(bytes, &snapshot);
    ASSERT_TRUE(status.ok()) << status.text();
    ASSERT_EQ(snapshot.communicators.size(), 2u);
    EXPECT_EQ(snapshot.communicators[0].slot.called.count, 5u);
    EXPECT_EQ(snapshot.communicators[0].slot.p2p_called.count, stride.communicator > 256 ? 8u : 0u);
    EXPECT_EQ(snapshot.communicators[0].slot.p2p_started.count, stride.communicator > 320 ? 9u : 0u);
    EXPECT_EQ(snapshot.communicators[1].slot.communicator_id, 0x2222u);
    ASSERT_EQ(snapshot.queue_pairs.size(), 1u);
    EXPECT_EQ(snapshot.queue_pairs[0].slot.posted_bytes, 77u);
    EXPECT_EQ(snapshot.queue_pairs[0].slot.latency_histogram[0], stride.queue_pair > 256 ? 10u : 0u);
    EXPECT_EQ(snapshot.queue_pairs[0].slot.wanted_messages, stride.queue_pair > 384 ? 11u : 0u);
    EXPECT_EQ(snapshot.queue_pairs[0].slot.first_waits, stride.queue_pair > 384 ? 12u : 0u);
  }
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
  builder.queue_pair(1).completed_bytes = 50;
  SegmentSnapshot before;
  SegmentSnapshot now;
  ASSERT_TRUE(Read(builder.bytes(), &before).ok());
  builder.communicator(0).called.count = 6;
  builder.queue_pair(1).posted_bytes = 78;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());

  builder.communicator(0).finished.count = 4;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  ASSERT_TRUE(Read(builder.bytes(), &before).ok());
  builder.communicator(0).finished.count = 3;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  const ReadStatus back = CheckProgress(before, now);
  EXPECT_EQ(back.code(), Code::kSuspect);
  EXPECT_THAT(back.text(), AllOf(HasSubstr("communicator 0"), HasSubstr("from 4 to 3")));

  builder.communicator(0).generation = 2;  // another communicator in the slot: it starts from 0
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());

  // What was posted may be taken back, what is done stays done.
  const uint64_t completed = builder.queue_pair(1).completed_bytes;
  builder.queue_pair(1).posted_bytes = 76;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());
  ASSERT_GT(completed, 0u);
  builder.queue_pair(1).completed_bytes = completed - 1;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_THAT(CheckProgress(before, now).text(), HasSubstr("queue pair 1"));
  builder.queue_pair(1).completed_bytes = completed;
  builder.communicator(2).communicator_id = 5;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_THAT(CheckProgress(before, now).text(), HasSubstr("identity"));
}

// A segment that is not believed tells nothing of its process any more: a rank without communicators.
TEST(CheckProgress, WhatItsWriterTakesBackIsNoFault) {
  const std::vector<std::function<uint64_t*(SegmentBuilder*)>> words = {
      [](auto* b) { return &b->communicator(0).called.count; },
      [](auto* b) { return &b->communicator(0).p2p_called.count; },
      [](auto* b) { return &b->queue_pair(1).posted_messages; },
      [](auto* b) { return &b->queue_pair(1).posted_bytes; },
      [](auto* b) { return &b->queue_pair(1).wanted_bytes; },
  };
  for (const auto& word : words) {
    SegmentBuilder builder = Filled();
    *word(&builder) = 5000;
    SegmentSnapshot before;
    SegmentSnapshot now;
    ASSERT_TRUE(Read(builder.bytes(), &before).ok());
    *word(&builder) = 4000;
    ASSERT_TRUE(Read(builder.bytes(), &now).ok());
    EXPECT_TRUE(CheckProgress(before, now).ok());
  }
}

TEST(CheckProgress, TheWordsSince11OnlyGoForwardToo) {
  const std::vector<std::pair<const char*, std::function<uint64_t*(SegmentBuilder*)>>> words = {
      {"p2p enqueued", [](auto* b) { return &b->communicator(0).p2p_enqueued.count; }},
      {"p2p started", [](auto* b) { return &b->communicator(0).p2p_started.count; }},
      {"p2p finished", [](auto* b) { return &b->communicator(0).p2p_finished.count; }},
      {"wanted messages", [](auto* b) { return &b->queue_pair(1).wanted_messages; }},
      {"granted messages", [](auto* b) { return &b->queue_pair(1).granted_messages; }},
      {"done messages", [](auto* b) { return &b->queue_pair(1).done_messages; }},
      {"done bytes", [](auto* b) { return &b->queue_pair(1).done_bytes; }},
      {"first waits", [](auto* b) { return &b->queue_pair(1).first_waits; }},
  };
  for (const auto& [name, word] : words) {
    SegmentBuilder builder = Filled();
    *word(&builder) = 5;
    SegmentSnapshot before;
    SegmentSnapshot now;
    ASSERT_TRUE(Read(builder.bytes(), &before).ok());
    *word(&builder) = 6;
    ASSERT_TRUE(Read(builder.bytes(), &now).ok());
    EXPECT_TRUE(CheckProgress(before, now).ok()) << name;
    *word(&builder) = 4;
    ASSERT_TRUE(Read(builder.bytes(), &now).ok());
    EXPECT_THAT(CheckProgress(before, now).text(), AllOf(HasSubstr(name), HasSubstr("from 5 to 4")));
  }
  // The counts of latencies have 32 bits: they come round.
  SegmentBuilder builder = Filled();
  SegmentSnapshot before;
  SegmentSnapshot now;
  builder.queue_pair(1).latency_histogram[4] = UINT32_MAX;
  ASSERT_TRUE(Read(builder.bytes(), &before).ok());
  builder.queue_pair(1).latency_histogram[4] = 3;
  ASSERT_TRUE(Read(builder.bytes(), &now).ok());
  EXPECT_TRUE(CheckProgress(before, now).ok());
}

}  // namespace
}  // namespace c4::agent
