// Calls that are not what NCCL makes of them: composite ones, sends and receives, launches of graphs; and
// what the steps of their network waited for.
#include <gtest/gtest.h>
#include <iterator>
#include <numeric>
#include <unistd.h>
#include <vector>

#include "tests/unit/ccl/profiler_world.h"

namespace c4::profiler {
namespace {

using test::Collective;
using test::P2p;

class ProfilerCalls : public test::EventsTest {};

TEST_F(ProfilerCalls, AnAllToAllIsOneCall) {
  constexpr int kRanks = 4;
  constexpr int kRank = 1;
  constexpr uint64_t kCount = 8;
  static char send[kRanks * kCount * 4];
  static char recv[kRanks * kCount * 4];
  ObservedCommunicator* const comm = world_.Communicator(1, kRank, kRanks);
  void* const context = OpenContext(kRank, kRanks);
  ObservedCall call = Collective(wire::kAlltoAll, kCount);
  call.send_buffer = send;
  call.recv_buffer = recv;
  comm->Called(call, 1);
  comm->Called(call, 2);
  for (int i = 0; i < 2; ++i) {  // twice the same: the parts of the first do not go to the second
    void* const group = events_.Group(context);
    std::vector<void*> parts;
    for (int round = 0; round < kRanks; ++round) {
      const int to = (kRank + round) % kRanks;
      const int from = (kRank - round + kRanks) % kRanks;
      if (i == 0 || round != 0) {  // the second time, without the part with itself
        parts.push_back(Operation(context, P2p(wire::kSend, kCount, to, send + to * kCount * 4), 2, group));
        parts.push_back(
            Operation(context, P2p(wire::kRecv, kCount, from, recv + from * kCount * 4), 2, group));
      }
    }
    const uint64_t at = 100 * static_cast<uint64_t>(i + 1);
    std::vector<void*> kernels;
    for (void* part : parts) {
      ASSERT_NE(part, nullptr);
      kernels.push_back(Begin(part, 0, at));
      kernels.push_back(Begin(part, 1, at));
      events_.Stop(part, at);
    }
    EXPECT_EQ(world_.Slot(1).started.count, static_cast<uint64_t>(i + 1));
    for (void* kernel : kernels) {
      EXPECT_EQ(world_.Slot(1).finished.count, static_cast<uint64_t>(i));
      End(kernel, at + 50);
    }
    EXPECT_EQ(world_.Slot(1).finished.count, static_cast<uint64_t>(i + 1));
  }
  EXPECT_EQ(world_.Slot(1).p2p_started.count, 0u);
  EXPECT_EQ(events_.counts(context).operations, 2u);
  EXPECT_EQ(events_.counts(context).unmatched, 0u);
}

// As large ones are: its parts are spread over several kernels.
TEST_F(ProfilerCalls, AnAllToAllOfTwoKernelsEndsWithTheSecond) {
  ObservedCommunicator* const comm = world_.Communicator(1, 0, 3);
  void* const context = OpenContext(0, 3);
  static char send[3 * 32];
  ObservedCall call = Collective(wire::kAlltoAll, 8);
  call.send_buffer = send;
  comm->Called(call, 1);
  for (int peer = 1; peer <= 2; ++peer) {
    EXPECT_EQ(world_.Slot(1).finished.count, 0u);
    void* const group = events_.Group(context);
    const auto at = uint64_t{100} * static_cast<uint64_t>(peer);
    Run(Operation(context, P2p(wire::kSend, 8, peer, send + 32 * peer), 1, group), at, at + 9);
    EXPECT_EQ(world_.Slot(1).finished.count, 0u);
    Run(Operation(context, P2p(wire::kRecv, 8, peer), 1, group), at, at + 9);
  }
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  ASSERT_EQ(world_.Records().size(), 1u);
  EXPECT_EQ(world_.Records()[0].started_ticks, 102u);
  EXPECT_EQ(world_.Records()[0].finished_ticks, 211u);
}

TEST_F(ProfilerCalls, GatherAndScatterAtTheRootAndElsewhere) {
  constexpr uint64_t kCount = 8;
  static char buffer[4 * kCount * 4];
  static char own[kCount * 4];
  for (const auto function : {wire::kGather, wire::kScatter}) {
    for (const int root : {0, 2}) {
      const uint64_t id = 10 * static_cast<uint64_t>(function) + static_cast<uint64_t>(root);
      ObservedCommunicator* const comm = world_.Communicator(id, 0, 4);
      void* const context = OpenContext(0, 4);
      const bool gather = function == wire::kGather;
      ObservedCall call = Collective(function, kCount);
      call.info.root = root;
      call.send_buffer = gather ? own : buffer;
      call.recv_buffer = gather ? buffer : own;
      comm->Called(call, 1);
      void* const group = events_.Group(context);
      std::vector<void*> parts;
      parts.push_back(
          Operation(context, P2p(gather ? wire::kSend : wire::kRecv, kCount, root, own), 1, group));
      for (int peer = 0; root == 0 && peer < 4; ++peer) {
        parts.push_back(Operation(
            context, P2p(gather ? wire::kRecv : wire::kSend, kCount, peer, buffer + peer * kCount * 4), 1,
            group));
      }
      uint64_t left = parts.size();
      for (void* part : parts) {
        ASSERT_NE(part, nullptr) << id;
        EXPECT_EQ(world_.Slot(id).finished.count, 0u) << left << " parts left of " << id;
        Run(part, 10, 20);
        --left;
      }
      EXPECT_EQ(world_.Slot(id).finished.count, 1u) << id;
      events_.Close(context);
      world_.all.Drop(comm, wire::kPhaseFinalized);
    }
  }
}

TEST_F(ProfilerCalls, SendsAndReceivesAreTheirOwn) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  comm->Called(P2p(wire::kSend, 5, 1), 1);
  comm->Called(P2p(wire::kRecv, 5, 3), 2);
  void* const group = events_.Group(context);
  void* const recv = Operation(context, P2p(wire::kRecv, 5, 3), 1, group);
  void* const send = Operation(context, P2p(wire::kSend, 5, 1), 1, group);
  Run(recv, 10, 20);
  Run(send, 10, 21);
  EXPECT_EQ(world_.Slot(1).p2p_finished.count, 2u);
  EXPECT_EQ(world_.Slot(1).finished.count, 0u);
}

TEST_F(ProfilerCalls, EachLaunchOfAGraphIsACall) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  void* const context = OpenContext();
  char buffer = 0;
  for (uint64_t count = 1; count <= 2; ++count) {
    comm->Called(Collective(wire::kAllGather, count, &buffer), count);
    events_.Captured(context, Collective(wire::kAllGather, count), count);
    comm->Enqueued(wire::kAllGather, 5, count);
  }
  EXPECT_EQ(world_.Slot(1).finished.count, 2u) << "nobody waits for what runs at no time";
  EXPECT_EQ(world_.Records().size(), 0u);
  for (uint64_t launch = 1; launch <= 3; ++launch) {
    for (uint64_t count = 1; count <= 2; ++count) {
      ObservedCall bytes = Collective(wire::kAllGather, 4 * count, &buffer);
      bytes.info.data_type = 0;
      void* const operation = Operation(context, bytes, 1, events_.Group(context));
      ASSERT_NE(operation, nullptr);
      Run(operation, 100 * launch + 10 * count, 100 * launch + 10 * count + 5);
    }
    EXPECT_EQ(world_.Slot(1).called.count, 2 + 2 * launch);
    EXPECT_EQ(world_.Slot(1).enqueued.count, 2 + 2 * launch);
    EXPECT_EQ(world_.Slot(1).finished.count, 2 + 2 * launch);
  }
  EXPECT_EQ(world_.Records().size(), 6u);
  EXPECT_EQ(events_.counts(context).replayed, 6u);
  // What was never captured is still nobody's; what is called again is met with its call.
  EXPECT_EQ(Operation(context, Collective(wire::kAllGather, 3, &buffer), 1), nullptr);
  comm->Called(Collective(wire::kAllGather, 1, &buffer), 900);
  Run(Operation(context, Collective(wire::kAllGather, 1, &buffer), 1, events_.Group(context)), 910, 920);
  EXPECT_EQ(world_.Slot(1).called.count, 9u);
  EXPECT_EQ(world_.Slot(1).finished.count, 9u);
}

class ProfilerSteps : public test::EventsTest {
 protected:
  ProfilerSteps() : comm_(world_.Communicator(1)), context_(OpenContext()) {
    // Kernels are seen here.
    comm_->Called(Collective(wire::kAllReduce, 9), 1);
    Run(Operation(context_, Collective(wire::kAllReduce, 9), 1, events_.Group(context_)), 2, 3);
    comm_->Called(Collective(wire::kAllReduce, 5), 10);
    OperationEvent event;
    event.call = Collective(wire::kAllReduce, 5);
    event.channels = 1;
    event.group = events_.Group(context_);
    operation_ = events_.Operation(context_, event, 10);
    recv_ = events_.ProxyOp(operation_, {getpid(), 3, false});
    send_ = events_.ProxyOp(operation_, {getpid(), 1, true});
  }
  void Receive(int step, uint64_t posted, uint64_t arrived) {
    void* const handle = events_.Step(recv_, step);
    events_.StepState(handle, StepChange::kPosted, 0, posted);
    events_.StepState(handle, StepChange::kArrived, 100, arrived);
    events_.Stop(handle, arrived + 1);
  }
  const wire::QueuePairSlot& Receiver() { return *world_.Connection(wire::kDirectionReceive, 3); }
  const wire::QueuePairSlot& Sender() { return *world_.Connection(wire::kDirectionSend, 1); }

  ObservedCommunicator* comm_;
  void* context_;
  void* operation_ = nullptr;
  void* recv_ = nullptr;
  void* send_ = nullptr;
};

TEST_F(ProfilerSteps, TheReceiverWaitsFromThePostingOrItsOwnKernelsStart) {
  Receive(0, 20, 50);
  EXPECT_EQ(Receiver().wait_sum_ticks, 0u) << "its own kernel has not begun: nobody waited";
  Begin(operation_, 0, 98, 100);
  Receive(1, 30, 130);
  EXPECT_NEAR(static_cast<double>(Receiver().wait_sum_ticks), 31, 2) << "since the kernel began";
  const uint64_t before = Receiver().wait_sum_ticks;
  Receive(2, 140, 150);
  EXPECT_EQ(Receiver().wait_sum_ticks - before, 10u) << "since the receive was posted";
  EXPECT_NEAR(static_cast<double>(Receiver().wait_max_ticks), 31, 2);
  EXPECT_EQ(Receiver().first_waits, 1u);
  EXPECT_EQ(Receiver().first_wait_sum_ticks, 0u);
  EXPECT_EQ(Receiver().done_bytes, 300u);
  EXPECT_EQ(Receiver().latency_sum_ticks, 0u);
}

TEST_F(ProfilerSteps, ArrivalsThatTellNothingAreInNoWait) {
  comm_->Called(Collective(wire::kAllReduce, 6), 10);
  OperationEvent event;
  event.call = Collective(wire::kAllReduce, 6);
  event.channels = 1;
  event.arrivals_tell = false;
  operation_ = events_.Operation(context_, event, 10);
  recv_ = events_.ProxyOp(operation_, {getpid(), 3, false});
  Begin(operation_, 0, 98, 100);
  Receive(0, 30, 130);
  EXPECT_EQ(Receiver().wait_sum_ticks, 0u);
  EXPECT_EQ(Receiver().first_waits, 0u);
  EXPECT_EQ(Receiver().done_messages, 1u);
}

TEST_F(ProfilerSteps, TheSenderWaitsForItsKernelAndThenForCredit) {
  for (int step = 0; step < 3; ++step) {
    void* const handle = events_.Step(send_, step);
    events_.StepState(handle, StepChange::kPosted, 0, 100);
    events_.StepState(handle, StepChange::kFilled, 64, 140);
    EXPECT_EQ(Sender().wanted_messages, static_cast<uint64_t>(step + 1));
    EXPECT_EQ(Sender().granted_messages, static_cast<uint64_t>(step)) << "the receiver holds it up";
    events_.StepState(handle, StepChange::kFilled, 64, 150);  // tried again
    events_.StepState(handle, StepChange::kFilled, 64, 160);
    events_.StepState(handle, StepChange::kTaken, 64, 165);
    events_.Stop(handle, 172);
  }
  EXPECT_EQ(Sender().gpu_wait_sum_ticks, 120u);
  EXPECT_EQ(Sender().gpu_wait_max_ticks, 40u);
  EXPECT_EQ(Sender().credit_wait_sum_ticks, 75u);
  EXPECT_EQ(Sender().credit_wait_max_ticks, 25u);
  EXPECT_EQ(Sender().latency_sum_ticks, 21u);
  EXPECT_EQ(std::accumulate(std::begin(Sender().latency_histogram), std::end(Sender().latency_histogram), 0u),
            3u);
  EXPECT_EQ(Sender().done_bytes, 192u);
  EXPECT_EQ(Sender().path_state, static_cast<uint32_t>(wire::kPathUp));
}

TEST_F(ProfilerSteps, AStepOfAnEarlierOperationIsLate) {
  void* const old = events_.Step(send_, 0);
  events_.Stop(send_, 20);
  send_ = events_.ProxyOp(operation_, {getpid(), 1, true});  // in the same place
  ASSERT_NE(send_, nullptr);
  events_.StepState(old, StepChange::kFilled, 64, 30);
  events_.Stop(old, 31);
  EXPECT_EQ(Sender().wanted_messages, 0u);
  EXPECT_EQ(events_.counts(context_).late, 2u);
  events_.StepState(events_.Step(send_, 0), StepChange::kFilled, 64, 30);
  EXPECT_EQ(Sender().wanted_messages, 1u);
}

TEST_F(ProfilerSteps, PoolsThatAreFullDropAndCount) {
  std::vector<void*> ops;
  for (uint32_t i = 0; i < 600; ++i) ops.push_back(events_.ProxyOp(operation_, {getpid(), 1, true}));
  EXPECT_EQ(events_.counts(context_).dropped, 600u + 2u - Steps::kProxyOps);
  EXPECT_EQ(ops.back(), nullptr);
  EXPECT_EQ(events_.Step(nullptr, 0), nullptr);
  for (void* op : ops) events_.Stop(op, 1);
  for (int peer = 10; peer < 10 + static_cast<int>(Steps::kPeers); ++peer) {
    events_.Stop(events_.ProxyOp(operation_, {getpid(), peer, true}), 1);
  }
  EXPECT_NE(events_.ProxyOp(operation_, {getpid(), 10, true}), nullptr);
  EXPECT_EQ(events_.ProxyOp(operation_, {getpid(), 9 + static_cast<int>(Steps::kPeers), true}), nullptr);
}

}  // namespace
}  // namespace c4::profiler
