// Plans between an agent and a program: who hears of which plan, what is refused and why.
#include "ccl/control/plans.h"

#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <thread>

#include "ccl/control/control.h"
#include "tests/unit/ccl/fake_agent.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4 {
namespace {

using wire::ControlPlan;
using wire::ControlPlanAnswer;
using wire::WorkerPlace;

// Of two replicas of two stages, the last replica's first stage.
constexpr WorkerPlace kWorker = {0, 1, 0, 0, 0, 2, 2, 1, 1, 1, 0, 0};

ControlPlan MicroBatches(uint64_t number) {
  return {number, 2, 8, 5, 3, kWorker, kWorker, -1, -1};
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class PlansTest : public testing::Test {
 protected:
  PlansTest() { monitor_.SetWorker(kWorker); }
  ~PlansTest() override {
    ControlPlan left{};
    if (plans_.Poll(&left)) plans_.Answer(left.plan, wire::kPlanRefused, 0);
    plans_.WithdrawAll();
    ControlPlanAnswer told{};
    while (plans_.TakeAnswer(&told)) {
    }
  }

  void ExpectTold(uint64_t plan, uint32_t state, uint32_t reason) {
    ControlPlanAnswer told{};
    ASSERT_TRUE(plans_.TakeAnswer(&told));
    EXPECT_EQ(told.plan, plan);
    EXPECT_EQ(told.state, state);
    EXPECT_EQ(told.reason, reason);
  }
  void ExpectNothingTold() {
    ControlPlanAnswer told{};
    EXPECT_FALSE(plans_.TakeAnswer(&told));
  }

  const test::TempDir directory_;
  Monitor monitor_{directory_.path(), {4, 4, 2, 16}, JobIdentity()};
  Plans& plans_ = Plans::Get();
  ControlPlan polled_{};
};

TEST_F(PlansTest, APlanIsHeardAnsweredAndGone) {
  EXPECT_FALSE(plans_.Poll(&polled_));
  plans_.Offer(&monitor_, MicroBatches(7));
  ExpectNothingTold();
  ASSERT_TRUE(plans_.Poll(&polled_));
  EXPECT_EQ(polled_.plan, 7u);
  EXPECT_EQ(polled_.first_micro_batch, 5u);
  ExpectTold(7, wire::kPlanHeard, 0);
  ASSERT_TRUE(plans_.Poll(&polled_));  // the same again
  ExpectNothingTold();
  EXPECT_FALSE(plans_.Answer(8, wire::kPlanDone, 1));
  EXPECT_TRUE(plans_.Answer(7, wire::kPlanDone, 1234));
  ControlPlanAnswer told{};
  ASSERT_TRUE(plans_.TakeAnswer(&told));
  EXPECT_EQ(told.state, wire::kPlanDone);
  EXPECT_EQ(told.cost_ns, 1234u);
  EXPECT_FALSE(plans_.Answer(7, wire::kPlanDone, 1));  // once
  EXPECT_FALSE(plans_.Poll(&polled_));
}

TEST_F(PlansTest, APlanForAnotherLayoutIsRefusedByItsNumber) {
  ControlPlan plan = MicroBatches(3);
  plan.now.stage = 1;
  plans_.Offer(&monitor_, plan);
  ExpectTold(3, wire::kPlanRefused, wire::kPlanLayout);
  EXPECT_FALSE(plans_.Poll(&polled_));
  plan = MicroBatches(4);
  plan.now.dp_size = 4;
  plans_.Offer(&monitor_, plan);
  ExpectTold(4, wire::kPlanRefused, wire::kPlanLayout);

  // Laid out anew after it came.
  plans_.Offer(&monitor_, MicroBatches(5));
  WorkerPlace moved = kWorker;
  moved.stage = 1;
  monitor_.SetWorker(moved);
  EXPECT_FALSE(plans_.Poll(&polled_));
  ExpectTold(5, wire::kPlanRefused, wire::kPlanLayout);
}

TEST_F(PlansTest, ADeclarationOnceMoreIsTheSameLayout) {
  plans_.Offer(&monitor_, MicroBatches(6));
  monitor_.SetWorker(kWorker);
  EXPECT_TRUE(plans_.Poll(&polled_));
}

TEST_F(PlansTest, AProcessThatHasNotSaidWhichWorkerItIsHearsOfNone) {
  Monitor silent(directory_.path(), {4, 4, 2, 16}, JobIdentity());
  plans_.Offer(&silent, MicroBatches(9));
  ExpectTold(9, wire::kPlanRefused, wire::kPlanNoWorker);
}

TEST_F(PlansTest, OfTwoAtOnceTheSecondIsRefusedWhileTheFirstIsCarriedOut) {
  plans_.Offer(&monitor_, MicroBatches(10));
  plans_.Offer(&monitor_, MicroBatches(11));  // nobody has polled the first
  ASSERT_TRUE(plans_.Poll(&polled_));
  EXPECT_EQ(polled_.plan, 11u);
  ExpectTold(11, wire::kPlanHeard, 0);
  plans_.Offer(&monitor_, MicroBatches(12));
  ExpectTold(12, wire::kPlanRefused, wire::kPlanBusy);
  plans_.Offer(&monitor_, MicroBatches(11));  // said again by an agent that came back
  ExpectNothingTold();
  ASSERT_TRUE(plans_.Poll(&polled_));
  EXPECT_EQ(polled_.plan, 11u);
}

TEST_F(PlansTest, OneThatIsTakenBackIsPolledNoMoreAndMayBeAnsweredStill) {
  ControlPlan back{};
  back.plan = 20;
  plans_.Offer(&monitor_, MicroBatches(20));
  plans_.Offer(&monitor_, back);
  EXPECT_FALSE(plans_.Poll(&polled_));
  plans_.Offer(&monitor_, MicroBatches(21));
  plans_.Offer(&monitor_, back);  // of another one
  ASSERT_TRUE(plans_.Poll(&polled_));
  ExpectTold(21, wire::kPlanHeard, 0);
  back.plan = 21;
  plans_.Offer(&monitor_, back);
  EXPECT_FALSE(plans_.Poll(&polled_));
  // All ranks had agreed on it just before.
  EXPECT_TRUE(plans_.Answer(21, wire::kPlanDone, 5));
  ExpectTold(21, wire::kPlanDone, 0);
}

TEST_F(PlansTest, NumbersThatCannotBeAreRefused) {
  std::vector<ControlPlan> wrong(9, MicroBatches(1));
  wrong[0].strategy = 4;
  wrong[1].group_micro_batches = 0;
  wrong[2].group_micro_batches = 9;
  wrong[3].first_micro_batch = 6;
  wrong[4].next.stage = 2;
  wrong[5].send_to = -2;
  wrong[6].send_to = 3;  // and nothing comes
  wrong[7].micro_batches = UINT32_MAX;
  wrong[8].next.dp_size = 0;
  for (size_t i = 0; i < wrong.size(); ++i) {
    wrong[i].plan = 100 + i;
    plans_.Offer(&monitor_, wrong[i]);
    ExpectTold(100 + i, wire::kPlanRefused, wire::kPlanSenseless);
  }
  EXPECT_FALSE(plans_.Poll(&polled_));
}

TEST_F(PlansTest, StepsAreTakenOnceTheNewestAndRingSeldom) {
  const auto rings = [this] {
    pollfd entry{plans_.news_fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  };
  plans_.ClearNews();
  wire::ControlPlanStep step{};
  EXPECT_FALSE(plans_.TakeStep(&step));
  for (int i = 0; i <= 100; ++i) {
    step.step = i;
    plans_.Report(step);
  }
  EXPECT_TRUE(rings());
  plans_.ClearNews();
  ASSERT_TRUE(plans_.TakeStep(&step));
  EXPECT_EQ(step.step, 100);
  EXPECT_FALSE(plans_.TakeStep(&step));
  plans_.Report(step);
  EXPECT_FALSE(rings());  // within a second
  EXPECT_TRUE(plans_.TakeStep(&step));
}

TEST_F(PlansTest, TheAgentSpeaksToTheProgramAndHearsOfIt) {
  test::FakeAgent agent(directory_.path());
  ControlClient client(&monitor_);
  ASSERT_TRUE(client.Start().ok());
  agent.Accept();
  EXPECT_FALSE(agent.Receive().empty());  // hello
  agent.Send(wire::kControlWelcome, wire::ControlWelcome{1, wire::kLevelCoarse});
  agent.Send(wire::kControlPlan, MicroBatches(40));
  ASSERT_TRUE(Eventually([&] { return plans_.Poll(&polled_); }));
  EXPECT_EQ(agent.Receive<ControlPlanAnswer>(wire::kControlPlanAnswer).state, wire::kPlanHeard);
  ASSERT_TRUE(plans_.Answer(40, wire::kPlanDone, 77));
  const auto done = agent.Receive<ControlPlanAnswer>(wire::kControlPlanAnswer);
  EXPECT_EQ(done.plan, 40u);
  EXPECT_EQ(done.cost_ns, 77u);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // another test may have reported
  wire::ControlPlanStep step{};
  step.step = 17;
  plans_.Report(step);
  const auto told = agent.Receive<wire::ControlPlanStep>(wire::kControlPlanStep);
  EXPECT_EQ(told.step, 17);
  EXPECT_EQ(told.worker.dp_size, 2);

  // Without an agent nobody waits for the next one.
  agent.Send(wire::kControlPlan, MicroBatches(41));
  ASSERT_TRUE(Eventually([&] { return plans_.Poll(&polled_); }));
  agent.Hang();
  EXPECT_TRUE(Eventually([&] { return !plans_.Poll(&polled_); }));
}

}  // namespace
}  // namespace c4
