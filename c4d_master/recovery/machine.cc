#include "c4d_master/recovery/machine.h"

#include <algorithm>
#include <set>

#include "c4d_master/recovery/steps.h"

namespace c4::c4d::recovery {
namespace {

// From the failure of a job that is being watched to its next round.
constexpr int64_t kLastWordNs = 3 * kSecond;

}  // namespace

int CapOf(const Rules& rules, const State& state) {
  const auto share = static_cast<int>(rules.max_share * static_cast<double>(state.nodes.size()));
  return std::max(rules.min_nodes, share);
}

int AutomatedOut(const State& state) {
  return static_cast<int>(std::count_if(state.nodes.begin(), state.nodes.end(), [](const auto& item) {
    return item.second.automated && IsOut(item.second.state);
  }));
}

const Incident* FindIncident(const State& state, uint64_t id) {
  const auto found = std::find_if(state.incidents.begin(), state.incidents.end(),
                                  [id](const Incident& incident) { return incident.id == id; });
  return found == state.incidents.end() ? nullptr : &*found;
}

const Incident* UnderWay(const State& state) {
  const auto found = std::find_if(state.incidents.begin(), state.incidents.end(),
                                  [](const Incident& incident) { return IsUnderWay(incident.phase); });
  return found == state.incidents.end() ? nullptr : &*found;
}

std::vector<Action> Step(const Rules& rules, State* state, const Event& event) {
  Steps steps(rules, state, event.now_ns);
  steps.Take(event);
  steps.Advance();
  return steps.TakeActions();
}

void Steps::Take(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kVerdict:
      OnVerdict(event);
      break;
    case Event::Kind::kCleared:
      OnCleared(event.verdict);
      break;
    case Event::Kind::kReply:
      OnReply(event);
      break;
    case Event::Kind::kRunning:
      OnRunning(event.incarnation);
      break;
    case Event::Kind::kInventory:
      OnInventory(event);
      break;
    case Event::Kind::kApprove:
      OnApprove(event);
      break;
    case Event::Kind::kDeny:
      OnDeny(event);
      break;
    case Event::Kind::kIsolate:
      OnIsolate(event);
      break;
    case Event::Kind::kRelease:
      OnRelease(event);
      break;
    case Event::Kind::kTick:
      OnTick(event.silent);
      break;
    case Event::Kind::kStarted:
      OnStarted();
      break;
  }
}

bool Steps::IsStale(const Event& event) const {
  return event.incarnation < state_.incarnation || event.confirmed_ns < state_.restarted_ns;
}

// Whether a further node can go the way of what is under way already.
bool Steps::MergesInto(const Incident& incident, const Event& event, bool isolate) const {
  if (isolate && !incident.approved && (rules_.mode != Mode::kAutomatic || !Fits(1))) return false;
  return incident.phase == Phase::kWaiting || incident.phase == Phase::kIsolating ||
         (incident.phase == Phase::kWatching && event.incarnation >= state_.incarnation &&
          MayRestart(incident));
}

// What is under way goes on for that verdict as well.
void Steps::Join(Incident* incident, const Event& event) {
  Handle(event.verdict);
  incident->verdicts.push_back(event.verdict);
  incident->open.push_back(event.verdict);
  incident->last_seen_ns = std::max(incident->last_seen_ns, event.seen_ns);
  Audit(incident->id, event.node, "joined", "verdict " + event.verdict + " joins what is under way");
}

void Steps::OnVerdict(const Event& event) {
  for (Incident& incident : state_.incidents) {
    if (std::find(incident.open.begin(), incident.open.end(), event.verdict) == incident.open.end()) continue;
    incident.last_seen_ns = std::max(incident.last_seen_ns, event.seen_ns);
  }
  const auto* const slot = std::find(kSyndromeNumbers.begin(), kSyndromeNumbers.end(), event.syndrome);
  if (IsHandled(event.verdict) || slot == kSyndromeNumbers.end()) return;
  if (IsStale(event)) {
    Handle(event.verdict);
    Audit(0, event.node, "stale", "verdict " + event.verdict + " is of before the job was started again");
    return;
  }
  if (now_ns_ - event.seen_ns > rules_.verdict_max_age_ns) return;  // it may be seen again
  if (event.incarnation > state_.incarnation) LearnIncarnation(event.incarnation);
  const SyndromePolicy& policy = rules_.policies[static_cast<size_t>(slot - kSyndromeNumbers.begin())];
  if (policy.act == Act::kNone) {
    Handle(event.verdict);
    return;
  }
  if (event.confidence < policy.min_confidence) return;  // it may grow
  if (event.node.empty()) {
    Handle(event.verdict);
    Audit(0, "", "no-node", "verdict " + event.verdict + " names no node; it is left to a person");
    return;
  }
  Node& node = state_.nodes[event.node];
  Incident* active = Active();
  if (IsOut(node.state)) {
    if (active != nullptr && BeforeRestart(active->phase) && Concerns(*active, event.node)) {
      Join(active, event);
      return;
    }
    // Late, most often; or the job was started on it past us, and has to come off it: a look at the scheduler
    // says so, and the verdict is told again.
    if (!node.in_use) return;
  }
  Handle(event.verdict);
  node.in_use = true;  // its ranks have been heard
  if (node.state == NodeState::kReserved) {
    node.state = NodeState::kFree;
    LoseBackup(event.node);
  }
  if (active != nullptr && active->phase == Phase::kRestarting) {
    // Most often of a rank that was ended for that: no strike against its node.
    Audit(active->id, event.node, "restarting",
          "verdict " + event.verdict + " comes while the job is being started again; it will be seen then");
    return;
  }
  std::erase_if(node.strikes_ns, [this](int64_t at_ns) { return now_ns_ - at_ns > rules_.strike_window_ns; });
  node.strikes_ns.push_back(now_ns_);
  const bool isolate =
      policy.act == Act::kIsolate && node.strikes_ns.size() >= static_cast<size_t>(policy.strikes);
  const bool spared = node.immune_until_ns > now_ns_;
  if (active != nullptr && MergesInto(*active, event, isolate && !spared)) {
    Join(active, event);
    Add(active, event.node, isolate && !spared);
    if (active->phase == Phase::kWatching) active->phase = Phase::kWaiting;
    if (active->phase == Phase::kWaiting) active->deadline_ns = now_ns_ + rules_.backup_wait_ns;
    return;
  }
  Incident* incident = Open(event);
  incident->verdicts = incident->open = {event.verdict};
  incident->syndrome = event.syndrome;
  incident->onset_ns = event.onset_ns;
  incident->confirmed_ns = event.confirmed_ns;
  incident->last_seen_ns = event.seen_ns;
  Add(incident, event.node, isolate);
  Audit(incident->id, event.node, "proposed",
        "verdict " + event.verdict + ": " +
            (isolate ? "isolate " + event.node + " and restart the job without it" : "restart the job"));
}

void Steps::OnCleared(const std::string& verdict) {
  Handle(verdict);  // what comes of it later is of before
  for (Incident& incident : state_.incidents) {
    if (IsEnd(incident.phase) || std::erase(incident.open, verdict) == 0) continue;
    const bool nothing_done = incident.round == 0 && BeforeRestart(incident.phase) &&
                              (incident.phase != Phase::kIsolating || !IsolatesAny(incident));
    if (nothing_done && incident.open.empty() && !incident.approved) {
      End(&incident, Phase::kDropped, "the verdict is over");
    }
  }
}

// Whether the command under way is to be tried once more; then it is.
bool Steps::TriesAgain() {
  Command& command = *state_.in_flight;
  if (command.attempt >= rules_.attempts) return false;
  ++command.attempt;
  command.deadline_ns = now_ns_ + TimeoutOf(command.kind);
  actions_.push_back({.kind = Action::Kind::kRun, .command = command});
  return true;
}

void Steps::OnReply(const Event& event) {
  if (!state_.in_flight.has_value() || state_.in_flight->id != event.command) return;
  if (event.outcome != Event::Outcome::kDone) {
    const Command& command = *state_.in_flight;
    const char* how = event.outcome == Event::Outcome::kRefused ? "refused" : "unanswered";
    Audit(command.incident, command.node, how,
          "command " + std::to_string(command.id) + ", attempt " + std::to_string(command.attempt) + ": " +
              event.text);
    if (TriesAgain()) return;
  }
  Incident* incident = Find(state_.in_flight->incident);
  switch (state_.in_flight->kind) {
    case Command::Kind::kIsolate:
      OnIsolated(event, incident);
      break;
    case Command::Kind::kRestart:
      OnRestarted(event, incident);
      break;
    case Command::Kind::kCheck:
      OnChecked(event);
      break;
    case Command::Kind::kGiveBack:
      OnGivenBack(event);
      break;
  }
}

void Steps::OnIsolated(const Event& event, Incident* incident) {
  const std::string name = state_.in_flight->node;
  state_.in_flight.reset();
  Node& node = state_.nodes[name];
  node.state = NodeState::kIsolated;  // or maybe not: then the job does not run on it all the same
  node.since_ns = now_ns_;
  if (incident == nullptr) return;
  for (IncidentNode& item : incident->nodes) {
    if (item.name == name) item.done = true;
  }
  incident->isolated_ns = now_ns_;
  Audit(incident->id, name, event.outcome == Event::Outcome::kDone ? "isolated" : "isolate-failed",
        event.outcome == Event::Outcome::kDone
            ? name + " is out"
            : "the scheduler did not take " + name + " out; the job is restarted without it all the same");
}

void Steps::OnRestarted(const Event& event, Incident* incident) {
  const Command command = *state_.in_flight;
  state_.in_flight.reset();
  if (incident == nullptr) return;
  if (event.outcome == Event::Outcome::kRefused) {
    End(incident, Phase::kFailed, "the job cannot be restarted: " + event.text);
    return;
  }
  // Where nobody knows, the watch finds out.
  state_.incarnation = event.incarnation != 0 ? event.incarnation : std::max(state_.incarnation, command.to);
  state_.restarted_ns = now_ns_;
  DropOlder();
  for (const Command::Replacement& replacement : command.replace) {
    state_.nodes[replacement.node].in_use = false;
    Node& backup = state_.nodes[replacement.backup];
    if (backup.state == NodeState::kReserved) backup.state = NodeState::kFree;
    backup.in_use = true;
    backup.incident = 0;
  }
  for (IncidentNode& item : incident->nodes) item.backup.clear();
  incident->phase = Phase::kWatching;
  incident->deadline_ns = now_ns_ + rules_.running_timeout_ns;
  incident->restarted_ns = now_ns_;
  if (event.checkpoint_ns != 0) incident->checkpoint_ns = event.checkpoint_ns;
  Audit(incident->id, "", "restarted",
        "the job was restarted as incarnation " + std::to_string(command.to) +
            (event.outcome == Event::Outcome::kDone ? "" : ", it seems"));
}

void Steps::OnChecked(const Event& event) {
  Node& node = state_.nodes[state_.in_flight->node];
  const std::string name = state_.in_flight->node;
  state_.in_flight.reset();
  node.since_ns = now_ns_;
  if (event.outcome == Event::Outcome::kDone) {
    node.checked = true;
    Audit(node.incident, name, "check-passed", name + " is well");
    return;
  }
  node.state = NodeState::kOut;
  node.why = event.text;
  Audit(node.incident, name, "check-failed", name + " stays out: " + event.text);
}

void Steps::OnGivenBack(const Event& event) {
  const std::string name = state_.in_flight->node;
  state_.in_flight.reset();
  Node& node = state_.nodes[name];
  const uint64_t incident = node.incident;
  node.wanted_back = false;
  node.checked = false;
  node.since_ns = now_ns_;
  if (event.outcome != Event::Outcome::kDone) {
    node.state = NodeState::kOut;
    node.why = event.text;
    Audit(incident, name, "give-back-failed", "the scheduler did not take " + name + " back: " + event.text);
    return;
  }
  node.state = NodeState::kFree;
  node.automated = node.held = false;
  node.incident = 0;
  node.why.clear();
  Audit(incident, name, "given-back", name + " is given back");
}

// What was wrong with a former incarnation, and nothing has been done about it.
void Steps::DropOlder() {
  for (Incident& incident : state_.incidents) {
    const bool older =
        incident.from < state_.incarnation && !incident.verdicts.empty() && incident.round == 0;
    if (older && BeforeRestart(incident.phase)) {
      End(&incident, Phase::kDropped, "the job was started again meanwhile");
    }
  }
}

// The job has begun again without us, or as we asked.
void Steps::LearnIncarnation(uint32_t incarnation) {
  state_.incarnation = incarnation;
  state_.restarted_ns = now_ns_;
  Incident* active = Active();
  if (active != nullptr && active->phase == Phase::kRestarting && state_.in_flight.has_value() &&
      incarnation >= state_.in_flight->to) {
    OnRestarted({.kind = Event::Kind::kReply, .now_ns = now_ns_}, active);
  }
  DropOlder();
}

void Steps::OnRunning(uint32_t incarnation) {
  if (incarnation < state_.incarnation) return;
  if (incarnation > state_.incarnation) LearnIncarnation(incarnation);
  Incident* active = Active();
  if (active == nullptr || active->phase != Phase::kWatching) return;
  active->running_ns = now_ns_;
  End(active, Phase::kRecovered, "the job runs again as incarnation " + std::to_string(incarnation));
}

void Steps::OnInventory(const Event& event) {
  std::set<std::string> names;
  for (const Event::Seen& seen : event.seen) {
    names.insert(seen.node);
    OnSeen(seen, event.as_of_command);
  }
  for (const auto& [name, node] : std::map<std::string, Node>(state_.nodes)) {
    if (!names.contains(name)) OnSeen({name, Event::Sight::kGone, node.in_use}, event.as_of_command);
  }
  // There is nothing left to be watched; a verdict on who was to blame may be on its way.
  Incident* active = Active();
  if (event.failed && event.incarnation == state_.incarnation && active != nullptr &&
      active->phase == Phase::kWatching) {
    active->deadline_ns = std::min(active->deadline_ns, now_ns_ + kLastWordNs);
  }
}

void Steps::OnSeen(const Event::Seen& seen, uint64_t as_of_command) {
  Node& node = state_.nodes[seen.node];
  if (UnderWay(state_) == nullptr && seen.sight != Event::Sight::kGone) node.in_use = seen.in_use;
  // What was asked of it since, the scheduler had not heard of yet.
  const bool ours_under_way = state_.in_flight.has_value() && state_.in_flight->node == seen.node;
  if (ours_under_way || node.last_command > as_of_command) return;
  const bool ours = IsOut(node.state);
  if (ours && seen.sight == Event::Sight::kFree) {
    // A person has put it back, past us.
    node.immune_until_ns = now_ns_ + rules_.immunity_ns;
    node.held = node.automated = node.wanted_back = node.checked = false;
    node.state = NodeState::kFree;
    node.since_ns = now_ns_;
    Audit(node.incident, seen.node, "put-back", "somebody has put " + seen.node + " back into the scheduler");
    LetGo(seen.node, "somebody has put its node back");
    return;
  }
  if (ours) return;  // drained or down: it is out
  const NodeState before = node.state;
  if (seen.sight == Event::Sight::kFree) {
    if (IsLost(before)) node.state = NodeState::kFree;
  } else {
    node.state = seen.sight == Event::Sight::kGone ? NodeState::kGone : NodeState::kForeign;
  }
  if (node.state == before) return;
  node.since_ns = now_ns_;
  if (before != NodeState::kReserved) return;
  LoseBackup(seen.node);
  Audit(node.incident, seen.node, "backup-lost", "the backup " + seen.node + " was taken by somebody else");
}

// Another one is looked for.
void Steps::LoseBackup(const std::string& name) {
  for (Incident& incident : state_.incidents) {
    for (IncidentNode& item : incident.nodes) {
      if (item.backup == name) item.backup.clear();
    }
  }
}

// A job comes up with none of its nodes dead: of one whose agent has been silent for as long as the job has
// been watched, no verdict can tell where its ranks have not met the others yet.
bool Steps::TakesForLost(Incident* incident, const std::vector<std::string>& silent) {
  const SyndromePolicy& policy = rules_.policies[kLostNode];
  if (policy.act != Act::kIsolate || now_ns_ - incident->restarted_ns < rules_.silent_ns) return false;
  bool any = false;
  for (const std::string& name : silent) {
    const auto found = state_.nodes.find(name);
    if (found == state_.nodes.end() || !found->second.in_use || IsOut(found->second.state) ||
        found->second.immune_until_ns > now_ns_)
      continue;
    const auto others = std::count_if(
        incident->nodes.begin(), incident->nodes.end(),
        [this](const auto& item) { return item.isolate && !IsOut(state_.nodes[item.name].state); });
    if (!incident->approved && (rules_.mode != Mode::kAutomatic || !Fits(static_cast<int>(others) + 1)))
      continue;
    any = true;
    Add(incident, name, true);
    Audit(incident->id, name, "silent",
          "the job does not run, and the agent of " + name + " is silent: it is taken for lost");
  }
  return any;
}

void Steps::OnTick(const std::vector<std::string>& silent) {
  if (state_.in_flight.has_value()) {
    const int64_t timeout_ns = TimeoutOf(state_.in_flight->kind);
    // Further away than it can be: the wall clock was set back.
    if (state_.in_flight->deadline_ns > now_ns_ + timeout_ns)
      state_.in_flight->deadline_ns = now_ns_ + timeout_ns;
    if (now_ns_ >= state_.in_flight->deadline_ns) {
      OnReply({.kind = Event::Kind::kReply,
               .now_ns = now_ns_,
               .command = state_.in_flight->id,
               .outcome = Event::Outcome::kUnknown,
               .text = "no answer in time"});
    }
    return;
  }
  Incident* active = Active();
  if (active == nullptr) return;
  if (active->phase == Phase::kWatching && MayRestart(*active) && TakesForLost(active, silent)) {
    BeginRound(active);
    return;
  }
  if (now_ns_ < active->deadline_ns) return;
  if (active->phase == Phase::kWaiting) {
    End(active, Phase::kFailed, "there is no backup node");
  } else if (active->phase == Phase::kWatching) {
    BeginRound(active);
  }
}

// The same command under the same number: whoever ran it before says so.
void Steps::OnStarted() {
  if (!state_.in_flight.has_value()) return;
  state_.in_flight->deadline_ns = now_ns_ + TimeoutOf(state_.in_flight->kind);
  actions_.push_back({.kind = Action::Kind::kRun, .command = *state_.in_flight});
}

}  // namespace c4::c4d::recovery
