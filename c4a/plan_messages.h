// Plans (ccl/include/c4/mitigation.h) between the words of the node and those of the master: what a process
// is told, what it answers, which worker it is. Pure; any thread.
#pragma once

#include <cstdint>

#include "c4/v1/telemetry.pb.h"
#include "c4/v1/validation.pb.h"
#include "wire/control.h"

namespace c4::agent {

void FillWorker(const wire::WorkerPlace& from, v1::WorkerPlace* to);

// Numbers that the frame has no room for become the greatest that it has: the library refuses such a plan.
wire::ControlPlan PlanFrame(const v1::PlanForProcess& plan);

v1::PlanAnswer PlanAnswerMessage(uint32_t pid, const wire::ControlPlanAnswer& answer);
v1::PlanStep PlanStepMessage(uint32_t pid, const wire::ControlPlanStep& step);

}  // namespace c4::agent
