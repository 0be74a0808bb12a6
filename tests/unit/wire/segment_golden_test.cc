// Segments of each released version from their files: every field where it was when that version was
// released.
#include "tests/unit/wire/golden.h"

namespace c4::wire {
namespace {

// A released version, and how long its slots were.
struct Released {
  std::string name;
  uint16_t minor;
  uint32_t communicator_bytes;
  uint32_t queue_pair_bytes;
};
const Released k10{"segment-1.0.bin", 0, 256, 256};
const Released k11{"segment-1.1.bin", 1, 384, 512};
const Released k12{"segment-1.2.bin", 2, 384, 512};
const Released k13{"segment-1.3.bin", 3, 384, 512};
const Released k14{"segment-1.4.bin", 4, 384, 512};
const Released k15{"segment-1.5.bin", 5, 384, 512};
const Released k16{"segment-1.6.bin", 6, 384, 512};
const Released kAll[] = {k10, k11, k12, k13, k14, k15, k16};
const Released& kInForce = k16;

constexpr uint32_t kCommunicators = 2;
constexpr uint32_t kQueuePairs = 2;
constexpr uint32_t kRings = 2;
constexpr uint32_t kRingCapacity = 4;
constexpr size_t kCommunicatorsAt = 512;
constexpr size_t kRingStride = 64 + 64 * kRingCapacity;

size_t QueuePairsAt(const Released& version) {
  return kCommunicatorsAt + version.communicator_bytes * kCommunicators;
}
size_t RingsAt(const Released& version) {
  return QueuePairsAt(version) + version.queue_pair_bytes * kQueuePairs;
}
size_t Bytes(const Released& version) {
  return RingsAt(version) + kRingStride * kRings;
}

SegmentHeader ExpectedHeader(const Released& version) {
  SegmentHeader h{};
  h.header = {.magic = kSegmentMagic,
              .major = 1,
              .minor = version.minor,
              .endian = kEndianMark,
              .header_bytes = 512,
              .record_bytes = 64,
              .total_bytes = Bytes(version),
              .writer = {.boot_id = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b,
                                     0x1c, 0x1d, 0x1e, 0x1f},
                         .start_time_ticks = 8675309,
                         .pid = 4242,
                         .reserved = 0}};
  h.clock_kind = kClockTsc;
  h.level = kLevelFine;
  h.ticks_per_second = 2'400'000'000;
  h.base_ticks = 111'222'333'444;
  h.base_monotonic_ns = 55'666'777'888;
  h.pid_namespace = 4'026'531'836;
  h.ended = 0;
  h.job_source = kJobSlurm;
  h.communicators = {kCommunicatorsAt, kCommunicators, version.communicator_bytes};
  h.queue_pairs = {QueuePairsAt(version), kQueuePairs, version.queue_pair_bytes};
  h.rings = {RingsAt(version), kRings, kRingStride};
  h.ring_capacity = kRingCapacity;
  h.communicators_used = 1;
  h.queue_pairs_used = 2;
  h.rings_used = 1;
  h.communicators_refused = 31;
  h.queue_pairs_refused = 32;
  h.rings_refused = 33;
  h.rank_label = 2;
  h.local_rank_label = 0;
  h.world_label = 4;
  h.incarnation = 7;
  memcpy(h.host, "node-17", 8);
  memcpy(h.job, "1234.0", 7);
  memcpy(h.program, "python3", 8);
  if (version.minor < 4) return h;
  h.worker = {.declared = 1,
              .dp_rank = 3,
              .stage = 2,
              .tp_rank = 1,
              .cp_rank = 0,
              .dp_size = 8,
              .pp_size = 4,
              .tp_size = 2,
              .cp_size = 1,
              .vpp_size = 2,
              .layers = 96,
              .reserved = 0};
  return h;
}

CommunicatorSlot ExpectedCommunicator(const Released& version) {
  CommunicatorSlot slot{};
  slot.phase = kPhaseReady;
  slot.generation = 3;
  slot.communicator_id = 0xc4c4'0000'0000'0001;
  slot.parent_id = 0xc4c4'0000'0000'0002;
  slot.rank = 2;
  slot.rank_count = 4;
  slot.created_ticks = 1001;
  slot.ready_ticks = 1002;
  slot.engine = kEngineHost;
  slot.called = {.count = 11, .ticks = 2011, .stream = 3011};
  slot.enqueued = {.count = 12, .ticks = 2012, .stream = 3012};
  slot.last_called = {
      .count = 1048576, .root = -1, .function = kAllReduce, .data_type = 7, .reduction = 0, .algorithm = 1};
  slot.started = {.count = 13, .ticks = 2013, .stream = 3013};
  slot.finished = {.count = 14, .ticks = 2014, .stream = 3014};
  slot.last_started = {
      .count = 77, .root = 3, .function = kBroadcast, .data_type = 9, .reduction = 2, .algorithm = 0};
  memcpy(slot.name, "tensor-parallel", 16);
  if (version.minor < 1) return slot;
  slot.p2p_called = {.count = 15, .ticks = 2015, .stream = 3015};
  slot.p2p_enqueued = {.count = 16, .ticks = 2016, .stream = 3016};
  slot.last_p2p_called = {
      .count = 4096, .root = 1, .function = kSend, .data_type = 2, .reduction = 0, .algorithm = 0};
  slot.p2p_started = {.count = 17, .ticks = 2017, .stream = 3017};
  slot.p2p_finished = {.count = 18, .ticks = 2018, .stream = 3018};
  slot.last_p2p_started = {
      .count = 4097, .root = 3, .function = kRecv, .data_type = 8, .reduction = 0, .algorithm = 0};
  if (version.minor < 3) return slot;
  slot.seen = kSeesEvents | kSeesKernels;
  slot.kernel_error_ns = 1234;
  if (version.minor < 5) return slot;
  slot.gave_up_ticks = 2019;
  slot.gave_up_result = 6;
  slot.blamed = 2;
  return slot;
}

QueuePairSlot ExpectedQueuePair(const Released& version, uint32_t direction) {
  QueuePairSlot slot{};
  slot.phase = kPhaseReady;
  slot.generation = 5;
  slot.communicator_slot = 0;
  slot.direction = direction;
  slot.peer = direction == kDirectionSend ? 3 : 1;
  slot.channel = 6;
  slot.index = 1;
  slot.queue_pair_number = 900 + direction;
  slot.transport = kTransportTcp;
  slot.communicator_generation = 3;
  slot.created_ticks = 1003;
  slot.error = direction == kDirectionSend ? 0 : 104;
  slot.local = {
      .address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, .port = 40001, .reserved = {}};
  slot.remote = {
      .address = {0xfd, 0xc4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, .port = 40002, .reserved = {}};
  slot.posted_messages = 21;
  slot.posted_bytes = 22;
  slot.completed_messages = 19;
  slot.completed_bytes = 20;
  slot.moved_bytes = 23;
  slot.last_post_ticks = 2101;
  slot.last_progress_ticks = 2102;
  slot.latency_sum_ticks = 2201;
  slot.latency_max_ticks = 2202;
  slot.wait_sum_ticks = 2203;
  slot.wait_max_ticks = 2204;
  if (version.minor < 1) return slot;
  for (uint32_t i = 0; i < 32; ++i) slot.latency_histogram[i] = direction == kDirectionSend ? 4000 + i : 0;
  slot.wanted_messages = 31;
  slot.granted_messages = 30;
  slot.done_messages = 29;
  slot.wanted_bytes = 32;
  slot.done_bytes = 28;
  slot.last_wanted_ticks = 2301;
  slot.last_done_ticks = 2302;
  slot.first_waits = 27;
  slot.first_wait_sum_ticks = 2303;
  slot.first_wait_max_ticks = 2304;
  if (version.minor < 2) return slot;
  slot.fences = 26;
  slot.path_state = direction == kDirectionSend ? 2 : 0;
  if (version.minor >= 6) slot.peer_number = 910 + direction;
  if (version.minor < 3 || direction == kDirectionReceive) return slot;
  slot.gpu_wait_sum_ticks = 2401;
  slot.gpu_wait_max_ticks = 2402;
  slot.credit_wait_sum_ticks = 2403;
  slot.credit_wait_max_ticks = 2404;
  return slot;
}

RingHeader ExpectedRing() {
  RingHeader ring{};
  ring.head = 6;  // two of the six were overwritten
  ring.thread_id = 4243;
  ring.lease_count = 2;
  return ring;
}

Record ExpectedRecord(const Released& version, uint32_t place) {
  Record record{};
  record.slot = place % 2;
  record.generation = 3 + place;
  record.flags = static_cast<uint16_t>(place);
  if (place == 2 && version.minor >= 4) {
    record.type = kRecordMark;
    record.mark = {.began_ticks = 5002,
                   .ended_ticks = 6002,
                   .step = -1,
                   .micro_batch = 7,
                   .chunk = 1,
                   .kind = kMarkBackwardCompute,
                   .reserved = {}};
  } else if (place % 2 == 0) {
    record.type = kRecordOperation;
    record.operation = {.sequence = 100 + place,
                        .called_ticks = 5000 + place,
                        .started_ticks = 6000 + place,
                        .finished_ticks = 7000 + place,
                        .info = {.count = 64,
                                 .root = -1,
                                 .function = kReduceScatter,
                                 .data_type = 7,
                                 .reduction = 4,
                                 .algorithm = 1}};
  } else {
    record.type = kRecordMessage;
    record.message = {.sequence = 200 + place,
                      .posted_ticks = 8000 + place,
                      .completed_ticks = 9000 + place,
                      .bytes = 262144,
                      .reserved = {}};
  }
  return record;
}

std::string Written() {
  std::string bytes;
  Append(&bytes, ExpectedHeader(kInForce));
  Append(&bytes, ExpectedCommunicator(kInForce));
  Append(&bytes, CommunicatorSlot{});
  Append(&bytes, ExpectedQueuePair(kInForce, kDirectionSend));
  Append(&bytes, ExpectedQueuePair(kInForce, kDirectionReceive));
  Append(&bytes, ExpectedRing());
  for (uint32_t i = 0; i < kRingCapacity; ++i) Append(&bytes, ExpectedRecord(kInForce, i));
  Append(&bytes, RingHeader{});
  for (uint32_t i = 0; i < kRingCapacity; ++i) Append(&bytes, Record{});
  return bytes;
}

std::string File(const Released& version) {
  return Golden(version.name, &version == &kInForce ? Written() : "");
}

TEST(SegmentGolden, TheVersionInForceHasItsFile) {
  EXPECT_EQ(kInForce.minor, kSegmentMinor);
  EXPECT_EQ(kInForce.communicator_bytes, sizeof(CommunicatorSlot));
  EXPECT_EQ(kInForce.queue_pair_bytes, sizeof(QueuePairSlot));
  EXPECT_EQ(k10.communicator_bytes, kCommunicatorSlotBytesV10);
  EXPECT_EQ(k10.queue_pair_bytes, kQueuePairSlotBytesV10);
  EXPECT_EQ(File(kInForce), Written());
}

TEST(SegmentGolden, Headers) {
  for (const Released& version : kAll) {
    SCOPED_TRACE(version.name);
    const std::string bytes = File(version);
    const SegmentHeader expected = ExpectedHeader(version);
    ASSERT_EQ(bytes.size(), Bytes(version));
    EXPECT_EQ(CheckHeader(bytes.data(), bytes.size(), kSegmentMagic, 1, sizeof(SegmentHeader)),
              HeaderFault::kOk);
    ExpectFields(bytes, 0, expected.header, HeaderLayout());
    ExpectFields(bytes, 32, expected.header.writer, ProcessIdentityLayout());
    ExpectFields(bytes, 0, expected, SegmentHeaderLayout());
    ExpectFields(bytes, 128, expected.communicators, TableRefLayout());
    ExpectFields(bytes, offsetof(SegmentHeader, worker), expected.worker, WorkerPlaceLayout());
  }
}

TEST(SegmentGolden, Communicators) {
  for (const Released& version : kAll) {
    SCOPED_TRACE(version.name);
    const std::string bytes = File(version);
    const auto header = At<SegmentHeader>(bytes, 0);
    const size_t at = header.communicators.offset;
    const size_t stride = header.communicators.stride_bytes;
    const CommunicatorSlot expected = ExpectedCommunicator(version);
    ExpectFields(bytes, at, expected, CommunicatorSlotLayout(), stride);
    ExpectFields(bytes, at + 64, expected.called, CounterLayout());
    ExpectFields(bytes, at + 112, expected.last_called, OperationInfoLayout());
    ExpectFields(bytes, at + stride, CommunicatorSlot{}, CommunicatorSlotLayout(), stride);
  }
}

TEST(SegmentGolden, QueuePairs) {
  for (const Released& version : kAll) {
    SCOPED_TRACE(version.name);
    const std::string bytes = File(version);
    const auto header = At<SegmentHeader>(bytes, 0);
    const size_t at = header.queue_pairs.offset;
    const size_t stride = header.queue_pairs.stride_bytes;
    const QueuePairSlot expected = ExpectedQueuePair(version, kDirectionSend);
    ExpectFields(bytes, at, expected, QueuePairSlotLayout(), stride);
    ExpectFields(bytes, at + stride, ExpectedQueuePair(version, kDirectionReceive), QueuePairSlotLayout(),
                 stride);
    ExpectFields(bytes, at + 64, expected.local, EndpointLayout());
  }
}

TEST(SegmentGolden, Records) {
  for (const Released& version : kAll) {
    SCOPED_TRACE(version.name);
    const std::string bytes = File(version);
    const auto header = At<SegmentHeader>(bytes, 0);
    ExpectFields(bytes, header.rings.offset, ExpectedRing(), RingHeaderLayout());
    for (uint32_t i = 0; i < kRingCapacity; ++i) {
      const size_t at = header.rings.offset + sizeof(RingHeader) + i * header.header.record_bytes;
      const Record expected = ExpectedRecord(version, i);
      ExpectFields(bytes, at, expected, RecordLayout());
      const auto record = At<Record>(bytes, at);
      if (record.type == kRecordOperation) {
        ExpectFields(bytes, at + 16, expected.operation, OperationRecordLayout());
      } else if (record.type == kRecordMark) {
        ExpectFields(bytes, at + 16, expected.mark, MarkRecordLayout());
      } else {
        ASSERT_EQ(record.type, kRecordMessage);
        ExpectFields(bytes, at + 16, expected.message, MessageRecordLayout());
      }
    }
  }
}

// The numbers themselves are part of the format: a renumbered enumerator would change old files' meaning.
TEST(SegmentGolden, NumbersSince10) {
  EXPECT_EQ((std::vector<uint32_t>{kClockMonotonic, kClockTsc}), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ((std::vector<uint32_t>{kLevelOff, kLevelCoarse, kLevelFine}), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ((std::vector<uint32_t>{kJobUnknown, kJobC4, kJobSlurm, kJobTorchElastic, kJobPodLabel,
                                   kJobProvisional}),
            (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ((std::vector<uint32_t>{kPhaseFree, kPhaseInit, kPhaseReady, kPhaseFinalized, kPhaseDestroyed,
                                   kPhaseAborted, kPhaseFailed}),
            (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((std::vector<uint32_t>{kFunctionNone, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter,
                                   kAlltoAll, kGather, kScatter, kSend, kRecv}),
            (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ((std::vector<uint32_t>{kEngineHost, kEngineVendor}), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ((std::vector<uint32_t>{kDirectionSend, kDirectionReceive}), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ((std::vector<uint32_t>{kTransportTcp, kTransportVerbs, kTransportShm, kTransportVendor}),
            (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ((std::vector<uint32_t>{kSeesEvents, kSeesKernels, kSeesSteps}), (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ((std::vector<uint32_t>{kRecordNone, kRecordOperation, kRecordMessage, kRecordMark}),
            (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ((std::vector<uint32_t>{kMarkNone, kMarkForwardCompute, kMarkBackwardCompute, kMarkOptimizer,
                                   kMarkOptimizerClipMainGrad, kMarkGc, kMarkStep}),
            (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SegmentGolden, LaterMinorIsReadAndAnotherMajorRefused) {
  std::string bytes = File(kInForce);
  auto header = At<SegmentHeader>(bytes, 0);
  const auto check = [&] {
    memcpy(bytes.data(), &header, sizeof header);
    return CheckHeader(bytes.data(), bytes.size(), kSegmentMagic, kSegmentMajor, sizeof(SegmentHeader));
  };
  header.header.minor = kSegmentMinor + 1;
  header.header.header_bytes = 640;
  EXPECT_EQ(check(), HeaderFault::kOk);
  header.header.major = kSegmentMajor + 1;
  EXPECT_EQ(check(), HeaderFault::kMajor);
}

}  // namespace
}  // namespace c4::wire
