// The machines of a queue pair's epochs, event by event; failover_test.cc drives them through whole
// histories.
#include "ccl/transport/epochs.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace c4 {
namespace {

constexpr uint64_t kMs = 1000000;

// Writes down what the machine asks for: "dial 1 port", "drop", "adopt", "close", "discard". Closes at once,
// unless it is told to be slow.
struct Script final : SendStreams {
  void DialNext(uint32_t epoch, bool ask_port) override {
    calls.push_back("dial " + std::to_string(epoch) + (ask_port ? " port" : ""));
  }
  void DiscardNext() override { calls.push_back("drop"); }
  void AdoptNext() override { calls.push_back("adopt"); }
  void CloseCurrent() override {
    calls.push_back("close");
    if (closes_at_once != nullptr) closes_at_once->CurrentClosed(0);
  }
  void DiscardCurrent() override { calls.push_back("discard"); }
  bool busy() const override { return has_chunks; }

  std::vector<std::string> Take() { return std::exchange(calls, {}); }
  std::vector<std::string> calls;
  bool has_chunks = false;
  SendEpochs* closes_at_once = nullptr;
};

using Calls = std::vector<std::string>;

struct Live {
  explicit Live(uint64_t now_ns) {
    script.closes_at_once = &epochs;
    epochs.Tick(now_ns);
    epochs.NextGreeted();
    epochs.Heard();
    script.Take();
  }
  Script script;
  SendEpochs epochs{&script};
};

TEST(SendEpochs, DialsUntilTheReceiverIsHeard) {
  Script script;
  SendEpochs epochs(&script);
  EXPECT_EQ(epochs.state(), QpState::kConnecting);
  epochs.Tick(0);
  epochs.Tick(SendEpochs::kConnectNs - 1);
  EXPECT_EQ(script.Take(), Calls({"dial 0 port"}));
  epochs.Tick(SendEpochs::kConnectNs);
  EXPECT_EQ(script.Take(), Calls({"drop", "dial 1"})) << "from another port";
  epochs.NextLost(SendEpochs::kConnectNs);
  EXPECT_EQ(script.Take(), Calls({"drop"})) << "refused at once: it pauses";
  epochs.Tick(SendEpochs::kConnectNs + SendEpochs::kFirstPauseNs);
  EXPECT_EQ(script.Take(), Calls({"dial 2"}));
  epochs.NextGreeted();
  EXPECT_EQ(script.Take(), Calls({"adopt"}));
  EXPECT_EQ(epochs.state(), QpState::kConnecting);
  epochs.Heard();
  EXPECT_EQ(epochs.state(), QpState::kLive);
}

// The receiver may have taken it already.
TEST(SendEpochs, WhatWasGreetedIsNeverLate) {
  Live live(0);
  live.epochs.Move(10 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"dial 1 port"}));
  live.epochs.NextGreeted();
  live.epochs.Tick(10 * kMs + 10 * SendEpochs::kPatientConnectNs);
  EXPECT_EQ(live.script.Take(), Calls());
  EXPECT_EQ(live.epochs.stage(), SendEpochs::kDraining);
  EXPECT_EQ(live.epochs.state(), QpState::kLost) << "nothing is under way: the fence comes at once";
  live.epochs.Fenced(20 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"discard", "adopt"}));
}

TEST(SendEpochs, AMoveThatIsLateIsTriedAgainOnceASecond) {
  Live live(0);
  live.epochs.Move(0);
  live.epochs.Tick(SendEpochs::kConnectNs);
  EXPECT_EQ(live.script.Take(), Calls({"dial 1 port", "drop", "dial 2"}));
  EXPECT_EQ(live.epochs.state(), QpState::kLive) << "the old stream stays in use";
  live.epochs.Tick(2 * SendEpochs::kConnectNs);
  live.epochs.Tick(SendEpochs::kConnectNs + SendEpochs::kLongestPauseNs - 1);
  EXPECT_EQ(live.script.Take(), Calls({"drop"}));
  EXPECT_FALSE(live.epochs.has_next()) << "nothing that is taken for ready";
  live.epochs.Tick(SendEpochs::kConnectNs + SendEpochs::kLongestPauseNs);
  EXPECT_EQ(live.script.Take(), Calls({"dial 3"}));
}

TEST(SendEpochs, AMoveWhileItDialsTakesTheNewPathAtOnce) {
  Script script;
  SendEpochs epochs(&script);
  epochs.Tick(0);
  epochs.Move(1);
  EXPECT_EQ(script.Take(), Calls({"dial 0 port", "dial 1 port"}));
}

TEST(SendEpochs, AMoveWhileItDrainsComesOnceTheNextStreamIsInUse) {
  Live live(0);
  live.script.has_chunks = true;
  live.epochs.Move(0);
  live.epochs.NextGreeted();
  live.epochs.Tick(kMs);
  EXPECT_EQ(live.epochs.state(), QpState::kMoving);
  live.epochs.Move(2 * kMs);
  live.epochs.Move(3 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"dial 1 port"}));
  live.script.has_chunks = false;
  live.epochs.Fenced(4 * kMs);
  live.epochs.Tick(5 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"discard", "adopt", "dial 2 port"}));
}

TEST(SendEpochs, AMoveOfADeadOneIsDialledAfterTheFence) {
  Live live(0);
  live.script.has_chunks = true;
  live.epochs.Break(0);
  EXPECT_EQ(live.epochs.state(), QpState::kLost);
  live.epochs.Move(kMs);
  EXPECT_EQ(live.script.Take(), Calls({"close"}));
  live.epochs.Fenced(2 * kMs);
  live.epochs.Tick(3 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"discard", "dial 1 port"})) << "once";
}

// An RC queue pair reads buffers until its completions are drained.
TEST(SendEpochs, NoFenceBeforeItsOwnEndIsClosed) {
  Live live(0);
  live.script.closes_at_once = nullptr;
  live.script.has_chunks = true;
  live.epochs.Break(0);
  EXPECT_EQ(live.script.Take(), Calls({"close"}));
  EXPECT_EQ(live.epochs.state(), QpState::kLost) << "nothing is posted any more";
  EXPECT_FALSE(live.epochs.drained());
  live.epochs.Break(kMs);
  live.epochs.Tick(SendEpochs::kLongestPauseNs);
  EXPECT_EQ(live.script.Take(), Calls()) << "once";
  live.epochs.CurrentClosed(SendEpochs::kLongestPauseNs);
  EXPECT_TRUE(live.epochs.drained());
  EXPECT_EQ(live.epochs.stage(), SendEpochs::kDead);
  live.epochs.Fenced(SendEpochs::kLongestPauseNs);
  EXPECT_EQ(live.script.Take(), Calls({"discard", "dial 1"}));
}

// The fence was asked for while all was well: the next stream takes over when this end is closed.
TEST(SendEpochs, AFenceThatIsAnsweredWhileItClosesWaits) {
  Live live(0);
  live.script.closes_at_once = nullptr;
  live.epochs.Move(0);
  live.epochs.NextGreeted();
  EXPECT_EQ(live.epochs.stage(), SendEpochs::kDraining);
  live.epochs.Break(kMs);
  live.epochs.Fenced(2 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"dial 1 port", "close"}));
  live.epochs.CurrentClosed(3 * kMs);
  EXPECT_EQ(live.script.Take(), Calls({"discard", "adopt"}));
}

TEST(SendEpochs, OneThatWasNeverHeardIsDialledAgainOnceItIsClosed) {
  Script script;
  SendEpochs epochs(&script);
  epochs.Tick(0);
  epochs.NextGreeted();
  epochs.Break(kMs);
  EXPECT_EQ(epochs.state(), QpState::kConnecting) << "nobody has to be asked";
  epochs.Tick(SendEpochs::kLongestPauseNs);
  EXPECT_EQ(script.Take(), Calls({"dial 0 port", "adopt", "close"}));
  epochs.CurrentClosed(SendEpochs::kLongestPauseNs);
  epochs.Tick(SendEpochs::kLongestPauseNs);
  EXPECT_EQ(script.Take(), Calls({"dial 1"}));
}

// Closes at once, with so many chunks, unless it is told to be slow.
struct ReceiveScript final : ReceiveStreams {
  void CloseCurrent() override {
    calls.push_back("close");
    if (closes_at_once != nullptr) closes_at_once->CurrentClosed(received);
  }
  void AdoptNext() override { calls.push_back("adopt"); }
  void DiscardNext() override { calls.push_back("drop"); }

  std::vector<std::string> Take() { return std::exchange(calls, {}); }
  std::vector<std::string> calls;
  uint64_t received = 0;
  ReceiveEpochs* closes_at_once = nullptr;
};

struct Receiver {
  explicit Receiver(uint32_t epoch, bool at_once = true) : epochs(epoch, &script) {
    if (at_once) script.closes_at_once = &epochs;
  }
  ReceiveScript script;
  ReceiveEpochs epochs;
};

TEST(ReceiveEpochs, AnswersForAllThatWereClosedSinceSomethingCame) {
  Receiver receiver(3);
  ReceiveEpochs& epochs = receiver.epochs;
  receiver.script.received = 70;
  EXPECT_TRUE(epochs.closes(3));
  // Nothing of these was in use: each takes the place of the one before.
  epochs.Arrive(4, false);
  epochs.Arrive(6, false);
  EXPECT_EQ(receiver.script.Take(), Calls({"close", "adopt", "close", "adopt"}));
  for (const uint32_t epoch : {3u, 4u, 5u}) EXPECT_EQ(epochs.Fence(epoch), EpochAnswer::kClosed) << epoch;
  EXPECT_EQ(epochs.closed_at(), 70u);
  EXPECT_EQ(epochs.Fence(2), EpochAnswer::kUnknown);
  EXPECT_FALSE(epochs.takes(5)) << "late";
  EXPECT_EQ(receiver.script.Take(), Calls());
  receiver.script.received = 72;
  EXPECT_EQ(epochs.Fence(6), EpochAnswer::kClosed);
  EXPECT_EQ(receiver.script.Take(), Calls({"close"}));
  EXPECT_EQ(epochs.closed_at(), 72u);
  EXPECT_EQ(epochs.Fence(5), EpochAnswer::kUnknown) << "its count would be another";
}

TEST(ReceiveEpochs, KeepsTheNextStreamWhileOneIsInUse) {
  Receiver receiver(0);
  ReceiveEpochs& epochs = receiver.epochs;
  epochs.Arrive(1, true);
  epochs.Arrive(2, true);
  EXPECT_FALSE(epochs.takes(1));
  EXPECT_EQ(epochs.epoch(), 0u);
  receiver.script.received = 9;
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosed);
  EXPECT_EQ(receiver.script.Take(), Calls({"close", "adopt"}));
  EXPECT_EQ(epochs.epoch(), 2u);
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosed);
  EXPECT_TRUE(epochs.closes(2));
  EXPECT_EQ(epochs.closed_at(), 9u);
}

TEST(ReceiveEpochs, AStreamThatWasKeptIsOverWhenItIsFencedToo) {
  Receiver receiver(0);
  ReceiveEpochs& epochs = receiver.epochs;
  epochs.Arrive(1, true);
  EXPECT_EQ(epochs.Fence(1), EpochAnswer::kClosed);
  EXPECT_EQ(receiver.script.Take(), Calls({"close", "drop"}));
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosed);
  EXPECT_FALSE(epochs.takes(1));
  EXPECT_TRUE(epochs.takes(2));
  epochs.Arrive(2, false);
  EXPECT_EQ(receiver.script.Take(), Calls({"adopt"})) << "there is nothing to close";
}

TEST(ReceiveEpochs, NoAnswerBeforeWhatHasComeIsTakenIn) {
  Receiver receiver(0, false);
  ReceiveEpochs& epochs = receiver.epochs;
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosing);
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosing);
  EXPECT_EQ(receiver.script.Take(), Calls({"close"})) << "once";
  EXPECT_TRUE(epochs.takes(1));
  epochs.Arrive(1, false);
  EXPECT_EQ(receiver.script.Take(), Calls()) << "not before the old one is closed";
  epochs.CurrentClosed(5);
  EXPECT_EQ(receiver.script.Take(), Calls({"adopt"}));
  EXPECT_EQ(epochs.Fence(0), EpochAnswer::kClosed);
  EXPECT_EQ(epochs.closed_at(), 5u);
  EXPECT_EQ(epochs.epoch(), 1u);
}

TEST(ReceiveEpochs, ALaterFenceWhileItClosesClosesThatToo) {
  Receiver receiver(0, false);
  ReceiveEpochs& epochs = receiver.epochs;
  epochs.Arrive(1, false);
  EXPECT_EQ(receiver.script.Take(), Calls({"close"}));
  EXPECT_EQ(epochs.Fence(2), EpochAnswer::kClosing);
  EXPECT_FALSE(epochs.takes(2));
  epochs.CurrentClosed(4);
  EXPECT_EQ(receiver.script.Take(), Calls({"drop"}));
  for (const uint32_t epoch : {0u, 1u, 2u}) EXPECT_EQ(epochs.Fence(epoch), EpochAnswer::kClosed) << epoch;
  EXPECT_EQ(epochs.closed_at(), 4u);
}

}  // namespace
}  // namespace c4
