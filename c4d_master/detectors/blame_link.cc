#include "c4d_master/detectors/blame_link.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_join.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using analysis::FlowState;
using service::Concat;

class Names {
 public:
  uint32_t Of(const std::string& link) {
    const auto [it, is_new] = numbers_.try_emplace(link, static_cast<uint32_t>(links_.size()));
    if (is_new) {
      links_.push_back(link);
      const std::string cable = CableOf(link);
      const auto [at, is_first] = cables_.try_emplace(cable, static_cast<uint32_t>(cable_names_.size()));
      if (is_first) cable_names_.push_back(cable);
      cable_of_.push_back(at->second);
    }
    return it->second;
  }
  std::vector<uint32_t> Of(const LinkPath& path) {
    std::vector<uint32_t> numbers;
    numbers.reserve(path.size());
    for (const std::string& link : path) numbers.push_back(Of(link));
    // The first and the last link are the hosts' own.
    if (!numbers.empty()) host_cables_.insert({cable_of_[numbers.front()], cable_of_[numbers.back()]});
    return numbers;
  }
  const std::string& link(uint32_t number) const { return links_[number]; }
  const std::string& cable(uint32_t number) const { return cable_names_[number]; }
  const std::vector<uint32_t>& cable_of() const { return cable_of_; }
  bool IsHosts(uint32_t cable) const { return host_cables_.count(cable) != 0; }

 private:
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::string> links_;
  std::vector<uint32_t> cable_of_;
  std::map<std::string, uint32_t> cables_;
  std::vector<std::string> cable_names_;
  std::set<uint32_t> host_cables_;
};

bool Takes(const std::vector<uint32_t>& path, const std::vector<uint32_t>& links) {
  return std::any_of(path.begin(), path.end(), [&](uint32_t link) {
    return std::find(links.begin(), links.end(), link) != links.end();
  });
}

bool Takes(const analysis::FlowObservation& flow, const std::vector<uint32_t>& links, bool acks) {
  return Takes(flow.data, links) || (acks && Takes(flow.acks, links));
}

BlamedLink Count(const analysis::BadCable& cable, const std::vector<analysis::FlowObservation>& flows,
                 const std::vector<size_t>& witness_of, const Names& names, bool acks_count) {
  BlamedLink result;
  result.cable = names.cable(cable.cable);
  for (const uint32_t link : cable.links) result.links.push_back(names.link(link));
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].state == FlowState::kBad) {
      if (Takes(flows[i], cable.links, true)) {
        result.bad.push_back(witness_of[i]);
      } else {
        ++result.other_bad;
      }
    } else if (Takes(flows[i], cable.links, acks_count)) {
      ++result.good;
    } else {
      ++result.other_good;
    }
  }
  return result;
}

// The links that are candidates in the place of `cable`: of each cable the directions that bad flows take.
std::vector<std::string> Candidates(const analysis::BadCable& cable,
                                    const std::vector<analysis::FlowObservation>& flows, const Names& names) {
  std::set<uint32_t> cables(cable.instead.begin(), cable.instead.end());
  cables.insert(cable.cable);
  std::set<std::string> links;
  for (const analysis::FlowObservation& flow : flows) {
    if (flow.state != FlowState::kBad) continue;
    for (const auto* way : {&flow.data, &flow.acks}) {
      for (const uint32_t link : *way) {
        if (cables.count(names.cable_of()[link]) != 0) links.insert(names.link(link));
      }
    }
  }
  return {links.begin(), links.end()};
}

}  // namespace

Witness WitnessOf(const QueuePairEnds& ends, std::string_view local, std::string_view remote,
                  FlowState state) {
  Witness witness{std::string(local), std::string(remote), state, {}, {}};
  if (ends.answers != nullptr) {
    witness.ack_source = ends.answers->local;
    witness.ack_destination = ends.answers->remote;
  }
  return witness;
}

LinkBlame BlameLinks(const std::vector<Witness>& witnesses, bool acks_count, PathSource* paths,
                     const LinkBlameThresholds& thresholds) {
  LinkBlame result;
  if (paths == nullptr) return result;
  Names names;
  std::vector<analysis::FlowObservation> flows;
  std::vector<size_t> witness_of;
  size_t bad = 0;
  size_t bad_known = 0;
  bool any_known = false;
  for (size_t i = 0; i < witnesses.size(); ++i) {
    const Witness& witness = witnesses[i];
    // Also of those that say nothing now: their paths are soon to be known.
    const std::shared_ptr<const LinkPath> data = paths->Find(witness.local, witness.remote);
    const std::shared_ptr<const LinkPath> acks =
        witness.ack_source.empty() ? paths->Find(witness.remote, witness.local)
                                   : paths->Find(witness.ack_source, witness.ack_destination);
    if (witness.state == FlowState::kUnknown) continue;
    any_known = any_known || data != nullptr;
    const bool is_bad = witness.state == FlowState::kBad;
    bad += is_bad ? 1 : 0;
    if (data == nullptr) continue;
    bad_known += is_bad ? 1 : 0;
    analysis::FlowObservation flow;
    flow.data = names.Of(*data);
    if (acks != nullptr) flow.acks = names.Of(*acks);
    flow.state = witness.state;
    flow.weight = is_bad && acks_count && acks == nullptr ? thresholds.half_known : 1;
    flows.push_back(std::move(flow));
    witness_of.push_back(i);
  }
  if (bad_known == 0 || static_cast<double>(bad_known) < thresholds.least_known * static_cast<double>(bad)) {
    if (any_known) result.why = Concat("the paths of ", bad_known, " of ", bad, " of them are known");
    return result;
  }
  const analysis::Tomography found = analysis::FindBadLinks(
      names.cable_of(), flows,
      {.acks_count = acks_count, .culprit_cost = thresholds.culprit_cost, .margin = thresholds.margin});
  result.paths_known = true;
  if (found.cables.empty()) return result;
  if (found.cables.size() > thresholds.max_links) {
    result.why = Concat("it would take ", found.cables.size(), " links to explain them");
    return result;
  }
  std::vector<uint32_t> all;
  for (const analysis::BadCable& cable : found.cables) {
    if (cable.good > thresholds.contradicting * (cable.good + cable.bad)) {
      result.why = Concat(names.cable(cable.cable), " would explain ", cable.bad, " of them, but ",
                          cable.good, " that are well take it too");
      return result;
    }
    all.insert(all.end(), cable.links.begin(), cable.links.end());
  }
  // What the links named do not explain may be the doing of acknowledgements whose path nobody knows.
  double perhaps_acks = 0;
  for (const analysis::FlowObservation& flow : flows) {
    const bool unknown = acks_count && flow.acks.empty();
    if (flow.state == FlowState::kBad && unknown && !Takes(flow, all, true)) perhaps_acks += flow.weight;
  }
  if (found.explained < thresholds.explained * (found.bad - perhaps_acks) ||
      found.explained < thresholds.least_explained * found.bad) {
    result.why = Concat("the likeliest, ", names.cable(found.cables.front().cable), ", explains ",
                        found.explained, " of ", found.bad);
    return result;
  }
  bool hosts = false;
  for (const analysis::BadCable& cable : found.cables) {
    hosts = hosts || names.IsHosts(cable.cable) ||
            std::any_of(cable.instead.begin(), cable.instead.end(),
                        [&](uint32_t other) { return names.IsHosts(other); });
  }
  for (const analysis::FlowObservation& flow : flows) {
    const bool perhaps = acks_count && flow.acks.empty();
    if (flow.state == FlowState::kBad && !perhaps && !Takes(flow, all, true)) ++result.unexplained;
  }
  if (!hosts && !found.ambiguous()) {
    result.sort = LinkBlame::Sort::kLinks;
    for (const analysis::BadCable& cable : found.cables) {
      result.blamed.push_back(Count(cable, flows, witness_of, names, acks_count));
    }
    std::stable_sort(result.blamed.begin(), result.blamed.end(),
                     [](const BlamedLink& a, const BlamedLink& b) { return a.bad.size() > b.bad.size(); });
    return result;
  }
  // Of several culprits, some of them not certain, too little is known to name any.
  if (found.cables.size() > 1) {
    result.why = "several links, not all of them certain, would explain them";
    return result;
  }
  result.sort = hosts ? LinkBlame::Sort::kHost : LinkBlame::Sort::kAmbiguous;
  result.candidates = Candidates(found.cables.front(), flows, names);
  result.shared = Count(found.cables.front(), flows, witness_of, names, acks_count);
  return result;
}

Evidence LinkEvidence(const BlamedLink& link, std::string_view what) {
  return {"link",
          Concat(link.bad.size(), " of ", link.bad.size() + link.good, " queue pairs over ", link.cable, " ",
                 what, ", ", link.other_bad, " of ", link.other_bad + link.other_good, " others (",
                 absl::StrJoin(link.links, ", "), ")")};
}

Evidence CandidatesEvidence(const LinkBlame& blame, std::string_view what) {
  std::set<std::string> cables;
  for (const std::string& link : blame.candidates) cables.insert(CableOf(link));
  return {"link", Concat("one of the links ", absl::StrJoin(cables, ", "),
                         ": no queue pair tells them apart, those that ", what, " take all of them")};
}

void AddWhyNone(const LinkBlame& blame, Finding* finding) {
  if (blame.sort != LinkBlame::Sort::kNone || blame.why.empty()) return;
  finding->evidence.push_back({"paths", Concat("no link is named: ", blame.why)});
}

}  // namespace c4::c4d
