#include "ccl/control/plans.h"

#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/fork.h"

namespace c4 {
namespace {

constexpr uint64_t kStepPauseNs = 1'000'000'000;
constexpr size_t kMostAnswers = 64;  // an agent that does not read is told the last ones

// But for how often it was declared.
bool IsSame(const wire::WorkerPlace& a, const wire::WorkerPlace& b) {
  return a.dp_rank == b.dp_rank && a.stage == b.stage && a.tp_rank == b.tp_rank && a.cp_rank == b.cp_rank &&
         a.dp_size == b.dp_size && a.pp_size == b.pp_size && a.tp_size == b.tp_size && a.cp_size == b.cp_size;
}

bool IsPlace(const wire::WorkerPlace& place) {
  return place.dp_rank < place.dp_size && place.stage < place.pp_size && place.tp_rank < place.tp_size &&
         place.cp_rank < place.cp_size;
}

bool MakesSense(const wire::ControlPlan& plan) {
  constexpr uint32_t kMost = 1'000'000'000;
  const bool counts = plan.group_micro_batches >= 1 && plan.micro_batches <= kMost &&
                      plan.group_micro_batches <= plan.micro_batches &&
                      plan.first_micro_batch <= plan.micro_batches - plan.group_micro_batches;
  return (plan.strategy == 2 || plan.strategy == 3) && counts && IsPlace(plan.next) && plan.send_to >= -1 &&
         plan.receive_from >= -1 && (plan.send_to < 0) == (plan.receive_from < 0);
}

}  // namespace

Plans& Plans::Get() {
  static auto* const plans = new Plans;
  return *plans;
}

Plans::Plans() : news_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), forks_(Forks()) {}

void Plans::Ring() const {
  const uint64_t one = 1;
  const ssize_t ignored = write(news_fd_.get(), &one, sizeof one);
  (void)ignored;
}

void Plans::ClearNews() {
  uint64_t count = 0;
  const ssize_t ignored = read(news_fd_.get(), &count, sizeof count);
  (void)ignored;
}

void Plans::TellLocked(uint64_t plan, wire::ControlPlanState state, wire::ControlPlanReason reason,
                       uint64_t cost_ns) {
  // Without memory the master goes by its clock.
  (void)Caught([&] {
    if (answers_.size() >= kMostAnswers) answers_.pop_front();
    answers_.push_back({plan, state, reason, cost_ns});
    return Ok();
  });
  Ring();
}

wire::ControlPlanReason Plans::FaultOf(const wire::ControlPlan& plan) const {
  const wire::WorkerPlace worker = monitor_->worker();
  if (worker.declared == 0) return wire::kPlanNoWorker;
  if (!IsSame(worker, plan.now)) return wire::kPlanLayout;
  return MakesSense(plan) ? wire::kPlanNoReason : wire::kPlanSenseless;
}

void Plans::Offer(Monitor* monitor, const wire::ControlPlan& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  monitor_ = monitor;
  const bool known = offered_.load(std::memory_order_relaxed);
  if (plan.strategy == 0) {
    if (known && plan_.plan == plan.plan) offered_.store(false, std::memory_order_relaxed);
    return;
  }
  if (known && polled_ == plan_.plan) {
    // The same once more is what an agent says that came back.
    if (plan.plan != plan_.plan) TellLocked(plan.plan, wire::kPlanRefused, wire::kPlanBusy, 0);
    return;
  }
  const wire::ControlPlanReason fault = FaultOf(plan);
  if (fault != wire::kPlanNoReason) return TellLocked(plan.plan, wire::kPlanRefused, fault, 0);
  plan_ = plan;
  offered_.store(true, std::memory_order_relaxed);
}

void Plans::WithdrawAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  offered_.store(false, std::memory_order_relaxed);
}

bool Plans::Poll(wire::ControlPlan* plan) {
  if (!offered_.load(std::memory_order_relaxed) || forks_ != Forks()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!offered_.load(std::memory_order_relaxed)) return false;
  if (polled_ != plan_.plan) {
    const wire::ControlPlanReason fault = FaultOf(plan_);
    if (fault != wire::kPlanNoReason) {
      offered_.store(false, std::memory_order_relaxed);
      TellLocked(plan_.plan, wire::kPlanRefused, fault, 0);
      return false;
    }
    polled_ = plan_.plan;
    TellLocked(plan_.plan, wire::kPlanHeard, wire::kPlanNoReason, 0);
  }
  *plan = plan_;
  return true;
}

bool Plans::Answer(uint64_t number, wire::ControlPlanState outcome, uint64_t cost_ns) {
  if (forks_ != Forks()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (number == 0 || polled_ != number) return false;
  polled_ = 0;
  if (plan_.plan == number) offered_.store(false, std::memory_order_relaxed);
  const bool refused = outcome == wire::kPlanRefused;
  TellLocked(number, outcome, refused ? wire::kPlanByProgram : wire::kPlanNoReason, refused ? 0 : cost_ns);
  return true;
}

void Plans::Report(const wire::ControlPlanStep& step) {
  if (forks_ != Forks()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = step;
  }
  reported_.store(true, std::memory_order_release);
  const uint64_t now_ns = MonotonicNs();
  uint64_t rung_ns = rung_ns_.load(std::memory_order_relaxed);
  if (now_ns - rung_ns < kStepPauseNs) return;
  if (rung_ns_.compare_exchange_strong(rung_ns, now_ns, std::memory_order_relaxed)) Ring();
}

bool Plans::TakeAnswer(wire::ControlPlanAnswer* answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (answers_.empty()) return false;
  *answer = answers_.front();
  answers_.pop_front();
  return true;
}

bool Plans::TakeStep(wire::ControlPlanStep* step) {
  if (!reported_.exchange(false, std::memory_order_acquire)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  *step = step_;
  return true;
}

}  // namespace c4
