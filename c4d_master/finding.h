// What a detector says: who is to blame for what, at one moment. A finding has no history; the verdicts
// (verdicts.h) give it one. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "c4d_master/job_state.h"

namespace c4::c4d {

// The numbers are those of c4.v1.Syndrome.
enum class Syndrome {
  kCommunicationHang = 1,
  kNonCommunicationHang = 2,
  kCommunicationSlow = 3,
  kNonCommunicationSlow = 4,
  kCrash = 5,
  kLostNode = 6,
  kMismatch = 7,
  kNeverJoined = 8,
  kPathLost = 9,
  kFailSlow = 35,
};

// The numbers are those of c4.v1.CulpritKind.
enum class CulpritKind { kRank = 1, kNode = 2, kNic = 3, kConnection = 4, kAmbiguous = 5, kLink = 6 };

// A queue pair between two of the job's ranks.
struct ConnectionRef {
  int32_t from_rank = -1;
  int32_t to_rank = -1;
  std::string from_host;
  std::string to_host;
  std::string local;
  std::string remote;
  uint64_t communicator_id = 0;
  uint32_t channel = 0;
  uint32_t index = 0;
  uint64_t queue_pair_number = 0;
  double ratio = 0;
};

struct Evidence {
  std::string kind;  // a word: process-state, absent, inside, waiting, connection, progress, rhythm
  std::string text;  // a sentence
};

// What a node's hardware or kernel said (hardware_log.h).
struct HardwareSign {
  std::string host;
  std::string kind;  // a word: xid, link-down, out-of-memory, … (docs/health.md)
  std::string device;
  uint64_t number = 0;
  std::string text;  // a phrase
  uint32_t times = 0;
  std::string address;  // of a NIC
  int64_t unix_ns = 0;
};

// The numbers are those of c4.v1.FailSlowCause.
enum class FailSlowCause { kUnknown = 0, kComputation = 1, kCommunication = 2, kBoth = 3 };

// A group of ranks that takes longer than others of its kind (failslow/group_profile.h).
struct SlowGroup {
  std::string kind;
  std::vector<int32_t> ranks;  // the job's, ascending
  uint64_t communicator_id = 0;
  double ratio = 0;
  double seconds = 0;  // an iteration
  double median_seconds = 0;
  uint32_t of = 0;  // groups of its kind
};

// What a fail-slow is (failslow/episode.h).
struct FailSlowFacts {
  double before_s = 0;
  double after_s = 0;
  bool creeping = false;
  FailSlowCause cause = FailSlowCause::kUnknown;
  int64_t relief_at_ns = kNever;
  uint64_t iterations = 0;
  double lost_s = 0;
  size_t ranks = 0;
  size_t watched = 0;
  std::string known_from;             // "c4d", "profile"; empty: the culprit is not known
  std::vector<std::string> verdicts;  // of C4D
  std::vector<SlowGroup> groups;
};

struct Finding {
  Syndrome syndrome = Syndrome::kNonCommunicationHang;

  CulpritKind kind = CulpritKind::kRank;
  std::string nic;
  std::vector<ConnectionRef> connections;
  std::vector<int32_t> candidates;  // where it is ambiguous, ascending
  // Directed; the bad ones of `cable`, or where no link is named the candidates.
  std::vector<std::string> links;
  std::string cable;  // of a link
  // Cables that connections take of which no link is named: a verdict about one of them may be this one's.
  std::set<std::string> taken;

  ProcessKey culprit;  // of a rank
  std::string host;
  int32_t rank = -1;  // the job's
  ProcessState state = ProcessState::kUnknown;
  std::string wait_channel;
  std::string last_call;

  uint64_t communicator_id = 0;         // where the culprit is waited for
  uint64_t operation = 0;               // that it is waited for in, from 0
  std::vector<uint32_t> waiting;        // the job's ranks, directly or through others, ascending
  std::vector<uint64_t> communicators;  // all that stand still because of it

  int64_t since_at_ns = kNever;  // the last step of the communicator
  // An experiment has settled it (intervention/): it takes over the verdict about these connections, whatever
  // that said.
  bool settled = false;
  double confidence = 0;
  std::string confirmed_by;  // empty: no more than a suspicion
  std::vector<Evidence> evidence;
  std::vector<HardwareSign> hardware;  // of its hosts, around the onset
  std::string suggested_action;
  std::optional<FailSlowFacts> fail_slow;  // of that syndrome
};

}  // namespace c4::c4d
