#include "c4p_master/configured_paths.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "c4p_master/json_lines.h"

namespace c4::c4p {
namespace {

using service::IpAddress;
using service::IpProtocol;

#define C4_TRY(expr)                                                     \
  do {                                                                   \
    if (absl::Status c4_fault = (expr); !c4_fault.ok()) return c4_fault; \
  } while (0)

constexpr size_t kMaxRules = 10'000;

// "10.0.0.2", "10.0.0.0/16" or "fd00::/32".
absl::Status GetPrefix(const JsonLine& object, std::string_view key, IpAddress* address, IpAddress* mask) {
  std::string text;
  C4_TRY(GetText(object, key, &text));
  const JsonLine* part = object.Find(key);
  if (part == nullptr) return absl::OkStatus();
  const size_t slash = text.find('/');
  // 0.0.0.0 is none as an address, and here the beginning of one.
  const std::string head = text.substr(0, slash);
  const std::optional<IpAddress> parsed =
      head == "0.0.0.0" ? IpAddress{0, IpAddress::kMapped} : service::ParseIp(head);
  const int longest = parsed.has_value() && parsed->is_v4() ? 32 : 128;
  int length = longest;
  const bool whole = slash == std::string::npos ||
                     (absl::SimpleAtoi(text.substr(slash + 1), &length) && length >= 0 && length <= longest);
  if (!parsed.has_value() || !whole) {
    return AtLine(part->line, absl::StrCat("'", std::string(key),
                                           "' is an address or a prefix like 10.0.0.0/16 or fd00::/32, not '",
                                           text.substr(0, 40), "'"));
  }
  length += 128 - longest;
  const auto ones = [](int bits) { return bits <= 0 ? 0 : ~uint64_t{0} << (64 - std::min(bits, 64)); };
  *mask = {ones(length), ones(length - 64)};
  *address = {parsed->high & mask->high, parsed->low & mask->low};
  return absl::OkStatus();
}

// What answers for that end of the cable: its own address, else the switch's.
IpAddress Answers(const Switch& owner, IpAddress own) {
  if (own.known() || owner.addresses.empty()) return own;
  return owner.addresses.front();
}

}  // namespace

absl::StatusOr<ConfiguredPaths> ConfiguredPaths::Parse(std::string_view text) {
  const absl::StatusOr<JsonLine> root = ReadJson(text);
  if (!root.ok()) return root.status();
  C4_TRY(CheckKeys(*root, "a file of paths", {"paths"}, {}));
  const JsonLine* list = nullptr;
  C4_TRY(GetList(*root, "paths", &list));
  if (list->list.size() > kMaxRules) return AtLine(list->line, "a file of paths has at most 10000 rules");
  ConfiguredPaths paths;
  for (const JsonLine& part : list->list) {
    C4_TRY(CheckKeys(part, "a path", {},
                     {"protocol", "source", "destination", "destination_port", "first_port", "last_port",
                      "modulo", "remainder", "leaf", "spine", "remote_leaf"}));
    Rule rule;
    rule.line = part.line;
    std::string protocol;
    C4_TRY(GetText(part, "protocol", &protocol));
    if (protocol == "tcp") rule.protocol = IpProtocol::kTcp;
    if (protocol == "udp") rule.protocol = IpProtocol::kUdp;
    if (part.Find("protocol") != nullptr && !rule.protocol.has_value()) {
      return AtLine(part.Find("protocol")->line, "'protocol' is tcp or udp");
    }
    C4_TRY(GetPrefix(part, "source", &rule.source.address, &rule.source.mask));
    C4_TRY(GetPrefix(part, "destination", &rule.destination.address, &rule.destination.mask));
    C4_TRY(GetWhole(part, "destination_port", 1, 65535, &rule.destination_port));
    C4_TRY(GetWhole(part, "first_port", 1, 65535, &rule.first_port));
    C4_TRY(GetWhole(part, "last_port", 1, 65535, &rule.last_port));
    C4_TRY(GetWhole(part, "modulo", 1, 65536, &rule.modulo));
    C4_TRY(GetWhole(part, "remainder", 0, 65535, &rule.remainder));
    C4_TRY(GetText(part, "leaf", &rule.leaf));
    C4_TRY(GetText(part, "spine", &rule.spine));
    C4_TRY(GetText(part, "remote_leaf", &rule.remote_leaf));
    if (rule.last_port < rule.first_port) return AtLine(part.line, "'last_port' is before 'first_port'");
    if (rule.remainder >= rule.modulo) return AtLine(part.line, "'remainder' is below 'modulo'");
    paths.rules_.push_back(std::move(rule));
  }
  return paths;
}

bool ConfiguredPaths::Fits(const Rule& rule, const service::IpTuple& tuple) {
  return (!rule.protocol.has_value() || *rule.protocol == tuple.protocol) &&
         rule.source.Holds(tuple.source) && rule.destination.Holds(tuple.destination) &&
         (rule.destination_port == 0 || rule.destination_port == tuple.destination_port) &&
         tuple.source_port >= rule.first_port && tuple.source_port <= rule.last_port &&
         tuple.source_port % rule.modulo == rule.remainder;
}

std::optional<KnownPath> ConfiguredPaths::Find(const service::IpTuple& tuple, int64_t) const {
  if (topology_ == nullptr) return std::nullopt;
  const Rule* found = nullptr;
  for (const Rule& rule : rules_) {
    if (!Fits(rule, tuple)) continue;
    found = &rule;
    break;
  }
  if (found == nullptr) return std::nullopt;
  // The port on the leaf that is named, or the only one.
  const auto port_of = [this](IpAddress address, const std::string& leaf) -> const Port* {
    const int nic = topology_->NicAt(address);
    if (nic < 0) return nullptr;
    const std::vector<int>& ports = topology_->nics()[static_cast<size_t>(nic)].ports;
    if (leaf.empty() && ports.size() != 1) return nullptr;
    for (const int port : ports) {
      const Port& one = topology_->ports()[static_cast<size_t>(port)];
      if (leaf.empty() || topology_->leaves()[static_cast<size_t>(one.leaf)].name == leaf) return &one;
    }
    return nullptr;
  };
  const Port* from = port_of(tuple.source, found->leaf);
  const Port* to = port_of(tuple.destination, found->remote_leaf);
  if (from == nullptr || to == nullptr) return std::nullopt;
  KnownPath path;
  path.origin = PathOrigin::kConfigured;
  path.hops.egress = Answers(topology_->leaves()[static_cast<size_t>(from->leaf)], from->gateway);
  if (from->leaf == to->leaf) {
    path.hops.within_leaf = true;
    return path;
  }
  const int spine = topology_->FindSpine(found->spine);
  const int up = topology_->UplinkBetween(from->leaf, spine),
            down = topology_->UplinkBetween(to->leaf, spine);
  if (spine < 0 || up < 0 || down < 0) return std::nullopt;
  path.hops.spine = Answers(topology_->spines()[static_cast<size_t>(spine)],
                            topology_->uplinks()[static_cast<size_t>(up)].spine_address);
  path.hops.remote = Answers(topology_->leaves()[static_cast<size_t>(to->leaf)],
                             topology_->uplinks()[static_cast<size_t>(down)].leaf_address);
  return path;
}

std::vector<std::string> ConfiguredPaths::Contradictions(const Topology& topology) const {
  std::vector<std::string> sentences;
  for (const Rule& rule : rules_) {
    for (const std::string* leaf : {&rule.leaf, &rule.remote_leaf}) {
      if (!leaf->empty() && topology.FindLeaf(*leaf) < 0) {
        sentences.push_back(absl::StrCat("line ", rule.line, ": there is no leaf '", *leaf, "'"));
      }
    }
    if (!rule.spine.empty() && topology.FindSpine(rule.spine) < 0) {
      sentences.push_back(absl::StrCat("line ", rule.line, ": there is no spine '", rule.spine, "'"));
    }
  }
  return sentences;
}

}  // namespace c4::c4p
