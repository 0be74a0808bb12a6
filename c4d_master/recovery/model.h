// What recovery knows and says, as plain values: nodes, incidents, commands to a scheduler, and the rules
// that bind them (docs/recovery.md). The machine (machine.h) moves one State by Events; everything of it is
// in here, so that it can be stored, compared and walked by a model checker.
//
// Moments are Unix nanoseconds: the state survives a restart. No I/O, no clock, no protobuf.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace c4::c4d::recovery {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr size_t kSyndromes = 11;  // a policy for each
inline constexpr size_t kLostNode = 6;
inline constexpr int kFailSlow = 35;
// By policy the number in proto/c4/v1/c4d.proto.
inline constexpr std::array<int, kSyndromes> kSyndromeNumbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, kFailSlow};

enum class Mode { kDryRun, kManual, kAutomatic };
// What a verdict of a syndrome leads to: restart the job where it is, or without the node that is to blame.
enum class Act { kNone, kRestart, kIsolate };

struct SyndromePolicy {
  Act act = Act::kNone;
  double min_confidence = 0.5;
  int strikes =
      1;  // the node is isolated from the Nth verdict in strike_window_ns on; before, act is kRestart

  friend bool operator==(const SyndromePolicy&, const SyndromePolicy&) = default;
};

// What binds the automation. A person is not bound by it.
struct Rules {
  Mode mode = Mode::kDryRun;
  std::array<SyndromePolicy, kSyndromes> policies;
  double max_share = 1.0 / 16;  // of all nodes: isolated by itself at a time
  int min_nodes = 1;            // so many may be, however few nodes there are
  int isolations_per_hour = 4;
  int restarts_per_hour = 6;
  int attempts = 3;   // of a command that fails
  int rounds = 3;     // restarts of one incident
  bool check = true;  // a node that was isolated is looked at, and given back when it is well
  int64_t verdict_max_age_ns = 300 * kSecond;
  int64_t backup_wait_ns = 600 * kSecond;
  int64_t isolate_timeout_ns = 30 * kSecond;
  int64_t restart_timeout_ns = 120 * kSecond;
  int64_t running_timeout_ns = 600 * kSecond;
  int64_t check_timeout_ns = 900 * kSecond;
  int64_t immunity_ns = 3600 * kSecond;  // after a person gave a node back
  int64_t strike_window_ns = 86'400 * kSecond;
  int64_t silent_ns = 30 * kSecond;  // of an agent, while the job that was restarted does not run

  friend bool operator==(const Rules&, const Rules&) = default;
};

// Whose a node is. A node of the job may be in any of these: the scheduler knows nothing of ranks.
enum class NodeState {
  kFree,       // the scheduler may use it: of the job, or a spare one
  kReserved,   // a spare one that an incident will use
  kIsolating,  // a command to isolate it is on its way, or was given up without an answer
  kIsolated,   // by us
  kOut,        // by us, and its check failed: a person has to give it back
  kReturning,  // a command to give it back is on its way
  kForeign,    // somebody else has it: drained by a person, used for something else
  kGone,       // the scheduler does not know it, or says that it is down
};

struct Node {
  NodeState state = NodeState::kFree;
  bool in_use = false;       // ranks of the job run on it
  bool automated = false;    // isolated without a person's word
  bool held = false;         // a person wants it out: no check gives it back
  bool wanted_back = false;  // a person wants it back
  bool checked = false;      // it was isolated, and its check has passed
  uint64_t incident = 0;     // for which it was isolated or reserved
  uint64_t last_command = 0;
  int64_t since_ns = 0;
  int64_t immune_until_ns = 0;
  std::vector<int64_t> strikes_ns;
  std::string why;

  friend bool operator==(const Node&, const Node&) = default;
};

// What a driver is asked for. A command may be run more than once under its number, when nobody knows what
// became of it: the second time has to find that it was done, and say so.
struct Command {
  enum class Kind { kIsolate, kRestart, kCheck, kGiveBack };

  struct Replacement {
    std::string node;
    std::string backup;
    friend bool operator==(const Replacement&, const Replacement&) = default;
  };

  uint64_t id = 0;
  Kind kind = Kind::kIsolate;
  uint64_t incident = 0;
  std::string node;                  // all but kRestart
  std::vector<Replacement> replace;  // kRestart
  std::vector<std::string> exclude;  // kRestart: nodes that the job must not run on
  uint32_t from = 0;                 // kRestart: the incarnation that ends
  uint32_t to = 0;                   // and the one that begins; a driver refuses what is not above its own
  std::string reason;
  int attempt = 1;
  int64_t deadline_ns = 0;  // of this attempt

  friend bool operator==(const Command&, const Command&) = default;
};

enum class Phase {
  kProposed,  // nothing is done: `hold` says why
  kWaiting,   // for a backup node
  kIsolating,
  kRestarting,
  kWatching,  // whether the job runs again
  // The end:
  kRecovered,
  kFailed,   // `reason`; a person has to look
  kDenied,   // by a person
  kDropped,  // nothing is left to be done
};
inline bool IsEnd(Phase phase) {
  return phase >= Phase::kRecovered;
}
inline bool IsUnderWay(Phase phase) {
  return phase != Phase::kProposed && !IsEnd(phase);
}

enum class Hold { kNone, kDryRun, kManual, kCap, kRate, kBusy = 6 };

struct IncidentNode {
  std::string name;
  bool isolate = false;  // wanted; else the job is restarted as it is
  bool done = false;     // isolated, or found to be out already
  std::string backup;    // reserved

  friend bool operator==(const IncidentNode&, const IncidentNode&) = default;
};

struct Incident {
  uint64_t id = 0;
  std::vector<std::string> verdicts;  // ids; empty: asked for by a person
  int syndrome = 0;                   // of the first
  std::vector<std::string> open;      // those that are not cleared
  std::vector<IncidentNode> nodes;
  Phase phase = Phase::kProposed;
  Hold hold = Hold::kNone;
  bool approved = false;  // by a person
  std::string by;         // who
  std::string reason;     // why it is where it is
  uint32_t from = 0;      // the incarnation that it is about
  int round = 0;          // restarts
  int64_t deadline_ns = 0;
  int64_t last_seen_ns = 0;  // when telemetry last showed one of its verdicts
  // What downtime is measured by (downtime.h); 0: not yet.
  int64_t onset_ns = 0;
  int64_t confirmed_ns = 0;
  int64_t admitted_ns = 0;
  int64_t isolated_ns = 0;
  int64_t restarted_ns = 0;
  int64_t running_ns = 0;
  int64_t ended_ns = 0;
  int64_t checkpoint_ns = 0;  // of the last one that was whole; 0: nobody said

  friend bool operator==(const Incident&, const Incident&) = default;
};

struct State {
  uint64_t next_incident = 1;
  uint64_t next_command = 1;
  uint32_t incarnation = 0;    // of the job, as far as we know
  uint32_t highest_asked = 0;  // incarnation that a restart was asked to begin
  int64_t restarted_ns = 0;    // when it last began
  std::map<std::string, Node> nodes;
  std::vector<Incident> incidents;     // by id; of those that ended the newest
  std::vector<std::string> handled;    // verdicts that were acted on or decided about; oldest first
  std::vector<int64_t> isolations_ns;  // automated, of the last hour
  std::vector<int64_t> restarts_ns;    // as well
  std::optional<Command> in_flight;

  friend bool operator==(const State&, const State&) = default;
};

struct Event {
  enum class Kind {
    kVerdict,    // confirmed, or confirmed still
    kCleared,    // a verdict is over
    kReply,      // of a driver
    kRunning,    // the job makes progress as that incarnation
    kInventory,  // what the scheduler says of all nodes
    kApprove,    // a person, of an incident
    kDeny,
    kIsolate,  // a person, of a node
    kRelease,
    kTick,
    kStarted,  // this master has begun, with the state of an earlier one
  };
  enum class Outcome { kDone, kRefused, kUnknown };
  // As the scheduler sees it.
  enum class Sight { kFree, kIsolated, kOther, kGone };
  struct Seen {
    std::string node;
    Sight sight = Sight::kFree;
    bool in_use = false;
  };

  Kind kind = Kind::kTick;
  int64_t now_ns = 0;
  // kVerdict
  std::string verdict;  // also kCleared
  int syndrome = 0;
  double confidence = 0;
  std::string node;          // also kIsolate, kRelease; empty: it names none
  uint32_t incarnation = 0;  // also kRunning, kInventory; kReply of a restart: which begins, 0: as asked
  int64_t onset_ns = 0;
  int64_t confirmed_ns = 0;
  int64_t seen_ns = 0;  // when telemetry last showed it
  // kReply
  uint64_t command = 0;
  Outcome outcome = Outcome::kDone;
  int64_t checkpoint_ns = 0;  // the job's last whole checkpoint, where the driver says
  // kInventory
  uint64_t as_of_command = 0;  // the last one that had ended before it was asked for
  std::vector<Seen> seen;
  bool failed = false;  // the job has ended and failed, as `incarnation`
  // kApprove, kDeny
  uint64_t incident = 0;
  std::string text;  // why; kReply: what the driver said
  std::string by;    // of a person
  // kTick
  std::vector<std::string> silent;  // nodes whose agents have been so for Rules::silent_ns
};

struct Action {
  enum class Kind { kRun, kAudit };
  Kind kind = Kind::kAudit;
  Command command;        // kRun
  uint64_t incident = 0;  // kAudit; 0: of none
  std::string node;       // kAudit; may be empty
  std::string what;       // kAudit: a word that a program can match
  std::string text;       // kAudit: a sentence
};

}  // namespace c4::c4d::recovery
