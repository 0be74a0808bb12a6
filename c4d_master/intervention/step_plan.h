// The next step of an experiment: which queue pairs are to move where, so that what is left of the candidates
// is told apart, and which neighbours move beside them so that a change of load does not pass for an answer.
//
//   off the path    some of the suspects to ways that avoid the candidate links, over the same NICs. They are
//                   fast there: it is a link. They are as slow: it is a NIC or a rank.
//   to another NIC  the same to other NICs of the same ranks (another plane): fast, it is a NIC; slow, a
//   rank. onto a link     a neighbour that is well onto one of several candidate links: slow there, it is
//   that link.
//
// Where there are several suspects half of them stay: if they become fast as well, the trouble went away by
// itself. A single one is moved back afterwards, and has to be slow again (experiment.h).
//
// Pure; any thread; no errors.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "c4d_master/intervention/candidates.h"

namespace c4::c4d {

enum class StepKind { kOffPath, kOtherNic, kOnto };

enum class MoveRole { kSuspect, kControl, kProbe };
std::string_view MoveRoleWord(MoveRole role);  // "suspect", "control", "probe"

// What C4P is asked for.
struct WantedMove {
  Flow flow;
  MoveRole role = MoveRole::kSuspect;
  std::vector<std::string> avoid;  // cables
  std::string through;             // a directed link; empty: any way
  bool other_nic = false;
  bool optional = false;  // the others move without it, too
};

struct StepPlan {
  StepKind kind = StepKind::kOffPath;
  std::vector<WantedMove> moves;
  std::vector<Flow> stayed;    // suspects that stay, as they are before
  std::vector<Flow> controls;  // as they are before, moved or not
  std::string onto;            // cable, of kOnto
  std::string through;         // its directed link
};

// `suspects` and `flows` as they are now; `tried`: directed links onto which neighbours were moved already.
// None, and `why`: nothing that can be done would tell the candidates apart.
std::optional<StepPlan> PlanStep(const std::vector<Candidate>& candidates, const std::vector<Flow>& suspects,
                                 const std::vector<Flow>& flows, const std::set<std::string>& tried,
                                 const InterventionThresholds& thresholds, std::string* why);

}  // namespace c4::c4d
