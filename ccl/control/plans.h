// Plans of who computes what (ccl/include/c4/mitigation.h), on their way between the agent and the program:
// one at a time, offered by the agent, polled and answered by the program. A plan is made for a layout: one
// that takes the process for another worker than it has declared itself to be is refused by its number, when
// it comes and when it is polled.
//
// One for the process; it lives as long as that. Offer, WithdrawAll and the Take calls: the control client's
// thread. The others: any thread of the program's. While there is no plan a poll costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "ccl/base/socket.h"
#include "ccl/monitor/monitor.h"
#include "wire/control.h"

namespace c4 {

class Plans {
 public:
  static Plans& Get();

  // `monitor`: which knows the worker; it outlives this.
  void Offer(Monitor* monitor, const wire::ControlPlan& plan);
  // The agent is gone: nobody waits for it any more. What was polled may be answered still.
  void WithdrawAll();
  // What the agent has to be told, oldest first; false: nothing (more).
  bool TakeAnswer(wire::ControlPlanAnswer* answer);
  bool TakeStep(wire::ControlPlanStep* step);
  // Becomes readable with something to take. Steps make it so once a second at most.
  int news_fd() const { return news_fd_.get(); }
  // Before the Take calls.
  void ClearNews();

  // False: there is none.
  bool Poll(wire::ControlPlan* plan);
  // False: it was not polled last, or was answered already.
  bool Answer(uint64_t number, wire::ControlPlanState outcome, uint64_t cost_ns);
  // `worker` of the step is filled in by TakeStep.
  void Report(const wire::ControlPlanStep& step);

 private:
  Plans();
  void TellLocked(uint64_t plan, wire::ControlPlanState state, wire::ControlPlanReason reason,
                  uint64_t cost_ns);
  void Ring() const;
  // kPlanNoReason: the plan fits.
  wire::ControlPlanReason FaultOf(const wire::ControlPlan& plan) const;

  Fd news_fd_;
  const uint64_t forks_;
  std::atomic<bool> offered_{false};  // there is a plan
  std::atomic<bool> reported_{false};
  std::atomic<uint64_t> rung_ns_{0};  // for a step
  std::mutex mutex_;
  // What follows is under mutex_.
  Monitor* monitor_ = nullptr;
  wire::ControlPlan plan_{};
  uint64_t polled_ = 0;  // number of the plan that was polled last and is not answered; 0: none
  std::deque<wire::ControlPlanAnswer> answers_;
  wire::ControlPlanStep step_{};
};

}  // namespace c4
