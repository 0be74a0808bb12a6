// Calls that are held for a validation, and all the ways in which they go on: by order, by time, without an
// agent, when a communicator is aborted. The agent is a double; threads stand for the program's.
#include "ccl/control/hold.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "ccl/control/control.h"
#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4 {
namespace {

using std::chrono::milliseconds;

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return false;
}

constexpr uint64_t kWorld = 77;
constexpr uint32_t kLong = 60000;

// The program: calls collectives, one after the other, each finished before the next.
class Program {
 public:
  explicit Program(CommunicatorRecorder* recorder) : recorder_(recorder) {}
  ~Program() { Stop(); }
  void Start(milliseconds pause = milliseconds(1)) {
    thread_ = std::thread([this, pause] {
      while (!stop_.load()) {
        Call();
        std::this_thread::sleep_for(pause);
      }
    });
  }
  void Stop() {
    stop_.store(true);
    Holder::Get().EndAll(wire::kHoldAgentGone);
    if (thread_.joinable()) thread_.join();
  }
  HeldCall Call(const void* comm = nullptr) {
    HeldCall held = HeldCall::kGoesOn;
    if (HoldArmed()) held = Holder::Get().Enter(comm);
    if (held == HeldCall::kAborted) return held;
    recorder_->Called({}, 0, NowTicks());
    recorder_->Finished(0, NowTicks());
    calls_.fetch_add(1);
    return held;
  }
  uint64_t calls() const { return calls_.load(); }

 private:
  CommunicatorRecorder* recorder_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Hold : public testing::Test {
 protected:
  Hold() : monitor_(directory_.path(), {4, 4, 2, 16}, JobIdentity()), agent_(directory_.path()) {
    world_ = Open(kWorld, 0, 2);
    EXPECT_TRUE(client_.Start().ok());
    agent_.Accept();
    EXPECT_FALSE(agent_.Receive().empty());  // hello
  }
  ~Hold() override {
    client_.Stop();
    Holder::Get().EndAll(wire::kHoldAgentGone);
  }
  CommunicatorRecorder Open(uint64_t id, int rank, int ranks) {
    CommunicatorIdentity identity;
    identity.id = id;
    identity.rank = rank;
    identity.rank_count = ranks;
    CommunicatorRecorder recorder = monitor_.OpenCommunicator(identity);
    recorder.Ready();
    return recorder;
  }
  static wire::ControlHoldArm Arm(uint64_t hold, uint64_t calls) {
    wire::ControlHoldArm order{};
    order.hold = hold;
    order.communicator_id = kWorld;
    order.calls = calls;
    order.count = wire::kHoldCountCollectives;
    order.arrive_ms = kLong;
    order.hold_ms = kLong;
    return order;
  }
  void Order(const wire::ControlHoldArm& order) { agent_.Send(wire::kControlHoldArm, order); }
  wire::ControlHoldState Next() {
    EXPECT_TRUE(agent_.Waiting(10000));
    return agent_.Receive<wire::ControlHoldState>(wire::kControlHoldState);
  }
  wire::ControlHoldState NextOf(wire::ControlHoldPhase phase) {
    for (int i = 0; i < 20; ++i) {
      const wire::ControlHoldState state = Next();
      if (state.phase == phase) return state;
    }
    ADD_FAILURE() << "no state of phase " << phase;
    return {};
  }

  test::TempDir directory_;
  Monitor monitor_;
  test::FakeAgent agent_;
  ControlClient client_{&monitor_};
  CommunicatorRecorder world_;
};

TEST_F(Hold, CallsStopAtTheCutAndGoOnWhenTold) {
  Program program(&world_);
  EXPECT_FALSE(HoldArmed());
  Order(Arm(1, 5));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  program.Start();
  const wire::ControlHoldState held = Next();
  EXPECT_EQ(held.phase, wire::kHoldHeld);
  EXPECT_EQ(held.counted, 5u);
  EXPECT_EQ(held.threads, 1u);
  EXPECT_EQ(Next().phase, wire::kHoldQuiet);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(program.calls(), 5u) << "the sixth is held before it is entered";
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{1});
  const wire::ControlHoldState ended = Next();
  EXPECT_EQ(ended.phase, wire::kHoldEnded);
  EXPECT_EQ(ended.reason, wire::kHoldToldTo);
  EXPECT_GE(ended.held_ns, 50000000u);
  EXPECT_TRUE(Eventually([&] { return program.calls() > 8; }));
  EXPECT_FALSE(HoldArmed());
}

TEST_F(Hold, WhereItIsCanBeAskedWithoutHoldingAnything) {
  Program program(&world_);
  for (int i = 0; i < 7; ++i) program.Call();
  Order(Arm(1, UINT64_MAX));
  const wire::ControlHoldState state = Next();
  EXPECT_EQ(state.phase, wire::kHoldArmed);
  EXPECT_EQ(state.counted, 7u);
  program.Call();
  EXPECT_EQ(program.calls(), 8u);
}

// Another rank had come further: the first one goes on up to there, and is held again.
TEST_F(Hold, ACutMovesOn) {
  Program program(&world_);
  program.Start();
  Order(Arm(1, 5));
  EXPECT_EQ(NextOf(wire::kHoldQuiet).calls, 5u);
  const uint64_t at = program.calls();
  Order(Arm(1, at + 3));
  EXPECT_EQ(NextOf(wire::kHoldArmed).calls, at + 3);
  const wire::ControlHoldState again = NextOf(wire::kHoldQuiet);
  EXPECT_EQ(again.counted, at + 3);
  EXPECT_EQ(again.calls, at + 3);
  // One who is there already stays, and says that the new cut holds.
  Order(Arm(1, at + 2));
  EXPECT_EQ(NextOf(wire::kHoldQuiet).calls, at + 2);
  EXPECT_EQ(program.calls(), at + 3);
}

TEST_F(Hold, WhatWasCalledBeforeIsWaitedFor) {
  CommunicatorRecorder other = Open(99, 0, 2);
  other.Called({}, 0, NowTicks());  // and has not finished
  Program program(&world_);
  Order(Arm(1, 0));
  program.Start();
  EXPECT_EQ(NextOf(wire::kHoldHeld).phase, wire::kHoldHeld);
  EXPECT_FALSE(agent_.Waiting(50));
  other.Finished(0, NowTicks());
  EXPECT_EQ(Next().phase, wire::kHoldQuiet);
}

TEST_F(Hold, AllThreadsOfTheProgramAreHeldAndGoOn) {
  std::atomic<int> through{0};
  Order(Arm(1, 0));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Holder::Get().Enter(nullptr);
      through.fetch_add(1);
    });
  }
  EXPECT_EQ(NextOf(wire::kHoldHeld).phase, wire::kHoldHeld);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(through.load(), 0);
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{1});
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Hold, WithoutAnybodyElseTheTimeEndsIt) {
  wire::ControlHoldArm order = Arm(1, 0);
  order.hold_ms = 60;
  Order(order);
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  Program program(&world_);
  const uint64_t before = MonotonicNs();
  program.Call();
  EXPECT_GE(MonotonicNs() - before, 60000000u);
  const wire::ControlHoldState ended = NextOf(wire::kHoldEnded);
  EXPECT_EQ(ended.reason, wire::kHoldTimeUp);
  program.Call();
  EXPECT_FALSE(HoldArmed());
}

TEST_F(Hold, NobodyComesToTheCut) {
  wire::ControlHoldArm order = Arm(1, 1000);
  order.arrive_ms = 40;
  Order(order);
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  const wire::ControlHoldState ended = Next();
  EXPECT_EQ(ended.phase, wire::kHoldEnded);
  EXPECT_EQ(ended.reason, wire::kHoldNotReached);
  EXPECT_EQ(ended.held_ns, 0u);
  EXPECT_FALSE(HoldArmed());
}

TEST_F(Hold, TheAgentDies) {
  Order(Arm(1, 0));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  Program program(&world_);
  program.Start();
  EXPECT_EQ(NextOf(wire::kHoldHeld).phase, wire::kHoldHeld);
  agent_.Hang();
  EXPECT_TRUE(Eventually([&] { return program.calls() > 3; })) << "the job waits for nobody";
}

// A stopped agent keeps its connection: only the clock helps.
TEST_F(Hold, TheAgentIsStopped) {
  wire::ControlHoldArm order = Arm(1, 0);
  order.hold_ms = 100;
  Order(order);
  Program program(&world_);
  ASSERT_TRUE(Eventually([] { return HoldArmed(); }));
  program.Start();
  EXPECT_TRUE(Eventually([&] { return program.calls() > 3; }));
}

TEST_F(Hold, ASecondOneIsRefusedWhileOneIsUnderWay) {
  Order(Arm(1, 3));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  Order(Arm(2, 0));
  const wire::ControlHoldState refused = Next();
  EXPECT_EQ(refused.phase, wire::kHoldRefused);
  EXPECT_EQ(refused.reason, wire::kHoldBusy);
  EXPECT_EQ(refused.hold, 2u);
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{2});  // ends nothing
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{1});
  const wire::ControlHoldState ended = Next();
  EXPECT_EQ(ended.hold, 1u);
  Order(Arm(2, 1000));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
}

TEST_F(Hold, OrdersThatThisProcessCannotFollowAreRefused) {
  wire::ControlHoldArm order = Arm(1, 0);
  order.communicator_id = 12345;
  Order(order);
  EXPECT_EQ(Next().reason, wire::kHoldUnknown);
  order = Arm(2, 0);
  order.count = 99;
  Order(order);
  EXPECT_EQ(Next().reason, wire::kHoldUnknown);
  (void)Open(kWorld, 1, 2);
  Order(Arm(3, 0));
  EXPECT_EQ(Next().reason, wire::kHoldSeveralRanks);
  order = Arm(0, 0);  // no number
  Order(order);
  EXPECT_FALSE(agent_.Waiting(50));
  EXPECT_FALSE(HoldArmed());
}

TEST_F(Hold, AnAbortedCommunicatorsCallIsNotEntered) {
  Order(Arm(1, 0));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  Program program(&world_);
  int comm = 0;
  int other = 0;
  std::optional<HeldCall> first;
  std::optional<HeldCall> second;
  std::thread one([&] { first = program.Call(&comm); });
  std::thread two([&] { second = Holder::Get().Enter(&other); });
  EXPECT_EQ(NextOf(wire::kHoldHeld).phase, wire::kHoldHeld);
  std::this_thread::sleep_for(milliseconds(50));  // for the other one
  Holder::Get().Abandon(&comm);
  one.join();
  two.join();
  EXPECT_EQ(first, HeldCall::kAborted);
  EXPECT_EQ(second, HeldCall::kGoesOn);
  EXPECT_EQ(program.calls(), 0u);
  EXPECT_EQ(NextOf(wire::kHoldEnded).reason, wire::kHoldAborted);
}

bool Captures(uint64_t stream) {
  return stream == 5;
}
std::atomic<bool> stream_is_idle{false};
bool IsIdle(uint64_t) {
  return stream_is_idle.load();
}

TEST_F(Hold, AGraphThatIsCapturedIsNotHeld) {
  Order(Arm(1, 0));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  EXPECT_EQ(Holder::Get().Enter(nullptr, {Captures, IsIdle, 5}), HeldCall::kGoesOn);
  EXPECT_EQ(Next().reason, wire::kHoldCapture);
}

TEST_F(Hold, AStreamIsWaitedFor) {
  stream_is_idle.store(false);
  Order(Arm(1, 0));
  std::thread held([] {
    while (!HoldArmed()) std::this_thread::yield();
    Holder::Get().Enter(nullptr, {Captures, IsIdle, 4});
  });
  EXPECT_EQ(NextOf(wire::kHoldHeld).phase, wire::kHoldHeld);
  EXPECT_FALSE(agent_.Waiting(40));
  stream_is_idle.store(true);
  EXPECT_EQ(Next().phase, wire::kHoldQuiet);
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{1});
  held.join();
}

TEST_F(Hold, StepsAreCountedToo) {
  wire::ControlHoldArm order = Arm(1, UINT64_MAX);
  order.count = wire::kHoldCountSteps;
  Holder::Get().StepMarked();
  Order(order);
  const wire::ControlHoldState at = Next();
  EXPECT_EQ(at.phase, wire::kHoldArmed);
  order.calls = at.counted + 2;
  Order(order);
  EXPECT_EQ(Next().calls, at.counted + 2);
  std::thread program([] {
    for (int i = 0; i < 3; ++i) Holder::Get().StepMarked();
  });
  EXPECT_EQ(NextOf(wire::kHoldHeld).counted, at.counted + 2);
  agent_.Send(wire::kControlHoldEnd, wire::ControlHoldEnd{1});
  program.join();
}

// A data loader that was forked meanwhile must not wait for a mutex that nobody gives back.
TEST_F(Hold, AForkedChildIsNotHeld) {
  Order(Arm(1, 0));
  EXPECT_EQ(Next().phase, wire::kHoldArmed);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(Holder::Get().Enter(nullptr) == HeldCall::kGoesOn ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace c4
