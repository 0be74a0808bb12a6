// Iterations from records as rings hold them: written when operations finish, by several threads, of
// communicators that overlap; lost, late, and of operations that nobody finishes.
#include "c4a/iteration_tracker.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

#include "c4a/batch_changes.h"

namespace c4::agent {
namespace {

constexpr int64_t kMs = 1'000'000;

class Tracker : public testing::Test {
 protected:
  Tracker() {
    for (uint32_t i = 0; i < 3; ++i) {
      auto& entry = snapshot_.communicators.emplace_back();
      entry.index = i;
      entry.slot.phase = wire::kPhaseReady;
      entry.slot.generation = 1;
      entry.slot.communicator_id = 0xa + i;
      entry.slot.rank_count = 8;
    }
    tally_.Learn(snapshot_);
  }
  wire::CommunicatorSlot& slot(uint32_t i) { return snapshot_.communicators[i].slot; }

  // An operation that is called now and finishes after `lasts`; its record comes then.
  void Call(uint32_t communicator, wire::Function function, uint64_t count, int64_t lasts_ns) {
    const bool transfer = function == wire::kSend || function == wire::kRecv;
    wire::Counter& called = transfer ? slot(communicator).p2p_called : slot(communicator).called;
    wire::Record record{};
    record.type = wire::kRecordOperation;
    record.slot = communicator;
    record.generation = 1;
    record.operation.sequence = called.count++;
    called.ticks = static_cast<uint64_t>(now_ns_);
    record.operation.called_ticks = called.ticks;
    record.operation.started_ticks = called.ticks;
    record.operation.finished_ticks = static_cast<uint64_t>(now_ns_ + lasts_ns);
    record.operation.info.function = function;
    record.operation.info.count = count;
    record.operation.info.data_type = 7;  // float
    open_.emplace(now_ns_ + lasts_ns, record);
  }
  // Time goes on; the agent scans each 100 ms.
  void Pass(int64_t ns) {
    const int64_t until_ns = now_ns_ + ns;
    while (now_ns_ < until_ns) {
      now_ns_ = std::min(until_ns, scan_ns_);
      if (now_ns_ < scan_ns_) break;
      Scan();
      scan_ns_ += 100 * kMs;
    }
  }
  void Scan() {
    std::vector<wire::Record> records;
    while (!open_.empty() && open_.begin()->first <= now_ns_) {
      const wire::Record& record = open_.begin()->second;
      wire::CommunicatorSlot& of = slot(record.slot);
      const bool transfer =
          record.operation.info.function == wire::kSend || record.operation.info.function == wire::kRecv;
      wire::Counter& finished = transfer ? of.p2p_finished : of.finished;
      finished.count = record.operation.sequence + 1;
      finished.ticks = record.operation.finished_ticks;
      if (std::uniform_int_distribution(1, 1'000'000)(random_) > lost_per_million_) records.push_back(record);
      open_.erase(open_.begin());
    }
    std::shuffle(records.begin(), records.end(), random_);  // of several rings
    const size_t half = records.size() / 2;
    tracker_.Add(std::span(records).first(half), tally_, clock_);
    tracker_.Add(std::span(records).subspan(half), tally_, clock_);
    tracker_.Settle(snapshot_, now_ns_);
  }
  // Overlapping: receives are posted early, gradients are reduced while the next layer computes.
  void Iterate(int64_t time_ns) {
    const int64_t part_ns = time_ns / 20;
    for (int micro = 0; micro < 4; ++micro) {
      Call(1, wire::kRecv, 512, part_ns * 3);
      for (int layer = 0; layer < 3; ++layer) {
        Call(0, wire::kAllReduce, 1024 + static_cast<uint64_t>(layer), part_ns * 5 / 2);
        Pass(part_ns);
      }
      Call(1, wire::kSend, 512, part_ns / 2);
      Pass(part_ns);
    }
    Call(2, wire::kReduceScatter, 1 << 20, part_ns * 3);
    Pass(time_ns - 16 * part_ns);
  }
  v1::ProcessReport Report() {
    v1::ProcessReport report;
    tracker_.Take(&report);
    return report;
  }

  SegmentSnapshot snapshot_;
  const ClockRelation clock_;  // a tick is a nanosecond
  OperationTally tally_;
  IterationTracker tracker_;
  std::multimap<int64_t, wire::Record> open_;
  std::mt19937 random_{7};
  int lost_per_million_ = 0;
  int64_t now_ns_ = 1'000'000 * kMs;
  int64_t scan_ns_ = now_ns_ + 37 * kMs;
};

TEST_F(Tracker, CallsAreInOrderWhateverFinishesFirst) {
  for (int i = 0; i < 40; ++i) Iterate(410 * kMs);
  const v1::ProcessReport report = Report();
  // Until the first iteration has come again its micro-batches look like iterations.
  int whole = 0;
  for (const v1::IterationTime& iteration : report.iterations().ended()) {
    if (iteration.calls() == 21) ++whole;
    if (whole == 0) continue;
    EXPECT_EQ(iteration.calls(), 21u);
    EXPECT_EQ(iteration.duration_ns(), 410u * kMs);
  }
  EXPECT_GE(whole, 36);
  EXPECT_EQ(report.iterations().changes_size(), 0);
  EXPECT_TRUE(Report().iterations().ended().empty());
}

// Every tenth iteration logs its loss: the iterations are the same ones, however few calls they have.
TEST_F(Tracker, ALogBetweenIterationsIsNoCall) {
  const auto iterate = [this] {
    for (int micro = 0; micro < 4; ++micro) {
      Call(0, wire::kAllReduce, 4096, 10 * kMs);
      Pass(50 * kMs);
    }
  };
  for (int i = 0; i < 200; ++i) {
    iterate();
    Call(2, wire::kAllReduce, 1 << 20, 10 * kMs);
    Pass(50 * kMs);
    if (i % 10 != 9) continue;
    Call(1, wire::kAllReduce, 2, kMs);
    Pass(2 * kMs);
  }
  const v1::ProcessReport report = Report();
  ASSERT_GE(report.iterations().ended_size(), 190);
  for (const v1::IterationTime& iteration : report.iterations().ended()) EXPECT_LE(iteration.calls(), 5u);
}

// A program that makes small calls only has iterations as well.
TEST_F(Tracker, ManySmallCallsCount) {
  for (int i = 0; i < 400; ++i) {
    for (uint64_t call = 1; call < 12; ++call) Call(0, wire::kAllReduce, call, kMs);
    Pass(100 * kMs);
  }
  EXPECT_GE(Report().iterations().ended_size(), 300);
}

TEST_F(Tracker, AChangeIsToldAgainAndAgain) {
  for (int i = 0; i < 40; ++i) Iterate(200 * kMs);
  const int64_t onset_ns = now_ns_;
  for (int i = 0; i < 20; ++i) Iterate(260 * kMs);
  for (int times = 0; times < 2; ++times) {
    const v1::ProcessReport report = Report();
    ASSERT_EQ(report.iterations().changes_size(), 1);
    const v1::IterationChange& change = report.iterations().changes(0);
    EXPECT_EQ(change.stage(), v1::CHANGE_STAGE_CONFIRMED);
    EXPECT_NEAR(change.before_s(), 0.2, 0.001);
    EXPECT_NEAR(change.after_s(), 0.26, 0.001);
    EXPECT_NEAR(static_cast<double>(change.began_ns() - onset_ns), 0, 270e6);
  }
}

// A receive that nobody answers holds the calls behind it back, but not for ever.
TEST_F(Tracker, WhatNeverFinishesHoldsNothingUpForEver) {
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  (void)Report();
  ++slot(2).p2p_called.count;
  slot(2).p2p_called.ticks = static_cast<uint64_t>(now_ns_);
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  EXPECT_LE(Report().iterations().ended_size(), 2);
  for (int i = 0; i < 330; ++i) Iterate(200 * kMs);
  EXPECT_GT(Report().iterations().ended_size(), 300);
  EXPECT_LT(tracker_.MemoryBytes(), size_t{1} << 20);
}

// Of a communicator of the vendor's whose operations leave no records.
TEST_F(Tracker, WhatIsNotRecordedIsNotWaitedFor) {
  slot(2).engine = wire::kEngineVendor;
  for (int i = 0; i < 30; ++i) {
    slot(2).called = {
        .count = slot(2).called.count + 7, .ticks = static_cast<uint64_t>(now_ns_), .stream = 0};
    Iterate(200 * kMs);
  }
  for (int i = 0; i < 30; ++i) {
    slot(2).seen = wire::kSeesEvents;
    slot(2).called = {
        .count = slot(2).called.count + 7, .ticks = static_cast<uint64_t>(now_ns_), .stream = 0};
    slot(2).finished = slot(2).called;
    Iterate(200 * kMs);
  }
  EXPECT_GT(Report().iterations().ended_size(), 50);
}

TEST_F(Tracker, LostRecordsBeginAnew) {
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  tracker_.Lost();
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  const v1::ProcessReport report = Report();
  EXPECT_GE(report.iterations().ended_size(), 30);
  for (const v1::IterationTime& iteration : report.iterations().ended()) {
    EXPECT_LE(iteration.duration_ns(), 240u * kMs);
  }
  EXPECT_EQ(report.iterations().changes_size(), 0);
}

// One in a thousand operations leaves none, as the vendor's do whose kernels nobody saw begin.
TEST_F(Tracker, RecordsThatAreMissingSpoilFewIterations) {
  lost_per_million_ = 1000;
  for (int i = 0; i < 400; ++i) Iterate(200 * kMs);
  const v1::ProcessReport report = Report();
  EXPECT_GE(report.iterations().ended_size(), 300);
  EXPECT_EQ(report.iterations().changes_size(), 0);
}

TEST_F(Tracker, WhatNoMasterSawGoesBeforeWhatIsNew) {
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  v1::ProcessReport old = Report();
  for (int i = 0; i < 20; ++i) Iterate(200 * kMs);
  v1::ProcessReport next = Report();
  const int both = old.iterations().ended_size() + next.iterations().ended_size();
  MergeIterations(&old, &next);
  ASSERT_EQ(next.iterations().ended_size(), both);
  for (int i = 0; i < both; ++i) EXPECT_EQ(next.iterations().ended(i).number(), static_cast<uint64_t>(i));
  // A master that is away for hours costs no memory without end.
  for (int times = 0; times < 12; ++times) {
    v1::ProcessReport more = next;
    MergeIterations(&next, &more);
    next = more;
  }
  EXPECT_EQ(next.iterations().ended_size(), kMostWaitingIterations);
  EXPECT_GT(next.iterations().left_out(), 0u);
}

// In a batch of changes stands what is new, and nothing else.
TEST_F(Tracker, ChangesSinceABase) {
  const auto batch = [this](uint64_t sequence) {
    v1::TelemetryBatch made;
    made.set_sequence(sequence);
    made.set_monotonic_ns(now_ns_);
    made.mutable_processes()->Add(Report());
    return made;
  };
  for (int i = 0; i < 40; ++i) Iterate(200 * kMs);
  const v1::TelemetryBatch base = batch(1);
  v1::TelemetryBatch next = batch(2);
  auto changes = ChangesSince(base, &next);
  ASSERT_TRUE(changes.has_value());
  EXPECT_FALSE(changes->changes(0).has_iterations()) << "nothing is new";
  for (int i = 0; i < 20; ++i) Iterate(270 * kMs);
  next = batch(3);
  changes = ChangesSince(base, &next);
  ASSERT_TRUE(changes.has_value());
  EXPECT_EQ(changes->changes(0).iterations().changes_size(), 1);
  EXPECT_GE(changes->changes(0).iterations().ended_size(), 19);
  Iterate(270 * kMs);
  v1::TelemetryBatch later = batch(4);
  changes = ChangesSince(next, &later);
  ASSERT_TRUE(changes.has_value());
  EXPECT_EQ(changes->changes(0).iterations().changes_size(), 0);
  EXPECT_EQ(changes->changes(0).iterations().ended_size(), 1);
}

}  // namespace
}  // namespace c4::agent
