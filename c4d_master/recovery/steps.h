// The inside of machine.h: one step of the machine, over its three files (machine.cc: what comes in;
// people.cc: what people say; flow.cc: what is done next). One thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "c4d_master/recovery/machine.h"

namespace c4::c4d::recovery {

class Steps {
 public:
  Steps(const Rules& rules, State* state, int64_t now_ns) : rules_(rules), state_(*state), now_ns_(now_ns) {}

  void Take(const Event& event);
  // Does what is to be done next, until a command is under way or there is nothing.
  void Advance();
  std::vector<Action> TakeActions() { return std::move(actions_); }

 private:
  // machine.cc
  void OnVerdict(const Event& event);
  void OnCleared(const std::string& verdict);
  void OnReply(const Event& event);
  void OnIsolated(const Event& event, Incident* incident);
  void OnRestarted(const Event& event, Incident* incident);
  void OnChecked(const Event& event);
  void OnGivenBack(const Event& event);
  void OnRunning(uint32_t incarnation);
  void OnInventory(const Event& event);
  void OnSeen(const Event::Seen& seen, uint64_t as_of_command);
  void LoseBackup(const std::string& name);
  void OnTick(const std::vector<std::string>& silent);
  bool TakesForLost(Incident* incident, const std::vector<std::string>& silent);
  void OnStarted();
  bool IsStale(const Event& event) const;
  bool MergesInto(const Incident& incident, const Event& event, bool isolate) const;
  void Join(Incident* incident, const Event& event);
  void DropOlder();
  void LearnIncarnation(uint32_t incarnation);
  bool TriesAgain();

  // people.cc
  void OnApprove(const Event& event);
  void OnDeny(const Event& event);
  void OnIsolate(const Event& event);
  void OnRelease(const Event& event);
  void LetGo(const std::string& name, const std::string& why);
  void Spare(Incident* incident, const std::string& name, const std::string& why);

  // flow.cc
  Incident* Active();
  Incident* Find(uint64_t id);
  bool Admissible(Incident* incident);
  Hold HoldOf(const Incident& incident) const;
  void SpareImmune(Incident* incident);
  bool MayRestart(const Incident& incident) const;
  bool Fits(int more) const;
  bool Drive(Incident* incident);
  bool Reserve(Incident* incident);
  bool IsolateNext(Incident* incident);
  void Restart(Incident* incident);
  void BeginRound(Incident* incident);
  bool TendNodes();
  Incident* Open(const Event& event);
  void Add(Incident* incident, const std::string& node, bool isolate);
  void End(Incident* incident, Phase phase, const std::string& reason);
  void Unreserve(Incident* incident);
  void FreeBackup(IncidentNode* item);
  void Forget();  // the command under way; its answer will change nothing
  void Issue(Command command);
  int64_t TimeoutOf(Command::Kind kind) const;
  void Handle(const std::string& verdict);
  bool IsHandled(const std::string& verdict) const;
  void Audit(uint64_t incident, const std::string& node, const std::string& what, const std::string& text);
  void Prune();

  const Rules& rules_;
  State& state_;
  const int64_t now_ns_;
  std::vector<Action> actions_;
};

// Out of the scheduler's hands, by us or on the way.
inline bool IsOut(NodeState state) {
  return state == NodeState::kIsolating || state == NodeState::kIsolated || state == NodeState::kOut ||
         state == NodeState::kReturning;
}
inline bool IsLost(NodeState state) {
  return state == NodeState::kForeign || state == NodeState::kGone;
}
inline bool Concerns(const Incident& incident, const std::string& node) {
  return std::any_of(incident.nodes.begin(), incident.nodes.end(),
                     [&node](const IncidentNode& item) { return item.name == node; });
}
inline bool IsolatesAny(const Incident& incident) {
  return std::any_of(incident.nodes.begin(), incident.nodes.end(),
                     [](const IncidentNode& item) { return item.isolate; });
}
inline bool BeforeRestart(Phase phase) {
  return phase == Phase::kProposed || phase == Phase::kWaiting || phase == Phase::kIsolating;
}

}  // namespace c4::c4d::recovery
