#include "c4a/plan_messages.h"

#include <algorithm>

namespace c4::agent {
namespace {

uint16_t Short(uint32_t value) {
  return static_cast<uint16_t>(std::min<uint32_t>(value, UINT16_MAX));
}

wire::WorkerPlace Worker(const v1::WorkerPlace& from) {
  wire::WorkerPlace to{};
  to.dp_rank = Short(from.dp_rank());
  to.stage = Short(from.stage());
  to.tp_rank = Short(from.tp_rank());
  to.cp_rank = Short(from.cp_rank());
  to.dp_size = Short(from.dp_size());
  to.pp_size = Short(from.pp_size());
  to.tp_size = Short(from.tp_size());
  to.cp_size = Short(from.cp_size());
  to.vpp_size = Short(from.vpp_size());
  to.layers = Short(from.layers());
  return to;
}

}  // namespace

void FillWorker(const wire::WorkerPlace& from, v1::WorkerPlace* to) {
  to->set_dp_rank(from.dp_rank);
  to->set_stage(from.stage);
  to->set_tp_rank(from.tp_rank);
  to->set_cp_rank(from.cp_rank);
  to->set_dp_size(from.dp_size);
  to->set_pp_size(from.pp_size);
  to->set_tp_size(from.tp_size);
  to->set_cp_size(from.cp_size);
  to->set_vpp_size(from.vpp_size);
  to->set_layers(from.layers);
}

wire::ControlPlan PlanFrame(const v1::PlanForProcess& plan) {
  wire::ControlPlan frame{};
  frame.plan = plan.plan();
  frame.strategy = plan.strategy();
  frame.micro_batches = plan.micro_batches();
  frame.first_micro_batch = plan.first_micro_batch();
  frame.group_micro_batches = plan.group_micro_batches();
  frame.now = Worker(plan.now());
  frame.next = Worker(plan.next());
  frame.send_to = plan.send_to();
  frame.receive_from = plan.receive_from();
  return frame;
}

v1::PlanAnswer PlanAnswerMessage(uint32_t pid, const wire::ControlPlanAnswer& answer) {
  v1::PlanAnswer message;
  message.set_pid(pid);
  message.set_plan(answer.plan);
  message.set_state(answer.state);
  message.set_reason(answer.reason);
  message.set_cost_ns(answer.cost_ns);
  return message;
}

v1::PlanStep PlanStepMessage(uint32_t pid, const wire::ControlPlanStep& step) {
  v1::PlanStep message;
  message.set_pid(pid);
  message.set_step(step.step);
  message.set_micro_batch_ns(step.micro_batch_ns);
  message.set_micro_batches(step.micro_batches);
  message.set_group_micro_batches(step.group_micro_batches);
  if (step.worker.declared != 0) FillWorker(step.worker, message.mutable_worker());
  return message;
}

}  // namespace c4::agent
