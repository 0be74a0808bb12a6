// The calls of ccl/include/c4/mitigation.h: arguments are checked here, Plans does the rest. None fails the
// program: what makes no sense is said once and left out.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ccl/api/export.h"
#include "ccl/base/log.h"
#include "ccl/control/plans.h"
#include "ccl/include/c4/mitigation.h"
#include "ccl/include/nccl.h"

namespace c4 {
namespace {

static_assert(C4_PLAN_DONE == static_cast<int>(wire::kPlanDone));
static_assert(C4_PLAN_REFUSED == static_cast<int>(wire::kPlanRefused));
// Programs that were built with this header hand over as many bytes.
constexpr size_t kFirstPlanBytes = offsetof(c4Plan, receive_from) + sizeof(int);
constexpr size_t kFirstStepBytes = offsetof(c4Step, micro_batch_ns) + sizeof(uint64_t);

// True the first time only.
bool First(std::atomic<bool>* said) {
  return !said->exchange(true, std::memory_order_relaxed);
}

void Fill(const wire::ControlPlan& plan, c4Plan* to) {
  to->number = plan.plan;
  to->strategy = static_cast<int>(plan.strategy);
  to->micro_batches = static_cast<int>(plan.micro_batches);
  to->first_micro_batch = static_cast<int>(plan.first_micro_batch);
  to->group_micro_batches = static_cast<int>(plan.group_micro_batches);
  to->weight = static_cast<double>(plan.group_micro_batches) / static_cast<double>(plan.micro_batches);
  to->next_dp_rank = plan.next.dp_rank;
  to->next_stage = plan.next.stage;
  to->next_tp_rank = plan.next.tp_rank;
  to->next_cp_rank = plan.next.cp_rank;
  to->send_to = plan.send_to;
  to->receive_from = plan.receive_from;
}

}  // namespace
}  // namespace c4

C4_LATER int c4PlanPoll(c4Plan* plan) {
  static std::atomic<bool> said{false};
  if (plan == nullptr || plan->size < c4::kFirstPlanBytes) {
    if (c4::First(&said)) C4_WARN("c4PlanPoll: plan is NULL, or its size is not sizeof(c4Plan)");
    return 0;
  }
  c4::wire::ControlPlan polled{};
  if (!c4::Plans::Get().Poll(&polled)) return 0;
  c4::Fill(polled, plan);
  return 1;
}

C4_LATER int c4PlanAnswer(uint64_t number, int outcome, uint64_t cost_ns) {
  static std::atomic<bool> said{false};
  const bool known = outcome == C4_PLAN_DONE || outcome == C4_PLAN_REFUSED;
  if (known && c4::Plans::Get().Answer(number, static_cast<c4::wire::ControlPlanState>(outcome), cost_ns)) {
    return ncclSuccess;
  }
  if (c4::First(&said)) {
    C4_WARN(
        "c4PlanAnswer: %llu is not the plan that was polled last and not answered yet, or outcome %d is none "
        "of c4PlanOutcome; the answer is left out",
        static_cast<unsigned long long>(number), outcome);
  }
  return ncclInvalidArgument;
}

C4_LATER int c4StepReport(const c4Step* step) {
  static std::atomic<bool> said{false};
  const bool fits = step != nullptr && step->size >= c4::kFirstStepBytes && step->step >= 0 &&
                    step->group_micro_batches >= 1 && step->group_micro_batches <= step->micro_batches;
  if (!fits) {
    if (c4::First(&said)) {
      C4_WARN(
          "c4StepReport: step is NULL, its size is not sizeof(c4Step), it has no number, or its group has "
          "no micro-batches, or more than the batch; such steps are left out");
    }
    return ncclInvalidArgument;
  }
  c4::wire::ControlPlanStep report{};
  report.step = step->step;
  report.micro_batch_ns = step->micro_batch_ns;
  report.micro_batches = static_cast<uint32_t>(step->micro_batches);
  report.group_micro_batches = static_cast<uint32_t>(step->group_micro_batches);
  c4::Plans::Get().Report(report);
  return ncclSuccess;
}
