#include "fabric/emulator/spec.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "service/ip_address.h"

namespace c4::fabric {
namespace {

// An address has one byte for each of these; 172.16.0.0/12 has 16 leaves.
constexpr int kMaxLeaves = 16;
constexpr int kMaxSpines = 128;
constexpr int kMaxHostsPerLeaf = 64;
constexpr int kMaxHosts = 400;  // a management network is a /23
constexpr int kFirstManagementHost = 10;
// 10.LEAF.x.x are the ports, 10.(128 + PAIR).x.x the bonded addresses.
constexpr int kBondedBase = 128;

std::optional<int> Number(std::string_view text) {
  int value = 0;
  if (text.empty() || text.front() == '+' || text.front() == '-') return std::nullopt;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "spine12" with prefix "spine" to 12.
std::optional<int> Numbered(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return Number(text.substr(prefix.size()));
}

std::string Quad(int a, int b, int c, int d) {
  return absl::StrCat(a, ".", b, ".", c, ".", d);
}

// In IPv6 the same numbers in as many groups: fd10:LEAF:SLOT::2 for 10.LEAF.SLOT.2.
std::string DataAddress(const FabricSpec& spec, int v4_head, int v6_head, int a, int b, int last) {
  if (!spec.ipv6) return absl::StrCat(v4_head, ".", a, ".", b, ".", last);
  return service::IpText({uint64_t{0xfd00} << 48 | static_cast<uint64_t>(v6_head) << 48 |
                              static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b) << 16,
                          static_cast<uint64_t>(last)});
}

std::string ManagementQuad(int block, int number) {
  const int low = block * 512 + number;  // within 198.18.0.0/15
  return Quad(198, 18 + low / 65536, low / 256 % 256, low % 256);
}

absl::Status OutOfRange(const char* what, int value, int max) {
  return absl::InvalidArgumentError(absl::StrCat("a fabric has 1 to ", max, " ", what, ", not ", value));
}

}  // namespace

absl::Status CheckSpec(const FabricSpec& spec) {
  const bool plain = std::all_of(spec.name.begin(), spec.name.end(),
                                 [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  if (spec.name.empty() || spec.name.size() > 8 || !plain) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a fabric's name has 1 to 8 lower-case letters and digits, which '", spec.name, "' has not"));
  }
  if (LooksLikeSize(spec.name)) {
    return absl::InvalidArgumentError(absl::StrCat("'", spec.name, "' is a size, no name"));
  }
  if (spec.leaves < 1 || spec.leaves > kMaxLeaves) return OutOfRange("leaves", spec.leaves, kMaxLeaves);
  if (spec.spines < 1 || spec.spines > kMaxSpines) return OutOfRange("spines", spec.spines, kMaxSpines);
  if (spec.hosts_per_leaf < 1 || spec.hosts_per_leaf > kMaxHostsPerLeaf) {
    return OutOfRange("hosts a leaf", spec.hosts_per_leaf, kMaxHostsPerLeaf);
  }
  if (spec.ports != Ports::kOne && spec.leaves % 2 != 0) {
    return absl::InvalidArgumentError("hosts with two ports need an even number of leaves");
  }
  if (HostCount(spec) > kMaxHosts) {
    return absl::InvalidArgumentError(absl::StrCat("a fabric has at most ", kMaxHosts, " hosts"));
  }
  if (spec.rate_mbps != 0 && (spec.rate_mbps < 1 || spec.rate_mbps > 100000)) {
    return absl::InvalidArgumentError("a rate is 1 to 100000 Mbit/s, or 0 for none");
  }
  if (spec.mtu < 576 || spec.mtu > 65000) return absl::InvalidArgumentError("an MTU is 576 to 65000 bytes");
  if (spec.quota_percent != 0 && (spec.quota_percent < 1 || spec.quota_percent > 100000)) {
    return absl::InvalidArgumentError("a CPU quota is 1 to 100000 % of one core, or 0 for none");
  }
  if (std::any_of(spec.quota_shares.begin(), spec.quota_shares.end(),
                  [&](double share) { return !(share >= 1 && share * spec.quota_percent <= 100000); })) {
    return absl::InvalidArgumentError("a host's share of CPU is at least 1, and its quota at most 100000 %");
  }
  if (spec.quota_period_us < 1000 || spec.quota_period_us > 1000000) {
    return absl::InvalidArgumentError("a quota's period is 1000 to 1000000 microseconds");
  }
  if (spec.converge_ms < 0 || spec.converge_ms > 600000) {
    return absl::InvalidArgumentError("convergence takes 0 to 600000 ms");
  }
  if (spec.ipv6 && (spec.ports != Ports::kOne || spec.convergence != Convergence::kDelay)) {
    return absl::InvalidArgumentError("an IPv6 fabric needs --ports one and --convergence delay");
  }
  if (spec.convergence == Convergence::kBird && spec.ports == Ports::kBonded) {
    return absl::InvalidArgumentError("hosts with a bonded address need --convergence delay");
  }
  return absl::OkStatus();
}

bool LooksLikeSize(std::string_view text) {
  FabricSpec ignored;
  return ParseSize(text, &ignored).ok();
}

absl::Status ParseSize(std::string_view text, FabricSpec* spec) {
  const std::vector<std::string> parts = absl::StrSplit(absl::string_view(text.data(), text.size()), 'x');
  if (parts.size() == 3) {
    const std::optional<int> leaves = Number(parts[0]), spines = Number(parts[1]), hosts = Number(parts[2]);
    if (leaves.has_value() && spines.has_value() && hosts.has_value()) {
      spec->leaves = *leaves;
      spec->spines = *spines;
      spec->hosts_per_leaf = *hosts;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a fabric's size is LEAVESxSPINESxHOSTS, for instance 2x4x2, not '", std::string(text), "'"));
}

absl::StatusOr<Ports> ParsePorts(std::string_view text) {
  for (const Ports ports : {Ports::kOne, Ports::kPlanes, Ports::kBonded}) {
    if (text == PortsName(ports)) return ports;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ports are one, planes or bonded, not '", std::string(text), "'"));
}

const char* PortsName(Ports ports) {
  if (ports == Ports::kOne) return "one";
  return ports == Ports::kPlanes ? "planes" : "bonded";
}

double HostQuotaPercent(const FabricSpec& spec, int host) {
  const size_t index = static_cast<size_t>(host);
  return spec.quota_percent * (index < spec.quota_shares.size() ? spec.quota_shares[index] : 1);
}

int PortsPerHost(const FabricSpec& spec) {
  return spec.ports == Ports::kOne ? 1 : 2;
}

int HostCount(const FabricSpec& spec) {
  return spec.leaves / PortsPerHost(spec) * spec.hosts_per_leaf;
}

int LeafOfHost(const FabricSpec& spec, int host, int port) {
  return host / spec.hosts_per_leaf * PortsPerHost(spec) + port;
}

int SlotOfHost(const FabricSpec& spec, int host) {
  return host % spec.hosts_per_leaf;
}

int HostAt(const FabricSpec& spec, int leaf, int slot) {
  return leaf / PortsPerHost(spec) * spec.hosts_per_leaf + slot;
}

std::string LeafNamespace(const FabricSpec& spec, int leaf) {
  return absl::StrCat(spec.name, "-leaf", leaf);
}

std::string SpineNamespace(const FabricSpec& spec, int spine) {
  return absl::StrCat(spec.name, "-spine", spine);
}

std::string HostNamespace(const FabricSpec& spec, int host) {
  return absl::StrCat(spec.name, "-", HostName(host));
}

std::string ManagementNamespace(const FabricSpec& spec) {
  return spec.name + "-mgmt";
}

std::vector<std::string> AllNamespaces(const FabricSpec& spec) {
  std::vector<std::string> names = {ManagementNamespace(spec)};
  for (int leaf = 0; leaf < spec.leaves; ++leaf) names.push_back(LeafNamespace(spec, leaf));
  for (int spine = 0; spine < spec.spines; ++spine) names.push_back(SpineNamespace(spec, spine));
  for (int host = 0; host < HostCount(spec); ++host) names.push_back(HostNamespace(spec, host));
  return names;
}

bool IsNamespaceOf(std::string_view fabric, std::string_view ns) {
  if (!ns.starts_with(fabric)) return false;
  ns.remove_prefix(fabric.size());
  if (ns == "-mgmt") return true;
  for (const char* kind : {"-leaf", "-spine", "-host"}) {
    if (Numbered(ns, kind).has_value()) return true;
  }
  return false;
}

std::string HostName(int host) {
  return absl::StrCat("host", host);
}

std::string HostPortAddress(const FabricSpec& spec, int host, int port) {
  return DataAddress(spec, 10, 0x10, LeafOfHost(spec, host, port), SlotOfHost(spec, host), 2);
}

std::string HostGateway(const FabricSpec& spec, int host, int port) {
  return DataAddress(spec, 10, 0x10, LeafOfHost(spec, host, port), SlotOfHost(spec, host), 1);
}

std::vector<std::string> HostAddresses(const FabricSpec& spec, int host) {
  if (spec.ports == Ports::kBonded) {
    return {Quad(10, kBondedBase + host / spec.hosts_per_leaf, SlotOfHost(spec, host), 1)};
  }
  std::vector<std::string> result;
  result.reserve(static_cast<size_t>(PortsPerHost(spec)));
  for (int port = 0; port < PortsPerHost(spec); ++port) result.push_back(HostPortAddress(spec, host, port));
  return result;
}

std::string LeafUplinkAddress(const FabricSpec& spec, int leaf, int spine) {
  return DataAddress(spec, 172, 0x20, 16 + leaf, spine, 0);
}

std::string SpineDownlinkAddress(const FabricSpec& spec, int leaf, int spine) {
  return DataAddress(spec, 172, 0x20, 16 + leaf, spine, 1);
}

std::string LeafPrefix(const FabricSpec& spec, int leaf) {
  return DataAddress(spec, 10, 0x10, leaf, 0, 0) + (spec.ipv6 ? "/32" : "/16");
}

std::string DefaultPrefix(const FabricSpec& spec) {
  return spec.ipv6 ? "::/0" : "default";
}

std::string DataInterfaces(const FabricSpec& spec) {
  if (spec.ports == Ports::kBonded) return "=data0";
  return spec.ports == Ports::kPlanes ? "=eth0,eth1" : "=eth0";
}

int HostOfAddress(const FabricSpec& spec, std::string_view address) {
  for (int host = 0; host < HostCount(spec); ++host) {
    const std::vector<std::string> own = HostAddresses(spec, host);
    if (std::find(own.begin(), own.end(), address) != own.end()) return host;
  }
  return -1;
}

int PortOfAddress(const FabricSpec& spec, std::string_view address) {
  if (spec.ports == Ports::kBonded) return -1;
  const int host = HostOfAddress(spec, address);
  for (int port = 0; host >= 0 && port < PortsPerHost(spec); ++port) {
    if (HostPortAddress(spec, host, port) == address) return port;
  }
  return -1;
}

std::string ManagementSubnet(int block) {
  return ManagementQuad(block, 0) + "/23";
}

std::string ManagementAddress(int block, int host) {
  return ManagementQuad(block, kFirstManagementHost + host);
}

std::string ManagementRootAddress(int block) {
  return ManagementQuad(block, 1);
}

std::string ManagementRouterAddress(int block) {
  return ManagementQuad(block, 2);
}

Link UplinkOf(int leaf, int spine) {
  return {Link::Kind::kUplink, leaf, spine, 0};
}

Link HostLinkOf(const FabricSpec& spec, int host, int port) {
  return {Link::Kind::kHost, LeafOfHost(spec, host, port), 0, host};
}

std::string LinkName(const Link& link) {
  if (link.kind == Link::Kind::kUplink) return absl::StrCat("leaf", link.leaf, "-spine", link.spine);
  return absl::StrCat(HostName(link.host), "-leaf", link.leaf);
}

absl::StatusOr<std::vector<Link>> ParseLink(const FabricSpec& spec, std::string_view text) {
  std::vector<Link> links;
  for (const Link& link : AllLinks(spec)) {
    if (LinkName(link) == text || (link.kind == Link::Kind::kHost && HostName(link.host) == text)) {
      links.push_back(link);
    }
  }
  if (!links.empty()) return links;
  return absl::InvalidArgumentError(absl::StrCat(
      "fabric ", spec.name, " has no link '", std::string(text), "': links are leaf0-spine0 to leaf",
      spec.leaves - 1, "-spine", spec.spines - 1, " and host0 to host", HostCount(spec) - 1));
}

std::vector<Link> AllLinks(const FabricSpec& spec) {
  std::vector<Link> links;
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    for (int spine = 0; spine < spec.spines; ++spine) links.push_back(UplinkOf(leaf, spine));
  }
  for (int host = 0; host < HostCount(spec); ++host) {
    for (int port = 0; port < PortsPerHost(spec); ++port) links.push_back(HostLinkOf(spec, host, port));
  }
  return links;
}

LinkEnd LowerEnd(const FabricSpec& spec, const Link& link) {
  if (link.kind == Link::Kind::kUplink) {
    return {LeafNamespace(spec, link.leaf), absl::StrCat("up", link.spine)};
  }
  return {HostNamespace(spec, link.host), absl::StrCat("eth", link.leaf - LeafOfHost(spec, link.host, 0))};
}

LinkEnd UpperEnd(const FabricSpec& spec, const Link& link) {
  if (link.kind == Link::Kind::kUplink) {
    return {SpineNamespace(spec, link.spine), absl::StrCat("dn", link.leaf)};
  }
  return {LeafNamespace(spec, link.leaf), absl::StrCat("h", SlotOfHost(spec, link.host))};
}

absl::StatusOr<int> ParseHost(const FabricSpec& spec, std::string_view text) {
  std::optional<int> host = Numbered(text, "host");
  if (!host.has_value()) host = Number(text);
  if (host.has_value() && *host < HostCount(spec)) return *host;
  return absl::InvalidArgumentError(absl::StrCat("fabric ", spec.name, " has no host '", std::string(text),
                                                 "': hosts are host0 to host", HostCount(spec) - 1));
}

}  // namespace c4::fabric
