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

// Writes down what the machine asks for: "dial 1 port", "drop", "adopt", "close".
struct Script final : SendStreams {
  void DialNext(uint32_t epoch, bool ask_port) override {
    calls.push_back("dial " + std::to_string(epoch) + (ask_port ? " port" : ""));
  }
  void DiscardNext() override { calls.push_back("drop"); }
  void AdoptNext() override { calls.push_back("adopt"); }
  void DiscardCurrent() override { calls.push_back("close"); }
  bool busy() const override { return has_chunks; }

  std::vector<std::string> Take() { return std::exchange(calls, {}); }
  std::vector<std::string> calls;
  bool has_chunks = false;
};

using Calls = std::vector<std::string>;

struct Live {
  explicit Live(uint64_t now_ns) {
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
  EXPECT_EQ(live.script.Take(), Calls({"close", "adopt"}));
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
  EXPECT_EQ(live.script.Take(), Calls({"close", "adopt", "dial 2 port"}));
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
  EXPECT_EQ(live.script.Take(), Calls({"close", "dial 1 port"})) << "once";
}

TEST(ReceiveEpochs, AnswersForAllThatWereClosedSinceSomethingCame) {
  ReceiveEpochs epochs(3);
  EXPECT_EQ(epochs.Ask(3), ReceiveEpochs::Answer::kClose);
  // Nothing of these was in use: each takes the place of the one before.
  EXPECT_EQ(epochs.Arrive(4, false, 70), ReceiveEpochs::kAdopt);
  EXPECT_EQ(epochs.Arrive(6, false, 70), ReceiveEpochs::kAdopt);
  for (const uint32_t epoch : {3u, 4u, 5u}) {
    EXPECT_EQ(epochs.Ask(epoch), ReceiveEpochs::Answer::kClosed) << epoch;
  }
  EXPECT_EQ(epochs.closed_at(), 70u);
  EXPECT_EQ(epochs.Ask(2), ReceiveEpochs::Answer::kUnknown);
  EXPECT_EQ(epochs.Arrive(5, false, 70), ReceiveEpochs::kRefuse) << "late";
  EXPECT_FALSE(epochs.Close(6, 72));
  EXPECT_EQ(epochs.Ask(6), ReceiveEpochs::Answer::kClosed);
  EXPECT_EQ(epochs.closed_at(), 72u);
  EXPECT_EQ(epochs.Ask(5), ReceiveEpochs::Answer::kUnknown) << "its count would be another";
}

TEST(ReceiveEpochs, KeepsTheNextStreamWhileOneIsInUse) {
  ReceiveEpochs epochs(0);
  EXPECT_EQ(epochs.Arrive(1, true, 5), ReceiveEpochs::kKeep);
  EXPECT_EQ(epochs.Arrive(2, true, 5), ReceiveEpochs::kKeep);
  EXPECT_EQ(epochs.Arrive(1, true, 5), ReceiveEpochs::kRefuse);
  EXPECT_EQ(epochs.epoch(), 0u);
  EXPECT_TRUE(epochs.Close(0, 9));
  EXPECT_EQ(epochs.epoch(), 2u);
  EXPECT_EQ(epochs.Ask(0), ReceiveEpochs::Answer::kClosed);
  EXPECT_EQ(epochs.Ask(2), ReceiveEpochs::Answer::kClose);
  EXPECT_EQ(epochs.closed_at(), 9u);
}

TEST(ReceiveEpochs, AStreamThatWasKeptIsOverWhenItIsFencedToo) {
  ReceiveEpochs epochs(0);
  EXPECT_EQ(epochs.Arrive(1, true, 5), ReceiveEpochs::kKeep);
  EXPECT_FALSE(epochs.Close(1, 5));
  EXPECT_EQ(epochs.Ask(0), ReceiveEpochs::Answer::kClosed);
  EXPECT_EQ(epochs.Arrive(1, false, 5), ReceiveEpochs::kRefuse);
  EXPECT_EQ(epochs.Arrive(2, false, 5), ReceiveEpochs::kAdopt);
}

}  // namespace
}  // namespace c4
