#include "tests/support/recovery_checker.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "tests/support/recovery_world.h"

namespace c4::test {
namespace {

constexpr int kLongRun = 60;

class Checker {
 public:
  Checker(const Rules& rules, int depth) : rules_(rules), depth_(depth) {}

  WalkResult Walk() {
    World first;
    for (const char* name : {"n1", "n2", "s1"}) first.state.nodes[name].in_use = first.in_use.contains(name);
    Visit(first, {});
    while (!queue_.empty() && result_.violation.empty()) {
      const Visited visited = std::move(queue_.front());
      queue_.pop_front();
      if (static_cast<int>(visited.trace.size()) < depth_) Expand(visited);
    }
    return result_;
  }

 private:
  struct Visited {
    World world;
    std::vector<std::string> trace;
  };

  void Visit(const World& world, std::vector<std::string> trace) {
    if (!known_.insert(std::hash<std::string>()(KeyWriter(world).Take())).second) return;
    ++result_.states;
    if (result_.states % 8 == 1 && EndsWell(world, &trace)) return;
    queue_.push_back({world, std::move(trace)});
  }

  // One event in a copy of the world, and what it has done is looked at.
  void Try(const Visited& visited, const std::string& name, World world, const Event& event) {
    if (!result_.violation.empty()) return;
    ++result_.transitions;
    std::vector<std::string> trace = visited.trace;
    trace.push_back(name);
    const std::string violation = Apply(&world, event);
    if (violation.empty()) {
      Visit(world, std::move(trace));
      return;
    }
    result_.violation = violation;
    result_.trace = std::move(trace);
  }

  static Event At(const World& world, Event::Kind kind) {
    Event event;
    event.kind = kind;
    event.now_ns = world.now_ns;
    event.by = "ann";
    return event;
  }

  void Expand(const Visited& visited) {
    ExpandVerdicts(visited);
    ExpandDriver(visited);
    ExpandPeople(visited);
    ExpandScheduler(visited);
    for (const int64_t seconds : {40, 650, 3700}) {
      World world = visited.world;
      world.now_ns += seconds * kSecond;
      Event tick = At(world, Event::Kind::kTick);
      Try(visited, "tick " + std::to_string(seconds), world, tick);
      if (seconds != 40) continue;
      tick.silent = {"n1", "n2"};
      Try(visited, "tick " + std::to_string(seconds) + ", silent agents", world, tick);
    }
    Try(visited, "another master", visited.world, At(visited.world, Event::Kind::kStarted));
    World running = visited.world;
    Event event = At(running, Event::Kind::kRunning);
    event.incarnation = running.incarnation;
    running.starting = false;
    Try(visited, "running", running, event);
    if (running.incarnation == 0) {  // a person starts the job again by hand
      Begin(1, &running);
      event.incarnation = 1;
      running.starting = false;
      Try(visited, "running by hand", running, event);
    }
  }

  static Event Telling(const KnownVerdict& verdict, World* world) {
    Event event = At(*world, Event::Kind::kVerdict);
    event.verdict = verdict.id;
    event.node = verdict.node;
    event.syndrome = verdict.syndrome;
    event.confidence = 0.9;
    event.incarnation = verdict.incarnation;
    event.confirmed_ns = event.onset_ns = world->confirmed_ns[verdict.id];
    event.seen_ns = world->now_ns;
    return event;
  }

  void ExpandVerdicts(const Visited& visited) {
    for (const KnownVerdict& verdict : kVerdicts) {
      World world = visited.world;
      const bool told_before = world.confirmed_ns.contains(verdict.id);
      const bool live = verdict.incarnation == world.incarnation && world.in_use.contains(verdict.node) &&
                        !world.cleared.contains(verdict.id);
      if (live) {
        world.confirmed_ns.try_emplace(verdict.id, world.now_ns);
        world.seen_ns[verdict.id] = world.now_ns;
        const Event event = Telling(verdict, &world);
        world.down.insert(verdict.id);
        Try(visited, std::string("verdict ") + verdict.id, world, event);
      }
      if (told_before) {  // as it was, from a store or a queue
        world = visited.world;
        Event event = Telling(verdict, &world);
        event.seen_ns = world.seen_ns[verdict.id];
        Try(visited, std::string("replayed ") + verdict.id, world, event);
      }
      if (told_before && !world.cleared.contains(verdict.id)) {
        world = visited.world;
        world.cleared.insert(verdict.id);
        world.down.erase(verdict.id);
        Event event = At(world, Event::Kind::kCleared);
        event.verdict = verdict.id;
        Try(visited, std::string("cleared ") + verdict.id, world, event);
      }
    }
  }

  void ExpandDriver(const Visited& visited) {
    for (size_t i = 0; i < visited.world.asked.size(); ++i) {
      const Command& command = visited.world.asked[i];
      for (const auto outcome : {Event::Outcome::kDone, Event::Outcome::kRefused, Event::Outcome::kUnknown}) {
        World world = visited.world;
        Event event = At(world, Event::Kind::kReply);
        event.command = command.id;
        event.outcome = outcome;
        const char* const how = outcome == Event::Outcome::kDone      ? " done"
                                : outcome == Event::Outcome::kRefused ? " refused"
                                                                      : " unanswered";
        if (outcome == Event::Outcome::kDone) {
          world.asked.erase(world.asked.begin() + static_cast<std::ptrdiff_t>(i));
          Carry(command, &world);
        }
        Try(visited, "command " + std::to_string(command.id) + how, world, event);
        if (outcome != Event::Outcome::kUnknown || command.kind != Command::Kind::kRestart) continue;
        Carry(command, &world);  // it was done, and nobody was told
        Try(visited, "command " + std::to_string(command.id) + how + " but done", world, event);
      }
    }
  }

  static void Begin(uint32_t incarnation, World* world) {
    world->incarnation = incarnation;
    world->down.clear();
    world->starting = true;
    world->given_up = false;
  }

  // What a driver does: a restart that is not above what runs is none.
  static void Carry(const Command& command, World* world) {
    if (command.kind == Command::Kind::kRestart && command.to > world->incarnation) {
      Begin(command.to, world);
      // Late, of an incident that was left to a person.
      world->given_up = IsEnd(FindIncident(world->state, command.incident)->phase);
      for (const Command::Replacement& replacement : command.replace) {
        world->in_use.erase(replacement.node);
        world->in_use.insert(replacement.backup);
      }
    }
    if (command.kind == Command::Kind::kCheck) world->checked.insert(command.node);
  }

  void ExpandPeople(const Visited& visited) {
    const auto& incidents = visited.world.state.incidents;
    for (const Incident& incident : incidents) {
      if (IsEnd(incident.phase)) continue;
      World world = visited.world;
      Event event = At(world, Event::Kind::kDeny);
      event.incident = incident.id;
      world.denied.insert(incident.id);
      Try(visited, "deny " + std::to_string(incident.id), world, event);
      if (incident.phase != Phase::kProposed) continue;
      event = At(visited.world, Event::Kind::kApprove);
      event.incident = incident.id;
      Try(visited, "approve " + std::to_string(incident.id), visited.world, event);
    }
    for (const char* name : {"n1", "n2"}) {
      World world = visited.world;
      Event event = At(world, Event::Kind::kRelease);
      event.node = name;
      world.released_ns[name] = world.now_ns;
      world.wanted_out.erase(name);
      Try(visited, std::string("release ") + name, world, event);
    }
    World world = visited.world;
    Event event = At(world, Event::Kind::kIsolate);
    event.node = "n2";
    world.wanted_out.insert("n2");
    world.automated.erase("n2");  // it is the person's now
    world.released_ns.erase("n2");
    Try(visited, "isolate n2", world, event);
  }

  static Event Inventory(const World& world, uint64_t as_of) {
    Event event = At(world, Event::Kind::kInventory);
    event.as_of_command = as_of;
    for (const char* name : {"n1", "n2", "s1"}) {
      event.seen.push_back({name,
                            world.taken.contains(name) ? Event::Sight::kOther
                            : world.out.contains(name) ? Event::Sight::kIsolated
                                                       : Event::Sight::kFree,
                            world.in_use.contains(name)});
    }
    return event;
  }

  void ExpandScheduler(const Visited& visited) {
    const uint64_t newest = visited.world.state.next_command - 1;
    Try(visited, "inventory", visited.world, Inventory(visited.world, newest));
    World before = visited.world;
    before.out.clear();
    Event failed = Inventory(visited.world, newest);
    failed.failed = true;
    failed.incarnation = visited.world.incarnation;
    Try(visited, "the job has failed", visited.world, failed);
    Event old = Inventory(before, 0);  // from before any command
    Try(visited, "inventory of before", visited.world, old);
    for (const char* name : {"n1", "s1"}) {
      World world = visited.world;
      if (world.out.contains(name)) {
        if (world.state.in_flight.has_value()) continue;
        Forget(name, &world);
        world.released_ns[name] = world.now_ns;  // by hand, in the scheduler
        Try(visited, std::string("put back ") + name, world, Inventory(world, newest));
      } else {
        if (!world.taken.insert(name).second) world.taken.erase(name);
        Try(visited, std::string("taken or left ") + name, world, Inventory(world, newest));
      }
    }
  }

  static void Forget(const std::string& name, World* world) {
    world->out.erase(name);
    world->automated.erase(name);
    world->checked.erase(name);
    world->wanted_out.erase(name);
  }

  // The step itself. What is wrong with it; empty: nothing.
  std::string Apply(World* world, const Event& event) {
    const State before = world->state;
    const std::vector<Action> actions = Step(rules_, &world->state, event);
    const bool late = event.kind == Event::Kind::kReply &&
                      (!before.in_flight.has_value() || before.in_flight->id != event.command);
    if (late && !(world->state == before)) return "an answer that nobody waits for changes something";
    if (event.kind == Event::Kind::kInventory) {
      for (const auto& [name, node] : before.nodes) {
        if (node.last_command > event.as_of_command && !(world->state.nodes.at(name).state == node.state)) {
          return "an inventory of before a command undoes it";
        }
      }
    }
    if (event.kind == Event::Kind::kReply && event.outcome == Event::Outcome::kDone && !late &&
        before.in_flight->kind == Command::Kind::kGiveBack) {
      Forget(before.in_flight->node, world);
    }
    int commands = 0;
    for (const Action& action : actions) {
      if (action.kind != Action::Kind::kRun) continue;
      if (++commands > 1) return "two commands at once";
      if (!(world->state.in_flight == action.command)) return "a command that is not remembered";
      const bool again = before.in_flight.has_value() && before.in_flight->id == action.command.id;
      if (event.kind == Event::Kind::kStarted && before.in_flight.has_value() && !again) {
        return "another master begins something else";
      }
      if (again) continue;
      if (const std::string wrong = CheckCommand(action.command, world); !wrong.empty()) return wrong;
      world->asked.push_back(action.command);
    }
    if (event.kind == Event::Kind::kStarted && before.in_flight.has_value() && commands == 0) {
      return "another master forgets what is under way";
    }
    for (const Incident& incident : world->state.incidents) {
      if (const std::string wrong = CheckIncident(incident, before, world); !wrong.empty()) return wrong;
    }
    if (UnderWayCount(world->state) > 1) return "two incidents are under way";
    return CheckBound(before, world);
  }

  // Whether somebody will start a job again that is down.
  std::string CheckBound(const State& before, World* world) const {
    bool bound = false;
    for (const Incident& incident : world->state.incidents) {
      bound = bound || !IsEnd(incident.phase);
      const Incident* former = FindIncident(before, incident.id);
      const bool ends = IsEnd(incident.phase) && (former == nullptr || !IsEnd(former->phase));
      // A person was told, or said so.
      if (ends && (incident.phase == Phase::kFailed || world->denied.contains(incident.id)))
        world->given_up = true;
    }
    // What nothing has shown for so long may be over, and nobody has told.
    const bool down = std::any_of(world->down.begin(), world->down.end(), [&](const std::string& verdict) {
      return world->now_ns - world->seen_ns.at(verdict) <= rules_.verdict_max_age_ns;
    });
    if ((!down && !world->starting) || bound || world->given_up) return "";
    if (!TellsAgain(*world)) return "the job is down, and nobody is bound to start it again";
    return "";
  }

  // As it happens every few seconds: the scheduler is looked at, and what is confirmed still is told.
  bool TellsAgain(World world) const {
    Step(rules_, &world.state, Inventory(world, world.state.next_command - 1));
    for (const std::string& verdict : world.down) {
      if (world.now_ns - world.seen_ns.at(verdict) <= rules_.verdict_max_age_ns)
        Step(rules_, &world.state, Telling(VerdictOf(verdict), &world));
    }
    return std::any_of(world.state.incidents.begin(), world.state.incidents.end(),
                       [](const Incident& one) { return !IsEnd(one.phase); });
  }

  static int UnderWayCount(const State& state) {
    return static_cast<int>(std::count_if(state.incidents.begin(), state.incidents.end(),
                                          [](const Incident& one) { return IsUnderWay(one.phase); }));
  }

  std::string CheckIncident(const Incident& incident, const State& before, World* world) const {
    for (const std::string& verdict : incident.verdicts) {
      const auto [item, is_new] = world->incident_of.try_emplace(verdict, incident.id);
      if (item->second != incident.id) {
        const Incident* other = FindIncident(world->state, std::min(item->second, incident.id));
        if (other->phase != Phase::kDropped || other->admitted_ns != 0) return "a verdict is acted on twice";
        item->second = std::max(item->second, incident.id);
      }
      if (is_new && world->cleared.contains(verdict)) return "a verdict that is over is acted on";
      if (is_new && VerdictOf(verdict).incarnation < before.incarnation)
        return "a verdict of before is acted on";
    }
    if (world->denied.contains(incident.id) && incident.phase != Phase::kDenied) {
      return "a denied incident goes on";
    }
    if (!IsUnderWay(incident.phase) || !world->under_way.insert(incident.id).second || incident.approved)
      return "";
    if (rules_.mode != Mode::kAutomatic) return "something is done by itself, and nobody asked for that";
    const auto fresh = [&](const std::string& verdict) {
      return !world->cleared.contains(verdict) &&
             world->now_ns - world->seen_ns[verdict] <= rules_.verdict_max_age_ns &&
             VerdictOf(verdict).incarnation >= before.incarnation;
    };
    if (!std::any_of(incident.verdicts.begin(), incident.verdicts.end(), fresh)) {
      return "something is done for what is over or old";
    }
    return "";
  }

  std::string CheckCommand(const Command& command, World* world) const {
    const Incident* incident = FindIncident(world->state, command.incident);
    if (incident != nullptr && world->denied.contains(incident->id))
      return "a denied incident asks for something";
    const std::string& name = command.node;
    switch (command.kind) {
      case Command::Kind::kIsolate:
        return CheckIsolate(*incident, name, world);
      case Command::Kind::kRestart:
        return CheckRestart(command, *incident, world);
      case Command::Kind::kCheck:
        if (!world->out.contains(name)) return "a node is checked that is in use";
        return "";
      case Command::Kind::kGiveBack:
        if (!world->out.contains(name)) return "a node is given back that is not out";
        if (world->wanted_out.contains(name)) return "a node is given back that a person wants out";
        if (!world->released_ns.contains(name) && !world->checked.contains(name)) {
          return "a node is given back unchecked";
        }
        return "";
    }
    return "";
  }

  std::string CheckIsolate(const Incident& incident, const std::string& name, World* world) const {
    if (!world->out.insert(name).second) return "a node is isolated twice";
    if (world->taken.contains(name)) return "a node is isolated that somebody else has";
    world->checked.erase(name);
    if (incident.approved) return "";
    if (rules_.mode != Mode::kAutomatic) return "a node is isolated by itself, and nobody asked for that";
    world->automated.insert(name);
    world->isolations_ns.push_back(world->now_ns);
    if (static_cast<int>(world->automated.size()) > std::max(rules_.min_nodes, int(rules_.max_share * 3))) {
      return "more nodes are out than may be";
    }
    const auto of_hour = std::count_if(world->isolations_ns.begin(), world->isolations_ns.end(),
                                       [&](int64_t at_ns) { return world->now_ns - at_ns < 3600 * kSecond; });
    if (of_hour > rules_.isolations_per_hour) return "more nodes are isolated in an hour than may be";
    const auto released = world->released_ns.find(name);
    if (released != world->released_ns.end() && world->now_ns - released->second < rules_.immunity_ns) {
      return "a node is isolated that a person gave back";
    }
    return "";
  }

  std::string CheckRestart(const Command& command, const Incident& incident, World* world) const {
    if (!incident.approved && rules_.mode != Mode::kAutomatic) return "a restart that nobody asked for";
    const auto of_hour = std::count_if(world->restarts_ns.begin(), world->restarts_ns.end(),
                                       [&](int64_t at_ns) { return world->now_ns - at_ns < 3600 * kSecond; });
    world->restarts_ns.push_back(world->now_ns);
    if (!incident.approved && of_hour >= rules_.restarts_per_hour)
      return "the job is restarted more often in an hour than may be";
    for (const Command& other : world->asked) {
      if (other.kind == Command::Kind::kRestart && other.to >= command.to)
        return "a restart that is of before";
    }
    std::set<std::string> backups;
    for (const Command::Replacement& replacement : command.replace) {
      const std::string& backup = replacement.backup;
      if (!backups.insert(backup).second) return "a backup for two nodes";
      if (world->state.nodes.at(backup).in_use || world->out.contains(backup) ||
          world->taken.contains(backup)) {
        return "a backup that is not free";
      }
      if (!world->out.contains(replacement.node) && !world->taken.contains(replacement.node)) {
        return "a node is replaced that is not out";
      }
    }
    for (const std::string& name : world->out) {
      if (std::find(command.exclude.begin(), command.exclude.end(), name) == command.exclude.end()) {
        return "the job may run on a node that is out";
      }
    }
    return "";
  }

  // With a driver that does as it is told, a job that comes up, and time: nothing is under way in the end.
  bool EndsWell(World world, std::vector<std::string>* trace) {
    for (int step = 0; step < kLongRun && result_.violation.empty(); ++step) {
      Event event = At(world, Event::Kind::kTick);
      if (world.state.in_flight.has_value()) {
        const Command command = *world.state.in_flight;
        Carry(command, &world);
        event.kind = Event::Kind::kReply;
        event.command = command.id;
        std::erase_if(world.asked, [&command](const Command& one) { return one.id == command.id; });
      } else if (const Incident* active = UnderWay(world.state); active == nullptr) {
        return false;
      } else if (active->phase == Phase::kWatching && step % 2 == 0) {
        event.kind = Event::Kind::kRunning;
        event.incarnation = world.incarnation;
        world.starting = false;
      } else {
        world.now_ns += 100 * kSecond;
        event.now_ns = world.now_ns;
      }
      const std::string violation = Apply(&world, event);
      trace->push_back("(a good driver goes on)");
      if (violation.empty()) {
        trace->pop_back();
        continue;
      }
      result_.violation = violation;
    }
    if (result_.violation.empty()) result_.violation = "an incident never ends";
    result_.trace = *trace;
    return true;
  }

  const Rules& rules_;
  const int depth_;
  WalkResult result_;
  std::deque<Visited> queue_;
  std::unordered_set<size_t> known_;
};

}  // namespace

WalkResult Walk(const Rules& rules, int depth) {
  return Checker(rules, depth).Walk();
}

Rules RulesOfTheWalk(Mode mode) {
  Rules rules;
  rules.mode = mode;
  rules.policies[kCrash] = {.act = Act::kIsolate};
  rules.policies[kSlow] = {.act = Act::kRestart};
  rules.policies[kLostNode] = {.act = Act::kIsolate};
  rules.attempts = 2;
  rules.rounds = 2;
  rules.isolations_per_hour = 2;
  rules.restarts_per_hour = 2;
  return rules;
}

}  // namespace c4::test
