#include "c4d_master/intervention/step_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "c4d_master/link_names.h"

namespace c4::c4d {
namespace {

std::vector<std::string> Cables(const std::vector<Candidate>& candidates) {
  std::vector<std::string> cables;
  for (const Candidate& candidate : candidates) {
    if (candidate.thing.kind == ThingKind::kLink) cables.push_back(candidate.thing.name);
  }
  return cables;
}

bool IsAmong(const Flow& flow, const std::vector<Flow>& flows) {
  return FindFlow(flows, flow) != nullptr;
}

size_t UsedCandidates(const Flow& flow, const std::vector<Candidate>& candidates) {
  return static_cast<size_t>(std::count_if(candidates.begin(), candidates.end(), [&](const Candidate& one) {
    return TakesThing(flow, one.thing);
  }));
}

// Neighbours that are well: those that have least to do with the candidates first, then those of the
// suspects' communicator, then who carries most, of each connection one.
std::vector<Flow> ControlsOf(const std::vector<Candidate>& candidates, const std::vector<Flow>& suspects,
                             const std::vector<Flow>& flows, const std::vector<Flow>& taken,
                             const InterventionThresholds& thresholds) {
  std::set<uint64_t> communicators;
  for (const Flow& suspect : suspects) communicators.insert(suspect.communicator_id);
  std::vector<std::tuple<size_t, bool, double, const Flow*>> choice;
  for (const Flow& flow : flows) {
    if (!IsWell(flow, thresholds) || flow.links.size() < 3) continue;
    if (IsAmong(flow, suspects) || IsAmong(flow, taken)) continue;
    const bool badly = std::any_of(candidates.begin(), candidates.end(),
                                   [&](const Candidate& one) { return TakesBadly(flow, one); });
    if (badly) continue;
    choice.emplace_back(UsedCandidates(flow, candidates), !communicators.contains(flow.communicator_id),
                        -flow.chunks, &flow);
  }
  std::stable_sort(choice.begin(), choice.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)) <
           std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b));
  });
  std::vector<Flow> controls;
  std::set<std::tuple<uint64_t, int32_t, int32_t, uint32_t>> connections;
  for (const auto& entry : choice) {
    const Flow& flow = *std::get<3>(entry);
    if (controls.size() >= thresholds.controls) break;
    const auto connection = std::tuple(flow.communicator_id, flow.from_rank, flow.to_rank, flow.channel);
    if (connections.insert(connection).second) controls.push_back(flow);
  }
  return controls;
}

// Whether its hosts have other NICs than those that it uses, as far as is seen.
bool HasOtherNic(const Flow& suspect, const std::vector<Flow>& flows) {
  const auto has = [&](const std::string& host, const std::string& nic) {
    return std::any_of(flows.begin(), flows.end(), [&](const Flow& flow) {
      return (flow.from_host == host && flow.from_nic != nic) || (flow.to_host == host && flow.to_nic != nic);
    });
  };
  return has(suspect.from_host, suspect.from_nic) && has(suspect.to_host, suspect.to_nic);
}

// The directed link by which the flow would enter the candidate's cable: that with the same lower end as a
// bad direction of it, up where the flow goes up there.
std::string LinkOnto(const Flow& flow, const Candidate& candidate, bool same_direction) {
  for (const std::string& bad : candidate.directions) {
    for (size_t i = 1; i + 1 < flow.links.size(); ++i) {
      const std::string& link = flow.links[i];
      if (LowerEndOf(link) != LowerEndOf(bad)) continue;
      if ((LeadsUp(link) == LeadsUp(bad)) != same_direction) continue;
      std::string wanted = bad;
      wanted[wanted.find_first_of("<>")] = LeadsUp(link) ? '>' : '<';
      return wanted;
    }
  }
  return "";
}

// A neighbour, and which link it is to be moved onto. That in the suspects' own direction says more: it is
// fast only if the link is well.
std::optional<StepPlan> PlanOnto(const std::vector<Candidate>& candidates, const std::vector<Flow>& suspects,
                                 const std::vector<Flow>& flows, const std::set<std::string>& tried,
                                 const InterventionThresholds& thresholds) {
  const std::vector<std::string> cables = Cables(candidates);
  for (const bool same_direction : {true, false}) {
    const Flow* best = nullptr;
    const Candidate* onto = nullptr;
    std::string through;
    for (const Flow& flow : flows) {
      if (!IsWell(flow, thresholds) || flow.links.size() < 3 || IsAmong(flow, suspects)) continue;
      for (const Candidate& candidate : candidates) {
        if (candidate.thing.kind != ThingKind::kLink || TakesThing(flow, candidate.thing)) continue;
        const std::string link = LinkOnto(flow, candidate, same_direction);
        // On that spine it must not take another candidate as well.
        const bool others = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
          return !(other.thing == candidate.thing) && other.thing.kind == ThingKind::kLink &&
                 (!LinkOnto(flow, other, true).empty() || !LinkOnto(flow, other, false).empty());
        });
        if (link.empty() || others || tried.contains(link) ||
            (best != nullptr && best->chunks >= flow.chunks))
          continue;
        best = &flow;
        onto = &candidate;
        through = link;
      }
    }
    if (best == nullptr) continue;
    StepPlan plan;
    plan.kind = StepKind::kOnto;
    plan.onto = onto->thing.name;
    plan.through = through;
    std::vector<std::string> avoid = cables;
    std::erase(avoid, plan.onto);
    plan.moves.push_back({*best, MoveRole::kProbe, avoid, through, false, false});
    plan.controls = ControlsOf(candidates, suspects, flows, {*best}, thresholds);
    return plan;
  }
  return std::nullopt;
}

}  // namespace

std::string_view MoveRoleWord(MoveRole role) {
  switch (role) {
    case MoveRole::kSuspect:
      return "suspect";
    case MoveRole::kControl:
      return "control";
    case MoveRole::kProbe:
      return "probe";
  }
  return "unknown";
}

std::optional<StepPlan> PlanStep(const std::vector<Candidate>& candidates, const std::vector<Flow>& suspects,
                                 const std::vector<Flow>& flows, const std::set<std::string>& tried,
                                 const InterventionThresholds& thresholds, std::string* why) {
  const size_t links = CountKind(candidates, ThingKind::kLink);
  const size_t nics = CountKind(candidates, ThingKind::kNic);
  const size_t ranks = CountKind(candidates, ThingKind::kRank);
  if (candidates.size() < 2) {
    *why = candidates.empty()
               ? "there is no one thing that all that are slow use and those that are well do not"
               : "nothing but one thing is to blame already";
    return std::nullopt;
  }
  std::optional<StepPlan> plan;
  const std::vector<std::string> cables = Cables(candidates);
  if (links > 0 && nics + ranks == 0) {
    plan = PlanOnto(candidates, suspects, flows, tried, thresholds);
    if (!plan) *why = "no neighbour could be moved onto one of the links and not the others";
  } else if (links > 0 || (nics > 0 && ranks > 0)) {
    StepPlan step;
    step.kind = links > 0 ? StepKind::kOffPath : StepKind::kOtherNic;
    for (size_t i = 0; i < suspects.size(); ++i) {
      const bool possible =
          suspects[i].sound && (step.kind == StepKind::kOffPath || HasOtherNic(suspects[i], flows));
      if (i % 2 == 0 && possible && step.moves.size() < thresholds.most_suspects) {
        step.moves.push_back(
            {suspects[i], MoveRole::kSuspect, cables, "", step.kind == StepKind::kOtherNic, false});
      } else {
        step.stayed.push_back(suspects[i]);
      }
    }
    step.controls = ControlsOf(candidates, suspects, flows, {}, thresholds);
    if (step.moves.empty()) {
      *why = "the ranks have no other NICs that would tell a NIC from its rank";
    } else {
      plan = std::move(step);
    }
  } else {
    *why = "their ends cannot be told apart by moving queue pairs";
  }
  if (!plan) return std::nullopt;
  if (plan->controls.empty()) {
    *why = "no queue pair that is well could serve as a control";
    return std::nullopt;
  }
  for (const Flow& control : plan->controls) {
    plan->moves.push_back({control, MoveRole::kControl, cables, "", false, true});
  }
  return plan;
}

}  // namespace c4::c4d
