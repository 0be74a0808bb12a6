#include "c4p_master/topology_learner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

using service::IpAddress;

constexpr int kOutvoted = 4;  // times as many say something else

}  // namespace

void TopologyLearner::AddNic(const std::string& server, const std::string& nic, IpAddress address,
                             int plane) {
  nics_[address] = {server, nic, plane};
}

void TopologyLearner::Add(const PathObservation& seen, int64_t now_ns) {
  const HopPath& hops = seen.hops;
  const IpAddress source = seen.tuple.source, destination = seen.tuple.destination;
  if (hops.egress.known()) gateways_[source].insert(hops.egress);
  const IpAddress from = hops.egress.known() ? hops.egress : source;
  for (const IpAddress end : {hops.spine, hops.remote}) {
    // The first and last address of a /30, or of an IPv6 /126, are no interface's.
    if (end.known() && ((end.low & 3) == 0 || (end.low & 3) == 3)) saw_31_[end.is_v4() ? 0 : 1] = true;
  }
  if (hops.within_leaf) {
    neighbours_.insert({from, destination});
    return;
  }
  if (hops.spine.known()) {
    ++rises_[{source, from, hops.spine}];
    crossings_.insert({from, destination});
  }
  if (hops.remote.known()) {
    arrivals_[destination].insert(hops.remote);
    came_down_.insert(hops.remote);
    if (hops.spine.known()) ++turns_[{hops.spine, hops.remote}];
  }
  const auto [at, is_first] = sent_up_.try_emplace({from, destination});
  LeafRound& round = at->second;
  if (is_first) round.first_ns = now_ns;
  if (hops.spine.known()) {
    ++round.named;
    round.spines.insert(hops.spine);
  } else if (hops.remote.known()) {
    ++round.named;
    round.remotes.insert(hops.remote);
  } else if (seen.states[1] == HopState::kSilent && seen.states[2] == HopState::kSilent) {
    ++round.lost;
  }
  if (hops.spine.known() && seen.states[2] == HopState::kSilent) ++lost_below_[{hops.spine, destination}];
}

void TopologyLearner::BeginRound() {
  sent_up_.clear();
  came_down_.clear();
  lost_below_.clear();
}

// Union-find over what addresses stand for.
class TopologyLearner::Clusters {
 public:
  explicit Clusters(bool by_switch) : by_switch_(by_switch) {}

  Stand Root(StandsFor kind, IpAddress address) {
    Stand at = {kind, address};
    while (true) {
      const Stand up = parent_.emplace(at, at).first->second;
      if (up == at) return at;
      const Stand next = parent_.at(up);
      parent_[at] = next;
      at = next;
    }
  }
  void Unite(StandsFor kind_a, IpAddress a, StandsFor kind_b, IpAddress b) {
    const Stand one = Root(kind_a, a), two = Root(kind_b, b);
    parent_[std::max(one, two)] = std::min(one, two);
  }
  // The leaf that `upper` (hop 2) faces, that answers as `lower` (hop 3), whose other end is `upper`.
  Stand LeafUnder(IpAddress lower, IpAddress upper) {
    return by_switch_ ? Root(StandsFor::kLeafSide, lower) : Root(StandsFor::kLeafBelow, upper);
  }
  bool by_switch() const { return by_switch_; }
  const std::map<Stand, Stand>& parents() const { return parent_; }

 private:
  bool by_switch_;
  std::map<Stand, Stand> parent_;
};

// Both ends of a cable share a /31, or else a /30.
IpAddress TopologyLearner::OtherEnd(IpAddress address) const {
  return {address.high, address.low ^ (saw_31_[address.is_v4() ? 0 : 1] ? 1U : 3U)};
}

// A cable hangs on one leaf: of the ports of one server, one leads there.
std::set<std::pair<IpAddress, IpAddress>> TopologyLearner::Rises() const {
  std::map<std::pair<IpAddress, IpAddress>, int> best;  // by source and hop 2
  for (const auto& [fact, count] : rises_) {
    int& most = best[{std::get<0>(fact), std::get<2>(fact)}];
    most = std::max(most, count);
  }
  std::set<std::pair<IpAddress, IpAddress>> rises;
  for (const auto& [fact, count] : rises_) {
    const auto& [source, from, spine] = fact;
    if (count * kOutvoted > best[{source, spine}]) rises.insert({from, spine});
  }
  return rises;
}

// Who comes from one leaf and arrives over one cable came over one spine: by the same cable, or one beside
// it.
std::set<std::pair<IpAddress, IpAddress>> TopologyLearner::Turns(Clusters* clusters) const {
  std::map<std::pair<Stand, IpAddress>, int> best;  // by leaf and hop 3
  for (const auto& [fact, count] : turns_) {
    int& most = best[{clusters->Root(StandsFor::kLeafBelow, fact.first), fact.second}];
    most = std::max(most, count);
  }
  std::set<std::pair<IpAddress, IpAddress>> turns;
  for (const auto& [fact, count] : turns_) {
    const int most = best[{clusters->Root(StandsFor::kLeafBelow, fact.first), fact.second}];
    if (count * kOutvoted > most) turns.insert(fact);
  }
  return turns;
}

bool TopologyLearner::BySwitch() const {
  Clusters clusters = Cluster(false, false);
  return std::any_of(crossings_.begin(), crossings_.end(), [&](const auto& crossing) {
    const auto gateways = gateways_.find(crossing.second);
    if (gateways == gateways_.end() || gateways->second.size() != 1) return false;
    return clusters.Root(StandsFor::kLeafSide, crossing.first) ==
           clusters.Root(StandsFor::kLeafSide, *gateways->second.begin());
  });
}

TopologyLearner::Clusters TopologyLearner::Cluster(bool by_switch, bool arrivals) const {
  Clusters clusters(by_switch);
  const auto upper_of = [this](IpAddress lower) { return OtherEnd(lower); };
  const auto only_gateway = [this](IpAddress nic) -> std::optional<IpAddress> {
    const auto at = gateways_.find(nic);
    if (at == gateways_.end() || at->second.size() != 1) return std::nullopt;
    return *at->second.begin();
  };
  for (const auto& [from, spine] : Rises()) {
    clusters.Root(StandsFor::kSpine, spine);
    if (by_switch) {
      clusters.Root(StandsFor::kLeafSide, from);
    } else {
      clusters.Unite(StandsFor::kLeafSide, from, StandsFor::kLeafBelow, spine);
    }
  }
  for (const auto& [spine, lower] :
       by_switch ? std::set<std::pair<IpAddress, IpAddress>>() : Turns(&clusters)) {
    clusters.Unite(StandsFor::kSpine, spine, StandsFor::kSpine, upper_of(lower));
  }
  if (!arrivals) return clusters;
  for (const auto& [destination, lowers] : arrivals_) {
    // From one spine down to a server by two cables: then it is behind two leaves, and its arrivals do not
    // say which are one. Its own probes will.
    std::set<Stand> spines;
    const std::optional<IpAddress> gateway = only_gateway(destination);
    const auto gateways = gateways_.find(destination);
    bool one_leaf = gateways == gateways_.end() || gateways->second.size() == 1;
    for (const IpAddress lower : lowers) {
      if (by_switch) {
        clusters.Root(StandsFor::kLeafSide, lower);
      } else if (!spines.insert(clusters.Root(StandsFor::kSpine, upper_of(lower))).second) {
        one_leaf = false;
      }
    }
    if (by_switch) one_leaf = one_leaf && lowers.size() == 1;
    if (!one_leaf) continue;
    const auto unite = [&](IpAddress lower, StandsFor kind, IpAddress with) {
      clusters.Unite(by_switch ? StandsFor::kLeafSide : StandsFor::kLeafBelow,
                     by_switch ? lower : upper_of(lower), kind, with);
    };
    for (const IpAddress lower : lowers) {
      if (gateway.has_value()) {
        unite(lower, StandsFor::kLeafSide, *gateway);
      } else if (!by_switch) {
        unite(lower, StandsFor::kLeafBelow, upper_of(*lowers.begin()));
      }
    }
  }
  for (const auto& [from, destination] : neighbours_) {
    const std::optional<IpAddress> gateway = only_gateway(destination);
    if (gateway.has_value()) clusters.Unite(StandsFor::kLeafSide, from, StandsFor::kLeafSide, *gateway);
  }
  return clusters;
}

namespace {

// A switch that was found, sorted by `first`: its lowest address towards servers, else of the others.
struct Found {
  IpAddress first;
  std::vector<IpAddress> addresses;
  Stand root;
  std::string name;
};

// Names from before for what has them, then the first free numbers.
void NameAll(std::vector<Found>* found, const char* prefix,
             const std::map<IpAddress, std::string>& names_before) {
  std::sort(found->begin(), found->end(), [](const Found& a, const Found& b) { return a.first < b.first; });
  std::set<std::string> taken;
  for (Found& one : *found) {
    std::set<std::string> had;
    for (const IpAddress address : one.addresses) {
      const auto at = names_before.find(address);
      if (at != names_before.end() && !taken.contains(at->second)) had.insert(at->second);
    }
    if (!had.empty()) one.name = *had.begin();
    if (!had.empty()) taken.insert(one.name);
  }
  int number = 0;
  for (Found& one : *found) {
    while (one.name.empty()) {
      const std::string name = absl::StrCat(prefix, number++);
      if (taken.insert(name).second) one.name = name;
    }
  }
}

std::map<IpAddress, std::string> NamesBefore(const Topology* previous, bool leaves) {
  std::map<IpAddress, std::string> names;
  if (previous == nullptr) return names;
  for (const Uplink& uplink : previous->uplinks()) {
    const IpAddress address = leaves ? uplink.leaf_address : uplink.spine_address;
    if (address.known()) {
      names[address] = leaves ? previous->leaves()[static_cast<size_t>(uplink.leaf)].name
                              : previous->spines()[static_cast<size_t>(uplink.spine)].name;
    }
  }
  for (const Switch& one : leaves ? previous->leaves() : previous->spines()) {
    for (const IpAddress address : one.addresses) names[address] = one.name;
  }
  for (const Port& port : previous->ports()) {
    if (leaves && port.gateway.known()) {
      names[port.gateway] = previous->leaves()[static_cast<size_t>(port.leaf)].name;
    }
  }
  return names;
}

}  // namespace

Topology TopologyLearner::Learn(const Topology* previous, int64_t now_ns) const {
  const bool by_switch = BySwitch();
  Clusters clusters = Cluster(by_switch, true);
  // Gather each cluster's addresses. A leaf's: gateways first (they sort before, as a rule, and name it),
  // then lower ends of cables.
  std::map<Stand, Found> leaves, spines;
  const auto keep = [this](std::map<Stand, Found>* all, const Stand& root, IpAddress address) {
    Found& found = (*all)[root];
    found.root = root;
    if (!found.first.known()) found.first = address;
    // A server's stands for a leaf that was silent.
    if (nics_.contains(address)) return;
    if (std::find(found.addresses.begin(), found.addresses.end(), address) == found.addresses.end()) {
      found.addresses.push_back(address);
    }
  };
  const std::map<Stand, Stand> nodes = clusters.parents();
  for (const auto& [node, parent] : nodes) {  // by kind, then address
    const auto [kind, address] = node;
    const Stand root = clusters.Root(kind, address);
    if (kind == StandsFor::kSpine) keep(&spines, root, address);
    if (kind == StandsFor::kLeafSide) keep(&leaves, root, address);
    if (kind == StandsFor::kLeafBelow) keep(&leaves, root, OtherEnd(address));
  }
  std::map<Stand, int> number;  // of a cluster, among leaves or spines
  Topology topology;
  for (const bool leaf : {true, false}) {
    std::vector<Found> all;
    for (auto& [root, found] : leaf ? leaves : spines) all.push_back(found);
    NameAll(&all, leaf ? "leaf" : "spine", NamesBefore(previous, leaf));
    for (const Found& found : all) {
      Switch one = {found.name, {}};
      if (by_switch) one.addresses = found.addresses;
      const absl::StatusOr<int> added = leaf ? topology.AddLeaf(one) : topology.AddSpine(one);
      if (added.ok()) number[found.root] = *added;
    }
  }
  std::set<std::pair<Stand, Stand>> cables;  // by switch: those that were seen
  if (by_switch) {
    for (const auto& [from, spine] : Rises()) {
      cables.insert({clusters.Root(StandsFor::kLeafSide, from), clusters.Root(StandsFor::kSpine, spine)});
    }
    for (const auto& [turn, count] : turns_) {
      cables.insert(
          {clusters.Root(StandsFor::kLeafSide, turn.second), clusters.Root(StandsFor::kSpine, turn.first)});
    }
  }
  for (const auto& [leaf, spine] : cables) {
    Uplink uplink;
    uplink.leaf = number[leaf];
    uplink.spine = number[spine];
    topology.AddUplink(std::move(uplink)).IgnoreError();
  }
  for (const auto& [node, parent] : nodes) {
    if (by_switch || node.first != StandsFor::kSpine) continue;
    Uplink uplink;
    uplink.spine_address = node.second;
    uplink.leaf_address = OtherEnd(uplink.spine_address);
    const auto leaf = number.find(clusters.Root(StandsFor::kLeafBelow, uplink.spine_address));
    // An upper end that only hop 3 spoke of, where it goes to several leaves: not known yet.
    if (leaf == number.end()) continue;
    uplink.leaf = leaf->second;
    uplink.spine = number[clusters.Root(StandsFor::kSpine, uplink.spine_address)];
    topology.AddUplink(std::move(uplink)).IgnoreError();
  }
  AddServers(&clusters, number, &topology);
  AddDeadUplinks(&topology);
  MarkFaults(&topology, previous, now_ns);
  return topology;
}

void TopologyLearner::AddServers(Clusters* clusters, const std::map<Stand, int>& number,
                                 Topology* topology) const {
  for (const auto& [address, fact] : nics_) {  // by address
    int server = topology->FindServer(fact.server);
    if (server < 0) server = topology->AddServer(fact.server).value_or(-1);
    if (server < 0) continue;
    const absl::StatusOr<int> nic = topology->AddNic(server, fact.name, address);
    if (!nic.ok()) continue;
    std::map<int, IpAddress> leaves;  // and the gateway there
    const auto hangs_on = [&](const Stand& root, IpAddress gateway) {
      if (const auto leaf = number.find(root); leaf != number.end()) leaves.emplace(leaf->second, gateway);
    };
    if (const auto gateways = gateways_.find(address); gateways != gateways_.end()) {
      for (const IpAddress gateway : gateways->second) {
        hangs_on(clusters->Root(StandsFor::kLeafSide, gateway), gateway);
      }
    } else {
      hangs_on(clusters->Root(StandsFor::kLeafSide, address), {});
    }
    if (const auto arrivals = arrivals_.find(address); arrivals != arrivals_.end()) {
      for (const IpAddress lower : arrivals->second)
        hangs_on(clusters->LeafUnder(lower, OtherEnd(lower)), {});
    }
    int plane = leaves.size() > 1 ? 0 : fact.plane;
    for (const auto& [leaf, gateway] : leaves) {
      Port port;
      port.nic = *nic;
      port.leaf = leaf;
      port.plane = plane++;
      port.gateway = gateway;
      topology->AddPort(std::move(port)).IgnoreError();
    }
  }
}

std::vector<std::string> TopologyLearner::Contradictions(const Topology& file) const {
  constexpr size_t kMost = 100;
  std::set<std::string> said;
  const auto server_of = [&](IpAddress address) {
    const auto at = nics_.find(address);
    return at == nics_.end() ? IpText(address) : at->second.server + "'s " + at->second.name;
  };
  const auto leaf_name = [&](int leaf) { return file.leaves()[static_cast<size_t>(leaf)].name; };
  const auto has_port = [&](int nic, int leaf) {
    const std::vector<int>& ports = file.nics()[static_cast<size_t>(nic)].ports;
    return std::any_of(ports.begin(), ports.end(),
                       [&](int port) { return file.ports()[static_cast<size_t>(port)].leaf == leaf; });
  };
  for (const auto& [address, fact] : nics_) {
    const int nic = file.NicAt(address);
    if (nic < 0) {
      said.insert(absl::StrCat(IpText(address), " of ", fact.server, " is not in the file"));
      continue;
    }
    const std::string& named =
        file.servers()[static_cast<size_t>(file.nics()[static_cast<size_t>(nic)].server)].name;
    if (named != fact.server) {
      said.insert(absl::StrCat(IpText(address), " is ", named, "'s by the file, and ", fact.server,
                               "'s says its agent"));
    }
  }
  const auto check_leaf = [&](IpAddress nic_address, IpAddress answer) {
    const int leaf = file.LeafAt(answer), nic = file.NicAt(nic_address);
    if (leaf < 0) {
      said.insert(absl::StrCat("the leaf of ", server_of(nic_address), " answers as ", IpText(answer),
                               ", which is no leaf's by the file"));
    } else if (nic >= 0 && !has_port(nic, leaf)) {
      said.insert(absl::StrCat(server_of(nic_address), " hangs on ", leaf_name(leaf),
                               ", which the file does not say"));
    }
  };
  for (const auto& [nic, gateways] : gateways_) {
    for (const IpAddress gateway : gateways) check_leaf(nic, gateway);
  }
  for (const auto& [nic, lowers] : arrivals_) {
    for (const IpAddress lower : lowers) check_leaf(nic, lower);
  }
  for (const auto& [from, upper] : Rises()) {
    const int uplink = file.UplinkAt(upper), leaf = file.LeafAt(from);
    if (file.SpineAt(upper) < 0) {
      said.insert(absl::StrCat(IpText(upper), " answers as a spine, and is none by the file"));
    } else if (uplink >= 0 && leaf >= 0 && file.uplinks()[static_cast<size_t>(uplink)].leaf != leaf) {
      said.insert(absl::StrCat(IpText(upper), " faces ", leaf_name(leaf), ", and ",
                               leaf_name(file.uplinks()[static_cast<size_t>(uplink)].leaf), " by the file"));
    }
  }
  Clusters clusters = Cluster(false, false);
  for (const auto& [upper, lower] : Turns(&clusters)) {
    const int spine = file.SpineAt(upper), uplink = file.UplinkAt(lower);
    if (spine < 0 || uplink < 0 || file.uplinks()[static_cast<size_t>(uplink)].spine == spine) continue;
    said.insert(absl::StrCat(
        IpText(lower), " is reached over ", file.spines()[static_cast<size_t>(spine)].name, ", and hangs on ",
        file.spines()[static_cast<size_t>(file.uplinks()[static_cast<size_t>(uplink)].spine)].name,
        " by the file"));
  }
  std::vector<std::string> sentences(said.begin(), said.end());
  if (sentences.size() > kMost) {
    const size_t more = sentences.size() - kMost;
    sentences.resize(kMost);
    sentences.push_back(absl::StrCat("and ", more, " more"));
  }
  return sentences;
}

}  // namespace c4::c4p
