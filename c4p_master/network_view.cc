#include "c4p_master/network_view.h"

#include <algorithm>
#include <set>

#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr double kUsualMbps = 1000;
constexpr size_t kMostNotes = 100;

}  // namespace

NetworkView::NetworkView(std::optional<Topology> file, double default_rate_mbps, const LinkHolds* holds)
    : file_(std::move(file)),
      default_rate_mbps_(default_rate_mbps > 0 ? default_rate_mbps : kUsualMbps),
      holds_(holds) {
  (void)Refresh(0);
}

void NetworkView::SetNics(const v1::AgentHello& hello) {
  for (const v1::NicInfo& nic : hello.nics()) {
    const std::optional<service::IpAddress> address = service::ParseIp(nic.address());
    if (!address) continue;
    learner_.AddNic(hello.host(), nic.name(), *address, static_cast<int>(nic.plane()));
    rates_[*address] = static_cast<double>(nic.rate_mbps());
  }
  stale_ = true;
}

void NetworkView::Add(const PathObservation& seen, int64_t now_ns) {
  learner_.Add(seen, now_ns);
  added_ns_ = now_ns;
  if (settles_ns_ == 0) settles_ns_ = now_ns + TopologyLearner::kSettleNs;
  stale_ = true;
}

std::vector<LinkChange> NetworkView::Refresh(int64_t now_ns) {
  stale_ = false;
  if (settles_ns_ != 0 && now_ns >= settles_ns_) {
    // Another leaf's first answer may have come since.
    const int64_t last_ns = added_ns_ + TopologyLearner::kSettleNs;
    settles_ns_ = last_ns > now_ns ? last_ns : 0;
  }
  notes_.clear();
  if (file_) {
    Topology topology = *file_;
    learner_.MarkFaults(&topology, &topology_, now_ns);
    topology_ = std::move(topology);
  } else {
    topology_ = learner_.Learn(&topology_, now_ns);
  }
  SyncSwitches();
  std::vector<LinkChange> changes;
  SyncUplinks(&changes);
  SyncNics();
  return changes;
}

void NetworkView::Note(const absl::Status& status) {
  if (!status.ok() && notes_.size() < kMostNotes) notes_.emplace_back(status.message());
}

std::vector<std::string> NetworkView::Notes() const {
  std::vector<std::string> notes = notes_;
  if (file_) {
    const std::vector<std::string> contradictions = learner_.Contradictions(*file_);
    notes.insert(notes.end(), contradictions.begin(), contradictions.end());
  }
  if (learner_.answers_by_switch()) {
    notes.emplace_back(
        "switches answer probes from one address for all their interfaces; told to answer from the interface "
        "that a "
        "packet came in by, they would tell links apart");
  }
  return notes;
}

void NetworkView::SyncSwitches() {
  // A leaf is of the plane of the ports that hang on it.
  std::vector<int> planes(topology_.leaves().size(), 0);
  for (const Port& port : topology_.ports()) planes[static_cast<size_t>(port.leaf)] = port.plane;
  leaf_numbers_.clear();
  for (size_t i = 0; i < topology_.leaves().size(); ++i) {
    const auto [at, added] =
        leaf_ids_.try_emplace(topology_.leaves()[i].name, static_cast<LeafId>(leaf_ids_.size()));
    leaf_numbers_.push_back(static_cast<int>(at->second));
    Note(network_.AddLeaf(at->second, 0, static_cast<PlaneId>(planes[i])));
  }
  spine_numbers_.clear();
  for (const Switch& spine : topology_.spines()) {
    const auto [at, added] = spine_ids_.try_emplace(spine.name, static_cast<SpineId>(spine_ids_.size()));
    spine_numbers_.push_back(static_cast<int>(at->second));
    Note(network_.AddSpine(at->second, 0));
  }
}

Link NetworkView::LinkOf(const Uplink& uplink) const {
  return {Tier::kLeaf, static_cast<uint32_t>(leaf_numbers_[static_cast<size_t>(uplink.leaf)]),
          static_cast<uint32_t>(spine_numbers_[static_cast<size_t>(uplink.spine)])};
}

// Several cables between two switches are one link to the allocator: their rates added, down when all are, or
// when it is held back.
void NetworkView::SyncUplinks(std::vector<LinkChange>* changes) {
  struct Sum {
    double mbps = 0;
    bool up = false;
    const Uplink* uplink = nullptr;
  };
  std::map<std::pair<LeafId, SpineId>, Sum> sums;
  for (const Uplink& uplink : topology_.uplinks()) {
    const Link link = LinkOf(uplink);
    Sum& sum = sums[{link.lower, link.upper}];
    sum.uplink = &uplink;
    if (uplink.faulty) {
      if (!sum.up) sum.mbps = std::max(sum.mbps, RateOr(uplink.rate_mbps));
      continue;
    }
    sum.mbps = (sum.up ? sum.mbps : 0) + RateOr(uplink.rate_mbps);
    sum.up = true;
  }
  for (const auto& [ends, sum] : sums) {
    const Link link = LinkOf(*sum.uplink);
    const CableState now = {sum.up, sum.up && WhyHeld(*sum.uplink).empty()};
    const auto [at, added] = cables_.try_emplace(ends, now);
    Note(network_.AddLeafLink(ends.first, ends.second, sum.mbps));
    Note(network_.SetUp(link, now.used));
    const CableState before = std::exchange(at->second, now);
    if (before.used == now.used && before.carries == now.carries) continue;
    changes->push_back({link, CableOf(*sum.uplink), now.used, before.used, now.carries, before.carries});
  }
}

std::vector<LinkChange> NetworkView::ApplyHolds() {
  std::vector<LinkChange> changes;
  std::set<std::pair<LeafId, SpineId>> seen;
  for (const Uplink& uplink : topology_.uplinks()) {
    const Link link = LinkOf(uplink);
    const auto at = cables_.find({link.lower, link.upper});
    if (at == cables_.end() || !seen.insert(at->first).second) continue;
    CableState& state = at->second;
    const bool used = state.carries && WhyHeld(uplink).empty();
    if (used == state.used) continue;
    Note(network_.SetUp(link, used));
    changes.push_back({link, CableOf(uplink), used, state.used, state.carries, state.carries});
    state.used = used;
  }
  return changes;
}

std::string NetworkView::CableOf(const Uplink& uplink) const {
  return Concat(topology_.leaves()[static_cast<size_t>(uplink.leaf)].name, "-",
                topology_.spines()[static_cast<size_t>(uplink.spine)].name);
}

std::string NetworkView::WhyHeld(const Uplink& uplink) const {
  if (holds_ == nullptr) return "";
  return holds_->Why(topology_.leaves()[static_cast<size_t>(uplink.leaf)].name,
                     topology_.spines()[static_cast<size_t>(uplink.spine)].name);
}

bool NetworkView::IsUsed(const Uplink& uplink) const {
  const Link link = LinkOf(uplink);
  const auto found = cables_.find({link.lower, link.upper});
  return found != cables_.end() && found->second.used;
}

size_t NetworkView::HeldCables() const {
  std::set<std::string> held;
  for (const Uplink& uplink : topology_.uplinks()) {
    if (!WhyHeld(uplink).empty()) held.insert(CableOf(uplink));
  }
  return held.size();
}

std::vector<LinkChange> NetworkView::DeadLinks() const {
  std::vector<LinkChange> dead;
  std::set<std::pair<LeafId, SpineId>> seen;
  for (const Uplink& uplink : topology_.uplinks()) {
    const Link link = LinkOf(uplink);
    const auto state = cables_.find({link.lower, link.upper});
    if (state == cables_.end() || state->second.carries || !seen.insert(state->first).second) continue;
    dead.push_back({link, CableOf(uplink), false, false, false, false});
  }
  return dead;
}

void NetworkView::SyncNics() {
  places_.clear();
  for (const Server& server : topology_.servers()) {
    std::map<int, int> in_plane;  // of this server, so far
    for (const int number : server.nics) {
      const Nic& nic = topology_.nics()[static_cast<size_t>(number)];
      if (nic.ports.empty()) continue;
      const int first = topology_.ports()[static_cast<size_t>(nic.ports.front())].plane;
      const std::string key = Concat(server.name, "/", in_plane[first]++);
      const auto [at, added] = nic_ids_.try_emplace(key, static_cast<NicId>(nic_ids_.size()));
      for (const int port_number : nic.ports) {
        const Port& port = topology_.ports()[static_cast<size_t>(port_number)];
        const auto said = rates_.find(nic.address);
        const double mbps = RateOr(port.rate_mbps > 0     ? port.rate_mbps
                                   : said != rates_.end() ? said->second
                                                          : 0);
        const auto leaf = static_cast<LeafId>(leaf_numbers_[static_cast<size_t>(port.leaf)]);
        const auto plane = static_cast<PlaneId>(port.plane);
        Note(network_.AddPort(at->second, plane, leaf, mbps));
        Note(network_.SetUp({Tier::kPort, at->second, plane}, !port.faulty));
      }
      places_[nic.address] = {at->second, static_cast<PlaneId>(first)};
    }
  }
}

const AddressPlace* NetworkView::Find(service::IpAddress address) const {
  const auto found = places_.find(address);
  return found == places_.end() ? nullptr : &found->second;
}

bool NetworkView::Knows(service::IpAddress address) const {
  return rates_.contains(address) || topology_.NicAt(address) >= 0;
}

std::pair<PlaneId, Way> NetworkView::PlaceOf(const FabricPath& path) const {
  PlaneId plane = 0;
  if (path.egress_port >= 0) {
    plane = static_cast<PlaneId>(topology_.ports()[static_cast<size_t>(path.egress_port)].plane);
  }
  if (path.spine >= 0) return {plane, static_cast<Way>(spine_numbers_[static_cast<size_t>(path.spine)])};
  const bool direct = path.complete && path.uplink < 0;
  return {plane, direct ? kDirect : kNoWay};
}

std::vector<std::string> NetworkView::NamesOf(const FabricPath& path) const {
  std::vector<std::string> names;
  for (const LinkId link : path.links) names.push_back(topology_.LinkName(link));
  return names;
}

std::vector<std::string> NetworkView::NamesOf(service::IpAddress from, service::IpAddress to, PlaneId plane,
                                              Way way) const {
  const auto port_of = [&](service::IpAddress address) {
    const int nic = topology_.NicAt(address);
    if (nic < 0) return -1;
    const std::vector<int>& ports = topology_.nics()[static_cast<size_t>(nic)].ports;
    for (const int port : ports) {
      if (topology_.ports()[static_cast<size_t>(port)].plane == static_cast<int>(plane)) return port;
    }
    return -1;
  };
  const int out = port_of(from);
  const int in = port_of(to);
  if (out < 0 || in < 0 || way == kNoWay) return {};
  std::vector<std::string> names = {topology_.LinkName(topology_.PortLink(out, true))};
  if (way != kDirect) {
    const auto spine = std::find(spine_numbers_.begin(), spine_numbers_.end(), static_cast<int>(way));
    if (spine == spine_numbers_.end()) return {};
    const int number = static_cast<int>(spine - spine_numbers_.begin());
    const int up = topology_.UplinkBetween(topology_.ports()[static_cast<size_t>(out)].leaf, number);
    const int down = topology_.UplinkBetween(topology_.ports()[static_cast<size_t>(in)].leaf, number);
    if (up < 0 || down < 0) return {};
    names.push_back(topology_.LinkName(topology_.UplinkLink(up, true)));
    names.push_back(topology_.LinkName(topology_.UplinkLink(down, false)));
  }
  names.push_back(topology_.LinkName(topology_.PortLink(in, false)));
  return names;
}

}  // namespace c4::c4p
