// What may be to blame for a set of slow queue pairs, one thing alone: what all of them use and what those
// that are well do not contradict. And what is left of that after more has been seen.
//
// A thing that is bad slows every queue pair that uses it in a bad direction: those in which the suspects use
// it. A queue pair that is well and uses it in such a direction contradicts it; one that is slow and does not
// use it at all is not explained by it. Where a queue pair's path is not known, it says nothing about links.
//
// Pure; any thread; no errors.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "c4d_master/intervention/flow.h"
#include "c4d_master/intervention/thresholds.h"

namespace c4::c4d {

struct Candidate {
  Thing thing;
  std::set<std::string> directions;  // of the suspects
};

// A queue pair on a way, and what it was found to be there.
struct Observation {
  Flow flow;
  bool slow = false;
};

// Speaks for what it uses being well.
bool IsWell(const Flow& flow, const InterventionThresholds& thresholds);
// Whether it uses the candidate in a bad direction.
bool TakesBadly(const Flow& flow, const Candidate& candidate);

// By kind, then name. `flows`: all that are seen, the suspects among them.
std::vector<Candidate> CandidatesOf(const std::vector<Flow>& suspects, const std::vector<Flow>& flows,
                                    const InterventionThresholds& thresholds);

std::vector<Candidate> Narrowed(const std::vector<Candidate>& candidates,
                                const std::vector<Observation>& seen);

size_t CountKind(const std::vector<Candidate>& candidates, ThingKind kind);

// "link leaf0-spine0, NIC 10.0.0.2 of host0, rank 3".
std::string CandidatesText(const std::vector<Candidate>& candidates);

}  // namespace c4::c4d
