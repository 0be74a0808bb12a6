// What can be injected into a job: the kinds, what each takes, and the schedule file (docs/inject.md).
//
// Pure; any thread. Errors are sentences for users and name the entry of a schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::fabric {

enum class Kind {
  kStop,       // SIGSTOP of a rank
  kKill,       // SIGKILL of a rank
  kMismatch,   // SIGUSR2 to a rank, which then calls its next collective with another count
  kJitter,     // short pauses of a rank
  kAgentStop,  // SIGSTOP of a host's agent
  kSlowRank,   // a lower CPU quota of a host
  kSlowLink,   // a lower rate of a leaf-spine link, both directions
  kSlowNic,    // a lower rate of a host's link, both directions
  kCut,        // a link drops everything in silence, both directions
  kNodeLoss,   // a host's ranks and agent stop and its links drop everything, the management network's too
};

// What a kind acts on.
enum class TargetKind { kRank, kHost, kUplink, kAnyLink };

const std::vector<Kind>& AllKinds();
const char* KindName(Kind kind);
const char* KindSummary(Kind kind);
absl::StatusOr<Kind> ParseKind(std::string_view name);
TargetKind TargetOf(Kind kind);
// Not possible on a job that runs over loopback.
bool NeedsFabric(Kind kind);
// It cannot be undone: the next incarnation of the job is without it.
bool EndsTheJob(Kind kind);

struct Injection {
  Kind kind = Kind::kStop;
  std::string target;    // rank2, host3, leaf0-spine1; empty: chosen by the seed
  double at_s = 0;       // in a schedule: from its start
  double for_s = 0;      // healed after that; 0: it stays
  double rate_mbps = 0;  // slow-link, slow-nic; 0: a tenth of the link's rate, 20 where that has none
  double percent =
      0;  // slow-rank: the new quota in % of one core; 0: a third of the old one, 10 where there is none
  double pause_ms = 80;   // jitter: length of a pause, at most 100
  double every_ms = 500;  // jitter: from one pause to the next
};

inline constexpr double kLongestPauseMs = 100;

// What does not depend on the job: values out of range, options of another kind.
absl::Status CheckInjection(const Injection& injection);

// A JSON list of objects with the keys at_s, kind, target, for_s, rate_mbps, percent, pause_ms, every_ms, of
// which only kind is needed. Sorted by at_s.
absl::StatusOr<std::vector<Injection>> ParseSchedule(std::string_view text);

}  // namespace c4::fabric
