#include "fabric/emulator/batch.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace c4::fabric {
namespace {

// Numbers of next hops and their groups in a router: 1 + n is the neighbour n.
constexpr int kFirstNextHop = 1;
constexpr int kLeafGroups = 1000;      // + the leaf that it leads to
constexpr int kHostGroups = 3000;      // + the host
constexpr int kHostUplinkGroup = 100;  // in a host with a bonded address
constexpr int kPlaneTables = 101;      // + the port: routing tables of hosts with two addresses
// A bucket of 5 ms: two packets of the largest size that segmentation offload makes at the rates that two
// cores carry, and little on a slow link, which would be none for messages that fit into the bucket. The
// queue is never full with the transport's windows.
constexpr double kBucketS = 0.005;
constexpr double kLargestBucketBytes = 131072;
constexpr double kLeastBucketBytes = 10240;
constexpr double kLargestPacketBytes = 65536;
constexpr int kUsualPacketBytes = 32768;
constexpr double kHeaderBytes = 100;  // of a TCP segment, at most
constexpr char kQueue[] = " limit 512k";
// The machine's default may be bbr, which paces and so hides what queues do. By route and not by sysctl: a
// namespace may only choose a default that the machine allows every user.
constexpr char kCongestion[] = " congctl cubic";

double BucketBytes(double rate_mbps) {
  return std::clamp(rate_mbps * 1e6 / 8 * kBucketS, kLeastBucketBytes, kLargestBucketBytes);
}

class Failures {
 public:
  Failures(const FabricSpec& spec, const std::vector<Link>& down) : spec_(spec), down_(down) {}
  bool Up(const Link& link) const { return std::find(down_.begin(), down_.end(), link) == down_.end(); }
  bool Uplink(int leaf, int spine) const { return Up(UplinkOf(leaf, spine)); }
  bool HostPort(int host, int port) const { return Up(HostLinkOf(spec_, host, port)); }

 private:
  const FabricSpec& spec_;
  const std::vector<Link>& down_;
};

// Of a link's two devices: locally administered, and no two of a fabric alike.
std::string MacOf(const Link& link, bool upper) {
  const bool uplink = link.kind == Link::Kind::kUplink;
  const int other = uplink ? link.spine : link.host;
  return absl::StrFormat("02:c4:%x%x:%02x:%02x:%02x", uplink ? 0 : 1, upper ? 1 : 0, link.leaf & 0xff,
                         other >> 8 & 0xff, other & 0xff);
}

// A group leaves out a next hop whose neighbour is not resolved: the first packets of its flows would take
// another way than those after them, and whoever learns paths from them would learn wrong ones. So that
// neighbours are known before any packet.
std::string NeighbourText(const std::string& address, const std::string& mac, const std::string& device) {
  return absl::StrCat("neigh replace ", address, " lladdr ", mac, " dev ", device, " nud permanent\n");
}

// A route over the neighbours `members`, whose next hops are there already.
std::string GroupRoute(int group, const std::vector<int>& members, const std::string& prefix) {
  if (members.empty()) return absl::StrCat("route replace unreachable ", prefix, "\n");
  const std::string list = absl::StrJoin(
      members, "/", [](std::string* out, int member) { absl::StrAppend(out, kFirstNextHop + member); });
  return absl::StrCat("nexthop replace id ", group, " group ", list, "\n", "route replace ", prefix, " nhid ",
                      group, "\n");
}

std::string BondedAddress(const FabricSpec& spec, int host) {
  return HostAddresses(spec, host).front();
}

std::string LeafRouting(const FabricSpec& spec, int leaf, const Failures& failures) {
  std::string text;
  for (int spine = 0; spine < spec.spines; ++spine) {
    if (!failures.Uplink(leaf, spine)) continue;
    const std::string address = SpineDownlinkAddress(spec, leaf, spine);
    const std::string device = absl::StrCat("up", spine);
    absl::StrAppend(&text, NeighbourText(address, MacOf(UplinkOf(leaf, spine), true), device),
                    "nexthop replace id ", kFirstNextHop + spine, " via ", address, " dev ", device, "\n");
  }
  // Spines that reach this leaf and at least one of `targets`.
  const auto spines_towards = [&](const std::vector<int>& targets) {
    std::vector<int> spines;
    for (int spine = 0; spine < spec.spines; ++spine) {
      const bool reaches = std::any_of(targets.begin(), targets.end(),
                                       [&](int target) { return failures.Uplink(target, spine); });
      if (failures.Uplink(leaf, spine) && reaches) spines.push_back(spine);
    }
    return spines;
  };
  for (int other = 0; other < spec.leaves; ++other) {
    if (other == leaf) continue;
    text += GroupRoute(kLeafGroups + other, spines_towards({other}), LeafPrefix(spec, other));
  }
  if (spec.ports != Ports::kBonded) return text;
  const int partner = leaf ^ 1;
  for (int host = 0; host < HostCount(spec); ++host) {
    const int first = LeafOfHost(spec, host, 0);
    const std::string prefix = BondedAddress(spec, host) + "/32";
    if (first / 2 != leaf / 2) {
      std::vector<int> leaves;
      for (int port = 0; port < 2; ++port) {
        if (failures.HostPort(host, port)) leaves.push_back(first + port);
      }
      text += GroupRoute(kHostGroups + host, spines_towards(leaves), prefix);
    } else if (failures.HostPort(host, leaf - first)) {
      absl::StrAppend(&text, "route replace ", prefix, " via ", HostPortAddress(spec, host, leaf - first),
                      " dev h", SlotOfHost(spec, host), "\n");
    } else {
      const bool other_port = failures.HostPort(host, partner - first);
      text +=
          GroupRoute(kHostGroups + host, other_port ? spines_towards({partner}) : std::vector<int>(), prefix);
    }
  }
  return text;
}

std::string SpineRouting(const FabricSpec& spec, int spine, const Failures& failures) {
  std::string text;
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    const std::string prefix = LeafPrefix(spec, leaf);
    if (!failures.Uplink(leaf, spine)) {
      absl::StrAppend(&text, "route replace unreachable ", prefix, "\n");
      continue;
    }
    const std::string address = LeafUplinkAddress(spec, leaf, spine);
    const std::string device = absl::StrCat("dn", leaf);
    absl::StrAppend(&text, NeighbourText(address, MacOf(UplinkOf(leaf, spine), false), device),
                    "nexthop replace id ", kFirstNextHop + leaf, " via ", address, " dev ", device, "\n",
                    "route replace ", prefix, " nhid ", kFirstNextHop + leaf, "\n");
  }
  if (spec.ports != Ports::kBonded) return text;
  for (int host = 0; host < HostCount(spec); ++host) {
    std::vector<int> leaves;
    for (int port = 0; port < 2; ++port) {
      const int leaf = LeafOfHost(spec, host, port);
      if (failures.HostPort(host, port) && failures.Uplink(leaf, spine)) leaves.push_back(leaf);
    }
    text += GroupRoute(kHostGroups + host, leaves, BondedAddress(spec, host) + "/32");
  }
  return text;
}

std::string BondedHostRouting(const FabricSpec& spec, int host, const Failures& failures) {
  std::string text;
  std::vector<int> ports;
  for (int port = 0; port < 2; ++port) {
    if (!failures.HostPort(host, port)) continue;
    ports.push_back(port);
    const std::string address = HostGateway(spec, host, port);
    const std::string device = absl::StrCat("eth", port);
    absl::StrAppend(&text, NeighbourText(address, MacOf(HostLinkOf(spec, host, port), true), device),
                    "nexthop replace id ", kFirstNextHop + port, " via ", address, " dev ", device, "\n");
  }
  if (ports.empty()) return text + "route replace unreachable default\n";
  absl::StrAppend(&text, "nexthop replace id ", kHostUplinkGroup, " group ",
                  absl::StrJoin(ports, "/", [](std::string* out, int p) { absl::StrAppend(out, p + 1); }),
                  "\n", "route replace default nhid ", kHostUplinkGroup, " src ", BondedAddress(spec, host),
                  kCongestion, "\n");
  return text;
}

// FNV-1a: a hash of its own for each router, the same in every run.
uint32_t SeedOf(const std::string& ns) {
  uint32_t hash = 2166136261U;
  for (const char c : ns) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash == 0 ? 1 : hash;
}

}  // namespace

std::string ManagementDevice(int host) {
  return absl::StrCat("m", host);
}

std::string NamespacesText(const FabricSpec& spec) {
  std::string text;
  for (const std::string& ns : AllNamespaces(spec)) absl::StrAppend(&text, "netns add ", ns, "\n");
  return text;
}

std::string LinksText(const FabricSpec& spec) {
  std::string text;
  // A packet larger than the bucket, in which each of its segments counts with its headers, is cut up by the
  // shaper and goes on as many, at the cost of as many: senders make none.
  const double largest = spec.rate_mbps > 0
                             ? BucketBytes(spec.rate_mbps) * spec.mtu / (spec.mtu + kHeaderBytes)
                             : kLargestPacketBytes;
  const std::string device = absl::StrCat(
      " mtu ", spec.mtu, " gso_max_size ",
      static_cast<int>(std::clamp(largest, static_cast<double>(spec.mtu), kLargestPacketBytes)), " ");
  for (const Link& link : AllLinks(spec)) {
    const LinkEnd lower = LowerEnd(spec, link), upper = UpperEnd(spec, link);
    absl::StrAppend(&text, "link add name ", lower.device, " address ", MacOf(link, false), device, "netns ",
                    lower.ns, " type veth peer name ", upper.device, " address ", MacOf(link, true), device,
                    "netns ", upper.ns, "\n");
  }
  if (spec.ports == Ports::kBonded) {
    for (int host = 0; host < HostCount(spec); ++host) {
      const std::string ns = HostNamespace(spec, host);
      absl::StrAppend(&text, "link add name data0 mtu ", spec.mtu, " netns ", ns,
                      " type veth peer name data1 mtu ", spec.mtu, " netns ", ns, "\n");
    }
  }
  const std::string management = ManagementNamespace(spec);
  for (int host = 0; host < HostCount(spec); ++host) {
    absl::StrAppend(&text, "link add name mgmt0 netns ", HostNamespace(spec, host), " type veth peer name ",
                    ManagementDevice(host), " netns ", management, "\n");
  }
  absl::StrAppend(&text, "link add name ", management, " type veth peer name root netns ", management, "\n");
  return text;
}

std::vector<NamespaceText> AddressesText(const FabricSpec& spec, int block) {
  std::vector<NamespaceText> result;
  // IPv6 addresses serve at once, without a look for duplicates.
  const std::string uplink_bits = spec.ipv6 ? "/127 nodad" : "/31";
  const std::string port_bits = spec.ipv6 ? "/126 nodad" : "/30";
  const auto up = [](std::string* text, const std::string& device, const std::string& address) {
    if (!address.empty()) absl::StrAppend(text, "addr add ", address, " dev ", device, "\n");
    absl::StrAppend(text, "link set ", device, " up\n");
  };
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    std::string text = "link set lo up\n";
    for (int spine = 0; spine < spec.spines; ++spine) {
      up(&text, absl::StrCat("up", spine), LeafUplinkAddress(spec, leaf, spine) + uplink_bits);
    }
    for (int slot = 0; slot < spec.hosts_per_leaf; ++slot) {
      const int host = HostAt(spec, leaf, slot);
      up(&text, absl::StrCat("h", slot),
         HostGateway(spec, host, leaf - LeafOfHost(spec, host, 0)) + port_bits);
    }
    result.push_back({LeafNamespace(spec, leaf), text});
  }
  for (int spine = 0; spine < spec.spines; ++spine) {
    std::string text = "link set lo up\n";
    for (int leaf = 0; leaf < spec.leaves; ++leaf) {
      up(&text, absl::StrCat("dn", leaf), SpineDownlinkAddress(spec, leaf, spine) + uplink_bits);
    }
    result.push_back({SpineNamespace(spec, spine), text});
  }
  std::string management = "link set lo up\n";
  up(&management, "lo", ManagementRouterAddress(block) + "/32");
  up(&management, "root", "");
  for (int host = 0; host < HostCount(spec); ++host) {
    std::string text = "link set lo up\n";
    for (int port = 0; port < PortsPerHost(spec); ++port) {
      up(&text, absl::StrCat("eth", port), HostPortAddress(spec, host, port) + port_bits);
    }
    if (spec.ports == Ports::kBonded) {
      up(&text, "data0", BondedAddress(spec, host) + "/32");
      up(&text, "data1", "");
    }
    up(&text, "mgmt0", ManagementAddress(block, host) + "/32");
    result.push_back({HostNamespace(spec, host), text});
    up(&management, ManagementDevice(host), "");
  }
  result.push_back({ManagementNamespace(spec), management});
  std::string root;
  up(&root, ManagementNamespace(spec), ManagementRootAddress(block) + "/32");
  result.push_back({"", root});
  return result;
}

std::vector<NamespaceText> FixedRoutesText(const FabricSpec& spec, int block) {
  std::vector<NamespaceText> result;
  // Where every device has its one neighbour, a route with "scope link" and no subnet says who it is.
  const auto behind = [](const std::string& address, const std::string& device) {
    return absl::StrCat("route add ", address, "/32 dev ", device, " scope link\n");
  };
  const std::string router = ManagementRouterAddress(block);
  std::string management = behind(ManagementRootAddress(block), "root");
  for (int host = 0; host < HostCount(spec); ++host) {
    const std::string own = ManagementAddress(block, host);
    management += behind(own, ManagementDevice(host));
    std::string text = behind(router, "mgmt0");
    absl::StrAppend(&text, "route add ", ManagementSubnet(block), " via ", router, " dev mgmt0 src ", own,
                    "\n");
    for (int port = 0; port < PortsPerHost(spec) && spec.ports != Ports::kBonded; ++port) {
      const std::string way = absl::StrCat("via ", HostGateway(spec, host, port), " dev eth", port);
      const std::string table = absl::StrCat(" table ", kPlaneTables + port);
      if (port == 0) absl::StrAppend(&text, "route add ", DefaultPrefix(spec), " ", way, kCongestion, "\n");
      if (spec.ports == Ports::kPlanes) {
        absl::StrAppend(&text, "route add default ", way, table, kCongestion, "\n", "rule add from ",
                        HostPortAddress(spec, host, port), table, "\n");
      }
    }
    result.push_back({HostNamespace(spec, host), text});
  }
  result.push_back({ManagementNamespace(spec), management});
  result.push_back(
      {"", absl::StrCat(behind(router, ManagementNamespace(spec)), "route add ", ManagementSubnet(block),
                        " via ", router, " dev ", ManagementNamespace(spec), " src ",
                        ManagementRootAddress(block), "\n")});
  return result;
}

std::vector<NamespaceText> RoutingText(const FabricSpec& spec, const std::vector<Link>& down) {
  std::vector<NamespaceText> result;
  if (spec.convergence == Convergence::kBird) return result;
  const Failures failures(spec, down);
  for (int leaf = 0; leaf < spec.leaves; ++leaf) {
    result.push_back({LeafNamespace(spec, leaf), LeafRouting(spec, leaf, failures)});
  }
  for (int spine = 0; spine < spec.spines; ++spine) {
    result.push_back({SpineNamespace(spec, spine), SpineRouting(spec, spine, failures)});
  }
  for (int host = 0; spec.ports == Ports::kBonded && host < HostCount(spec); ++host) {
    result.push_back({HostNamespace(spec, host), BondedHostRouting(spec, host, failures)});
  }
  return result;
}

std::vector<NamespaceText> Changes(const std::vector<NamespaceText>& before,
                                   const std::vector<NamespaceText>& after) {
  std::vector<NamespaceText> result;
  for (const NamespaceText& text : after) {
    std::set<std::string> known;
    for (const NamespaceText& old : before) {
      if (old.ns == text.ns) known = absl::StrSplit(old.text, '\n', absl::SkipEmpty());
    }
    std::string changed;
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(text.text, '\n', absl::SkipEmpty()))) {
      if (!known.contains(line)) absl::StrAppend(&changed, line, "\n");
    }
    if (!changed.empty()) result.push_back({text.ns, changed});
  }
  return result;
}

namespace {

// Every namespace's; `ipv6`: the data network's version.
Sysctls BasicSysctls(bool ipv6) {
  const char* const off = ipv6 ? "0" : "1";
  return {{"ipv6/conf/all/disable_ipv6", off}, {"ipv6/conf/default/disable_ipv6", off},
          {"ipv6/conf/all/accept_ra", "0"},    {"ipv6/conf/default/accept_ra", "0"},
          {"ipv4/conf/all/rp_filter", "0"},    {"ipv4/conf/default/rp_filter", "0"}};
}

Sysctls Joined(Sysctls one, const Sysctls& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

}  // namespace

Sysctls RouterSysctls(const FabricSpec& spec, const std::string& ns) {
  if (spec.ipv6) {
    return Joined(BasicSysctls(true),
                  {{"ipv6/conf/all/forwarding", "1"},
                   {"ipv6/conf/default/forwarding", "1"},
                   // As for IPv4, below. Answers come from the interface that the packet came in by as it is.
                   {"ipv6/fib_multipath_hash_policy", "3"},
                   {"ipv6/fib_multipath_hash_fields", "55"},
                   {"ipv4/fib_multipath_hash_seed", absl::StrCat(SeedOf(ns))},
                   {"ipv6/icmp/ratelimit", "0"},
                   {"ipv6/conf/all/ignore_routes_with_linkdown", "1"},
                   {"ipv6/conf/default/ignore_routes_with_linkdown", "1"}});
  }
  return Joined(
      BasicSysctls(false),
      {{"ipv4/ip_forward", "1"},
       // Policy 1 would take the sender's socket hash, which travels with a packet over veth: one flow
       // would go over several spines. Policy 3 looks into the packet; 0x37: addresses, protocol, ports.
       {"ipv4/fib_multipath_hash_policy", "3"},
       {"ipv4/fib_multipath_hash_fields", "55"},
       {"ipv4/fib_multipath_hash_seed", absl::StrCat(SeedOf(ns))},
       // Probes learn the path from what routers answer when a packet's time to live is over.
       {"ipv4/icmp_ratemask", "0"},
       // From the interface that the packet came in by, as switches do: so the answer names the link, too.
       {"ipv4/icmp_errors_use_inbound_ifaddr", "1"},
       {"ipv4/conf/all/ignore_routes_with_linkdown", "1"},
       {"ipv4/conf/default/ignore_routes_with_linkdown", "1"}});
}

Sysctls HostSysctls(const FabricSpec& spec, const std::string& ns) {
  Sysctls result = BasicSysctls(spec.ipv6);
  // Linux makes packets smaller as round trips get longer; each costs the same at each hop.
  result.push_back({"ipv4/tcp_min_tso_segs", absl::StrCat(std::max(2, kUsualPacketBytes / spec.mtu + 1))});
  if (spec.ports == Ports::kBonded) {
    result.push_back({"ipv4/fib_multipath_hash_policy", "3"});
    result.push_back({"ipv4/fib_multipath_hash_fields", "55"});
    result.push_back({"ipv4/fib_multipath_hash_seed", absl::StrCat(SeedOf(ns))});
    result.push_back({"ipv4/conf/all/ignore_routes_with_linkdown", "1"});
    result.push_back({"ipv4/conf/default/ignore_routes_with_linkdown", "1"});
  }
  return result;
}

Sysctls ManagementSysctls() {
  return Joined(BasicSysctls(false), {{"ipv4/ip_forward", "1"}});
}

std::string RateText(const std::string& device, double rate_mbps, bool slowed) {
  std::string none = absl::StrCat("qdisc replace dev ", device, " root noqueue\n");
  if (rate_mbps <= 0) return none;
  // The queue of a faster link goes first, with what is in it: a packet that waits there and is larger than
  // the new bucket would hold the link up for ever.
  return absl::StrCat(slowed ? none : "", "qdisc replace dev ", device, " root tbf rate ",
                      static_cast<int64_t>(rate_mbps * 1000), "kbit burst ",
                      static_cast<int64_t>(BucketBytes(rate_mbps)), kQueue, "\n");
}

std::string DropText(const std::string& device, int per_mille) {
  const std::string table = "netdev c4_" + device;
  // Adding a table that is there is no error, deleting one that is not would be.
  std::string text = absl::StrCat("add table ", table, "\ndelete table ", table, "\n");
  if (per_mille <= 0) return text;
  const std::string which =
      per_mille >= 1000 ? "" : absl::StrCat("numgen random mod 1000 < ", per_mille, " ");
  absl::StrAppend(&text, "add table ", table, "\n", "add chain ", table,
                  " in { type filter hook ingress device \"", device, "\" priority 0; policy accept; }\n",
                  "add rule ", table,
                  // Not ARP, nor IPv6's neighbour messages: a router leaves a group's next hop out as soon as
                  // it cannot resolve it, and the failure would not be silent.
                  " in icmpv6 type 133-137 accept\n", "add rule ", table, " in meta protocol { ip, ip6 } ",
                  which, "counter drop\n");
  return text;
}

}  // namespace c4::fabric
