// TopologyLearner: which links are dead.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "c4p_master/topology_learner.h"

namespace c4::c4p {
namespace {

constexpr double kWrongChance = 1e-3;
constexpr int kLeastSteered = 8;  // ports of which one would have gone another way
constexpr int kLostProbes = 3;    // that damn a link on which nobody can look from below

int SameUplink(const Topology& in, const Topology& of, const Uplink& uplink) {
  if (uplink.spine_address.known()) return in.UplinkAt(uplink.spine_address);
  const int leaf = in.FindLeaf(of.leaves()[static_cast<size_t>(uplink.leaf)].name);
  const int spine = in.FindSpine(of.spines()[static_cast<size_t>(uplink.spine)].name);
  return leaf < 0 || spine < 0 ? -1 : in.UplinkBetween(leaf, spine);
}

void KeepFaults(const Topology& previous, Topology* topology) {
  for (const Uplink& uplink : previous.uplinks()) {
    if (!uplink.faulty) continue;
    const int now = SameUplink(*topology, previous, uplink);
    if (now >= 0) topology->SetUplinkFault(now, true, uplink.why);
  }
}

}  // namespace

// A cable that was dead from the start shows only by what is lost on it.
void TopologyLearner::AddDeadUplinks(Topology* topology) const {
  std::map<std::pair<int, int>, int> lost;  // leaf, spine
  for (const auto& [way, count] : lost_below_) {
    const int nic = topology->NicAt(way.second), spine = topology->SpineAt(way.first);
    if (nic < 0 || spine < 0) continue;
    const std::vector<int>& ports = topology->nics()[static_cast<size_t>(nic)].ports;
    if (ports.size() == 1) lost[{topology->ports()[static_cast<size_t>(ports.front())].leaf, spine}] += count;
  }
  for (const auto& [ends, count] : lost) {
    const std::vector<int> known = topology->UplinksOf(ends.first);
    const bool there = std::any_of(known.begin(), known.end(), [&ends = ends, topology](int uplink) {
      return topology->uplinks()[static_cast<size_t>(uplink)].spine == ends.second;
    });
    if (there || count < kLostProbes) continue;
    Uplink dead;
    dead.leaf = ends.first;
    dead.spine = ends.second;
    dead.faulty = true;
    dead.why = absl::StrCat(count, " probes were lost on it and none came through");
    topology->AddUplink(std::move(dead)).IgnoreError();
  }
}

void TopologyLearner::MarkFaults(Topology* topology, const Topology* previous, int64_t now_ns) const {
  if (previous != nullptr) KeepFaults(*previous, topology);
  struct Round {
    int named = 0;
    int lost = 0;
    int64_t first_ns = INT64_MAX;
    std::set<int> alive;  // uplinks
  };
  std::map<int, Round> rounds;  // by leaf
  const auto leaf_of = [&](IpAddress from) {
    const int nic = topology->NicAt(from);  // where hop 1 said nothing
    if (nic < 0) return topology->LeafAt(from);
    const std::vector<int>& ports = topology->nics()[static_cast<size_t>(nic)].ports;
    return ports.size() == 1 ? topology->ports()[static_cast<size_t>(ports.front())].leaf : -1;
  };
  const auto uplink_of = [&](int leaf, IpAddress answer) {
    const int exact = topology->UplinkAt(answer);
    if (exact >= 0 && topology->uplinks()[static_cast<size_t>(exact)].leaf == leaf) return exact;
    const int spine =
        exact >= 0 ? topology->uplinks()[static_cast<size_t>(exact)].spine : topology->SpineAt(answer);
    return spine < 0 ? -1 : topology->UplinkBetween(leaf, spine);
  };
  for (const auto& [ends, seen] : sent_up_) {
    const int leaf = leaf_of(ends.first), nic = topology->NicAt(ends.second);
    if (leaf < 0) continue;
    // Within a leaf nothing goes up: silence was the destination's.
    bool within = false;
    for (const int port : nic < 0 ? std::vector<int>() : topology->nics()[static_cast<size_t>(nic)].ports) {
      within = within || topology->ports()[static_cast<size_t>(port)].leaf == leaf;
    }
    if (within) continue;
    Round& round = rounds[leaf];
    // Many ports that all went one way do not steer: they say no more than one probe.
    const size_t ways = seen.spines.size() + seen.remotes.size() + (seen.lost > 0 ? 1 : 0);
    const bool one_way = ways <= 1 && seen.named + seen.lost >= kLeastSteered;
    round.named += one_way ? std::min(seen.named, 1) : seen.named;
    round.lost += one_way ? std::min(seen.lost, 1) : seen.lost;
    round.first_ns = std::min(round.first_ns, seen.first_ns);
    for (const IpAddress spine : seen.spines) round.alive.insert(uplink_of(leaf, spine));
    for (const IpAddress remote : seen.remotes) round.alive.insert(uplink_of(leaf, remote));
  }
  std::set<int> came_down;
  for (const IpAddress lower : came_down_) came_down.insert(topology->UplinkAt(lower));
  std::map<std::pair<int, int>, int> lost;  // leaf, spine
  for (const auto& [way, count] : lost_below_) {
    const int leaf = leaf_of(way.second), spine = topology->SpineAt(way.first);
    if (leaf >= 0 && spine >= 0) lost[{leaf, spine}] += count;
  }
  for (int index = 0; index < static_cast<int>(topology->uplinks().size()); ++index) {
    const Uplink& uplink = topology->uplinks()[static_cast<size_t>(index)];
    const auto round = rounds.find(uplink.leaf);
    const bool seen = round != rounds.end() && round->second.alive.contains(index);
    if (seen || (round == rounds.end() && came_down.contains(index))) {
      if (uplink.faulty) topology->SetUplinkFault(index, false, "");
      continue;
    }
    if (uplink.faulty) continue;
    if (round != rounds.end()) {
      round->second.alive.erase(-1);
      const auto ways = static_cast<double>(topology->UplinksOf(uplink.leaf).size());
      // What was lost speaks only where it is more than a ration or a full queue swallows.
      const int probes = round->second.named + (round->second.lost >= kLostProbes ? round->second.lost : 0);
      const double chance = std::pow(1 - 1 / ways, probes);
      if (chance > kWrongChance || now_ns - round->second.first_ns < kSettleNs) continue;
      // Nothing at all came back to that leaf: its switches may be silent, unless the way down to it is lost.
      const auto below = lost.find({uplink.leaf, uplink.spine});
      if (round->second.alive.empty() && (below == lost.end() || below->second < kLostProbes)) continue;
      topology->SetUplinkFault(
          index, true, absl::StrCat("none of ", probes, " probes from its leaf was answered over it"));
    } else if (const auto gone = lost.find({uplink.leaf, uplink.spine});
               gone != lost.end() && gone->second >= kLostProbes) {
      topology->SetUplinkFault(index, true,
                               absl::StrCat(gone->second, " probes were lost on it and none came through"));
    }
  }
}

}  // namespace c4::c4p
