// What recovery does next: which incident is admitted, and its way to a job that runs again.
#include <algorithm>
#include <utility>

#include "c4d_master/recovery/steps.h"

namespace c4::c4d::recovery {
namespace {

constexpr int64_t kHour = 3600 * kSecond;
constexpr size_t kMaxHandled = 1000;
constexpr size_t kMaxEnded = 100;

const char* HoldText(Hold hold) {
  switch (hold) {
    case Hold::kDryRun:
      return "dry run: nothing is done unless a person approves";
    case Hold::kManual:
      return "a person has to approve";
    case Hold::kCap:
      return "as many nodes are out as may be";
    case Hold::kRate:
      return "as much was done in the last hour as may be";
    case Hold::kBusy:
      return "another incident is under way";
    case Hold::kNone:
      break;
  }
  return "";
}

// Of the last hour; what lies ahead is of a wall clock that was set back since.
int CountOfHour(const std::vector<int64_t>& moments, int64_t now_ns) {
  return static_cast<int>(std::count_if(moments.begin(), moments.end(),
                                        [now_ns](int64_t at_ns) { return now_ns - at_ns < kHour; }));
}

}  // namespace

Incident* Steps::Find(uint64_t id) {
  return const_cast<Incident*>(FindIncident(state_, id));
}

Incident* Steps::Active() {
  return const_cast<Incident*>(UnderWay(state_));
}

void Steps::Audit(uint64_t incident, const std::string& node, const std::string& what,
                  const std::string& text) {
  actions_.push_back({.kind = Action::Kind::kAudit,
                      .command = {},
                      .incident = incident,
                      .node = node,
                      .what = what,
                      .text = text});
}

bool Steps::IsHandled(const std::string& verdict) const {
  return std::find(state_.handled.begin(), state_.handled.end(), verdict) != state_.handled.end();
}

void Steps::Handle(const std::string& verdict) {
  if (IsHandled(verdict)) return;
  state_.handled.push_back(verdict);
  if (state_.handled.size() > kMaxHandled) state_.handled.erase(state_.handled.begin());
}

int64_t Steps::TimeoutOf(Command::Kind kind) const {
  switch (kind) {
    case Command::Kind::kRestart:
      return rules_.restart_timeout_ns;
    case Command::Kind::kCheck:
      return rules_.check_timeout_ns;
    case Command::Kind::kIsolate:
    case Command::Kind::kGiveBack:
      break;
  }
  return rules_.isolate_timeout_ns;
}

void Steps::Issue(Command command) {
  command.id = state_.next_command++;
  command.deadline_ns = now_ns_ + TimeoutOf(command.kind);
  if (!command.node.empty()) state_.nodes[command.node].last_command = command.id;
  actions_.push_back({.kind = Action::Kind::kRun, .command = command});
  state_.in_flight = std::move(command);
}

void Steps::Forget() {
  state_.in_flight.reset();
}

Incident* Steps::Open(const Event& /*event*/) {
  Incident incident;
  incident.id = state_.next_incident++;
  incident.from = state_.incarnation;
  state_.incidents.push_back(std::move(incident));
  return &state_.incidents.back();
}

void Steps::Add(Incident* incident, const std::string& node, bool isolate) {
  for (IncidentNode& item : incident->nodes) {
    if (item.name != node) continue;
    if (isolate && !item.isolate) item.done = false;
    item.isolate = item.isolate || isolate;
    return;
  }
  incident->nodes.push_back({.name = node, .isolate = isolate, .done = !isolate, .backup = ""});
}

void Steps::FreeBackup(IncidentNode* item) {
  if (item->backup.empty()) return;
  Node& backup = state_.nodes[item->backup];
  if (backup.state == NodeState::kReserved) backup.state = NodeState::kFree;
  backup.incident = 0;
  item->backup.clear();
}

void Steps::Unreserve(Incident* incident) {
  for (IncidentNode& item : incident->nodes) FreeBackup(&item);
}

void Steps::End(Incident* incident, Phase phase, const std::string& reason) {
  if (state_.in_flight.has_value() && state_.in_flight->incident == incident->id &&
      (state_.in_flight->kind == Command::Kind::kIsolate ||
       state_.in_flight->kind == Command::Kind::kRestart)) {
    // It may be carried out all the same.
    if (state_.in_flight->kind == Command::Kind::kIsolate) {
      state_.nodes[state_.in_flight->node].state = NodeState::kIsolated;
    }
    Forget();
  }
  Unreserve(incident);
  incident->phase = phase;
  incident->hold = Hold::kNone;
  incident->reason = reason;
  incident->ended_ns = now_ns_;
  const char* const word = phase == Phase::kRecovered ? "recovered"
                           : phase == Phase::kFailed  ? "failed"
                           : phase == Phase::kDenied  ? "denied"
                                                      : "dropped";
  Audit(incident->id, "", word, reason);
}

bool Steps::Fits(int more) const {
  return AutomatedOut(state_) + more <= CapOf(rules_, state_) &&
         CountOfHour(state_.isolations_ns, now_ns_) + more <= rules_.isolations_per_hour;
}

Hold Steps::HoldOf(const Incident& incident) const {
  if (UnderWay(state_) != nullptr) return Hold::kBusy;
  if (incident.approved) return Hold::kNone;
  if (rules_.mode == Mode::kDryRun) return Hold::kDryRun;
  if (rules_.mode == Mode::kManual) return Hold::kManual;
  int more = 0;
  for (const IncidentNode& item : incident.nodes) {
    const Node& node = state_.nodes.at(item.name);
    if (item.isolate && node.immune_until_ns <= now_ns_ && !IsOut(node.state) && !IsLost(node.state)) ++more;
  }
  if (AutomatedOut(state_) + more > CapOf(rules_, state_)) return Hold::kCap;
  if (CountOfHour(state_.isolations_ns, now_ns_) + more > rules_.isolations_per_hour ||
      CountOfHour(state_.restarts_ns, now_ns_) >= rules_.restarts_per_hour) {
    return Hold::kRate;
  }
  return Hold::kNone;
}

bool Steps::Admissible(Incident* incident) {
  if (!incident->approved && now_ns_ - incident->last_seen_ns > rules_.verdict_max_age_ns) {
    End(incident, Phase::kDropped, "nothing has shown the verdict for too long");
    for (const std::string& verdict : incident->verdicts) std::erase(state_.handled, verdict);  // shown again
    return false;
  }
  const Hold hold = HoldOf(*incident);
  if (hold == incident->hold && hold != Hold::kNone) return false;
  incident->hold = hold;
  incident->reason = HoldText(hold);
  if (hold == Hold::kNone) return true;
  Audit(incident->id, "", "held-back", incident->reason);
  return false;
}

// Nodes that a person gave back a while ago are left alone, but for an approval.
void Steps::SpareImmune(Incident* incident) {
  if (incident->approved) return;
  for (const IncidentNode& item : incident->nodes) {
    if (state_.nodes.at(item.name).immune_until_ns > now_ns_)
      Spare(incident, item.name, "its node was given back a while ago");
  }
}

// Whether one more restart of what is under way is within the limits.
bool Steps::MayRestart(const Incident& incident) const {
  return incident.round < rules_.rounds &&
         (incident.approved || CountOfHour(state_.restarts_ns, now_ns_) < rules_.restarts_per_hour);
}

// A spare node for each one of the job's that is to go, or that it cannot have. False: there are not enough.
bool Steps::Reserve(Incident* incident) {
  for (IncidentNode& item : incident->nodes) {
    const Node& node = state_.nodes[item.name];
    const bool goes = item.isolate || IsOut(node.state) || IsLost(node.state);
    if (!goes) FreeBackup(&item);  // it was put back meanwhile
    if (!goes || !item.backup.empty() || !node.in_use) continue;
    const auto spare = std::find_if(state_.nodes.begin(), state_.nodes.end(), [](const auto& candidate) {
      return candidate.second.state == NodeState::kFree && !candidate.second.in_use;
    });
    if (spare == state_.nodes.end()) return false;
    spare->second.state = NodeState::kReserved;
    spare->second.incident = incident->id;
    item.backup = spare->first;
  }
  return true;
}

// True: a command is on its way.
bool Steps::IsolateNext(Incident* incident) {
  for (IncidentNode& item : incident->nodes) {
    if (!item.isolate || item.done) continue;
    Node& node = state_.nodes[item.name];
    if (IsOut(node.state) || IsLost(node.state)) {
      item.done = true;
      Audit(incident->id, item.name, "out-already", item.name + " is out already, or gone");
      continue;
    }
    node.state = NodeState::kIsolating;
    node.automated = !incident->approved;
    node.incident = incident->id;
    node.since_ns = now_ns_;
    node.checked = false;
    if (node.automated) state_.isolations_ns.push_back(now_ns_);
    Issue({.kind = Command::Kind::kIsolate,
           .incident = incident->id,
           .node = item.name,
           .reason = incident->verdicts.empty() ? incident->by : "verdict " + incident->verdicts.front()});
    return true;
  }
  return false;
}

void Steps::Restart(Incident* incident) {
  Command command;
  command.kind = Command::Kind::kRestart;
  command.incident = incident->id;
  command.from = state_.incarnation;
  command.to = std::max(state_.incarnation, state_.highest_asked) + 1;
  command.reason = incident->verdicts.empty() ? incident->by : "verdict " + incident->verdicts.front();
  for (const IncidentNode& item : incident->nodes) {
    if (!item.backup.empty()) command.replace.push_back({item.name, item.backup});
  }
  for (const auto& [name, node] : state_.nodes) {
    if (IsOut(node.state) || IsLost(node.state)) command.exclude.push_back(name);
  }
  state_.highest_asked = command.to;
  state_.restarts_ns.push_back(now_ns_);
  ++incident->round;
  incident->phase = Phase::kRestarting;
  incident->reason.clear();
  Issue(std::move(command));
}

void Steps::BeginRound(Incident* incident) {
  if (!MayRestart(*incident)) {
    End(incident, Phase::kFailed,
        "the job was restarted " + std::to_string(incident->round) + " times and does not run" +
            (incident->round < rules_.rounds ? "; more restarts of an hour are left to a person" : ""));
    return;
  }
  Audit(incident->id, "", "again", "the job does not run; it is restarted again");
  incident->phase = Phase::kWaiting;
  incident->deadline_ns = now_ns_ + rules_.backup_wait_ns;
}

// True: something has changed, look again.
bool Steps::Drive(Incident* incident) {
  if (incident->phase == Phase::kWaiting) {
    if (!Reserve(incident)) return false;
    incident->phase = Phase::kIsolating;
    incident->reason.clear();
    return true;
  }
  if (incident->phase != Phase::kIsolating) return false;
  if (IsolateNext(incident)) return false;
  if (!Reserve(incident)) {  // one was lost meanwhile
    incident->phase = Phase::kWaiting;
    incident->deadline_ns = now_ns_ + rules_.backup_wait_ns;
    incident->reason = "waits for a backup node";
    return false;
  }
  const bool of_the_job =
      std::any_of(incident->nodes.begin(), incident->nodes.end(),
                  [this](const auto& item) { return state_.nodes[item.name].in_use || !item.isolate; });
  if (of_the_job || incident->round > 0) {
    Restart(incident);
  } else {
    End(incident, Phase::kRecovered, "the job does not use it");
  }
  return false;
}

// Nodes that are to go back, or to be looked at. True: a command is on its way.
bool Steps::TendNodes() {
  const bool busy = Active() != nullptr;
  for (auto& [name, node] : state_.nodes) {
    const bool out = node.state == NodeState::kIsolating || node.state == NodeState::kIsolated ||
                     node.state == NodeState::kOut;
    const bool well = node.checked && node.state == NodeState::kIsolated && !node.held && !busy;
    if (!out || !(node.wanted_back || well)) continue;
    node.state = NodeState::kReturning;
    Issue({.kind = Command::Kind::kGiveBack,
           .incident = 0,
           .node = name,
           .reason = node.wanted_back ? "a person gives it back" : "its check has passed"});
    return true;
  }
  if (busy || !rules_.check) return false;
  for (auto& [name, node] : state_.nodes) {
    if (node.state != NodeState::kIsolated || node.held || node.in_use) continue;
    Issue({.kind = Command::Kind::kCheck, .incident = 0, .node = name, .reason = "may it be given back?"});
    return true;
  }
  return false;
}

void Steps::Advance() {
  for (bool again = true; again;) {
    again = false;
    if (Active() == nullptr) {
      for (Incident& incident : state_.incidents) {
        if (incident.phase != Phase::kProposed || !Admissible(&incident)) continue;
        SpareImmune(&incident);
        incident.phase = Phase::kWaiting;
        incident.admitted_ns = now_ns_;
        incident.deadline_ns = now_ns_ + rules_.backup_wait_ns;
        incident.reason = "waits for a backup node";
        Audit(incident.id, "", "admitted", incident.approved ? "approved by a person" : "within the rules");
        break;
      }
    }
    if (state_.in_flight.has_value()) {
      // A check may take minutes; a job that stands still does not wait for it.
      if (state_.in_flight->kind != Command::Kind::kCheck || Active() == nullptr) break;
      Forget();
    }
    if (TendNodes()) break;
    if (Incident* active = Active(); active != nullptr) again = Drive(active) || Active() == nullptr;
  }
  Prune();
}

void Steps::Prune() {
  const auto old = [this](int64_t at_ns) { return now_ns_ - at_ns >= kHour; };
  std::erase_if(state_.isolations_ns, old);
  std::erase_if(state_.restarts_ns, old);
  size_t ended = static_cast<size_t>(std::count_if(state_.incidents.begin(), state_.incidents.end(),
                                                   [](const Incident& one) { return IsEnd(one.phase); }));
  std::erase_if(state_.incidents, [&ended](const Incident& one) {
    if (!IsEnd(one.phase) || ended <= kMaxEnded) return false;
    --ended;
    return true;
  });
}

}  // namespace c4::c4d::recovery
