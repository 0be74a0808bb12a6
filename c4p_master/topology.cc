#include "c4p_master/topology.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

using service::IpAddress;

// Links: bit 31 tells ports' from uplinks', bit 0 the direction.
constexpr LinkId kPortBit = 0x80000000U;

absl::Status Bad(const std::string& sentence) {
  return absl::InvalidArgumentError(sentence);
}

}  // namespace

absl::Status CheckName(std::string_view name) {
  if (name.empty() || name.size() > 64) return Bad("a name has 1 to 64 characters");
  for (const char c : name) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_' || c == ':';
    if (!fine) return Bad("a name has letters, digits and . - _ : only");
  }
  return absl::OkStatus();
}

absl::Status Topology::ClaimName(const std::string& name) {
  if (absl::Status fault = CheckName(name); !fault.ok()) return fault;
  if (by_name_.contains(name)) return Bad(absl::StrCat("there are two switches '", name, "'"));
  return absl::OkStatus();
}

std::string Topology::UseText(const AddressUse& use) const {
  const auto index = static_cast<size_t>(use.index);
  switch (use.end) {
    case End::kGateway:
    case End::kLeaf:
      return leaves_[index].name;
    case End::kSpine:
      return spines_[index].name;
    case End::kNic:
      return absl::StrCat(servers_[static_cast<size_t>(nics_[index].server)].name, "'s ", nics_[index].name);
    case End::kUplinkLower:
    case End::kUplinkUpper:
      return LinkName(UplinkLink(use.index, true));
  }
  return "";
}

absl::Status Topology::Claim(IpAddress address, AddressUse use, const std::string& who) {
  if (!address.known()) return absl::OkStatus();
  const auto [at, added] = by_address_.emplace(address, use);
  if (added) return absl::OkStatus();
  // Servers of one leaf may share its address.
  const auto of_leaf = [](const AddressUse& one) {
    return one.end == End::kGateway || one.end == End::kLeaf;
  };
  if (of_leaf(use) && of_leaf(at->second) && at->second.index == use.index) return absl::OkStatus();
  return Bad(absl::StrCat(IpText(address), " is given to ", who, " and to ", UseText(at->second)));
}

absl::Status Topology::ClaimSwitchPort(const std::string& switch_name, const std::string& port) {
  if (port.empty()) return absl::OkStatus();
  if (switch_ports_.emplace(std::pair(switch_name, port), true).second) return absl::OkStatus();
  return Bad(absl::StrCat("port '", port, "' of ", switch_name, " has two cables"));
}

absl::StatusOr<int> Topology::AddLeaf(Switch leaf) {
  if (absl::Status fault = ClaimName(leaf.name); !fault.ok()) return fault;
  const int index = static_cast<int>(leaves_.size());
  for (const IpAddress address : leaf.addresses) {
    if (absl::Status fault = Claim(address, {End::kLeaf, index}, leaf.name); !fault.ok()) return fault;
  }
  by_name_[leaf.name] = index;
  leaves_.push_back(std::move(leaf));
  return index;
}

absl::StatusOr<int> Topology::AddSpine(Switch spine) {
  if (absl::Status fault = ClaimName(spine.name); !fault.ok()) return fault;
  const int index = static_cast<int>(spines_.size());
  for (const IpAddress address : spine.addresses) {
    if (absl::Status fault = Claim(address, {End::kSpine, index}, spine.name); !fault.ok()) return fault;
  }
  by_name_[spine.name] = ~index;  // negative: no leaf
  spines_.push_back(std::move(spine));
  return index;
}

absl::StatusOr<int> Topology::AddServer(std::string name) {
  if (absl::Status fault = CheckName(name); !fault.ok()) return fault;
  const int index = static_cast<int>(servers_.size());
  if (!server_by_name_.emplace(name, index).second) {
    return Bad(absl::StrCat("there are two servers '", name, "'"));
  }
  servers_.push_back({std::move(name), {}});
  return index;
}

absl::StatusOr<int> Topology::AddNic(int server, std::string name, IpAddress address) {
  Server& owner = servers_[static_cast<size_t>(server)];
  if (absl::Status fault = CheckName(name); !fault.ok()) return fault;
  for (const int nic : owner.nics) {
    if (nics_[static_cast<size_t>(nic)].name == name) {
      return Bad(absl::StrCat(owner.name, " has two NICs '", name, "'"));
    }
  }
  if (!address.known()) return Bad(absl::StrCat(owner.name, "'s ", name, " has no address"));
  const int index = static_cast<int>(nics_.size());
  if (absl::Status fault = Claim(address, {End::kNic, index}, absl::StrCat(owner.name, "'s ", name));
      !fault.ok()) {
    return fault;
  }
  owner.nics.push_back(index);
  nics_.push_back({server, std::move(name), address, {}});
  return index;
}

absl::StatusOr<int> Topology::AddPort(Port port) {
  Nic& nic = nics_[static_cast<size_t>(port.nic)];
  const std::string& server = servers_[static_cast<size_t>(nic.server)].name;
  const Switch& leaf = leaves_[static_cast<size_t>(port.leaf)];
  // A link's name is server and leaf: it must be one cable.
  for (const int other_nic : servers_[static_cast<size_t>(nic.server)].nics) {
    for (const int other : nics_[static_cast<size_t>(other_nic)].ports) {
      if (ports_[static_cast<size_t>(other)].leaf == port.leaf && other_nic == port.nic) {
        return Bad(absl::StrCat(server, "'s ", nic.name, " has two ports on ", leaf.name));
      }
    }
  }
  if (port.plane < 0 || port.plane > 7) return Bad("a plane is 0 to 7");
  if (absl::Status fault = ClaimSwitchPort(leaf.name, port.leaf_port); !fault.ok()) return fault;
  if (absl::Status fault = Claim(port.gateway, {End::kGateway, port.leaf}, leaf.name); !fault.ok()) {
    return fault;
  }
  const int index = static_cast<int>(ports_.size());
  nic.ports.push_back(index);
  ports_.push_back(std::move(port));
  return index;
}

absl::StatusOr<int> Topology::AddUplink(Uplink uplink) {
  const Switch& leaf = leaves_[static_cast<size_t>(uplink.leaf)];
  const Switch& spine = spines_[static_cast<size_t>(uplink.spine)];
  const std::string who = absl::StrCat("the link of ", leaf.name, " and ", spine.name);
  if (uplink.leaf_address.known() && uplink.leaf_address == uplink.spine_address) {
    return Bad(absl::StrCat("both ends of ", who, " have the address ", IpText(uplink.leaf_address)));
  }
  if (absl::Status fault = ClaimSwitchPort(leaf.name, uplink.leaf_port); !fault.ok()) return fault;
  if (absl::Status fault = ClaimSwitchPort(spine.name, uplink.spine_port); !fault.ok()) return fault;
  const int index = static_cast<int>(uplinks_.size());
  if (absl::Status fault = Claim(uplink.leaf_address, {End::kUplinkLower, index}, who); !fault.ok()) {
    return fault;
  }
  if (absl::Status fault = Claim(uplink.spine_address, {End::kUplinkUpper, index}, who); !fault.ok()) {
    return fault;
  }
  std::vector<int>& between = between_[{uplink.leaf, uplink.spine}];
  between.push_back(index);
  uplink.number = static_cast<int>(between.size());
  by_leaf_[uplink.leaf].push_back(index);
  uplinks_.push_back(std::move(uplink));
  return index;
}

void Topology::SetUplinkFault(int uplink, bool faulty, std::string why) {
  uplinks_[static_cast<size_t>(uplink)].faulty = faulty;
  uplinks_[static_cast<size_t>(uplink)].why = std::move(why);
}

void Topology::SetPortFault(int port, bool faulty, std::string why) {
  ports_[static_cast<size_t>(port)].faulty = faulty;
  ports_[static_cast<size_t>(port)].why = std::move(why);
}

int Topology::FindLeaf(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() || at->second < 0 ? -1 : at->second;
}

int Topology::FindSpine(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() || at->second >= 0 ? -1 : ~at->second;
}

int Topology::FindServer(std::string_view name) const {
  const auto at = server_by_name_.find(name);
  return at == server_by_name_.end() ? -1 : at->second;
}

int Topology::NicAt(IpAddress address) const {
  const auto at = by_address_.find(address);
  return at == by_address_.end() || at->second.end != End::kNic ? -1 : at->second.index;
}

int Topology::LeafAt(IpAddress address) const {
  const auto at = by_address_.find(address);
  if (at == by_address_.end()) return -1;
  const AddressUse& use = at->second;
  if (use.end == End::kGateway || use.end == End::kLeaf) return use.index;
  return use.end == End::kUplinkLower ? uplinks_[static_cast<size_t>(use.index)].leaf : -1;
}

int Topology::SpineAt(IpAddress address) const {
  const auto at = by_address_.find(address);
  if (at == by_address_.end()) return -1;
  const AddressUse& use = at->second;
  if (use.end == End::kSpine) return use.index;
  return use.end == End::kUplinkUpper ? uplinks_[static_cast<size_t>(use.index)].spine : -1;
}

int Topology::UplinkAt(IpAddress address) const {
  const auto at = by_address_.find(address);
  if (at == by_address_.end()) return -1;
  const bool uplink = at->second.end == End::kUplinkLower || at->second.end == End::kUplinkUpper;
  return uplink ? at->second.index : -1;
}

int Topology::UplinkBetween(int leaf, int spine) const {
  const auto at = between_.find({leaf, spine});
  return at == between_.end() || at->second.size() != 1 ? -1 : at->second.front();
}

std::vector<int> Topology::UplinksOf(int leaf) const {
  const auto at = by_leaf_.find(leaf);
  return at == by_leaf_.end() ? std::vector<int>() : at->second;
}

LinkId Topology::PortLink(int port, bool up) const {
  return kPortBit | static_cast<LinkId>(port) << 1 | (up ? 0U : 1U);
}

LinkId Topology::UplinkLink(int uplink, bool up) const {
  return static_cast<LinkId>(uplink) << 1 | (up ? 0U : 1U);
}

bool Topology::IsFaulty(LinkId link) const {
  const size_t index = (link & ~kPortBit) >> 1;
  return (link & kPortBit) != 0 ? ports_[index].faulty : uplinks_[index].faulty;
}

std::string Topology::LinkName(LinkId link) const {
  const size_t index = (link & ~kPortBit) >> 1;
  const char* direction = (link & 1) == 0 ? ">" : "<";
  if ((link & kPortBit) == 0) {
    const Uplink& uplink = uplinks_[index];
    return absl::StrCat(leaves_[static_cast<size_t>(uplink.leaf)].name, direction,
                        spines_[static_cast<size_t>(uplink.spine)].name,
                        uplink.number > 1 ? absl::StrCat("#", uplink.number) : "");
  }
  const Port& port = ports_[index];
  const Nic& nic = nics_[static_cast<size_t>(port.nic)];
  const Server& server = servers_[static_cast<size_t>(nic.server)];
  // Servers often have many NICs; only those that share a leaf need more than the server's name.
  int number = 0, own = 0;
  for (const int other_nic : server.nics) {
    for (const int other : nics_[static_cast<size_t>(other_nic)].ports) {
      if (ports_[static_cast<size_t>(other)].leaf != port.leaf) continue;
      ++number;
      if (static_cast<size_t>(other) == index) own = number;
    }
  }
  return absl::StrCat(server.name, direction, leaves_[static_cast<size_t>(port.leaf)].name,
                      own > 1 ? absl::StrCat("#", own) : "");
}

std::vector<LinkId> Topology::AllLinks() const {
  std::vector<LinkId> links;
  for (const bool up : {true, false}) {
    for (size_t port = 0; port < ports_.size(); ++port) links.push_back(PortLink(static_cast<int>(port), up));
    for (size_t uplink = 0; uplink < uplinks_.size(); ++uplink) {
      links.push_back(UplinkLink(static_cast<int>(uplink), up));
    }
  }
  return links;
}

std::optional<LinkId> Topology::FindLink(std::string_view name) const {
  for (const LinkId link : AllLinks()) {
    if (LinkName(link) == name) return link;
  }
  return std::nullopt;
}

}  // namespace c4::c4p
