#include "c4p_master/state/records.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "c4p_master/tuple_messages.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;
using service::IpAddress;

constexpr size_t kChecksumBytes = 8;

// FNV-1a, 64 bits.
std::string ChecksumOf(std::string_view key, std::string_view content) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::string_view text) {
    for (const char byte : text) {
      hash ^= static_cast<uint8_t>(byte);
      hash *= 0x100000001b3;
    }
  };
  add(key);
  add(std::string_view("\0", 1));
  add(content);
  std::string bytes(kChecksumBytes, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(hash & 0xff);
    hash >>= 8;
  }
  return bytes;
}

std::string TextOf(IpAddress address) {
  return address.known() ? service::IpText(address) : "";
}

// Of what TextOf wrote.
bool ReadAddress(const std::string& text, IpAddress* address) {
  *address = IpAddress();
  if (text.empty()) return true;
  const std::optional<IpAddress> read = service::ParseIp(text);
  if (read) *address = *read;
  return read.has_value();
}

absl::Status NoAddress(std::string_view key) {
  return absl::DataLossError(Concat("record ", key, " has an address that is none"));
}

}  // namespace

std::string Key(std::string_view keys, std::string_view name) {
  return Concat(keys, name);
}

std::string PathsKey(const FlowGroup& group) {
  const service::IpTuple& tuple = group.tuple;
  return Concat(kPathsKeys, service::ProtocolName(tuple.protocol), "/", service::IpText(tuple.source), "/",
                service::IpPortText(tuple.destination, tuple.destination_port));
}

std::string Seal(std::string_view key, const google::protobuf::MessageLite& message) {
  const std::string content = message.SerializeAsString();
  return ChecksumOf(key, content) + content;
}

absl::Status Unseal(std::string_view key, std::string_view record, google::protobuf::MessageLite* message) {
  const std::string_view content =
      record.size() < kChecksumBytes ? std::string_view() : record.substr(kChecksumBytes);
  if (record.size() < kChecksumBytes || record.substr(0, kChecksumBytes) != ChecksumOf(key, content)) {
    return absl::DataLossError(Concat("record ", key, " is damaged: its checksum is another"));
  }
  if (!message->ParseFromArray(content.data(), static_cast<int>(content.size()))) {
    return absl::DataLossError(Concat("record ", key, " is no ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> NextEpoch(const StateRecords& records, uint64_t wished) {
  const auto found = records.find(std::string(kMasterKey));
  if (found == records.end()) return wished;
  stored::Master master;
  C4_RETURN_IF_NOT_OK(Unseal(kMasterKey, found->second, &master));
  return std::max(wished, master.epoch() + 1);
}

stored::Paths StoredPaths(const FlowGroup& group, const std::map<uint16_t, HopPath>& ways) {
  stored::Paths paths;
  SetTuple(group.tuple, paths.mutable_group());
  using Hops = std::array<IpAddress, 3>;
  std::map<std::pair<Hops, bool>, stored::PortsOfWay*> by_way;
  for (const auto& [port, hops] : ways) {
    stored::PortsOfWay*& way = by_way[{{hops.egress, hops.spine, hops.remote}, hops.within_leaf}];
    if (way == nullptr) {
      way = paths.add_ways();
      way->set_egress(TextOf(hops.egress));
      way->set_spine(TextOf(hops.spine));
      way->set_remote(TextOf(hops.remote));
      way->set_within_leaf(hops.within_leaf);
    }
    way->add_ports(port);
  }
  return paths;
}

std::vector<PathObservation> ObservationsOf(const stored::Paths& paths) {
  std::vector<PathObservation> observations;
  const std::optional<service::IpTuple> group = TupleOf(paths.group());
  if (!group) return observations;
  for (const stored::PortsOfWay& way : paths.ways()) {
    PathObservation seen;
    seen.tuple = *group;
    seen.hops.within_leaf = way.within_leaf();
    if (!ReadAddress(way.egress(), &seen.hops.egress) || !ReadAddress(way.spine(), &seen.hops.spine) ||
        !ReadAddress(way.remote(), &seen.hops.remote)) {
      continue;
    }
    const IpAddress hops[] = {seen.hops.egress, seen.hops.spine, seen.hops.remote};
    for (size_t i = 0; i < seen.states.size(); ++i) {
      if (hops[i].known()) seen.states[i] = HopState::kAnswered;
    }
    if (seen.hops.within_leaf) seen.states[1] = HopState::kReached;
    if (!seen.names_path()) continue;
    for (const uint32_t port : way.ports()) {
      if (port == 0 || port > UINT16_MAX) continue;
      seen.tuple.source_port = static_cast<uint16_t>(port);
      observations.push_back(seen);
    }
  }
  return observations;
}

StateRecords StoredSwitches(const Topology& topology) {
  StateRecords records;
  std::vector<stored::Leaf> leaves(topology.leaves().size());
  std::vector<std::set<IpAddress>> addresses(leaves.size());
  for (const Port& port : topology.ports()) {
    if (port.gateway.known()) addresses[static_cast<size_t>(port.leaf)].insert(port.gateway);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Switch& leaf = topology.leaves()[i];
    leaves[i].set_name(leaf.name);
    addresses[i].insert(leaf.addresses.begin(), leaf.addresses.end());
    for (const IpAddress address : addresses[i]) leaves[i].add_addresses(service::IpText(address));
  }
  for (const Uplink& uplink : topology.uplinks()) {
    stored::Uplink* const to = leaves[static_cast<size_t>(uplink.leaf)].add_uplinks();
    to->set_spine(topology.spines()[static_cast<size_t>(uplink.spine)].name);
    to->set_leaf_address(TextOf(uplink.leaf_address));
    to->set_spine_address(TextOf(uplink.spine_address));
    to->set_faulty(uplink.faulty);
    to->set_why(uplink.why);
  }
  for (const stored::Leaf& leaf : leaves) {
    std::string key = Key(kLeafKeys, leaf.name());
    std::string record = Seal(key, leaf);
    records.emplace(std::move(key), std::move(record));
  }
  for (const Switch& one : topology.spines()) {
    stored::Spine spine;
    spine.set_name(one.name);
    for (const IpAddress address : one.addresses) spine.add_addresses(service::IpText(address));
    std::string key = Key(kSpineKeys, one.name);
    std::string record = Seal(key, spine);
    records.emplace(std::move(key), std::move(record));
  }
  return records;
}

absl::StatusOr<Topology> SwitchesOf(const StateRecords& records) {
  Topology topology;
  std::vector<stored::Leaf> leaves;
  for (const auto& [key, record] : records) {
    const bool is_leaf = key.starts_with(kLeafKeys);
    if (!is_leaf && !key.starts_with(kSpineKeys)) continue;
    stored::Leaf leaf;
    stored::Spine spine;
    C4_RETURN_IF_NOT_OK(is_leaf ? Unseal(key, record, &leaf) : Unseal(key, record, &spine));
    Switch one = {is_leaf ? leaf.name() : spine.name(), {}};
    for (const std::string& text : is_leaf ? leaf.addresses() : spine.addresses()) {
      if (!ReadAddress(text, &one.addresses.emplace_back())) return NoAddress(key);
    }
    const absl::StatusOr<int> added =
        is_leaf ? topology.AddLeaf(std::move(one)) : topology.AddSpine(std::move(one));
    // What two switches claimed in the meantime helps nobody to know them again.
    if (added.ok() && is_leaf) leaves.push_back(std::move(leaf));
  }
  for (const stored::Leaf& leaf : leaves) {
    const std::string key = Key(kLeafKeys, leaf.name());
    for (const stored::Uplink& from : leaf.uplinks()) {
      Uplink uplink;
      uplink.leaf = topology.FindLeaf(leaf.name());
      uplink.spine = topology.FindSpine(from.spine());
      if (uplink.spine < 0) continue;
      uplink.faulty = from.faulty();
      uplink.why = from.why();
      if (!ReadAddress(from.leaf_address(), &uplink.leaf_address) ||
          !ReadAddress(from.spine_address(), &uplink.spine_address)) {
        return NoAddress(key);
      }
      topology.AddUplink(std::move(uplink)).IgnoreError();
    }
  }
  return topology;
}

std::string HowToGoOn(std::string_view place) {
  return Concat(
      "Without it a path master loses little: agents say again what their connections use, which "
      "stay on their ports, and paths are probed anew. Put a copy back, or move ",
      place, " away (with what stands beside it under the same name) and start again");
}

}  // namespace c4::c4p
