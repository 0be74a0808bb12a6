// What the hang detector makes of time, and what it says: thresholds, rhythm, evidence, cost.
#include <random>

#include "c4d_master/detectors/hang.h"
#include "c4d_master/rhythm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 4;
const HangThresholds kThresholds;

std::vector<Finding> Detect(const FakeJob& job) {
  return DetectHangs(job.Snapshot(), kThresholds);
}

std::string EvidenceOf(const Finding& finding, const std::string& kind) {
  std::string texts;
  for (const Evidence& evidence : finding.evidence) {
    if (evidence.kind == kind) texts += evidence.text + "\n";
  }
  return texts;
}
TEST(HangRhythmTest, ThresholdsFollowTheRhythmWithinBounds) {
  Communicator communicator;
  EXPECT_EQ(SuspectAfterNs(communicator, kThresholds), 2 * kSecondNs);
  EXPECT_EQ(CertainAfterNs(communicator, kThresholds), 120 * kSecondNs);
  communicator.longest_standstill_ns = 2 * kSecondNs;
  EXPECT_EQ(SuspectAfterNs(communicator, kThresholds), 3 * kSecondNs);
  communicator.longest_standstill_ns = 40 * kSecondNs;
  EXPECT_EQ(SuspectAfterNs(communicator, kThresholds), 5 * kSecondNs);
  EXPECT_EQ(CertainAfterNs(communicator, kThresholds), 200 * kSecondNs);
  communicator.longest_standstill_ns = 600 * kSecondNs;
  EXPECT_EQ(CertainAfterNs(communicator, kThresholds), 900 * kSecondNs) << "not fifty minutes";

  FakeJob job(kRanks);
  job.Complete(50);
  job.EnterAllBut(2);
  job.Advance(2900 * kMillisecondNs);
  EXPECT_THAT(DetectHangs(job.Snapshot(2 * kSecondNs), kThresholds), IsEmpty());
  job.Advance(100 * kMillisecondNs);
  EXPECT_THAT(DetectHangs(job.Snapshot(2 * kSecondNs), kThresholds), SizeIs(1));
  job.Advance(120 * kSecondNs);
  EXPECT_EQ(DetectHangs(job.Snapshot(2 * kSecondNs), kThresholds)[0].confirmed_by, "past-limit");
  EXPECT_EQ(DetectHangs(job.Snapshot(40 * kSecondNs), kThresholds)[0].confirmed_by, "");
}

// A job that is started again makes communicators anew; its checkpoints take as long as before.
TEST(HangRhythmTest, WhatWasUsualIsTakenOverByTheNextIncarnation) {
  Rhythm rhythm;
  const auto observe = [&rhythm](FakeJob& job) {
    JobSnapshot snapshot = job.Snapshot();
    rhythm.Observe(&snapshot);
    return snapshot.communicators.empty() ? 0 : snapshot.communicators[0].longest_standstill_ns;
  };
  FakeJob first(kRanks);
  first.Complete(50);
  observe(first);
  first.EnterAllBut(2);
  observe(first);
  for (int i = 0; i < 60; ++i) {
    first.Advance(kSecondNs);
    observe(first);
  }
  first.Enter(2);
  EXPECT_GE(observe(first), 60 * kSecondNs);
  FakeJob next(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) next.membership(rank).communicator_id = 0xB22;
  EXPECT_GE(observe(next), 60 * kSecondNs);
  FakeJob other(kRanks + 1);
  for (uint32_t rank = 0; rank <= kRanks; ++rank) other.membership(rank).communicator_id = 0xC33;
  EXPECT_EQ(observe(other), 0) << "of another size";
  // It is suspected as early as ever, but certain only after what the job is used to.
  JobSnapshot snapshot = other.Snapshot();
  rhythm.Observe(&snapshot);
  EXPECT_EQ(SuspectAfterNs(snapshot.communicators[0], {}), HangThresholds().suspect_ns);
  EXPECT_GE(CertainAfterNs(snapshot.communicators[0], {}), 5 * 60 * kSecondNs);
}

TEST(HangRhythmTest, ThePaceIsThatOfTheLongestStepsOfLate) {
  Rhythm rhythm;
  FakeJob job(kRanks);
  const auto step = [&](int64_t ns) {
    job.Complete(3);  // quick ones
    job.Advance(ns);
    job.Complete(1);
    JobSnapshot snapshot = job.Snapshot();
    rhythm.Observe(&snapshot);
    return static_cast<double>(snapshot.communicators[0].pace_ns) / kSecondNs;
  };
  EXPECT_EQ(step(2 * kSecondNs), 0) << "the first tells of nothing";
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(step(2 * kSecondNs), 2, 0.1);
  EXPECT_NEAR(step(60 * kSecondNs), 60, 0.1) << "a checkpoint";
  double pace_s = 60;
  for (int i = 0; i < 400; ++i) {
    EXPECT_LE(step(2 * kSecondNs), pace_s + 0.1);
    pace_s = step(2 * kSecondNs);
  }
  EXPECT_NEAR(pace_s, 2, 0.1) << "has faded";
}

TEST(HangRhythmTest, EvidenceAndActionAreInNumbers) {
  FakeJob job(kRanks);
  job.Complete(410);
  for (uint32_t rank = 0; rank < kRanks; ++rank) job.Enter(rank);
  job.SetState(2, ProcessState::kStopped);
  const int64_t moved_at_ns = job.now_ns();
  job.membership(1).queue_pairs.push_back({.peer = 2,
                                           .sends = true,
                                           .posted_messages = 3,
                                           .posted_bytes = 5000,
                                           .completed_messages = 2,
                                           .completed_bytes = 1000,
                                           .moved_bytes = 1500,
                                           .last_progress_at_ns = moved_at_ns,
                                           .local = "10.0.0.1:4000",
                                           .remote = "10.0.0.2:5000"});
  job.membership(3).queue_pairs.push_back({.peer = 2, .posted_messages = 3, .completed_messages = 2});
  job.membership(3).queue_pairs.push_back(
      {.peer = 0, .sends = true, .posted_bytes = 9, .completed_bytes = 1});
  job.Advance(2300 * kMillisecondNs);
  const std::vector<Finding> findings = Detect(job);
  ASSERT_THAT(findings, SizeIs(1));
  const Finding& finding = findings[0];
  EXPECT_THAT(
      EvidenceOf(finding, "process-state"),
      HasSubstr(
          "rank 2 is process 1002 on host2 (trainer): stopped by a signal for 2.3 s, kernel wait channel "
          "do_signal_stop"));
  EXPECT_THAT(EvidenceOf(finding, "inside"),
              HasSubstr("rank 2 has called 411 operations of communicator "
                        "0x0000000000000a11 and finished 410: it is inside operation "
                        "410 and cannot go on"));
  EXPECT_THAT(
      EvidenceOf(finding, "waiting"),
      HasSubstr("ranks 0, 1, 3 wait in operation 410 (all_reduce of 1048576 x float32, sum) for 2.3 s"));
  EXPECT_EQ(
      EvidenceOf(finding, "connection"),
      "rank 1 has 4000 bytes towards it that are not acknowledged (10.0.0.1:4000 to 10.0.0.2:5000), the last "
      "byte moved 2.3 s ago\n"
      "rank 3 has 1 receive posted from it that is not answered\n");
  EXPECT_EQ(EvidenceOf(finding, "progress"), "");
  EXPECT_THAT(finding.last_call, HasSubstr("operation 410 (all_reduce of 1048576 x float32, sum)"));
  EXPECT_THAT(finding.suggested_action, HasSubstr("`kill -CONT 1002` on host2"));
  EXPECT_THAT(finding.suggested_action,
              HasSubstr("isolate host2 and restart the job from its last checkpoint"));
  EXPECT_EQ(finding.confidence, 0.99);
  EXPECT_EQ(finding.since_at_ns, moved_at_ns);

  job.SetState(2, ProcessState::kBlocked);
  job.process(2).health.wait_channel = "nfs_wait";
  job.membership(2).called = job.membership(2).finished;
  const std::vector<Finding> absent = Detect(job);
  ASSERT_THAT(absent, SizeIs(1));
  EXPECT_THAT(EvidenceOf(absent[0], "absent"), HasSubstr("has called 410 operations"));
  EXPECT_THAT(EvidenceOf(absent[0], "absent"), HasSubstr("it has not called operation 410"));
  EXPECT_THAT(absent[0].suggested_action, HasSubstr("nfs_wait"));
}

// Every rank computes for a while of its own before each operation, up to 1.9 s; the operation runs once
// all are there.
TEST(HangRhythmTest, HealthySkewIsNeverSuspicious) {
  constexpr uint32_t kSeed = 4711;
  std::mt19937 random(kSeed);  // NOLINT: a fixed seed, so that a failure can be repeated
  FakeJob job(kRanks, 2);
  for (int operation = 0; operation < 100; ++operation) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ", operation " << operation);
    std::vector<int> ready_in_ms(kRanks);
    for (int& ms : ready_in_ms) ms = static_cast<int>(random() % 1900);
    for (int ms = 0; ms <= 1900; ms += 50) {
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        if (ready_in_ms[rank] >= ms && ready_in_ms[rank] < ms + 50) job.Enter(rank);
      }
      job.Advance(50 * kMillisecondNs);
      ASSERT_THAT(Detect(job), IsEmpty());
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) job.Finish(rank);
  }
}

// A first iteration of half a minute may be suspected, but is no alarm.
TEST(HangRhythmTest, SlowFirstIterationIsNotConfirmed) {
  FakeJob job(kRanks);
  job.EnterAllBut(1);
  for (int second = 0; second < 30; ++second) {
    job.Advance(kSecondNs);
    for (const Finding& finding : Detect(job)) EXPECT_EQ(finding.confirmed_by, "");
  }
}

TEST(HangRhythmTest, ManyRanksTakeLittleTime) {
  constexpr uint32_t kMany = 4000;
  FakeJob job(kMany, kMany);
  Host& host = job.host_of(0);
  for (uint32_t rank = 0; rank < kMany; ++rank) {
    Membership& membership = host.processes[rank].communicators[0];
    membership.called = membership.started = {51, job.now_ns()};
    membership.finished = {50, job.now_ns()};
    if (rank % 2 == 0) membership.called = membership.started = membership.finished;  // half are absent
  }
  const JobSnapshot snapshot = job.Snapshot();
  EXPECT_THAT(DetectHangs(snapshot, kThresholds), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
