// Plans between the words of the node and the master's.
#include "c4a/plan_messages.h"

#include <gtest/gtest.h>

namespace c4::agent {
namespace {

TEST(PlanMessagesTest, AProcessIsToldWhatTheMasterSays) {
  v1::PlanForProcess plan;
  plan.set_plan(9);
  plan.set_strategy(3);
  plan.set_micro_batches(8);
  plan.set_first_micro_batch(5);
  plan.set_group_micro_batches(3);
  plan.mutable_now()->set_stage(1);
  plan.mutable_now()->set_pp_size(2);
  plan.mutable_next()->set_dp_rank(70000);
  plan.mutable_next()->set_dp_size(4);
  plan.set_send_to(-1);
  plan.set_receive_from(6);
  const wire::ControlPlan frame = PlanFrame(plan);
  EXPECT_EQ(frame.plan, 9u);
  EXPECT_EQ(frame.strategy, 3u);
  EXPECT_EQ(frame.micro_batches, 8u);
  EXPECT_EQ(frame.first_micro_batch, 5u);
  EXPECT_EQ(frame.group_micro_batches, 3u);
  EXPECT_EQ(frame.now.stage, 1);
  EXPECT_EQ(frame.now.pp_size, 2);
  EXPECT_EQ(frame.next.dp_rank, UINT16_MAX);  // no place of any job: the library refuses it
  EXPECT_EQ(frame.next.dp_size, 4);
  EXPECT_EQ(frame.send_to, -1);
  EXPECT_EQ(frame.receive_from, 6);
}

TEST(PlanMessagesTest, AnAnswerAndAStepComeWithTheirProcess) {
  const v1::PlanAnswer answer = PlanAnswerMessage(77, {9, wire::kPlanRefused, wire::kPlanLayout, 0});
  EXPECT_EQ(answer.pid(), 77u);
  EXPECT_EQ(answer.plan(), 9u);
  EXPECT_EQ(answer.state(), 3u);
  EXPECT_EQ(answer.reason(), 2u);
  wire::ControlPlanStep step{};
  step.step = 12;
  step.micro_batch_ns = 34;
  step.micro_batches = 8;
  step.group_micro_batches = 2;
  EXPECT_FALSE(PlanStepMessage(77, step).has_worker());
  step.worker.declared = 2;
  step.worker.dp_rank = 1;
  step.worker.dp_size = 3;
  const v1::PlanStep message = PlanStepMessage(77, step);
  EXPECT_EQ(message.pid(), 77u);
  EXPECT_EQ(message.step(), 12);
  EXPECT_EQ(message.micro_batch_ns(), 34u);
  EXPECT_EQ(message.micro_batches(), 8u);
  EXPECT_EQ(message.group_micro_batches(), 2u);
  EXPECT_EQ(message.worker().dp_rank(), 1u);
  EXPECT_EQ(message.worker().dp_size(), 3u);
}

}  // namespace
}  // namespace c4::agent
