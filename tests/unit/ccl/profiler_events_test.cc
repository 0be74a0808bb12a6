// What becomes of NCCL's events once their version is forgotten: calls met, kernels timed, ends told, and
// everything that can be missing, late, foreign or twice.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ccl/plugins/profiler/events.h"
#include "tests/unit/ccl/profiler_world.h"

namespace c4::profiler {
namespace {

using test::Collective;
class ProfilerEvents : public test::EventsTest {};

TEST_F(ProfilerEvents, AnAllReduceOnTwoChannels) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  ASSERT_NE(context, nullptr);
  comm->Called(Collective(wire::kAllReduce, 10), 1000);
  EXPECT_EQ(world_.Slot(1).seen, 0u);
  void* const group = events_.Group(context);
  void* const operation = Operation(context, Collective(wire::kAllReduce, 10), 2, group);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(world_.Slot(1).seen, wire::kSeesEvents) << "until there is a time";
  void* const first = Begin(operation, 0, 1020);
  EXPECT_EQ(world_.Slot(1).started.count, 1u);
  void* const second = Begin(operation, 1, 1010, 1023);
  events_.Stop(operation, 1030);  // enqueued, no more
  events_.Stop(group, 1030);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u);
  End(second, 1090);
  events_.Stop(second, 1092);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u);
  End(first, 1080, 1093);
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  EXPECT_EQ(world_.Slot(1).seen, wire::kSeesEvents | wire::kSeesKernels);
  ASSERT_EQ(world_.Records().size(), 1u);
  const wire::OperationRecord record = world_.Records()[0];
  EXPECT_EQ(record.called_ticks, 1000u);
  EXPECT_EQ(record.started_ticks, 1012u) << "the earliest channel's, two ticks after it at most";
  EXPECT_EQ(record.finished_ticks, 1092u) << "the latest channel's";
  EXPECT_LE(world_.Slot(1).kernel_error_ns, 22u + 2000u) << "it was called 20 before it began, and a grain";
}

TEST_F(ProfilerEvents, TheFirstMatchBindsForGood) {
  ObservedCommunicator* const one = world_.Communicator(1);
  ObservedCommunicator* const two = world_.Communicator(2);
  void* const first = OpenContext();
  void* const second = OpenContext();
  // Alike but for their counts: the first operation of each tells them apart.
  two->Called(Collective(wire::kAllReduce, 7), 1);
  one->Called(Collective(wire::kAllReduce, 8), 2);
  Run(Operation(second, Collective(wire::kAllReduce, 7), 1), 10, 20);
  Run(Operation(first, Collective(wire::kAllReduce, 8), 1), 11, 21);
  // From now on equal calls go where they belong, whichever was made first.
  one->Called(Collective(wire::kAllReduce, 9), 30);
  two->Called(Collective(wire::kAllReduce, 9), 31);
  Run(Operation(second, Collective(wire::kAllReduce, 9), 1), 40, 50);
  EXPECT_EQ(world_.Slot(2).finished.count, 2u);
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  Run(Operation(first, Collective(wire::kAllReduce, 9), 1), 41, 51);
  EXPECT_EQ(world_.Slot(1).finished.count, 2u);
}

TEST_F(ProfilerEvents, TwoOfNcclsAreNeverOneOfOurs) {
  ObservedCommunicator* const one = world_.Communicator(1);
  void* const first = OpenContext();
  void* const second = OpenContext();
  one->Called(Collective(wire::kAllReduce, 7), 1);
  one->Called(Collective(wire::kAllReduce, 7), 2);
  EXPECT_NE(Operation(first, Collective(wire::kAllReduce, 7), 1), nullptr);
  EXPECT_EQ(Operation(second, Collective(wire::kAllReduce, 7), 1), nullptr);
  EXPECT_NE(Operation(first, Collective(wire::kAllReduce, 7), 1), nullptr);
}

// A wrong first match: equal calls on two communicators of equal size, and NCCL came to the later one first.
TEST_F(ProfilerEvents, AWrongBindingIsLookedAtAgain) {
  ObservedCommunicator* const one = world_.Communicator(1);
  ObservedCommunicator* const two = world_.Communicator(2);
  void* const context = OpenContext();
  one->Called(Collective(wire::kAllReduce, 7), 1);
  two->Called(Collective(wire::kAllReduce, 7), 2);
  EXPECT_NE(Operation(context, Collective(wire::kAllReduce, 7), 1), nullptr);  // taken for one's
  int found = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    two->Called(Collective(wire::kAllReduce, 100 + i), 10 + i);
    if (Operation(context, Collective(wire::kAllReduce, 100 + i), 1) != nullptr) ++found;
  }
  EXPECT_GE(found, 20);
}

TEST_F(ProfilerEvents, WhatWasNeverCalledIsNobodys) {
  world_.Communicator(1);
  void* const context = OpenContext();
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(Operation(context, Collective(wire::kAllReduce, 7), 1), nullptr);
  EXPECT_EQ(events_.counts(context).unmatched, 3000u);
  EXPECT_EQ(Begin(nullptr, 0, 10), nullptr) << "kernels of operations that were dropped";
  EXPECT_EQ(events_.ProxyOp(nullptr, {getpid(), 1, true}), nullptr);
  EXPECT_EQ(events_.Step(nullptr, 1), nullptr);
  events_.StepState(nullptr, StepChange::kPosted, 0, 1);
  events_.Stop(nullptr, 1);
}

TEST_F(ProfilerEvents, AMissingStopIsMadeGoodByTheNextGroup) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  comm->Called(Collective(wire::kAllReduce, 2), 2);
  void* const first = Operation(context, Collective(wire::kAllReduce, 1), 2, events_.Group(context));
  End(Begin(first, 0, 10), 20);
  Begin(first, 1, 10);  // its stop never comes
  Run(Operation(context, Collective(wire::kAllReduce, 2), 1, events_.Group(context)), 30, 40);
  EXPECT_EQ(world_.Slot(1).finished.count, 2u);
  EXPECT_EQ(events_.counts(context).overtaken, 1u);
  ASSERT_EQ(world_.Records().size(), 2u);
  EXPECT_EQ(world_.Records()[1].sequence, 0u);
  EXPECT_LE(world_.Records()[1].finished_ticks, 22u) << "as far as it was seen";
}

TEST_F(ProfilerEvents, OthersOfItsGroupEndNothing) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  ObservedCall on_other_stream = Collective(wire::kAllReduce, 2);
  on_other_stream.stream = 6;
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  comm->Called(on_other_stream, 2);
  void* const group = events_.Group(context);
  void* const slow = Operation(context, Collective(wire::kAllReduce, 1), 1, group);
  void* const kernel = Begin(slow, 0, 10);
  Run(Operation(context, Collective(wire::kAllReduce, 2), 1, group), 10, 20);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u);
  End(kernel, 50);
  EXPECT_EQ(world_.Slot(1).finished.count, 2u);
  EXPECT_EQ(events_.counts(context).overtaken, 0u);
}

TEST_F(ProfilerEvents, TheLastStopThatNeverComesIsMadeGoodByThreadsSleep) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  void* const progress = events_.Progress(context);
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  comm->Called(Collective(wire::kAllReduce, 2), 2);
  void* const operation = Operation(context, Collective(wire::kAllReduce, 1), 16, events_.Group(context));
  End(Begin(operation, 0, 10), 20);
  events_.Asleep(progress, 25);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u) << "not enqueued as a whole yet";
  events_.Stop(operation, 26);
  void* const waits = Operation(context, Collective(wire::kAllReduce, 2), 1, events_.Group(context));
  events_.Stop(waits, 27);
  events_.Asleep(progress, 30);
  EXPECT_EQ(world_.Slot(1).finished.count, 1u) << "the second has not begun: it may be hung";
  EXPECT_EQ(world_.Slot(1).finished.ticks, 22u);
  EXPECT_EQ(Begin(operation, 1, 11), nullptr) << "too late";
}

TEST_F(ProfilerEvents, WithoutPromisedChannelsItIsOverWhenTheNextBegins) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext(-1, 0, false);  // v3
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  comm->Called(Collective(wire::kAllReduce, 2), 2);
  OperationEvent event;
  event.rank = 0;
  event.call = Collective(wire::kAllReduce, 1);
  event.group = events_.Group(context);
  void* const first = events_.Operation(context, event, 1);
  ASSERT_NE(first, nullptr);
  events_.KernelEnded(events_.Kernel(first, 0, 0, 10), 0, 20);
  events_.KernelEnded(events_.Kernel(first, 1, 0, 11), 0, 21);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u);
  event.call = Collective(wire::kAllReduce, 2);
  event.group = events_.Group(context);
  void* const second = events_.Operation(context, event, 1);
  events_.Kernel(second, 0, 0, 30);
  ASSERT_EQ(world_.Records().size(), 1u);
  EXPECT_EQ(world_.Records()[0].started_ticks, 10u);
  EXPECT_EQ(world_.Records()[0].finished_ticks, 21u);
  EXPECT_EQ(world_.Slot(1).kernel_error_ns, UINT32_MAX);
}

TEST_F(ProfilerEvents, AFullPoolOvertakesTheOldest) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  std::vector<void*> operations;
  for (int i = 0; i < 3000; ++i) {
    comm->Called(Collective(wire::kAllReduce, 1), 1);
    operations.push_back(Operation(context, Collective(wire::kAllReduce, 1), 1));
    ASSERT_NE(operations.back(), nullptr);
  }
  EXPECT_EQ(Begin(operations[0], 0, 10), nullptr);
  EXPECT_NE(Begin(operations.back(), 0, 10), nullptr);
  EXPECT_GT(events_.counts(context).overtaken, 1000u);
}

TEST_F(ProfilerEvents, WhatComesAfterTheEndIsDropped) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  void* const operation = Operation(context, Collective(wire::kAllReduce, 1), 1, events_.Group(context));
  void* const kernel = Begin(operation, 0, 10);
  void* const proxy = events_.ProxyOp(operation, {getpid(), 2, true});
  void* const step = events_.Step(proxy, 3);
  void* const progress = events_.Progress(context);
  ASSERT_NE(proxy, nullptr);
  ASSERT_NE(world_.Connection(wire::kDirectionSend, 2), nullptr);
  EXPECT_EQ(events_.Close(context).operations, 1u);
  EXPECT_EQ(world_.Connection(wire::kDirectionSend, 2), nullptr) << "its slot is given back";
  const auto late = [&] {
    End(kernel, 20);
    events_.Stop(kernel, 20);
    events_.StepState(step, StepChange::kPosted, 0, 20);
    events_.Stop(step, 20);
    events_.Stop(proxy, 20);
    events_.Stop(operation, 20);
    events_.Asleep(progress, 20);
    EXPECT_EQ(Begin(operation, 1, 20), nullptr);
    EXPECT_EQ(Operation(context, Collective(wire::kAllReduce, 1), 1), nullptr);
    EXPECT_EQ(events_.Group(context), nullptr);
    EXPECT_EQ(events_.Close(context).operations, 0u) << "twice";
  };
  late();
  // Its place is taken by another one: still late.
  world_.all.Drop(comm, wire::kPhaseDestroyed);
  ObservedCommunicator* const next = world_.Communicator(2);
  void* const other = OpenContext();
  next->Called(Collective(wire::kAllReduce, 1), 30);
  void* const live = Operation(other, Collective(wire::kAllReduce, 1), 1, events_.Group(other));
  late();
  EXPECT_EQ(world_.Slot(2).started.count, 0u);
  Run(live, 40, 50);
  EXPECT_EQ(world_.Slot(2).finished.count, 1u);
}

TEST_F(ProfilerEvents, HandlesOfAnotherProcessAreNotOurs) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  void* const operation = Operation(context, Collective(wire::kAllReduce, 1), 1);
  EXPECT_EQ(events_.ProxyOp(operation, {getpid() + 1, 2, true}), nullptr)
      << "PXN: looks like ours, but is not";
  uint64_t seed = 88172645463325252u;
  for (int i = 0; i < 20000; ++i) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    void* const wild = reinterpret_cast<void*>(seed);  // NOLINT(performance-no-int-to-ptr)
    if (wild == operation || wild == context) continue;
    Begin(wild, 0, 10);
    End(wild, 10);
    events_.Stop(wild, 10);
    events_.Step(wild, 3);
    events_.StepState(wild, StepChange::kArrived, 1, 10);
    events_.Group(wild);
    events_.ProxyOp(wild, {getpid(), 1, true});
    events_.Close(wild);
  }
  Run(operation, 10, 20);
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
}

TEST_F(ProfilerEvents, TheChildOfAForkSeesNothing) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  comm->Called(Collective(wire::kAllReduce, 1), 1);
  void* const operation = Operation(context, Collective(wire::kAllReduce, 1), 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool blind = Begin(operation, 0, 10) == nullptr && events_.Group(context) == nullptr &&
                       Operation(context, Collective(wire::kAllReduce, 1), 1) == nullptr &&
                       OpenContext() == nullptr;
    events_.Stop(operation, 10);
    _exit(blind ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Run(operation, 10, 20);
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
}

TEST_F(ProfilerEvents, MoreCommunicatorsThanPlaces) {
  std::vector<void*> contexts;
  for (uint32_t i = 0; i < 40; ++i) contexts.push_back(OpenContext());
  for (void* context : contexts) {
    ASSERT_NE(context, nullptr);
    events_.Close(context);
  }
  for (uint32_t i = 0; i < 100; ++i) {
    void* const context = OpenContext();
    ASSERT_NE(context, nullptr);
    events_.Close(context);
  }
}

}  // namespace
}  // namespace c4::profiler
