// From telemetry to the records of the what-if analysis: a job that is made up, whose slow rank the analysis
// then names; and everything that may be missing or wrong in it.
#include "c4d_master/smon/profile_join.h"

#include <gmock/gmock.h>

#include "analysis/whatif/analysis.h"
#include "c4d_master/smon/profile_collector.h"
#include "c4d_master/smon/telemetry_profile_source.h"
#include "tests/unit/c4d_master/profile_batches.h"

namespace c4::c4d {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using whatif::OperationType;

constexpr int64_t kArrivalNs = ProfiledFake::kNodeNs + 101 * kSecondNs;

absl::StatusOr<ProfiledJob> JoinAll(const std::vector<v1::TelemetryBatch>& batches) {
  ProfileCollector collector;
  for (const v1::TelemetryBatch& batch : batches) collector.Observe(batch, kArrivalNs);
  return JoinProfile(collector.profile());
}

absl::StatusOr<ProfiledJob> JoinAll(const ProfiledFake& fake) {
  return JoinAll(fake.Batches());
}

std::string Refusal(const ProfiledFake& fake) {
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  return std::string(job.status().message());
}

size_t Count(const ProfiledJob& job, OperationType type) {
  size_t count = 0;
  for (size_t i = 0; i < job.records.size(); ++i) {
    count += job.records[i].type == static_cast<uint16_t>(type) ? 1 : 0;
  }
  return count;
}

struct Analysed {
  whatif::Job job;
  whatif::Analysis analysis;
};

Analysed Analyse(const ProfiledJob& profiled) {
  Analysed result;
  absl::StatusOr<whatif::Trace> trace = whatif::BuildTrace(profiled.records, profiled.shape);
  EXPECT_TRUE(trace.ok()) << trace.status();
  absl::StatusOr<whatif::Job> job = whatif::MakeJob(*std::move(trace));
  EXPECT_TRUE(job.ok()) << job.status();
  result.job = *std::move(job);
  absl::StatusOr<whatif::Analysis> analysis = whatif::Analyse(result.job, 1);
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  result.analysis = *std::move(analysis);
  return result;
}

// The global rank whose slow-down alone is the largest.
int SlowestRank(const Analysed& analysed) {
  size_t slowest = 0;
  for (size_t i = 0; i < analysed.analysis.by_worker.size(); ++i) {
    if (analysed.analysis.by_worker[i].overall > analysed.analysis.by_worker[slowest].overall) slowest = i;
  }
  return analysed.job.trace.ranks[slowest];
}

TEST(ProfileJoin, APipelinedJobIsWholeAndItsSlowRankIsNamed) {
  const ProfiledFake fake({.slow_rank = 2});
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->not_seen, IsEmpty());
  EXPECT_EQ(job->shape.name, "job-1");
  EXPECT_EQ(job->shape.dp_size, 2);
  EXPECT_EQ(job->shape.pp_size, 2);
  // 3 steps x 2 micro-batches: of 4 workers, or of the 2 that have the stage's end.
  EXPECT_EQ(Count(*job, OperationType::kForwardCompute), 24u);
  EXPECT_EQ(Count(*job, OperationType::kBackwardCompute), 24u);
  for (const OperationType type : {OperationType::kForwardSend, OperationType::kForwardRecv,
                                   OperationType::kBackwardSend, OperationType::kBackwardRecv}) {
    EXPECT_EQ(Count(*job, type), 12u) << whatif::OperationName(type);
  }
  EXPECT_EQ(Count(*job, OperationType::kGradsReduceScatter), 12u);
  EXPECT_EQ(Count(*job, OperationType::kOptimizer), 12u);
  const Analysed analysed = Analyse(*job);
  EXPECT_THAT(analysed.job.trace.notes, IsEmpty());
  EXPECT_THAT(analysed.job.trace.steps, ElementsAre(0, 1, 2));
  EXPECT_LT(analysed.analysis.discrepancy, 0.02);
  EXPECT_GT(analysed.analysis.slowdown, 1.2);
  EXPECT_EQ(SlowestRank(analysed), 2);
}

// Short messages are gone before their receiver is ready for them.
TEST(ProfileJoin, ABufferedSendEndsNoSoonerThanItsReceiveBegins) {
  ProfiledFake fake({.micro_batches = 4, .slow_rank = 1});
  for (v1::ProcessReport& report : fake.reports()) {
    for (v1::ProfiledOperation& operation : *report.mutable_profile()->mutable_operations()) {
      if (operation.info().function() == v1::FUNCTION_SEND) operation.set_started_for_ns(100);
    }
  }
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  ASSERT_TRUE(job.ok()) << job.status();
  const Analysed analysed = Analyse(*job);
  EXPECT_EQ(analysed.job.durations.negative, 0u);
  EXPECT_THAT(analysed.job.trace.notes, IsEmpty());
  EXPECT_EQ(SlowestRank(analysed), 1);
}

TEST(ProfileJoin, OfATensorGroupRankZeroIsTaken) {
  const absl::StatusOr<ProfiledJob> job = JoinAll(ProfiledFake({.tp_size = 2}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->not_seen, IsEmpty());
  EXPECT_EQ(Count(*job, OperationType::kForwardCompute), 24u);
  EXPECT_EQ(Count(*job, OperationType::kLayernormGradsAllReduce), 0u);  // its sums are within computations
  for (size_t i = 0; i < job->records.size(); ++i) EXPECT_EQ(job->records[i].rank % 2, 0);
  EXPECT_THAT(Analyse(*job).job.trace.ranks, ElementsAre(0, 4, 2, 6));
}

// A node whose clock is seconds away.
TEST(ProfileJoin, TimesOfNodesArePutOnOneClock) {
  const ProfiledFake fake({.ranks_per_host = 2, .slow_rank = 2});
  const absl::StatusOr<ProfiledJob> same = JoinAll(fake.Batches());
  const absl::StatusOr<ProfiledJob> apart = JoinAll(fake.Batches({{1, 7 * kSecondNs}}));
  ASSERT_TRUE(same.ok() && apart.ok());
  EXPECT_THAT(apart->not_seen, IsEmpty());
  EXPECT_NEAR(Analyse(*apart).analysis.slowdown, Analyse(*same).analysis.slowdown, 1e-6);
  EXPECT_NEAR(Analyse(*apart).analysis.step_time_s, Analyse(*same).analysis.step_time_s, 1e-6);
}

TEST(ProfileJoin, ClocksThatAreWorseThanTransfersAreSaid) {
  const ProfiledFake fake({.ranks_per_host = 2});
  const absl::StatusOr<ProfiledJob> rough = JoinAll(fake.Batches({}, 20 * ProfiledFake::kMs));
  ASSERT_TRUE(rough.ok());
  EXPECT_THAT(rough->not_seen, ElementsAre(AllOf(HasSubstr("40.00 ms apart"), HasSubstr("clocks"))));
  const absl::StatusOr<ProfiledJob> unknown = JoinAll(fake.Batches({}, -1));
  ASSERT_TRUE(unknown.ok());
  EXPECT_THAT(unknown->not_seen, ElementsAre(HasSubstr("nobody knows how far the clock of node0")));
  // On one node there is one clock.
  const absl::StatusOr<ProfiledJob> one = JoinAll(ProfiledFake({}).Batches({}, -1));
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(one->not_seen, IsEmpty());
}

TEST(ProfileJoin, OnlyStepsThatAllHaveMarked) {
  ProfiledFake fake({});
  // Rank 1 had begun before the session, rank 3 lacks the last step.
  for (const auto& [rank, step] : {std::pair{1, 0}, std::pair{3, 2}}) {
    auto* marks = fake.report(rank).mutable_profile()->mutable_marks();
    for (int i = marks->size(); i-- > 0;) {
      if (marks->Get(i).step() == step) marks->DeleteSubrange(i, 1);
    }
  }
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->not_seen, IsEmpty());
  EXPECT_THAT(Analyse(*job).job.trace.steps, ElementsAre(1));
}

TEST(ProfileJoin, WhatIsMissingIsSaidWithWhatToDo) {
  ProfileCollector nothing;
  EXPECT_THAT(std::string(JoinProfile(nothing.profile()).status().message()), HasSubstr("c4 status"));

  ProfiledFake undeclared({});
  for (v1::ProcessReport& report : undeclared.reports()) report.clear_worker();
  EXPECT_THAT(Refusal(undeclared), HasSubstr("c4/marks.h"));

  ProfiledFake unmarked({});
  for (v1::ProcessReport& report : unmarked.reports()) report.mutable_profile()->clear_marks();
  EXPECT_THAT(Refusal(unmarked), AllOf(HasSubstr("ranks 0, 1, 2, 3"), HasSubstr("no whole training step")));

  ProfiledFake idle({});
  auto* marks = idle.report(3).mutable_profile()->mutable_marks();
  for (int i = marks->size(); i-- > 0;) {
    if (marks->Get(i).kind() == v1::MARK_KIND_BACKWARD_COMPUTE) marks->DeleteSubrange(i, 1);
  }
  EXPECT_THAT(Refusal(idle), HasSubstr("rank 3 marks no forward or no backward computation"));

  ProfiledFake without({});
  without.reports().pop_back();
  EXPECT_THAT(Refusal(without), AllOf(HasSubstr("4 workers"), HasSubstr("dp_rank 1 stage 1")));

  ProfiledFake contradicting({});
  contradicting.report(2).mutable_worker()->set_dp_size(4);
  EXPECT_THAT(Refusal(contradicting), HasSubstr("same sizes"));

  ProfiledFake disjoint({.steps = 1});
  for (v1::ProfiledMark& mark : *disjoint.report(1).mutable_profile()->mutable_marks()) {
    if (mark.kind() == v1::MARK_KIND_STEP) mark.set_step(5);
  }
  EXPECT_THAT(Refusal(disjoint), HasSubstr("no step was marked by all"));
}

TEST(ProfileJoin, WithVirtualStagesEachComputationNamesItsChunk) {
  ProfiledFake fake({});
  for (v1::ProcessReport& report : fake.reports()) report.mutable_worker()->set_vpp_size(2);
  EXPECT_THAT(Refusal(fake), HasSubstr("2 model chunks a stage, but 48 computations"));
}

// A pause within a computation is not taken for one behind it.
TEST(ProfileJoin, CollectionWithinAComputationIsPartOfIt) {
  ProfiledFake fake({});
  const int64_t began_ns = ProfiledFake::StepNs(1) + ProfiledFake::kMs;  // of rank 0's first computation
  fake.Mark(0, v1::MARK_KIND_GC, began_ns + 1000, began_ns + 2000);
  const absl::StatusOr<ProfiledJob> within = JoinAll(fake);
  ASSERT_TRUE(within.ok());
  EXPECT_EQ(Count(*within, OperationType::kGc), 0u);
  fake.Mark(0, v1::MARK_KIND_GC, began_ns - 500, began_ns - 100);
  EXPECT_EQ(Count(*JoinAll(fake), OperationType::kGc), 1u);
}

TEST(ProfileJoin, AnEndlessLayoutIsRefusedAtOnce) {
  ProfiledFake fake({});
  for (v1::ProcessReport& report : fake.reports()) {
    report.mutable_worker()->set_dp_size(65535);
    report.mutable_worker()->set_pp_size(4096);
  }
  EXPECT_THAT(Refusal(fake), HasSubstr("268431360 workers"));
}

TEST(ProfileJoin, WhatCannotBeSeenIsSaid) {
  ProfiledFake silent({});
  for (v1::ProcessReport& report : silent.reports()) report.mutable_profile()->clear_operations();
  const absl::StatusOr<ProfiledJob> without = JoinAll(silent);
  ASSERT_TRUE(without.ok());
  EXPECT_THAT(without->not_seen, ElementsAre(HasSubstr("no send or receive"), HasSubstr("no reduction")));

  ProfiledFake lossy({});
  lossy.report(3).mutable_profile()->set_left_out(17);
  const absl::StatusOr<ProfiledJob> lost = JoinAll(lossy);
  ASSERT_TRUE(lost.ok());
  EXPECT_THAT(lost->not_seen, ElementsAre(AllOf(HasSubstr("17 records of rank 3"), HasSubstr("did not"))));

  ProfiledFake vendor({});
  for (v1::ProcessReport& report : vendor.reports()) {
    for (v1::CommunicatorState& state : *report.mutable_communicators()) state.set_engine(2);
  }
  const absl::StatusOr<ProfiledJob> gpu = JoinAll(vendor);
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT(gpu->not_seen, ElementsAre(HasSubstr("times of the CPU"), HasSubstr("kernels are not seen")));

  ProfiledFake busy({});
  busy.Operate(0, v1::FUNCTION_BROADCAST, ProfiledFake::kWorld, 0, ProfiledFake::StepNs(1),
               ProfiledFake::StepNs(1) + 60 * ProfiledFake::kMs);
  const absl::StatusOr<ProfiledJob> other = JoinAll(busy);
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(other->not_seen, ElementsAre(HasSubstr("no place for")));
  EXPECT_EQ(other->records.size(), JoinAll(ProfiledFake({}))->records.size());
}

TEST(ProfileJoin, WaitingWithinAComputationIsSaid) {
  ProfiledFake fake({});
  v1::ProfiledMark wide;
  for (const v1::ProfiledMark& mark : fake.report(1).profile().marks()) {
    if (mark.kind() == v1::MARK_KIND_FORWARD_COMPUTE) wide = mark;
  }
  fake.Mark(1, v1::MARK_KIND_FORWARD_COMPUTE, wide.began_ns() - 3 * ProfiledFake::kMs,
            wide.began_ns() + static_cast<int64_t>(wide.lasted_ns()), 1);
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->not_seen, ElementsAre(HasSubstr("rank 1 sends or receives within marked computations")));
}

TEST(ProfileCollector, BatchesThatComeTwiceCountOnce) {
  const ProfiledFake fake({});
  ProfileCollector collector;
  for (int i = 0; i < 2; ++i) {
    for (const v1::TelemetryBatch& batch : fake.Batches()) collector.Observe(batch, kArrivalNs);
  }
  EXPECT_EQ(collector.CompleteSteps(), 3);
  EXPECT_EQ(collector.profile().batches, 1u);
}

TEST(ProfileCollector, AStepIsCompleteOnceEveryWorkerHasEndedIt) {
  ProfiledFake fake({});
  fake.report(2).mutable_profile()->mutable_marks()->RemoveLast();  // its last step
  ProfileCollector collector;
  EXPECT_EQ(collector.CompleteSteps(), 0);
  for (const v1::TelemetryBatch& batch : fake.Batches()) collector.Observe(batch, kArrivalNs);
  EXPECT_EQ(collector.CompleteSteps(), 2);
}

TEST(ProfileCollector, WhatCannotBeIsLeftOutAndCounted) {
  ProfiledFake fake({});
  const auto& profile = fake.report(0).profile();
  const auto operations = static_cast<size_t>(profile.operations_size());
  const auto marks = static_cast<size_t>(profile.marks_size());
  const int64_t at_ns = ProfiledFake::StepNs(0) + 1;
  fake.Mark(0, v1::MARK_KIND_FORWARD_COMPUTE, at_ns, at_ns - 5, 0);               // backwards
  fake.Mark(0, static_cast<v1::MarkKind>(99), at_ns, at_ns + 5, 0);               // no kind
  fake.Mark(0, v1::MARK_KIND_FORWARD_COMPUTE, -at_ns, 5, 0);                      // before all time
  fake.Mark(0, v1::MARK_KIND_FORWARD_COMPUTE, INT64_MAX - 3, INT64_MAX, 0);       // after it
  fake.Mark(0, v1::MARK_KIND_FORWARD_COMPUTE, at_ns, at_ns + 5, 0, -1, 1 << 20);  // no chunk
  fake.Mark(0, v1::MARK_KIND_STEP, at_ns, at_ns + 5, -1, int64_t{1} << 40);       // no step
  fake.Operate(0, static_cast<v1::Function>(77), ProfiledFake::kWorld, 0, at_ns, at_ns + 5);
  fake.Operate(0, v1::FUNCTION_SEND, ProfiledFake::kWorld, 0, at_ns, at_ns - 5);
  ProfileCollector collector;
  for (const v1::TelemetryBatch& batch : fake.Batches()) collector.Observe(batch, kArrivalNs);
  const ProfiledProcess& process = collector.profile().processes.begin()->second;
  EXPECT_EQ(process.operations.size(), operations);
  EXPECT_EQ(process.marks.size(), marks);
  EXPECT_EQ(process.left_out, 8u);
  // A peer that is no member, of a communicator that nobody has told of.
  fake.Operate(0, v1::FUNCTION_SEND, 4711, -3, at_ns, at_ns + 5);
  fake.Operate(0, v1::FUNCTION_SEND, ProfiledFake::kPipeline, 1 << 30, at_ns, at_ns + 5);
  fake.Operate(0, v1::FUNCTION_SEND, ProfiledFake::kPipeline, -1, at_ns, at_ns + 5);
  const absl::StatusOr<ProfiledJob> job = JoinAll(fake);
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->not_seen, testing::Contains(HasSubstr("3 operations are left out")));
}

TEST(ProfileCollector, AWorkerThatCannotBeCountsAsNotDeclared) {
  ProfiledFake fake({});
  fake.report(3).mutable_worker()->set_stage(2);  // of two
  ProfileCollector collector;
  for (const v1::TelemetryBatch& batch : fake.Batches()) collector.Observe(batch, kArrivalNs);
  EXPECT_FALSE(collector.profile().processes.rbegin()->second.worker.has_value());
}

TEST(ProfileCollector, HoldsNoMoreThanItsBound) {
  ProfileCollector collector(10);
  for (const v1::TelemetryBatch& batch : ProfiledFake({}).Batches()) collector.Observe(batch, kArrivalNs);
  size_t held = 0;
  for (const auto& [key, process] : collector.profile().processes) {
    held += process.operations.size() + process.marks.size();
  }
  EXPECT_EQ(held, 10u);
  EXPECT_GT(collector.profile().over_limit, 0u);
}

TEST(TelemetryProfileSource, ASessionAsksForTheFineLevelAndGivesItBack) {
  VerdictStore store(":memory:");
  service::Metrics metrics;
  HandlerOptions options;
  options.job = "job-1";
  options.master_epoch = 3;
  C4dHandler handler(options, &store, &metrics);
  TelemetryProfileSource source(&handler);
  const Now now{kArrivalNs, 0};
  EXPECT_EQ(source.Finish(now).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(source.Start(now).ok());
  EXPECT_EQ(source.Start(now).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(source.CompleteSteps(), 0);
  for (const v1::TelemetryBatch& batch : ProfiledFake({}).Batches()) {
    const absl::StatusOr<v1::TelemetryReply> reply = handler.Ingest(batch, now);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->level(), v1::RECORD_LEVEL_FINE);
  }
  EXPECT_EQ(source.CompleteSteps(), 3);
  const absl::StatusOr<ProfiledJob> job = source.Finish(now);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(Count(*job, OperationType::kOptimizer), 12u);
  EXPECT_EQ(handler.SetLevel(v1::RECORD_LEVEL_UNSPECIFIED).former(), v1::RECORD_LEVEL_COARSE);
  // Nothing has come since.
  ASSERT_TRUE(source.Start(now).ok());
  EXPECT_EQ(source.Finish(now).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace c4::c4d
