// Recovery's machine: a few lives of incidents in words, and every order of events to a depth.
#include "c4d_master/recovery/machine.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/recovery_checker.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kCrash = 5;
constexpr int64_t kBegin = 1'700'000'000 * kSecond;

class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    rules_ = test::RulesOfTheWalk(Mode::kAutomatic);
    rules_.min_nodes = 2;
    for (const char* name : {"n1", "n2", "n3", "s1", "s2"}) state_.nodes[name].in_use = name[0] == 'n';
  }

  // What the driver is asked for by it: "isolate n1", "restart 1 n1>s1".
  std::vector<std::string> Do(Event event) {
    event.now_ns = now_ns_;
    event.by = "ann";
    std::vector<std::string> asked;
    for (const Action& action : Step(rules_, &state_, event)) {
      if (action.kind != Action::Kind::kRun) continue;
      const Command& command = action.command;
      std::string text = command.kind == Command::Kind::kIsolate    ? "isolate " + command.node
                         : command.kind == Command::Kind::kCheck    ? "check " + command.node
                         : command.kind == Command::Kind::kGiveBack ? "give back " + command.node
                                                                    : "restart " + std::to_string(command.to);
      for (const auto& [node, backup] : command.replace) text += " " + node + ">" + backup;
      asked.push_back(text);
    }
    return asked;
  }
  std::vector<std::string> Verdict(const std::string& id, const std::string& node, uint32_t incarnation = 0) {
    Event event;
    event.kind = Event::Kind::kVerdict;
    event.verdict = id;
    event.node = node;
    event.syndrome = kCrash;
    event.confidence = 0.9;
    event.incarnation = incarnation;
    event.onset_ns = now_ns_ - kSecond;
    event.confirmed_ns = event.seen_ns = now_ns_;
    return Do(event);
  }
  std::vector<std::string> Reply(Event::Outcome outcome = Event::Outcome::kDone) {
    Event event;
    event.kind = Event::Kind::kReply;
    event.command = state_.in_flight.has_value() ? state_.in_flight->id : 0;
    event.outcome = outcome;
    event.text = "said so";
    return Do(event);
  }
  std::vector<std::string> Running(uint32_t incarnation) {
    Event event;
    event.kind = Event::Kind::kRunning;
    event.incarnation = incarnation;
    return Do(event);
  }
  std::vector<std::string> Person(Event::Kind kind, uint64_t incident, const std::string& node = "") {
    Event event;
    event.kind = kind;
    event.incident = incident;
    event.node = node;
    return Do(event);
  }
  std::vector<std::string> Wait(int64_t seconds) {
    now_ns_ += seconds * kSecond;
    return Do({});
  }
  Phase PhaseOf(uint64_t incident) const { return FindIncident(state_, incident)->phase; }

  Rules rules_;
  State state_;
  int64_t now_ns_ = kBegin;
};

TEST_F(MachineTest, FromAVerdictToAJobThatRunsAgain) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kWatching);
  EXPECT_THAT(Running(1), ElementsAre("check n1"));
  EXPECT_EQ(PhaseOf(1), Phase::kRecovered);
  EXPECT_THAT(Reply(), ElementsAre("give back n1"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_EQ(state_.nodes["n1"].state, NodeState::kFree);
  EXPECT_FALSE(state_.nodes["n1"].in_use);
  EXPECT_TRUE(state_.nodes["s1"].in_use);
  EXPECT_THAT(Verdict("v1", "n1"), IsEmpty()) << "it was acted on";
  EXPECT_THAT(Verdict("v2", "n2", 0), IsEmpty()) << "of the incarnation before";
  EXPECT_THAT(Verdict("v3", "n2", 1), ElementsAre("isolate n2"));
}

TEST_F(MachineTest, TwoVerdictsAtOnceAreOneRestart) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Verdict("v2", "n2"), IsEmpty());
  EXPECT_THAT(Reply(), ElementsAre("isolate n2"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1 n2>s2"));
}

TEST_F(MachineTest, AVerdictForANodeThatIsGone) {
  Event event;
  event.kind = Event::Kind::kInventory;
  for (const char* name : {"n2", "n3", "s1", "s2"})
    event.seen.push_back({name, Event::Sight::kFree, name[0] == 'n'});
  EXPECT_THAT(Do(event), IsEmpty());
  EXPECT_EQ(state_.nodes["n1"].state, NodeState::kGone);
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("restart 1 n1>s1")) << "there is nothing to be isolated";
  EXPECT_THAT(Verdict("v2", "n9"), IsEmpty()) << "while it is being restarted";
}

TEST_F(MachineTest, AnAnswerThatComesLate) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  Event late;
  late.kind = Event::Kind::kReply;
  late.command = state_.in_flight->id;
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
  const State before = state_;
  EXPECT_THAT(Do(late), IsEmpty());
  EXPECT_EQ(state_, before);
}

TEST_F(MachineTest, AnEmptyPoolIsWaitedForAndThenItIsSaid) {
  state_.nodes.erase("s1");
  state_.nodes.erase("s2");
  EXPECT_THAT(Verdict("v1", "n1"), IsEmpty()) << "a job that may still run is not killed for nothing";
  EXPECT_EQ(PhaseOf(1), Phase::kWaiting);
  EXPECT_THAT(Wait(601), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kFailed);
  EXPECT_THAT(FindIncident(state_, 1)->reason, HasSubstr("no backup"));
}

TEST_F(MachineTest, AJobThatFailsWhileItIsWatchedIsStartedAgainSoon) {
  rules_.rounds = 3;
  rules_.restarts_per_hour = 3;
  const auto failed = [this](uint32_t incarnation) {
    Event event;
    event.kind = Event::Kind::kInventory;
    for (const auto& [name, node] : state_.nodes) {
      event.seen.push_back(
          {name, node.state == NodeState::kIsolated ? Event::Sight::kIsolated : Event::Sight::kFree,
           node.in_use});
    }
    event.as_of_command = state_.next_command - 1;
    event.failed = true;
    event.incarnation = incarnation;
    return Do(event);
  };
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(failed(0), IsEmpty());
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
  EXPECT_THAT(failed(0), IsEmpty()) << "it is being started again";
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(failed(0), IsEmpty()) << "that was the one before";
  EXPECT_THAT(Wait(10), IsEmpty());
  EXPECT_THAT(failed(1), IsEmpty()) << "a verdict may be on its way";
  EXPECT_THAT(Wait(2), IsEmpty());
  EXPECT_THAT(failed(1), IsEmpty());
  EXPECT_THAT(Wait(2), ElementsAre("restart 2"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(failed(2), IsEmpty());
  EXPECT_THAT(Verdict("v2", "n2", 2), ElementsAre("isolate n2")) << "that was on its way";
}

TEST_F(MachineTest, ASchedulerThatRefusesOrHangs) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Reply(Event::Outcome::kRefused), ElementsAre("isolate n1")) << "once more";
  EXPECT_THAT(Wait(31), ElementsAre("restart 1 n1>s1")) << "without it all the same";
  EXPECT_THAT(Wait(121), ElementsAre("restart 1 n1>s1"));
  EXPECT_THAT(Wait(121), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kWatching) << "nobody knows whether it was done";
  EXPECT_THAT(Wait(601), ElementsAre("restart 2"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Wait(601), testing::SizeIs(1)) << "the check of n1";
  EXPECT_EQ(PhaseOf(1), Phase::kFailed);
}

TEST_F(MachineTest, DryRunAndManual) {
  rules_.mode = Mode::kDryRun;
  EXPECT_THAT(Verdict("v1", "n1"), IsEmpty());
  EXPECT_EQ(FindIncident(state_, 1)->hold, Hold::kDryRun);
  rules_.mode = Mode::kManual;
  EXPECT_THAT(Verdict("v2", "n2"), IsEmpty());
  EXPECT_THAT(Person(Event::Kind::kDeny, 1), IsEmpty());
  EXPECT_THAT(Person(Event::Kind::kApprove, 2), ElementsAre("isolate n2"));
  EXPECT_FALSE(state_.nodes["n2"].automated);
  EXPECT_THAT(Person(Event::Kind::kApprove, 1), IsEmpty()) << "it is denied";
}

TEST_F(MachineTest, APersonsNodes) {
  EXPECT_THAT(Person(Event::Kind::kIsolate, 0, "n3"), ElementsAre("isolate n3"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n3>s1"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Running(1), IsEmpty()) << "a person's node is not checked";
  EXPECT_THAT(Person(Event::Kind::kRelease, 0, "n3"), ElementsAre("give back n3"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Verdict("v1", "n3", 1), ElementsAre("restart 2")) << "it is left alone, the job is not";
  EXPECT_EQ(state_.nodes["n3"].state, NodeState::kFree);
}

TEST_F(MachineTest, ANodeThatIsGivenBackInTheMiddleOfItsIsolation) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Person(Event::Kind::kRelease, 0, "n1"), ElementsAre("give back n1"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1")) << "the job is down all the same";
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Running(1), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kRecovered);
  EXPECT_TRUE(state_.nodes["n1"].in_use);
  EXPECT_EQ(state_.nodes["s1"].state, NodeState::kFree);
}

TEST_F(MachineTest, ANodeThatIsGivenBackAndCannotBe) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Person(Event::Kind::kRelease, 0, "n1"), ElementsAre("give back n1"));
  EXPECT_THAT(Reply(Event::Outcome::kRefused), ElementsAre("give back n1"));
  EXPECT_THAT(Reply(Event::Outcome::kRefused), ElementsAre("restart 1 n1>s1"));
}

TEST_F(MachineTest, ANodeThatIsGivenBackWhenTheVerdictIsOver) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Person(Event::Kind::kRelease, 0, "n1"), ElementsAre("give back n1"));
  Event event;
  event.kind = Event::Kind::kCleared;
  event.verdict = "v1";
  EXPECT_THAT(Do(event), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kDropped) << "a job that runs is not started again";
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_EQ(state_.nodes["n1"].state, NodeState::kFree);
}

// One of two is given back: the other goes all the same.
TEST_F(MachineTest, OneOfTwoNodesIsGivenBack) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Verdict("v2", "n2"), IsEmpty());
  EXPECT_THAT(Person(Event::Kind::kRelease, 0, "n2"), IsEmpty());
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
}

TEST_F(MachineTest, ANodeThatSomebodyDrainedMeanwhile) {
  rules_.policies[kCrash].act = Act::kRestart;
  Event event;
  event.kind = Event::Kind::kInventory;
  for (const char* name : {"n1", "n2", "n3", "s1", "s2"}) {
    event.seen.push_back({name, name[1] == '1' ? Event::Sight::kOther : Event::Sight::kFree, name[0] == 'n'});
  }
  EXPECT_THAT(Do(event), IsEmpty());
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("restart 1 n1>s2")) << "s1 is drained as well";
}

// It died while the job was being brought back for another one: its ranks have met nobody, so there is no
// verdict.
TEST_F(MachineTest, ASilentNodeOfAJobThatDoesNotComeUp) {
  const auto tick = [this](int64_t seconds) {
    now_ns_ += seconds * kSecond;
    Event event;
    event.silent = {"n2", "s2", "n1"};
    return Do(event);
  };
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
  EXPECT_THAT(tick(0), IsEmpty());
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(tick(29), IsEmpty()) << "silence alone is nothing";
  EXPECT_THAT(tick(1), ElementsAre("isolate n2"));
  EXPECT_THAT(Reply(), ElementsAre("restart 2 n2>s2"));
}

TEST_F(MachineTest, SilentNodesAndTheLimit) {
  rules_.min_nodes = 1;
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  EXPECT_THAT(Reply(), ElementsAre("restart 1 n1>s1"));
  EXPECT_THAT(Reply(), IsEmpty());
  now_ns_ += 60 * kSecond;
  Event event;
  event.silent = {"n2"};
  EXPECT_THAT(Do(event), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kWatching);
}

TEST_F(MachineTest, NoMoreRestartsInAnHourThanMayBe) {
  rules_.policies[kCrash].act = Act::kRestart;
  rules_.rounds = 10;
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("restart 1"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Verdict("v2", "n2", 1), ElementsAre("restart 2"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Verdict("v3", "n3", 2), IsEmpty()) << "two of an hour were done";
  EXPECT_THAT(Wait(601), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kFailed);
}

TEST_F(MachineTest, AProposalThatNothingShowedForAWhileComesBackWithItsVerdict) {
  rules_.mode = Mode::kManual;
  EXPECT_THAT(Verdict("v1", "n1"), IsEmpty());
  EXPECT_THAT(Wait(301), IsEmpty());
  EXPECT_EQ(PhaseOf(1), Phase::kDropped);
  EXPECT_THAT(Verdict("v1", "n1"), IsEmpty());
  EXPECT_THAT(Person(Event::Kind::kApprove, 2), ElementsAre("isolate n1"));
}

TEST_F(MachineTest, AMasterThatStartsAfterAWeek) {
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("isolate n1"));
  const uint64_t number = state_.in_flight->id;
  now_ns_ += 7 * 86'400 * kSecond;
  Event event;
  event.kind = Event::Kind::kStarted;
  EXPECT_THAT(Do(event), ElementsAre("isolate n1"));
  EXPECT_EQ(state_.in_flight->id, number);
  // What lay in its store meanwhile.
  event.kind = Event::Kind::kVerdict;
  event.verdict = "v9";
  event.node = "n2";
  event.syndrome = kCrash;
  event.confidence = 1;
  event.confirmed_ns = event.seen_ns = kBegin + kSecond;
  EXPECT_THAT(Do(event), IsEmpty());
  EXPECT_EQ(state_.incidents.size(), 1U);
}

TEST_F(MachineTest, StrikesBeforeANodeGoes) {
  rules_.policies[kCrash].strikes = 2;
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("restart 1"));
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Running(1), IsEmpty());
  EXPECT_THAT(Verdict("v2", "n1", 1), ElementsAre("isolate n1"));
}

// A driver ends the ranks of all nodes, and the agents see them die.
TEST_F(MachineTest, WhatIsEndedForARestartIsNoStrike) {
  rules_.policies[kCrash].strikes = 2;
  EXPECT_THAT(Verdict("v1", "n1"), ElementsAre("restart 1"));
  EXPECT_THAT(Verdict("v2", "n2"), IsEmpty());
  EXPECT_THAT(Reply(), IsEmpty());
  EXPECT_THAT(Running(1), IsEmpty());
  EXPECT_THAT(Verdict("v3", "n2", 1), ElementsAre("restart 2")) << "its first";
}

// One to this depth takes under a second; deeper ones: build/bin/recovery_check, docs/benchmarks.md.
TEST(RecoveryCheck, EveryOrderOfEvents) {
  for (const Mode mode : {Mode::kAutomatic, Mode::kManual, Mode::kDryRun}) {
    const test::WalkResult result = test::Walk(test::RulesOfTheWalk(mode), 4);
    EXPECT_EQ(result.violation, "") << testing::PrintToString(result.trace);
    EXPECT_GT(result.states, 1000U);
  }
}

}  // namespace
}  // namespace c4::c4d::recovery
