#include "c4d_master/intervention/candidates.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_join.h"
#include "service/text.h"

namespace c4::c4d {

using service::Concat;

bool IsWell(const Flow& flow, const InterventionThresholds& thresholds) {
  return flow.sound && flow.judged && !flow.slow && !flow.unclear && flow.chunks >= thresholds.min_chunks;
}

bool TakesBadly(const Flow& flow, const Candidate& candidate) {
  const std::vector<Use> uses = UsesOf(flow);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return use.thing == candidate.thing && candidate.directions.contains(use.direction);
  });
}

std::vector<Candidate> CandidatesOf(const std::vector<Flow>& suspects, const std::vector<Flow>& flows,
                                    const InterventionThresholds& thresholds) {
  struct Count {
    size_t suspects = 0;
    std::set<std::string> directions;
  };
  std::map<Thing, Count> counts;
  for (const Flow& suspect : suspects) {
    std::set<Thing> of_this;
    for (const Use& use : UsesOf(suspect)) {
      counts[use.thing].directions.insert(use.direction);
      of_this.insert(use.thing);
    }
    for (const Thing& thing : of_this) ++counts[thing].suspects;
  }
  // A few small chunks pass whatever is slow: what speaks for a thing has sent about as much as a suspect.
  double least_bytes = std::numeric_limits<double>::max();
  for (const Flow& suspect : suspects) least_bytes = std::min(least_bytes, suspect.bytes / 2);
  std::vector<Candidate> candidates;
  for (const auto& [thing, count] : counts) {
    if (count.suspects < suspects.size()) continue;
    const Candidate candidate = {thing, count.directions};
    size_t well = 0;
    for (const Flow& flow : flows) {
      if (flow.bytes >= least_bytes && IsWell(flow, thresholds) && TakesBadly(flow, candidate)) ++well;
    }
    const auto all = static_cast<double>(well + count.suspects);
    if (static_cast<double>(well) > thresholds.contradicting * all) continue;
    candidates.push_back(candidate);
  }
  return candidates;
}

std::vector<Candidate> Narrowed(const std::vector<Candidate>& candidates,
                                const std::vector<Observation>& seen) {
  std::vector<Candidate> left;
  for (const Candidate& candidate : candidates) {
    const bool holds = std::all_of(seen.begin(), seen.end(), [&](const Observation& one) {
      if (candidate.thing.kind == ThingKind::kLink && one.flow.links.empty()) return true;
      return one.slow ? TakesThing(one.flow, candidate.thing) : !TakesBadly(one.flow, candidate);
    });
    if (holds) left.push_back(candidate);
  }
  return left;
}

size_t CountKind(const std::vector<Candidate>& candidates, ThingKind kind) {
  return static_cast<size_t>(std::count_if(candidates.begin(), candidates.end(),
                                           [kind](const Candidate& one) { return one.thing.kind == kind; }));
}

std::string CandidatesText(const std::vector<Candidate>& candidates) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : candidates) {
    const Thing& thing = candidate.thing;
    switch (thing.kind) {
      case ThingKind::kLink:
        texts.push_back(Concat("link ", thing.name));
        break;
      case ThingKind::kNic:
        texts.push_back(Concat("NIC ", thing.name, " of ", thing.host));
        break;
      case ThingKind::kRank:
        texts.push_back(Concat(thing.name, " on ", thing.host));
        break;
    }
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace c4::c4d
