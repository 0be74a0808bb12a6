#include "analysis/mitigation/ledger.h"

#include <algorithm>
#include <utility>

namespace c4::mitigation {
namespace {

// The newest of that strategy that was neither taken back nor refused; nullptr: there is none.
LedgerAction* InForce(LedgerEvent* event, Strategy strategy) {
  for (auto action = event->actions.rbegin(); action != event->actions.rend(); ++action) {
    if (action->strategy == strategy && action->failed.empty() && action->back_at_s == 0) return &*action;
  }
  return nullptr;
}

// The newest of that strategy, where it was taken back.
LedgerAction* TakenBack(LedgerEvent* event, Strategy strategy) {
  for (auto action = event->actions.rbegin(); action != event->actions.rend(); ++action) {
    if (action->strategy == strategy) return action->back_at_s != 0 ? &*action : nullptr;
  }
  return nullptr;
}

}  // namespace

LedgerEvent* Ledger::Find(const std::string& id) {
  const auto at = std::find_if(events_.begin(), events_.end(),
                               [&id](const LedgerEvent& event) { return event.id == id; });
  return at == events_.end() ? nullptr : &*at;
}

void Ledger::Observe(const LedgerEvent& event) {
  LedgerEvent* const known = Find(event.id);
  if (known == nullptr) {
    events_.push_back(event);
    events_.back().actions.clear();
    return;
  }
  const uint64_t more = event.iterations > known->iterations ? event.iterations - known->iterations : 0;
  // What the last action in force does not gain, an earlier one may; the last is what was measured.
  for (auto action = known->actions.rbegin(); action != known->actions.rend(); ++action) {
    if (!action->failed.empty() || action->back_at_s != 0) continue;
    action->iterations += more;
    break;
  }
  std::vector<LedgerAction> actions = std::move(known->actions);
  *known = event;
  known->actions = std::move(actions);
}

void Ledger::Note(const Decision& decision) {
  LedgerEvent* const event = Find(decision.event);
  if (event == nullptr) return;
  LedgerAction* const action = InForce(event, decision.strategy);
  switch (decision.kind) {
    case Decision::Kind::kAct: {
      LedgerAction begun;
      begun.strategy = decision.strategy;
      begun.at_s = decision.at_s;
      begun.before_s = decision.iteration_s;
      begun.promised_s = decision.promised_s;
      begun.cost_s = decision.cost_s;
      event->actions.push_back(std::move(begun));
      break;
    }
    case Decision::Kind::kBrought:
      if (action == nullptr) break;
      action->brought_s = decision.iteration_s;
      action->cost_s = decision.cost_s;
      action->cost_measured = true;
      break;
    case Decision::Kind::kStepBack:
      if (action != nullptr) action->back_at_s = decision.at_s;
      break;
    case Decision::Kind::kFailed:
      if (LedgerAction* const back = TakenBack(event, decision.strategy);
          action == nullptr && back != nullptr) {
        back->back_at_s = 0;  // it is in force still
      } else if (action != nullptr) {
        action->failed = decision.why;
      }
      break;
    case Decision::Kind::kSkip:
    case Decision::Kind::kRelieved:
      break;
  }
}

double Ledger::LostGpuHours() const {
  double hours = 0;
  for (const LedgerEvent& event : events_) hours += event.lost_gpu_h();
  return hours;
}

double Ledger::SavedGpuHours() const {
  double hours = 0;
  for (const LedgerEvent& event : events_) {
    for (const LedgerAction& action : event.actions) hours += action.SavedS() * event.Ranks() / 3600;
  }
  return hours;
}

}  // namespace c4::mitigation
