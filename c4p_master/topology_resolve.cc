// Topology: from the addresses that answered to the links that a packet met.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "c4p_master/topology.h"

namespace c4::c4p {
namespace {

using service::IpTuple;

absl::Status Contradiction(const IpTuple& tuple, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(TupleText(tuple), ": ", what));
}

}  // namespace

absl::StatusOr<FabricPath> Topology::Resolve(const IpTuple& tuple, const HopPath& hops) const {
  FabricPath path;
  const int from = NicAt(tuple.source), to = NicAt(tuple.destination);
  const auto port_on = [this](int nic, int leaf) {
    if (nic < 0) return -1;
    const std::vector<int>& ports = nics_[static_cast<size_t>(nic)].ports;
    // One port is the port, whoever answers.
    if (leaf < 0) return ports.size() == 1 ? ports.front() : -1;
    for (const int port : ports) {
      if (ports_[static_cast<size_t>(port)].leaf == leaf) return port;
    }
    return -1;
  };
  const auto leaf_of = [this](int port) { return port < 0 ? -1 : ports_[static_cast<size_t>(port)].leaf; };

  int source_leaf = hops.egress.known() ? LeafAt(hops.egress) : -1;
  if (hops.egress.known() && source_leaf < 0) {
    return Contradiction(tuple, absl::StrCat("hop 1 is ", IpText(hops.egress), ", which is no leaf's"));
  }
  if (hops.spine.known() && SpineAt(hops.spine) < 0) {
    return Contradiction(tuple, absl::StrCat("hop 2 is ", IpText(hops.spine), ", which is no spine's"));
  }
  if (hops.remote.known() && LeafAt(hops.remote) < 0) {
    return Contradiction(tuple, absl::StrCat("hop 3 is ", IpText(hops.remote), ", which is no leaf's"));
  }
  // The spine's address is that of a link, whose other end is the source's leaf.
  const int answered_up = hops.spine.known() ? UplinkAt(hops.spine) : -1;
  if (answered_up >= 0) {
    const int leaf = uplinks_[static_cast<size_t>(answered_up)].leaf;
    if (source_leaf >= 0 && leaf != source_leaf) {
      return Contradiction(
          tuple, absl::StrCat("it goes by ", leaves_[static_cast<size_t>(source_leaf)].name, ", but ",
                              IpText(hops.spine), " faces ", leaves_[static_cast<size_t>(leaf)].name));
    }
    source_leaf = leaf;
  }
  path.egress_port = port_on(from, source_leaf);
  if (from >= 0 && source_leaf >= 0 && path.egress_port < 0 &&
      !nics_[static_cast<size_t>(from)].ports.empty()) {
    return Contradiction(tuple, absl::StrCat("it goes by ", leaves_[static_cast<size_t>(source_leaf)].name,
                                             ", where its source has no port"));
  }
  if (source_leaf < 0) source_leaf = leaf_of(path.egress_port);

  int target_leaf = hops.remote.known() ? LeafAt(hops.remote) : -1;
  if (hops.within_leaf) target_leaf = source_leaf;
  path.ingress_port = port_on(to, target_leaf);
  if (to >= 0 && target_leaf >= 0 && path.ingress_port < 0 && !nics_[static_cast<size_t>(to)].ports.empty()) {
    return Contradiction(tuple, absl::StrCat("it ends at ", leaves_[static_cast<size_t>(target_leaf)].name,
                                             ", where its destination has no port"));
  }
  if (target_leaf < 0) target_leaf = leaf_of(path.ingress_port);

  if (!hops.within_leaf) {
    const int answered_down = hops.remote.known() ? UplinkAt(hops.remote) : -1;
    path.spine = hops.spine.known() ? SpineAt(hops.spine) : -1;
    if (answered_down >= 0) {
      const int spine = uplinks_[static_cast<size_t>(answered_down)].spine;
      if (path.spine >= 0 && spine != path.spine) {
        return Contradiction(tuple,
                             absl::StrCat("hop 2 is ", spines_[static_cast<size_t>(path.spine)].name,
                                          ", but hop 3 faces ", spines_[static_cast<size_t>(spine)].name));
      }
      path.spine = spine;
    }
    path.uplink = answered_up >= 0 ? answered_up : UplinkBetween(source_leaf, path.spine);
    path.downlink = answered_down >= 0 ? answered_down : UplinkBetween(target_leaf, path.spine);
  }
  if (path.egress_port >= 0) path.links.push_back(PortLink(path.egress_port, true));
  if (path.uplink >= 0) path.links.push_back(UplinkLink(path.uplink, true));
  if (path.downlink >= 0) path.links.push_back(UplinkLink(path.downlink, false));
  if (path.ingress_port >= 0) path.links.push_back(PortLink(path.ingress_port, false));
  path.complete = path.links.size() == (hops.within_leaf ? 2U : 4U);
  return path;
}

int Topology::PossiblePaths(int from_nic, int to_nic, bool faulty_too) const {
  int paths = 0;
  const auto up = [&](const auto& link) { return faulty_too || !link.faulty; };
  for (const int egress : nics_[static_cast<size_t>(from_nic)].ports) {
    for (const int ingress : nics_[static_cast<size_t>(to_nic)].ports) {
      const Port& from = ports_[static_cast<size_t>(egress)];
      const Port& to = ports_[static_cast<size_t>(ingress)];
      if (!up(from) || !up(to)) continue;
      if (from.leaf == to.leaf) {
        ++paths;
        continue;
      }
      for (const int uplink : UplinksOf(from.leaf)) {
        for (const int downlink : UplinksOf(to.leaf)) {
          const Uplink& rising = uplinks_[static_cast<size_t>(uplink)];
          const Uplink& falling = uplinks_[static_cast<size_t>(downlink)];
          if (rising.spine == falling.spine && up(rising) && up(falling)) ++paths;
        }
      }
    }
  }
  return paths;
}

}  // namespace c4::c4p
