#include "c4a/reporter.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/unit/c4a/segment_builder.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::agent {
namespace {

using test::SegmentBuilder;

constexpr int64_t kNow = 1'000'000;

class ReporterTest : public testing::Test {
 protected:
  std::unique_ptr<SegmentFile> Open(const SegmentBuilder& builder, const std::string& name = "a.c4seg") {
    const int fd = open(builder.ToFile(directory_.File(name)).c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    fstat(fd, &status);
    auto segment = std::make_unique<SegmentFile>(name, fd, status.st_dev, status.st_ino);
    EXPECT_TRUE(segment->Start(RingStart::kOldest).ok());
    segment->Update(proc_, std::nullopt, kNow, &exits_);
    EXPECT_EQ(segment->suspicion(), "");
    return segment;
  }

  test::TemporaryDirectory directory_;
  const ProcReader proc_{"/proc/nowhere"};
  ExitWatch exits_;
  Reporter reporter_{{.host = "node7", .agent_epoch = 77, .agent_version = "1.2.3"}};
};

TEST_F(ReporterTest, LastWordsAreHandedOn) {
  SegmentBuilder builder;
  wire::CommunicatorSlot& lost = builder.AddCommunicator(0, 0xabc, 2);
  lost.gave_up_ticks = kNow - 400;
  lost.gave_up_result = 6;
  lost.blamed = 2;
  builder.AddCommunicator(1, 0xdef, 2).gave_up_ticks = kNow - 300;  // aborted
  builder.AddCommunicator(2, 0x123, 2);
  wire::CommunicatorSlot& absurd = builder.AddCommunicator(3, 0x456, 2);
  absurd.gave_up_ticks = kNow - 200;
  absurd.blamed = 5;  // of four
  const std::unique_ptr<SegmentFile> owner = Open(builder);
  SegmentFile* const segments[] = {owner.get()};
  const auto batches = reporter_.Report(segments, kNow, 5);
  const v1::ProcessReport& process = batches.at("job-1").processes(0);
  ASSERT_EQ(process.communicators_size(), 4);
  EXPECT_EQ(process.communicators(0).gave_up().age_ns(), 400);
  EXPECT_EQ(process.communicators(0).gave_up().result(), 6);
  EXPECT_EQ(process.communicators(0).gave_up().blamed_rank(), 1);
  EXPECT_EQ(process.communicators(1).gave_up().result(), 0);
  EXPECT_EQ(process.communicators(1).gave_up().blamed_rank(), -1);
  EXPECT_FALSE(process.communicators(2).has_gave_up());
  EXPECT_EQ(process.communicators(3).gave_up().blamed_rank(), -1);
}

TEST_F(ReporterTest, AgesAreRelativeToTheBatch) {
  SegmentBuilder builder;
  wire::CommunicatorSlot& slot = builder.AddCommunicator(1, 0xabc, 2);
  slot.parent_id = 0xdef;
  slot.created_ticks = kNow - 900;
  slot.ready_ticks = kNow - 800;
  slot.called = {.count = 7, .ticks = kNow - 300, .stream = 5};
  slot.enqueued = {.count = 7, .ticks = kNow + 50, .stream = 5};  // the clocks' error: not from the future
  slot.started = {.count = 6, .ticks = kNow - 500, .stream = 5};
  slot.last_called = {
      .count = 1024, .root = -1, .function = wire::kAllReduce, .data_type = 7, .reduction = 0};
  strcpy(slot.name, "world");
  SegmentFile* const segments[] = {Open(builder).release()};
  const std::unique_ptr<SegmentFile> owner(segments[0]);
  const auto batches = reporter_.Report(segments, kNow, 5);
  ASSERT_EQ(batches.size(), 1u);
  const v1::TelemetryBatch& batch = batches.at("job-1");
  EXPECT_EQ(batch.host(), "node7");
  EXPECT_EQ(batch.agent_epoch(), 77u);
  EXPECT_EQ(batch.monotonic_ns(), kNow);
  EXPECT_EQ(batch.unix_ns(), 5);
  EXPECT_EQ(batch.agent_version(), "1.2.3");
  ASSERT_EQ(batch.processes_size(), 1);
  const v1::ProcessReport& process = batch.processes(0);
  EXPECT_EQ(process.process().host(), "node7");
  EXPECT_EQ(process.process().pid(), 4711u);
  EXPECT_EQ(process.process().boot_id(),
            std::string(16, 'x').replace(0, 16, "abababababababab") + "abababababababab");
  EXPECT_EQ(process.process().start_time_ticks(), 99u);
  EXPECT_EQ(process.rank_label(), 2);
  EXPECT_EQ(process.world_label(), 4);
  EXPECT_EQ(process.program(), "train.py");
  EXPECT_FALSE(process.job_provisional());
  ASSERT_EQ(process.communicators_size(), 1);
  const v1::CommunicatorState& state = process.communicators(0);
  EXPECT_EQ(state.communicator_id(), 0xabcu);
  EXPECT_EQ(state.parent_id(), 0xdefu);
  EXPECT_EQ(state.rank(), 2u);
  EXPECT_EQ(state.rank_count(), 4u);
  EXPECT_EQ(state.phase(), v1::PHASE_READY);
  EXPECT_EQ(state.name(), "world");
  EXPECT_EQ(state.phase_age_ns(), 800);
  EXPECT_EQ(state.called().count(), 7u);
  EXPECT_EQ(state.called().age_ns(), 300);
  EXPECT_EQ(state.called().stream(), 5u);
  EXPECT_EQ(state.enqueued().age_ns(), 0);
  EXPECT_EQ(state.started().age_ns(), 500);
  EXPECT_EQ(state.finished().count(), 0u);
  EXPECT_EQ(state.finished().age_ns(), 0);
  EXPECT_EQ(state.last_called().function(), v1::FUNCTION_ALL_REDUCE);
  EXPECT_EQ(state.last_called().data_type(), 7u);
  EXPECT_EQ(state.last_called().root(), -1);
  EXPECT_EQ(state.last_called().count(), 1024u);
}

TEST_F(ReporterTest, QueuePairsOfTheSameGenerationOnly) {
  SegmentBuilder builder({.queue_pairs = 5});
  builder.AddCommunicator(1, 0xabc, 2);
  wire::QueuePairSlot& slot = builder.queue_pair(0);
  slot.phase = wire::kPhaseReady;
  slot.communicator_slot = 1;
  slot.communicator_generation = 1;
  slot.direction = wire::kDirectionReceive;
  slot.peer = 3;
  slot.queue_pair_number = 42;
  slot.peer_number = 43;
  slot.transport = wire::kTransportVendor;
  slot.completed_bytes = 4096;
  slot.last_progress_ticks = kNow - 20;
  const uint8_t address[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  memcpy(slot.local.address, address, sizeof address);
  slot.local.port = 4711;
  builder.queue_pair(1) = slot;
  builder.queue_pair(1).communicator_generation = 2;
  builder.queue_pair(2) = slot;
  builder.queue_pair(2).communicator_slot = 0xffffffff;
  builder.queue_pair(3) = slot;
  builder.queue_pair(3).peer = -1;
  builder.queue_pair(3).peer_number = 0;  // nobody can tell whose it is
  builder.queue_pair(4) = slot;
  builder.queue_pair(4).peer = -1;
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  ASSERT_EQ(report.queue_pairs_size(), 2);
  EXPECT_EQ(report.queue_pairs(1).peer(), UINT32_MAX);
  EXPECT_EQ(report.queue_pairs(1).peer_queue_pair_number(), 43u);
  const v1::QueuePairState& state = report.queue_pairs(0);
  EXPECT_EQ(state.communicator_id(), 0xabcu);
  EXPECT_EQ(state.rank(), 2u);
  EXPECT_EQ(state.peer(), 3u);
  EXPECT_EQ(state.direction(), v1::DIRECTION_RECEIVE);
  EXPECT_EQ(state.queue_pair_number(), 42u);
  EXPECT_EQ(state.peer_queue_pair_number(), 43u);
  EXPECT_EQ(state.transport(), wire::kTransportVendor);
  EXPECT_EQ(state.local(), "10.1.2.3:4711");
  EXPECT_EQ(state.remote(), "");
  EXPECT_EQ(state.completed_bytes(), 4096u);
  EXPECT_EQ(state.last_progress_age_ns(), 20);
  EXPECT_EQ(state.last_post_age_ns(), 0);
}

TEST_F(ReporterTest, SendsAndReceivesAreReportedOnceThereAreAny) {
  SegmentBuilder builder;
  builder.AddCommunicator(0, 0xa, 0).called = {.count = 1, .ticks = kNow - 5, .stream = 0};
  wire::CommunicatorSlot& slot = builder.AddCommunicator(1, 0xb, 2);
  slot.p2p_called = {.count = 4, .ticks = kNow - 30, .stream = 9};
  slot.p2p_enqueued = {.count = 3, .ticks = kNow - 40, .stream = 9};
  slot.p2p_started = {.count = 2, .ticks = kNow - 50, .stream = 9};
  slot.p2p_finished = {.count = 1, .ticks = kNow - 60, .stream = 9};
  slot.last_p2p_called = {.count = 10, .root = 3, .function = wire::kSend, .data_type = 7, .reduction = 0};
  slot.last_p2p_started = {.count = 11, .root = 1, .function = wire::kRecv, .data_type = 7, .reduction = 0};
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  ASSERT_EQ(report.communicators_size(), 2);
  EXPECT_FALSE(report.communicators(0).has_p2p_called());
  EXPECT_FALSE(report.communicators(0).has_last_p2p_called());
  const v1::CommunicatorState& state = report.communicators(1);
  EXPECT_EQ(state.p2p_called().count(), 4u);
  EXPECT_EQ(state.p2p_called().age_ns(), 30);
  EXPECT_EQ(state.p2p_enqueued().count(), 3u);
  EXPECT_EQ(state.p2p_started().age_ns(), 50);
  EXPECT_EQ(state.p2p_finished().count(), 1u);
  EXPECT_EQ(state.p2p_finished().stream(), 9u);
  EXPECT_EQ(state.last_p2p_called().function(), v1::FUNCTION_SEND);
  EXPECT_EQ(state.last_p2p_called().root(), 3);
  EXPECT_EQ(state.last_p2p_started().function(), v1::FUNCTION_RECV);
  EXPECT_EQ(state.called().count(), 0u);
}

TEST_F(ReporterTest, ConnectionsGoWithTheirFirstQueuePair) {
  SegmentBuilder builder;
  builder.AddCommunicator(0, 0xa, 0);
  for (uint16_t i = 0; i < 2; ++i) {
    wire::QueuePairSlot& slot = builder.queue_pair(i);
    slot.phase = wire::kPhaseReady;
    slot.communicator_generation = 1;
    slot.direction = wire::kDirectionSend;
    slot.index = i;
    slot.latency_histogram[3] = 5;
    slot.latency_histogram[9] = 6;
    slot.wanted_messages = 31;
    slot.granted_messages = 30;
    slot.done_messages = 29;
    slot.wanted_bytes = 32;
    slot.done_bytes = 28;
    slot.last_wanted_ticks = kNow - 70;
    slot.last_done_ticks = kNow - 80;
    slot.first_waits = 3;
    slot.first_wait_sum_ticks = 90;
    slot.first_wait_max_ticks = 40;
    slot.error = 104;
  }
  builder.queue_pair(1).latency_histogram[31] = 1;
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  ASSERT_EQ(report.queue_pairs_size(), 2);
  const v1::QueuePairState& first = report.queue_pairs(0);
  EXPECT_EQ(first.latency_histogram_size(), 10) << "without the trailing zeroes";
  EXPECT_EQ(first.latency_histogram(3), 5u);
  EXPECT_EQ(first.latency_histogram(9), 6u);
  EXPECT_EQ(first.error(), 104u);
  ASSERT_TRUE(first.has_connection());
  EXPECT_EQ(first.connection().wanted_messages(), 31u);
  EXPECT_EQ(first.connection().granted_messages(), 30u);
  EXPECT_EQ(first.connection().done_messages(), 29u);
  EXPECT_EQ(first.connection().wanted_bytes(), 32u);
  EXPECT_EQ(first.connection().done_bytes(), 28u);
  EXPECT_EQ(first.connection().last_wanted_age_ns(), 70);
  EXPECT_EQ(first.connection().last_done_age_ns(), 80);
  EXPECT_EQ(first.connection().first_waits(), 3u);
  EXPECT_EQ(first.connection().first_wait_sum_ns(), 90u);
  EXPECT_EQ(first.connection().first_wait_max_ns(), 40u);
  EXPECT_EQ(report.queue_pairs(1).latency_histogram_size(), 32);
  EXPECT_FALSE(report.queue_pairs(1).has_connection());
}

TEST_F(ReporterTest, TimeInOperationsAndTheLevelInForce) {
  SegmentBuilder builder;
  builder.header().level = wire::kLevelFine;
  wire::CommunicatorSlot& slot = builder.AddCommunicator(0, 0xa, 0);
  builder.PushOperation(0, 0, kNow - 1000, kNow - 900);
  builder.PushOperation(0, 0, kNow - 700, kNow - 650);
  slot.started = {.count = 3, .ticks = kNow - 20, .stream = 0};
  slot.finished = {.count = 2, .ticks = kNow - 650, .stream = 0};
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  EXPECT_EQ(report.in_operation_ns(), 170u);
  EXPECT_EQ(report.operations_finished(), 2u);
  EXPECT_EQ(report.first_operation_age_ns(), 1000);
  EXPECT_EQ(report.level(), v1::RECORD_LEVEL_FINE);
  // Ever growing, not since the last report.
  EXPECT_EQ(MakeProcessReport("node7", segment.get(), kNow + 5).in_operation_ns(), 175u);
  SegmentBuilder silent;
  silent.header().level = wire::kLevelOff;
  const auto other = Open(silent, "b");
  const v1::ProcessReport nothing = MakeProcessReport("node7", other.get(), kNow);
  EXPECT_EQ(nothing.first_operation_age_ns(), 0);
  EXPECT_EQ(nothing.level(), v1::RECORD_LEVEL_OFF);
}

TEST_F(ReporterTest, OperationsAreSummedUpPerCommunicatorAndFunction) {
  SegmentBuilder builder;
  builder.AddCommunicator(0, 0xa, 0);
  builder.AddCommunicator(1, 0xb, 0);
  builder.PushOperation(0, 0, 100, 150, 10);
  builder.PushOperation(0, 0, 200, 230, 20);
  builder.PushOperation(0, 0, 500, 510, 30, wire::kBroadcast);
  builder.PushOperation(0, 1, 100, 101, 40);
  builder.PushOperation(1, 3, 100, 101, 50);  // nobody knows this communicator
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  ASSERT_EQ(report.operations_size(), 3);
  const v1::OperationSummary& sums = report.operations(0);
  EXPECT_EQ(sums.communicator_id(), 0xau);
  EXPECT_EQ(sums.function(), v1::FUNCTION_ALL_REDUCE);
  EXPECT_EQ(sums.operations(), 2u);
  EXPECT_EQ(sums.elements(), 30u);
  EXPECT_EQ(sums.duration_sum_ns(), 80u);
  EXPECT_EQ(sums.duration_max_ns(), 50u);
  EXPECT_EQ(sums.gap_max_ns(), 80u);
  EXPECT_EQ(report.operations(1).gap_max_ns(), 280u);  // since the operation before, of whatever function
  EXPECT_EQ(report.operations(2).communicator_id(), 0xbu);
  EXPECT_EQ(MakeProcessReport("node7", segment.get(), kNow).operations_size(), 0);  // each is reported once
}

TEST_F(ReporterTest, OneBatchPerJobAndNoneWithoutOne) {
  SegmentBuilder first;
  SegmentBuilder second;
  strcpy(second.header().job, "other");
  second.header().job_source = wire::kJobProvisional;
  SegmentBuilder nameless;
  nameless.header().job[0] = '\0';
  const auto a = Open(first, "a");
  const auto b = Open(first, "b");
  const auto c = Open(second, "c");
  const auto d = Open(nameless, "d");
  SegmentFile* const segments[] = {a.get(), b.get(), c.get(), d.get()};
  const auto batches = reporter_.Report(segments, kNow, 0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches.at("job-1").processes_size(), 2);
  EXPECT_EQ(batches.at("other").processes_size(), 1);
  EXPECT_TRUE(batches.at("other").processes(0).job_provisional());
  const uint64_t before = batches.at("other").sequence();
  EXPECT_GT(reporter_.Report(segments, kNow, 0).at("other").sequence(), before);
}

// Protobuf refuses texts that are not UTF-8: one process must not keep its whole node from being heard.
TEST_F(ReporterTest, TextsAreMadeFitForProtobuf) {
  SegmentBuilder builder;
  strcpy(builder.header().job, "job\xff");
  strcpy(builder.header().program, "\xc3(");
  memset(builder.AddCommunicator(0, 1, 0).name, 0xfe, 32);
  const auto segment = Open(builder);
  SegmentFile* const segments[] = {segment.get()};
  const auto batches = reporter_.Report(segments, kNow, 0);
  ASSERT_TRUE(batches.contains("job?"));
  v1::TelemetryBatch copy;
  ASSERT_TRUE(copy.ParseFromString(batches.at("job?").SerializeAsString()));
  EXPECT_EQ(copy.processes(0).program(), "?(");
}

TEST_F(ReporterTest, ValuesOfALaterVersionOrOfABrokenWriter) {
  SegmentBuilder builder;
  wire::CommunicatorSlot& slot = builder.AddCommunicator(0, 1, 0);
  slot.phase = 77;
  slot.last_called.function = 200;
  slot.called = {.count = 1, .ticks = ~uint64_t{0}, .stream = 0};
  builder.AddCommunicator(1, 2, -5);  // a rank that is none
  builder.AddCommunicator(2, 3, 4);   // of 4
  const auto segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  ASSERT_EQ(report.communicators_size(), 1);
  EXPECT_EQ(report.communicators(0).phase(), v1::PHASE_UNSPECIFIED);
  EXPECT_EQ(report.communicators(0).last_called().function(), v1::FUNCTION_UNSPECIFIED);
  EXPECT_GE(report.communicators(0).called().age_ns(), 0);
}

TEST(Supersede, OperationsGoIntoTheSameProcessOnly) {
  v1::TelemetryBatch dropped;
  v1::ProcessReport* old = dropped.add_processes();
  old->mutable_process()->set_pid(1);
  v1::OperationSummary* sums = old->add_operations();
  sums->set_communicator_id(5);
  sums->set_function(v1::FUNCTION_ALL_REDUCE);
  sums->set_operations(3);
  sums->set_elements(30);
  sums->set_duration_sum_ns(100);
  sums->set_duration_max_ns(60);
  sums->set_gap_max_ns(10);
  *old->add_operations() = *sums;
  old->mutable_operations(1)->set_function(v1::FUNCTION_SEND);
  *dropped.add_processes() = *old;
  dropped.mutable_processes(1)->mutable_process()->set_pid(2);
  v1::TelemetryBatch next;
  *next.add_processes() = *old;
  next.mutable_processes(0)->mutable_operations()->RemoveLast();
  next.mutable_processes(0)->mutable_operations(0)->set_duration_max_ns(70);
  Supersede(dropped, &next);
  ASSERT_EQ(next.processes_size(), 1);
  ASSERT_EQ(next.processes(0).operations_size(), 2);
  EXPECT_EQ(next.processes(0).operations(0).operations(), 6u);
  EXPECT_EQ(next.processes(0).operations(0).elements(), 60u);
  EXPECT_EQ(next.processes(0).operations(0).duration_sum_ns(), 200u);
  EXPECT_EQ(next.processes(0).operations(0).duration_max_ns(), 70u);
  EXPECT_EQ(next.processes(0).operations(0).gap_max_ns(), 10u);
  EXPECT_EQ(next.processes(0).operations(1).operations(), 3u);
}

v1::TelemetryBatch Profiled(int operations, int marks, uint64_t left_out) {
  v1::TelemetryBatch batch;
  v1::Profile* profile = batch.add_processes()->mutable_profile();
  for (int i = 0; i < operations; ++i) profile->add_operations()->set_sequence(static_cast<uint64_t>(i));
  for (int i = 0; i < marks; ++i) profile->add_marks();
  profile->set_left_out(left_out);
  return batch;
}

TEST(Supersede, ProfilesComeOneAfterTheOther) {
  v1::TelemetryBatch next = Profiled(2, 1, 1);
  Supersede(Profiled(1, 2, 5), &next);
  const v1::Profile& profile = next.processes(0).profile();
  EXPECT_EQ(profile.left_out(), 6u);
  EXPECT_EQ(profile.marks_size(), 3);
  ASSERT_EQ(profile.operations_size(), 3);
  EXPECT_EQ(profile.operations(0).sequence(), 0u);
  EXPECT_EQ(profile.operations(2).sequence(), 1u);
}

// What no master will see is counted, so that nobody takes half a step for a whole one.
TEST(Supersede, TheOldestOfALongProfileIsLeftOutAndCounted) {
  v1::TelemetryBatch next = Profiled(10, 1, 0);
  Supersede(Profiled(kMostWaitingEntries, 2, 5), &next);
  const v1::Profile& profile = next.processes(0).profile();
  EXPECT_EQ(profile.marks_size(), 3);
  ASSERT_EQ(profile.operations_size(), kMostWaitingEntries - 3);
  EXPECT_EQ(profile.operations(0).sequence(), 13u);
  EXPECT_EQ(profile.operations(kMostWaitingEntries - 4).sequence(), 9u);
  EXPECT_EQ(profile.left_out(), 18u);
}

TEST(Supersede, WhoLeftInOrderIsStillTold) {
  v1::TelemetryBatch old;
  for (uint32_t pid = 1; pid <= 3; ++pid) old.add_processes()->mutable_process()->set_pid(pid);
  old.mutable_processes(1)->set_ended(true);
  v1::TelemetryBatch next;
  next.add_processes()->mutable_process()->set_pid(1);
  Supersede(old, &next);
  ASSERT_EQ(next.processes_size(), 2);
  EXPECT_EQ(next.processes(1).process().pid(), 2u);
  EXPECT_TRUE(next.processes(1).ended());
}

TEST_F(ReporterTest, AtTheFineLevelEachOperationAndMarkIsTold) {
  SegmentBuilder builder;
  builder.header().level = wire::kLevelFine;
  builder.header().worker = {.declared = 1,
                             .dp_rank = 1,
                             .stage = 2,
                             .tp_rank = 0,
                             .cp_rank = 0,
                             .dp_size = 2,
                             .pp_size = 4,
                             .tp_size = 1,
                             .cp_size = 1,
                             .vpp_size = 1,
                             .layers = 0,
                             .reserved = 0};
  builder.AddCommunicator(0, 0xabc, 2);
  builder.PushOperation(0, 0, kNow - 900, kNow - 700, 10, wire::kSend);
  builder.record(0, 0).operation.called_ticks = kNow - 950;
  builder.record(0, 0).operation.info.root = 3;
  builder.PushMark(1, wire::kMarkForwardCompute, kNow - 990, kNow - 960, 7);
  builder.PushMark(1, wire::kMarkGc, kNow - 900, kNow - 901, -1);  // ends before it begins
  builder.PushOperation(1, 3, kNow - 900, kNow - 700);             // of a communicator that nobody knows
  const std::unique_ptr<SegmentFile> segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  EXPECT_EQ(report.worker().stage(), 2u);
  EXPECT_EQ(report.worker().dp_size(), 2u);
  ASSERT_EQ(report.profile().operations_size(), 1);
  const v1::ProfiledOperation& operation = report.profile().operations(0);
  EXPECT_EQ(operation.communicator_id(), 0xabcu);
  EXPECT_EQ(operation.info().function(), v1::FUNCTION_SEND);
  EXPECT_EQ(operation.info().root(), 3);
  EXPECT_EQ(operation.called_ns(), kNow - 950);
  EXPECT_EQ(operation.called_for_ns(), 50u);
  EXPECT_EQ(operation.started_for_ns(), 200u);
  ASSERT_EQ(report.profile().marks_size(), 1);
  const v1::ProfiledMark& mark = report.profile().marks(0);
  EXPECT_EQ(mark.kind(), v1::MARK_KIND_FORWARD_COMPUTE);
  EXPECT_EQ(mark.began_ns(), kNow - 990);
  EXPECT_EQ(mark.lasted_ns(), 30u);
  EXPECT_EQ(mark.micro_batch(), 7);
  EXPECT_EQ(report.profile().left_out(), 2u);
  EXPECT_FALSE(MakeProcessReport("node7", segment.get(), kNow).has_profile());  // only what is new
}

TEST_F(ReporterTest, BelowTheFineLevelThereIsNoProfile) {
  SegmentBuilder builder;
  builder.header().level = wire::kLevelCoarse;
  builder.AddCommunicator(0, 0xabc, 2);
  builder.PushOperation(0, 0, kNow - 900, kNow - 700);
  const std::unique_ptr<SegmentFile> segment = Open(builder);
  const v1::ProcessReport report = MakeProcessReport("node7", segment.get(), kNow);
  EXPECT_FALSE(report.has_profile());
  EXPECT_FALSE(report.has_worker());
}

// Of the node, so that each job's batch has them, and again in the next one.
TEST_F(ReporterTest, WhatTheHardwareSaidStandsInEachBatch) {
  std::deque<NumberedEvent> recent(2);
  recent[0] = {.sequence = 7,
               .event = {.kind = "xid", .device = "GPU 3", .number = 79, .text = "Xid 79"},
               .last_ns = 0};
  recent[0].event.at_ns = kNow - 300;
  recent[0].event.times = 4;
  recent[1] = {.sequence = 8, .event = {.kind = "link-down", .device = "eth\xff", .text = "down"}};
  recent[1].event.at_ns = kNow + 50;  // after the scan: not from the future
  recent[1].event.address = "10.0.0.7";
  reporter_.SetHardware(recent, 12);
  SegmentBuilder builder;
  const std::unique_ptr<SegmentFile> segment = Open(builder);
  SegmentFile* const segments[] = {segment.get()};
  for (const v1::TelemetryBatch& batch :
       {reporter_.Report(segments, kNow, 5).at("job-1"), reporter_.Empty(kNow, 5)}) {
    ASSERT_EQ(batch.hardware_size(), 2);
    EXPECT_EQ(batch.hardware(0).kind(), "xid");
    EXPECT_EQ(batch.hardware(0).device(), "GPU 3");
    EXPECT_EQ(batch.hardware(0).number(), 79U);
    EXPECT_EQ(batch.hardware(0).age_ns(), 300);
    EXPECT_EQ(batch.hardware(0).sequence(), 7U);
    EXPECT_EQ(batch.hardware(0).times(), 4U);
    EXPECT_EQ(batch.hardware(1).device(), "eth?");
    EXPECT_EQ(batch.hardware(1).age_ns(), 0);
    EXPECT_EQ(batch.hardware(1).address(), "10.0.0.7");
    EXPECT_EQ(batch.hardware_left_out(), 12U);
  }
}

TEST(ProfileLog, HoldsNoMoreThanItsBound) {
  std::vector<wire::Record> records(ProfileLog::kMaxEntries + 3);
  for (wire::Record& record : records) {
    record.type = wire::kRecordMark;
    record.mark.kind = wire::kMarkStep;
  }
  ProfileLog log;
  log.Add(records, OperationTally(), ClockRelation());
  v1::ProcessReport report;
  log.Take(&report);
  EXPECT_EQ(report.profile().marks_size(), ProfileLog::kMaxEntries);
  EXPECT_EQ(report.profile().left_out(), 3u);
  log.Add({records.data(), 1}, OperationTally(), ClockRelation());
  v1::ProcessReport next;
  log.Take(&next);
  EXPECT_EQ(next.profile().marks_size(), 1);
  EXPECT_EQ(next.profile().left_out(), 0u);
}

TEST(EndpointText, BothFamilies) {
  wire::Endpoint endpoint{};
  EXPECT_EQ(EndpointText(endpoint), "");
  endpoint.address[15] = 1;
  endpoint.port = 80;
  EXPECT_EQ(EndpointText(endpoint), "[::1]:80");
}

TEST(OperationTally, RecordsOfTheOwnerBeforeStillCount) {
  SegmentSnapshot snapshot;
  snapshot.communicators.resize(1);
  snapshot.communicators[0].slot.generation = 1;
  snapshot.communicators[0].slot.communicator_id = 0xa;
  OperationTally tally;
  tally.Learn(snapshot);
  snapshot.communicators[0].slot.generation = 2;
  snapshot.communicators[0].slot.communicator_id = 0xb;
  tally.Learn(snapshot);
  wire::Record record{};
  record.type = wire::kRecordOperation;
  record.generation = 1;
  EXPECT_EQ(tally.Add({&record, 1}, ClockRelation()), 0u);
  record.generation = 3;
  EXPECT_EQ(tally.Add({&record, 1}, ClockRelation()), 1u);
  const auto totals = tally.Take();
  ASSERT_EQ(totals.size(), 1u);
  EXPECT_EQ(totals[0].communicator_id, 0xau);
}

}  // namespace
}  // namespace c4::agent
