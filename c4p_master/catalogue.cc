#include "c4p_master/catalogue.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

using service::IpTuple;

constexpr int64_t kRepetitionNs = 10'000'000'000;  // apart: rather a change of routes than spraying
constexpr int kLeastRepeated = 8;
constexpr int kHistory = 32;
constexpr double kSprayedShare = 0.25;
// Two ways taken at random come out the same for all of 16 ports once in 32,768 times.
constexpr size_t kLeastPorts = 16;

}  // namespace

void Catalogue::Record(const PathObservation& seen, int64_t now_ns) {
  const int64_t before = probed_.SeenNs(seen.tuple);
  const Recorded recorded = probed_.Record(seen, now_ns);
  linear_.Add(seen, now_ns);
  GroupState& group = groups_[GroupOf(seen.tuple)];
  if (recorded == Recorded::kNothing) {
    ++group.silent;
    return;
  }
  if (const std::optional<KnownPath> known = probed_.Find(seen.tuple, now_ns); known.has_value()) {
    const auto [way, added] = group.ways.try_emplace(seen.tuple.source_port, known->hops);
    if (added || !(way->second == known->hops)) changed_.insert(GroupOf(seen.tuple));
    way->second = known->hops;
  }
  if (recorded == Recorded::kNew || now_ns - before > kRepetitionNs) return;
  group.changed = group.changed << 1 | (recorded == Recorded::kChanged ? 1U : 0U);
  group.repeated = std::min(group.repeated + 1, kHistory);
}

std::optional<KnownPath> Catalogue::Find(const IpTuple& tuple, int64_t now_ns) const {
  if (std::optional<KnownPath> path = configured_.Find(tuple, now_ns); path.has_value()) return path;
  std::optional<KnownPath> probed = probed_.Find(tuple, now_ns);
  if (probed.has_value() && !probed->doubtful) return probed;
  const std::optional<KnownPath> predicted = linear_.Find(tuple, now_ns);
  if (!predicted.has_value()) return probed;
  // The model rests on newer news; what was seen to misbehave it cannot excuse.
  if (probed.has_value() && probed->hops == predicted->hops) return probed;
  return predicted;
}

absl::StatusOr<std::optional<FabricPath>> Catalogue::Links(const Topology& topology, const IpTuple& tuple,
                                                           int64_t now_ns) const {
  const std::optional<KnownPath> known = Find(tuple, now_ns);
  if (!known.has_value()) return std::optional<FabricPath>();
  absl::StatusOr<FabricPath> path = topology.Resolve(tuple, known->hops);
  if (!path.ok()) return path.status();
  return std::optional<FabricPath>(*std::move(path));
}

std::vector<PortPath> Catalogue::KnownPorts(const FlowGroup& group, const std::vector<uint16_t>& ports,
                                            int64_t now_ns) const {
  std::vector<PortPath> known;
  for (const uint16_t port : ports) {
    const std::optional<KnownPath> path = Find(WithPort(group, port), now_ns);
    if (path.has_value()) known.push_back({port, *path});
  }
  std::stable_partition(known.begin(), known.end(), [](const PortPath& one) { return !one.path.doubtful; });
  return known;
}

void Catalogue::RecordEndToEnd(const IpTuple& tuple, bool works, int64_t now_ns) {
  groups_[GroupOf(tuple)].health[tuple.source_port] = {works ? Health::kWorks : Health::kDead, now_ns};
  if (!works) probed_.Doubt(tuple);
}

void Catalogue::Expire(int64_t now_ns) {
  probed_.Expire(now_ns);
  for (auto& [key, group] : groups_) {
    std::erase_if(group.health,
                  [&](const auto& health) { return now_ns - health.second.seen_ns > keep_ns_; });
    const size_t gone = std::erase_if(group.ways, [this, &key = key](const auto& way) {
      return probed_.SeenNs(WithPort(key, way.first)) == 0;
    });
    if (gone > 0) changed_.insert(key);
  }
  std::erase_if(groups_,
                [](const auto& group) { return group.second.ways.empty() && group.second.health.empty(); });
}

const std::map<uint16_t, HopPath>* Catalogue::WaysOf(const FlowGroup& group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second.ways;
}

Health Catalogue::HealthOf(const IpTuple& tuple) const {
  const auto group = groups_.find(GroupOf(tuple));
  if (group == groups_.end()) return Health::kNotKnown;
  const auto at = group->second.health.find(tuple.source_port);
  return at == group->second.health.end() ? Health::kNotKnown : at->second.health;
}

std::vector<uint16_t> Catalogue::HealthyPorts(const FlowGroup& key) const {
  std::vector<uint16_t> ports;
  const auto group = groups_.find(key);
  if (group == groups_.end()) return ports;
  for (const auto& [port, health] : group->second.health) {
    if (health.health == Health::kWorks) ports.push_back(port);
  }
  return ports;
}

Steering Catalogue::SteeringOf(const FlowGroup& key, int possible) const {
  const auto at = groups_.find(key);
  if (at == groups_.end()) return Steering::kNotKnown;
  const GroupState& group = at->second;
  if (group.repeated >= kLeastRepeated) {
    const uint32_t mask = group.repeated >= kHistory ? ~uint32_t{0} : (uint32_t{1} << group.repeated) - 1;
    if (std::popcount(group.changed & mask) >= kSprayedShare * group.repeated) return Steering::kSprayed;
  }
  if (group.ways.empty()) {
    return group.silent >= static_cast<int>(kLeastPorts) ? Steering::kSilent : Steering::kNotKnown;
  }
  // Only what is known of both can be compared: not every probe asks the first hop, and answers are rationed.
  std::set<service::IpAddress> leaves;
  std::set<std::pair<service::IpAddress, service::IpAddress>> spines;
  for (const auto& [port, hops] : group.ways) {
    if (hops.egress.known()) leaves.insert(hops.egress);
    if (hops.spine.known() && hops.remote.known()) spines.insert({hops.spine, hops.remote});
  }
  if (leaves.size() > 1 || spines.size() > 1) return Steering::kByPort;
  if (possible == 1) return Steering::kOneWay;
  return group.ways.size() >= kLeastPorts && possible != 0 ? Steering::kIgnoresPort : Steering::kNotKnown;
}

std::string Catalogue::Statement(const FlowGroup& key, int possible) const {
  const std::string flows =
      absl::StrCat(ProtocolName(key.tuple.protocol), " ", IpText(key.tuple.source), " > ",
                   IpPortText(key.tuple.destination, key.tuple.destination_port));
  switch (SteeringOf(key, possible)) {
    case Steering::kIgnoresPort:
      return absl::StrCat(flows, ": source ports do not steer: all ", groups_.at(key).ways.size(),
                          " that were probed take one of ", possible, " ways; no ports are given");
    case Steering::kSprayed:
      return absl::StrCat(
          flows,
          ": source ports do not steer: one port takes different ways (adaptive routing or packet "
          "spraying); no ports are given");
    case Steering::kSilent:
      return absl::StrCat(flows, ": no router answers: paths known by behaviour only");
    default:
      return "";
  }
}

}  // namespace c4::c4p
