// How long a process was inside operations: overlapping communicators, unfinished ones, and none twice.
#include "c4a/operation_tally.h"

#include <gtest/gtest.h>

namespace c4::agent {
namespace {

class Tally : public testing::Test {
 protected:
  Tally() {
    snapshot_.communicators.resize(2);
    for (uint32_t i = 0; i < 2; ++i) {
      snapshot_.communicators[i].index = i;
      wire::CommunicatorSlot& slot = snapshot_.communicators[i].slot;
      slot.phase = wire::kPhaseReady;
      slot.generation = 1;
      slot.communicator_id = 0xa + i;
    }
    tally_.Learn(snapshot_);
  }
  wire::CommunicatorSlot& slot(size_t i) { return snapshot_.communicators[i].slot; }
  void Finished(uint32_t communicator, uint64_t started, uint64_t finished) {
    wire::Record record{};
    record.type = wire::kRecordOperation;
    record.slot = communicator;
    record.generation = 1;
    record.operation.started_ticks = started;
    record.operation.finished_ticks = finished;
    record.operation.info.function = wire::kAllReduce;
    EXPECT_EQ(tally_.Add({&record, 1}, clock_), 0u);
  }
  uint64_t InOperationNs(int64_t now_ns) { return tally_.InOperationNs(snapshot_, clock_, now_ns); }

  SegmentSnapshot snapshot_;
  const ClockRelation clock_;  // a tick is a nanosecond
  OperationTally tally_;
};

TEST_F(Tally, TimeInOperationsIsTheirUnionOverAllCommunicators) {
  EXPECT_EQ(InOperationNs(1000), 0u);
  EXPECT_EQ(tally_.first_started_ns(), 0);
  Finished(0, 1000, 1100);
  Finished(1, 1050, 1150);  // half of it beside the other
  Finished(0, 1300, 1400);
  EXPECT_EQ(tally_.finished(), 3u);
  EXPECT_EQ(InOperationNs(2000), 250u);
  EXPECT_EQ(tally_.first_started_ns(), 1000);
  Finished(1, 1020, 1380);  // long, and heard of last
  EXPECT_EQ(InOperationNs(2000), 400u);
}

TEST_F(Tally, WhatHasNotFinishedCountsUpToNow) {
  Finished(0, 1000, 1100);
  slot(0).started = {.count = 2, .ticks = 1200, .stream = 0};
  slot(0).finished = {.count = 1, .ticks = 1100, .stream = 0};
  EXPECT_EQ(InOperationNs(1500), 400u);
  EXPECT_EQ(InOperationNs(1600), 500u) << "and goes on";
  // A receive of the other communicator began before.
  slot(1).p2p_started = {.count = 1, .ticks = 1150, .stream = 0};
  EXPECT_EQ(InOperationNs(1600), 550u);
  // Once they are done their records say the same, and nothing counts twice.
  Finished(0, 1200, 1600);
  slot(0).finished.count = 2;
  EXPECT_EQ(InOperationNs(1600), 550u);
  Finished(1, 1150, 1650);
  slot(1).p2p_finished = {.count = 1, .ticks = 1650, .stream = 0};
  EXPECT_EQ(InOperationNs(1700), 600u);
  EXPECT_EQ(InOperationNs(9000), 600u);
}

TEST_F(Tally, WhatADeadCommunicatorLeftOpenIsOver) {
  slot(0).started = {.count = 1, .ticks = 1200, .stream = 0};
  slot(0).phase = wire::kPhaseFailed;
  EXPECT_EQ(InOperationNs(5000), 0u);
}

TEST_F(Tally, NonsenseFromTheSegmentIsNoTime) {
  Finished(0, 500, 400);  // ends before it begins
  EXPECT_EQ(tally_.finished(), 1u);
  slot(0).started = {.count = 1, .ticks = 9000, .stream = 0};  // in the future: the clocks' error
  EXPECT_EQ(InOperationNs(1000), 0u);
}

}  // namespace
}  // namespace c4::agent
