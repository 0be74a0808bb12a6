#include "c4d_master/intervention/flow.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "c4d_master/link_names.h"
#include "service/text.h"

namespace c4::c4d {

using service::Concat;

const Flow* FindFlow(const std::vector<Flow>& flows, const Flow& wanted) {
  const auto found =
      std::find_if(flows.begin(), flows.end(), [&](const Flow& flow) { return flow.IsSame(wanted); });
  return found == flows.end() ? nullptr : &*found;
}

std::vector<Use> UsesOf(const Flow& flow) {
  std::vector<Use> uses;
  uses.push_back(
      {{ThingKind::kRank, Concat("rank ", flow.from_rank), flow.from_host, flow.from_rank}, "out"});
  uses.push_back({{ThingKind::kNic, flow.from_nic, flow.from_host, -1}, "out"});
  for (size_t i = 1; i + 1 < flow.links.size(); ++i) {
    uses.push_back({{ThingKind::kLink, CableOf(flow.links[i]), "", -1}, flow.links[i]});
  }
  uses.push_back({{ThingKind::kNic, flow.to_nic, flow.to_host, -1}, "in"});
  uses.push_back({{ThingKind::kRank, Concat("rank ", flow.to_rank), flow.to_host, flow.to_rank}, "in"});
  return uses;
}

bool TakesThing(const Flow& flow, const Thing& thing) {
  const std::vector<Use> uses = UsesOf(flow);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.thing == thing; });
}

std::string WayText(const std::vector<Flow>& flows) {
  std::set<std::string> highest;
  for (const Flow& flow : flows) {
    std::string top;
    for (size_t i = 1; i + 1 < flow.links.size(); ++i) {
      if (!LeadsUp(flow.links[i])) continue;
      top = std::string(UpperEndOf(flow.links[i]));
    }
    if (!top.empty()) highest.insert(top);
  }
  return absl::StrJoin(highest, ", ");
}

std::string EndsText(const std::vector<Flow>& flows) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const Flow& flow : flows) pairs.insert({flow.from_rank, flow.to_rank});
  if (pairs.size() > 2) return Concat(pairs.size(), " pairs of ranks");
  std::vector<std::string> texts;
  for (const auto& [from, to] : pairs) texts.push_back(Concat("rank ", from, " to rank ", to));
  return absl::StrJoin(texts, " and ");
}

std::string CountText(size_t queue_pairs) {
  return Concat(queue_pairs, queue_pairs == 1 ? " queue pair" : " queue pairs");
}

}  // namespace c4::c4d
