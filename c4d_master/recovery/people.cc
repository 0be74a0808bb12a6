// What people say of incidents and nodes: it wins over what recovery would do by itself.
#include <algorithm>

#include "c4d_master/recovery/steps.h"

namespace c4::c4d::recovery {

void Steps::OnApprove(const Event& event) {
  Incident* incident = Find(event.incident);
  if (incident == nullptr || incident->phase != Phase::kProposed) return;
  incident->approved = true;
  incident->by = event.by;
  Audit(incident->id, "", "approved",
        event.by + " has approved it" + (event.text.empty() ? "" : ": " + event.text));
}

void Steps::OnDeny(const Event& event) {
  Incident* incident = Find(event.incident);
  if (incident == nullptr || IsEnd(incident->phase)) return;
  incident->by = event.by;
  End(incident, Phase::kDenied, event.by + " has denied it" + (event.text.empty() ? "" : ": " + event.text));
}

void Steps::OnIsolate(const Event& event) {
  if (event.node.empty()) return;
  Node& node = state_.nodes[event.node];
  node.held = true;
  node.wanted_back = false;
  node.immune_until_ns = 0;
  if (node.state == NodeState::kReserved) {
    node.state = NodeState::kFree;
    LoseBackup(event.node);
  }
  if (IsOut(node.state)) {
    if (state_.in_flight.has_value() && state_.in_flight->node == event.node &&
        state_.in_flight->kind != Command::Kind::kIsolate) {
      Forget();
      node.state = NodeState::kIsolated;
    }
    node.automated = false;
    Audit(node.incident, event.node, "held", event.by + " keeps " + event.node + " out");
    return;
  }
  if (IsLost(node.state)) return;  // it is out without us
  for (Incident& incident : state_.incidents) {
    if (!BeforeRestart(incident.phase) || !Concerns(incident, event.node)) continue;
    Add(&incident, event.node, true);
    incident.approved = true;
    incident.by = event.by;
    return;
  }
  Incident* incident = Open(event);
  incident->approved = true;
  incident->by = event.by;
  incident->confirmed_ns = incident->onset_ns = now_ns_;
  Add(incident, event.node, true);
  Audit(incident->id, event.node, "asked",
        event.by + " isolates " + event.node + (event.text.empty() ? "" : ": " + event.text));
}

void Steps::OnRelease(const Event& event) {
  const auto found = state_.nodes.find(event.node);
  if (found == state_.nodes.end()) return;
  Node& node = found->second;
  node.held = false;
  node.immune_until_ns = now_ns_ + rules_.immunity_ns;
  if (state_.in_flight.has_value() && state_.in_flight->node == event.node &&
      state_.in_flight->kind != Command::Kind::kGiveBack) {
    Forget();
  }
  if (IsOut(node.state) && node.state != NodeState::kReturning) node.wanted_back = true;
  Audit(node.incident, event.node, "released",
        event.by + " gives " + event.node + " back" + (event.text.empty() ? "" : ": " + event.text));
  LetGo(event.node, event.by + " has given its node back");
}

// A person wants the node to be in use: no incident isolates it any more, or replaces it while it is not out.
// A job that is down is started again all the same, on that node.
void Steps::LetGo(const std::string& name, const std::string& why) {
  for (Incident& incident : state_.incidents) {
    if (!BeforeRestart(incident.phase) || !Concerns(incident, name)) continue;
    Spare(&incident, name, why);
    // Nothing says that the job is down, and nothing was to be done but that.
    if (incident.open.empty() && incident.round == 0 && !IsolatesAny(incident)) {
      End(&incident, Phase::kDenied, why);
    }
  }
}

void Steps::Spare(Incident* incident, const std::string& name, const std::string& why) {
  for (IncidentNode& item : incident->nodes) {
    if (item.name != name || !item.isolate) continue;
    item.isolate = false;
    item.done = true;
    FreeBackup(&item);
    Audit(incident->id, name, "spared", why + "; it is not isolated");
  }
}

}  // namespace c4::c4d::recovery
