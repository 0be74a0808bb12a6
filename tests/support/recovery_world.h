// The small world that the model checker of recovery walks through (recovery_checker.h), and the key by which
// it knows a world again. One thread.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/recovery/machine.h"

namespace c4::test {

using namespace c4d::recovery;  // NOLINT(google-build-using-namespace): of these two files alone

inline constexpr int kCrash = 5;
inline constexpr int kSlow = 4;
inline constexpr int64_t kBegin = 1'700'000'000 * kSecond;

struct KnownVerdict {
  const char* id;
  const char* node;
  uint32_t incarnation;
  int syndrome;
};
inline constexpr KnownVerdict kVerdicts[] = {{"v1", "n1", 0, kCrash},
                                             {"v2", "n2", 0, kCrash},
                                             {"v3", "n2", 1, kCrash},
                                             {"v4", "s1", 1, kCrash},
                                             {"v5", "n1", 0, kSlow}};

inline const KnownVerdict& VerdictOf(const std::string& id) {
  return *std::find_if(std::begin(kVerdicts), std::end(kVerdicts),
                       [&id](const KnownVerdict& verdict) { return verdict.id == id; });
}

// The machine, and what the world has seen.
struct World {
  State state;
  int64_t now_ns = kBegin;
  uint32_t incarnation = 0;          // that the job really is in
  std::vector<Command> asked;        // not answered, whoever still waits for it
  std::set<std::string> out;         // isolated by us as far as anybody outside can tell
  std::set<std::string> automated;   // of these: without a person
  std::set<std::string> wanted_out;  // by a person
  std::set<std::string> checked;
  std::map<std::string, int64_t> released_ns;  // by a person
  std::set<std::string> taken;                 // somebody else has it
  std::set<std::string> cleared;
  std::map<std::string, int64_t> confirmed_ns;
  std::map<std::string, int64_t> seen_ns;
  std::map<std::string, uint64_t> incident_of;  // verdict
  std::set<uint64_t> denied;
  std::set<uint64_t> under_way;  // incidents that have been admitted
  std::vector<int64_t> isolations_ns;
  std::vector<int64_t> restarts_ns;
  std::set<std::string> in_use = {"n1", "n2"};
  // The job does no iterations: these verdicts, of which the machine was told in time, say so; or it is being
  // started. Somebody has to be bound to start it again, but where that was given up or a person said no.
  std::set<std::string> down;
  bool starting = false;
  bool given_up = false;
};

// Everything that the future depends on; moments as ages.
class KeyWriter {
 public:
  explicit KeyWriter(const World& world) : now_ns_(world.now_ns) { Write(world); }
  std::string Take() { return std::move(key_); }

 private:
  void Put(const std::string& text) { key_ += text + ";"; }
  void Put(int64_t number) { Put(std::to_string(number)); }
  void PutAge(int64_t at_ns) { Put(at_ns == 0 ? -1 : (now_ns_ - at_ns) / kSecond); }
  template <typename Set>
  void PutAll(const Set& set) {
    for (const auto& item : set) Put(item);
    key_ += "|";
  }
  void PutAges(const std::vector<int64_t>& moments) {
    for (const int64_t at_ns : moments) PutAge(at_ns);
    key_ += "|";
  }
  void PutAges(const std::map<std::string, int64_t>& moments) {
    for (const auto& [name, at_ns] : moments) {
      Put(name);
      PutAge(at_ns);
    }
    key_ += "|";
  }
  void Write(const Command& command) {
    Put(static_cast<int64_t>(command.id));
    Put(static_cast<int64_t>(command.kind));
    Put(command.node);
    Put(command.attempt);
    Put(command.to);
    PutAge(command.deadline_ns);
    for (const Command::Replacement& replacement : command.replace)
      Put(replacement.node + ">" + replacement.backup);
  }
  void Write(const Incident& incident) {
    Put(static_cast<int64_t>(incident.id));
    Put(static_cast<int64_t>(incident.phase));
    Put(static_cast<int64_t>(incident.hold));
    Put(incident.approved ? 1 : 0);
    Put(incident.round);
    Put(incident.from);
    PutAll(incident.verdicts);
    PutAll(incident.open);
    if (!IsEnd(incident.phase)) {
      PutAge(incident.deadline_ns);
      PutAge(incident.last_seen_ns);
    }
    for (const IncidentNode& node : incident.nodes) {
      Put(node.name + (node.isolate ? "!" : "") + (node.done ? "." : "") + node.backup);
    }
    key_ += "|";
  }
  void Write(const World& world) {
    const State& state = world.state;
    Put(state.incarnation);
    Put(state.highest_asked);
    PutAge(state.restarted_ns);
    for (const auto& [name, node] : state.nodes) {
      Put(name);
      Put(static_cast<int64_t>(node.state) * 64 + (node.in_use ? 1 : 0) + (node.automated ? 2 : 0) +
          (node.held ? 4 : 0) + (node.wanted_back ? 8 : 0) + (node.checked ? 16 : 0));
      Put(static_cast<int64_t>(node.last_command));
      if (node.immune_until_ns != 0) PutAge(node.immune_until_ns);
      PutAges(node.strikes_ns);
    }
    for (const Incident& incident : state.incidents) Write(incident);
    PutAll(state.handled);
    PutAges(state.isolations_ns);
    PutAges(state.restarts_ns);
    if (state.in_flight.has_value()) Write(*state.in_flight);
    Put(world.incarnation);
    for (const Command& command : world.asked) Put(static_cast<int64_t>(command.id));
    for (const auto* set : {&world.out, &world.automated, &world.wanted_out, &world.checked, &world.taken,
                            &world.cleared, &world.in_use}) {
      PutAll(*set);
    }
    PutAges(world.released_ns);
    PutAges(world.confirmed_ns);
    PutAges(world.seen_ns);
    PutAges(world.isolations_ns);
    PutAges(world.restarts_ns);
    PutAll(world.down);
    Put((world.starting ? 1 : 0) + (world.given_up ? 2 : 0));
    for (const uint64_t id : world.denied) Put(static_cast<int64_t>(id));
  }

  const int64_t now_ns_;
  std::string key_;
};

}  // namespace c4::test
