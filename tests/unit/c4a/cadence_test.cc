// When an agent tells what it sees: at the master's interval as long as all goes on, at once when it does
// not.
#include "c4a/cadence.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace c4::agent {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLookNs = kSecondNs / 4;

// A rank that takes a step at each look, looked at four times a second.
class CadenceTest : public ::testing::Test {
 protected:
  CadenceTest() {
    batch_.set_host("node1");
    batch_.set_monotonic_ns(100 * kSecondNs);
    AddProcess(1000);
  }

  void AddProcess(uint32_t pid) {
    v1::ProcessReport* const report = batch_.add_processes();
    report->mutable_process()->set_boot_id("b");
    report->mutable_process()->set_pid(pid);
    report->mutable_health()->set_state(v1::PROCESS_STATE_RUNNING);
    for (const uint64_t id : {1, 2}) {
      v1::CommunicatorState* const state = report->add_communicators();
      state->set_communicator_id(id);
      state->set_phase(v1::PHASE_READY);
    }
    v1::QueuePairState* const queue_pair = report->add_queue_pairs();
    queue_pair->set_direction(v1::DIRECTION_SEND);
  }

  v1::ProcessReport& process() { return *batch_.mutable_processes(0); }
  v1::CommunicatorState& communicator(int i) { return *process().mutable_communicators(i); }
  v1::QueuePairState& queue_pair() { return *process().mutable_queue_pairs(0); }

  // It has called, started and finished one more, just now.
  static void Step(v1::CommunicatorState* state) {
    for (v1::Counter* counter :
         {state->mutable_called(), state->mutable_started(), state->mutable_finished()}) {
      counter->set_count(counter->count() + 1);
      counter->set_age_ns(1'000'000);
    }
  }

  static void Age(v1::Counter* counter) {
    if (counter->count() != 0) counter->set_age_ns(counter->age_ns() + kLookNs);
  }

  // A quarter of a second on: in `steps` something is done, in the other one time passes.
  bool Look(const std::set<int>& steps = {0}) {
    batch_.set_monotonic_ns(batch_.monotonic_ns() + kLookNs);
    batch_.set_sequence(batch_.sequence() + 1);
    for (v1::ProcessReport& report : *batch_.mutable_processes()) {
      for (int i = 0; i < report.communicators_size(); ++i) {
        v1::CommunicatorState* const state = report.mutable_communicators(i);
        Age(state->mutable_called());
        Age(state->mutable_started());
        Age(state->mutable_finished());
        if (steps.contains(i)) Step(state);
      }
    }
    v1::QueuePairState& state = queue_pair();
    if (state.posted_messages() != 0) state.set_last_post_age_ns(state.last_post_age_ns() + kLookNs);
    return cadence_.IsDue(batch_);
  }

  size_t Told(int looks, const std::set<int>& steps = {0}) {
    size_t told = 0;
    for (int i = 0; i < looks; ++i) told += Look(steps) ? 1 : 0;
    return told;
  }

  // All is known, and nothing out of the ordinary has happened for a while.
  void SettleDown(int64_t interval_ns = kSecondNs) {
    Told(20);
    cadence_.Ask(interval_ns);
    Told(20);
    while (!Look()) {
    }
  }

  v1::TelemetryBatch batch_;
  Cadence cadence_;
};

TEST_F(CadenceTest, UntilAMasterAsksForLessEveryLookIsTold) {
  EXPECT_EQ(Told(40), 40U);
  cadence_.Ask(0);
  EXPECT_EQ(Told(40), 40U);
  cadence_.Ask(-5);
  EXPECT_EQ(Told(40), 40U);
}

TEST_F(CadenceTest, WhatGoesOnIsToldAtTheIntervalAskedFor) {
  SettleDown();
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(Told(3), 0U);
    EXPECT_TRUE(Look());
  }
  cadence_.Ask(kSecondNs / 2);
  EXPECT_EQ(Told(40), 20U);
  cadence_.Ask(0);
  EXPECT_EQ(Told(40), 40U);
}

TEST_F(CadenceTest, NoMasterSilencesAnAgent) {
  SettleDown(INT64_MAX);
  EXPECT_EQ(Told(400), 10U);
}

TEST_F(CadenceTest, WhatComesGoesOrFailsIsToldAtOnceAndOnceMore) {
  const auto expect = [&](const char* what) {
    EXPECT_TRUE(Look()) << what;
    EXPECT_TRUE(Look()) << "what follows on " << what;
    SettleDown();
  };
  SettleDown();
  AddProcess(2000);
  expect("a process");
  batch_.mutable_processes()->RemoveLast();
  expect("a process that left the node");
  process().add_communicators()->set_communicator_id(3);
  expect("a communicator");
  process().mutable_communicators()->RemoveLast();
  expect("one that is gone");
  communicator(1).set_phase(v1::PHASE_ABORTED);
  expect("a phase");
  communicator(1).set_phase(v1::PHASE_READY);
  SettleDown();
  communicator(1).mutable_gave_up()->set_result(6);
  expect("last words");
  queue_pair().set_error(110);
  expect("an error");
  queue_pair().set_fences(1);
  expect("a fence");
  queue_pair().set_dead(true);
  expect("a dead queue pair");
  process().mutable_health()->set_state(v1::PROCESS_STATE_STOPPED);
  expect("a stopped process");
  process().mutable_health()->set_state(v1::PROCESS_STATE_SLEEPING);
  SettleDown();
  batch_.add_hardware()->set_sequence(7);
  expect("an event of the hardware");
  process().mutable_health()->set_state(v1::PROCESS_STATE_GONE);
  expect("a death");
}

TEST_F(CadenceTest, WhatIsOrdinaryIsNotToldAtOnce) {
  SettleDown();
  process().mutable_health()->set_state(v1::PROCESS_STATE_SLEEPING);
  EXPECT_FALSE(Look());
  process().mutable_health()->set_state(v1::PROCESS_STATE_BLOCKED);
  EXPECT_FALSE(Look());
  process().mutable_health()->set_cpu_ns(5);
  queue_pair().set_posted_messages(9);
  queue_pair().set_posted_bytes(900);
  queue_pair().set_completed_bytes(900);
  EXPECT_FALSE(Look());
}

TEST_F(CadenceTest, AProcessThatStandsStillIsToldOfUntilItGoesOn) {
  SettleDown();
  EXPECT_FALSE(Look({}));  // for 0.25 s
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Look({})) << i;
  EXPECT_TRUE(Look()) << "that it goes on";
  EXPECT_EQ(Told(8), 2U) << "then as usual";
}

// What is told in between does not put off the turn: windows of a second end each second.
TEST_F(CadenceTest, ItsTurnComesEachIntervalWhateverIsToldInBetween) {
  SettleDown();
  for (int second = 0; second < 10; ++second) {
    EXPECT_FALSE(Look());
    queue_pair().set_fences(queue_pair().fences() + 1);
    EXPECT_TRUE(Look());
    EXPECT_TRUE(Look());
    EXPECT_TRUE(Look());
  }
  EXPECT_EQ(Told(40), 10U);
}

TEST_F(CadenceTest, WhoHasStoodStillForLongIsToldOfAtTheInterval) {
  SettleDown();
  Told(4 * 600, {});
  EXPECT_LE(Told(40, {}), 12U);
}

TEST_F(CadenceTest, AnOperationThatLastsLongerThanEverIsToldOf) {
  const auto pause = [&](int looks) {
    communicator(1).mutable_called()->set_count(communicator(1).called().count() + 1);
    communicator(1).mutable_called()->set_age_ns(0);
    communicator(1).mutable_started()->set_count(communicator(1).started().count() + 1);
    communicator(1).mutable_started()->set_age_ns(0);
    const size_t told = Told(looks);
    communicator(1).mutable_finished()->set_count(communicator(1).finished().count() + 1);
    communicator(1).mutable_finished()->set_age_ns(0);
    return told;
  };
  SettleDown();
  Step(&communicator(1));
  SettleDown();
  EXPECT_GE(pause(20), 18U) << "the first one of five seconds";
  SettleDown();
  EXPECT_LE(pause(20), 6U) << "has been seen before";
  SettleDown();
  EXPECT_GE(pause(40), 20U) << "longer than that";
}

TEST_F(CadenceTest, WhoDoesNotCallAsRegularlyAsEverIsToldOf) {
  SettleDown();
  for (int i = 0; i < 10; ++i) {
    Told(7);
    Look({0, 1});  // each two seconds
  }
  while (!Look({0, 1})) {
  }
  EXPECT_LE(Told(8), 3U) << "as long as it was each time";
  EXPECT_GE(Told(8), 6U) << "it is late";
}

TEST_F(CadenceTest, ACommunicatorThatIsSeldomUsedIsNothingToTell) {
  SettleDown();
  Look({0, 1});
  Told(8);
  EXPECT_LE(Told(40), 11U);
}

TEST_F(CadenceTest, BytesThatAreNotAcknowledgedAreToldOf) {
  SettleDown();
  queue_pair().set_posted_messages(1);
  queue_pair().set_posted_bytes(100);
  queue_pair().set_last_post_age_ns(0);
  Look();
  EXPECT_EQ(Told(8), 8U);
}

TEST_F(CadenceTest, OperationsOneByOneAreToldAsTheyCome) {
  SettleDown();
  process().mutable_profile()->add_operations();
  EXPECT_EQ(Told(8), 8U);
}

TEST_F(CadenceTest, AJobThatHasLeftIsToldOf) {
  SettleDown();
  batch_.clear_processes();
  batch_.set_monotonic_ns(batch_.monotonic_ns() + kLookNs);
  EXPECT_TRUE(cadence_.IsDue(batch_));
}

// A clock that is set back (a node that was restored) does not silence the agent.
TEST_F(CadenceTest, TimeThatGoesBackSilencesNobody) {
  SettleDown();
  batch_.set_monotonic_ns(kSecondNs);
  EXPECT_TRUE(cadence_.IsDue(batch_));
}

// Agents that spoke up together: a thousand of them, and no moment at which more than a few come.
TEST_F(CadenceTest, TheirTurnsAreSpread) {
  std::vector<Cadence> agents(1000);
  std::map<int, size_t> told;
  for (int look = 0; look < 200; ++look) {
    batch_.set_monotonic_ns(batch_.monotonic_ns() + kSecondNs / 20);
    Step(&communicator(0));
    for (size_t i = 0; i < agents.size(); ++i) {
      if (look == 20) agents[i].Ask(kSecondNs);
      batch_.set_host("node" + std::to_string(i));
      told[look] += agents[i].IsDue(batch_) ? 1 : 0;
    }
  }
  for (int look = 60; look < 200; ++look) EXPECT_LT(told[look], 110U) << look;
}

}  // namespace
}  // namespace c4::agent
