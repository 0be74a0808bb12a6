// What a validation tests and where a job is cut for it, from a job as it is; and what its figures mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "absl/strings/str_cat.h"
#include "c4d_master/validation/plan.h"
#include "c4d_master/validation/results.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

std::string Address(uint32_t rank) {
  return absl::StrCat("10.0.0.", rank + 1);
}

// Both ends of a queue pair over the network.
void Connect(FakeJob* job, uint32_t from, uint32_t to) {
  QueuePair sender;
  sender.sends = true;
  sender.peer = to;
  sender.number = from * 100 + to;
  sender.local = absl::StrCat(Address(from), ":1", from, to);
  sender.remote = absl::StrCat(Address(to), ":2", from, to);
  QueuePair receiver = sender;
  receiver.sends = false;
  receiver.peer = from;
  std::swap(receiver.local, receiver.remote);
  job->membership(from).queue_pairs.push_back(sender);
  job->membership(to).queue_pairs.push_back(receiver);
}

FakeJob Ring(uint32_t ranks) {
  FakeJob job(ranks);
  job.Complete(3);
  for (uint32_t rank = 0; rank < ranks; ++rank) Connect(&job, rank, (rank + 1) % ranks);
  return job;
}

std::string Refusal(const FakeJob& job, const v1::RunValidationRequest& request = {}) {
  const JobSnapshot snapshot = job.Snapshot();
  const auto plan = PlanValidation(snapshot, request);
  EXPECT_FALSE(plan.ok());
  return std::string(plan.status().message());
}

TEST(ValidationPlan, EverythingWhereNothingIsNamed) {
  const FakeJob job = Ring(6);
  const JobSnapshot snapshot = job.Snapshot();
  const auto plan = PlanValidation(snapshot, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->processes.size(), 6u);
  EXPECT_EQ(plan->count, 1u);
  EXPECT_EQ(plan->communicator_id, kWorld);
  EXPECT_EQ(plan->links.size(), 6u);
  for (const PlannedProcess& process : plan->processes) EXPECT_TRUE(process.device && process.tester);
}

TEST(ValidationPlan, SuspectsAreComparedWithAFewOthers) {
  const FakeJob job = Ring(12);
  const JobSnapshot snapshot = job.Snapshot();
  v1::RunValidationRequest request;
  request.add_ranks(5);
  const auto plan = PlanValidation(snapshot, request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  size_t devices = 0;
  for (const PlannedProcess& process : plan->processes) devices += process.device ? 1 : 0;
  EXPECT_EQ(devices, 4u);
  EXPECT_EQ(plan->links.size(), 4u);
  size_t own = 0;
  for (const PlannedLink& link : plan->links) {
    own += link.from_address == Address(5) || link.to_address == Address(5) ? 1 : 0;
    EXPECT_TRUE(plan->processes[link.from].tester && plan->processes[link.to].tester);
  }
  EXPECT_EQ(own, 2u);
  v1::RunValidationRequest links;
  links.add_links()->set_to(1);
  links.set_without_devices(true);
  const auto linked = PlanValidation(snapshot, links);
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(linked->links.front().from_address, Address(0));
  for (const PlannedProcess& process : linked->processes) EXPECT_FALSE(process.device);
}

TEST(ValidationPlan, WithoutACommonCommunicatorStepsAreCounted) {
  FakeJob job = Ring(4);
  job.process(2).communicators.clear();
  const JobSnapshot snapshot = job.Snapshot();
  const auto plan = PlanValidation(snapshot, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->count, 2u);
}

TEST(ValidationPlan, WhoeverCouldNotComeIsKnownBefore) {
  FakeJob stopped = Ring(4);
  stopped.SetState(3, ProcessState::kStopped);
  EXPECT_THAT(Refusal(stopped), HasSubstr("rank 3 (pid 1003 on host3) is stopped"));
  FakeJob silent = Ring(4);
  silent.Silence("host1");
  silent.Advance(10 * kSecondNs);
  EXPECT_THAT(Refusal(silent), HasSubstr("the agent of host1 is silent"));
  FakeJob partial = Ring(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    partial.process(rank).world = 6;
    partial.membership(rank).rank_count = 6;
  }
  EXPECT_THAT(Refusal(partial), HasSubstr("only 4 of the job's 6 ranks"));
  EXPECT_THAT(Refusal(FakeJob(0)), HasSubstr("no process"));
}

// One rank has died, and the others have gone on without it.
TEST(ValidationPlan, AJobThatHasShrunk) {
  FakeJob job = Ring(4);
  for (uint32_t rank = 0; rank < 4; ++rank) job.process(rank).world = 4;
  job.SetState(3, ProcessState::kGone);
  EXPECT_THAT(Refusal(job), HasSubstr("rank 3 (pid 1003 on host3) is gone"));
  job.AddCommunicator(0xBEE, {0, 1, 2});
  job.Complete(2, 0xBEE);
  const JobSnapshot snapshot = job.Snapshot();
  const auto plan = PlanValidation(snapshot, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->processes.size(), 3u);
  EXPECT_EQ(plan->communicator_id, 0xBEEu);
}

TEST(ValidationPlan, WhatTheJobDoesNotHaveIsRefused) {
  const FakeJob job = Ring(4);
  v1::RunValidationRequest request;
  request.add_ranks(77);
  EXPECT_THAT(Refusal(job, request), HasSubstr("no rank 77"));
  v1::RunValidationRequest link;
  link.add_links()->set_to(2);
  EXPECT_THAT(Refusal(job, link), HasSubstr("no connection over a network is seen from rank 0 to rank 2"));
  v1::RunValidationRequest nothing;
  nothing.set_without_devices(true);
  FakeJob alone(2);
  alone.Complete(1);
  EXPECT_THAT(Refusal(alone, nothing), HasSubstr("nothing to test"));
}

v1::ValidatedLink Link(double total, double slowest) {
  v1::ValidatedLink link;
  link.set_from(absl::StrCat(total, "/", slowest));
  TakeTransfer("", std::vector<double>{slowest, total - slowest}, &link);
  return link;
}

TEST(ValidationResults, OneSlowPathOfSeveralIsFound) {
  v1::Validation validation;
  for (const auto& [total, slowest] :
       {std::pair(100.0, 45.0), {99.0, 40.0}, {101.0, 48.0}, {98.0, 5.0}, {60.0, 28.0}}) {
    *validation.add_links() = Link(total, slowest);
  }
  FirstFigures first;
  Judge(&validation, &first);
  EXPECT_FALSE(validation.links(0).slow());
  EXPECT_FALSE(validation.links(1).slow()) << "streams share unevenly";
  EXPECT_TRUE(validation.links(3).slow()) << validation.links(3).ratio();
  EXPECT_TRUE(validation.links(4).slow()) << validation.links(4).ratio();
  EXPECT_EQ(EvidenceOf(validation).size(), 3u);
}

TEST(ValidationResults, DifferentDevicesAreNotCompared) {
  v1::Validation validation;
  for (int i = 0; i < 8; ++i) {
    v1::ValidatedDevice* const device = validation.add_devices();
    device->set_rank(i);
    device->set_device(i < 4 ? "GPU A" : "GPU B");
    v1::DeviceFigure* const figure = device->add_figures();
    figure->set_test("fp32");
    figure->set_gflops(i < 4 ? 100 : 1000);
  }
  validation.mutable_devices(6)->mutable_figures(0)->set_gflops(500);
  FirstFigures first;
  Judge(&validation, &first);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(validation.devices(i).slow(), i == 6);
}

TEST(ValidationResults, NothingIsKnownOfWhatWasNotTested) {
  v1::Validation validation;
  for (int i = 0; i < 3; ++i) validation.add_devices()->set_fault("not tested");
  TakeTransfer("refused", {}, validation.add_links());
  FirstFigures first;
  Judge(&validation, &first);
  EXPECT_TRUE(EvidenceOf(validation).empty());
  EXPECT_TRUE(first.rates.empty());
}

}  // namespace
}  // namespace c4::c4d
