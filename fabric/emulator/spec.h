// What an emulated leaf-spine fabric looks like: how many leaves, spines and hosts, how they are joined, and
// every name and address that follows from it.
//
// Leaf L has an uplink to every spine. Host H hangs on leaf H / hosts_per_leaf; with two ports it hangs on
// both leaves of a pair, (0,1), (2,3), ... All pure functions: any thread, no state, no I/O. Leaves, spines
// and hosts are numbered from 0. A function that takes a number trusts it to be in range; what people write
// goes through CheckSpec and ParseLink, whose errors are sentences for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::fabric {

enum class Ports {
  kOne,     // one port, one address
  kPlanes,  // two ports with an address each: the source address selects the plane (way A)
  kBonded,  // one address behind both ports: the host hashes flows over them (way B)
};

enum class Convergence {
  kDelay,  // after a link failure the remote routers change their routes after exactly converge_ms
  kBird,   // BIRD does it: eBGP with BFD
};

struct FabricSpec {
  std::string name = "c4";  // of 1 to 8 lower-case letters and digits: begins the names of its namespaces
  int leaves = 2;
  int spines = 2;
  int hosts_per_leaf = 1;  // with two ports: hosts a pair of leaves
  double rate_mbps = 0;    // of every link and direction; 0: as fast as the machine
  int mtu = 4200;
  Ports ports = Ports::kOne;
  double quota_percent = 0;  // CPU that the ranks of a host get together, in % of one core; 0: no limit
  int quota_period_us = 5000;
  std::vector<double> quota_shares;  // host i has this many times quota_percent; hosts past the end: once
  bool ipv6 = false;                 // the data network's addresses; one port a host, converging by delay
  Convergence convergence = Convergence::kDelay;
  int converge_ms = 200;
};

// InvalidArgument with a sentence for the user.
absl::Status CheckSpec(const FabricSpec& spec);
// "4x4x2": leaves x spines x hosts per leaf, into `spec`.
absl::Status ParseSize(std::string_view text, FabricSpec* spec);
// True for "2x2x1": what ParseSize reads and no name of a fabric.
bool LooksLikeSize(std::string_view text);
absl::StatusOr<Ports> ParsePorts(std::string_view text);  // one | planes | bonded
const char* PortsName(Ports ports);

int PortsPerHost(const FabricSpec& spec);
int HostCount(const FabricSpec& spec);
// CPU that the ranks of that host get together, in % of one core; 0: no limit.
double HostQuotaPercent(const FabricSpec& spec, int host);
int LeafOfHost(const FabricSpec& spec, int host, int port);
// The host's number among those of its leaf or pair of leaves.
int SlotOfHost(const FabricSpec& spec, int host);
int HostAt(const FabricSpec& spec, int leaf, int slot);

// Namespaces.
std::string LeafNamespace(const FabricSpec& spec, int leaf);
std::string SpineNamespace(const FabricSpec& spec, int spine);
std::string HostNamespace(const FabricSpec& spec, int host);
std::string ManagementNamespace(const FabricSpec& spec);
std::vector<std::string> AllNamespaces(const FabricSpec& spec);
// Whether a namespace of that name is of the fabric `fabric`, whatever its size.
bool IsNamespaceOf(std::string_view fabric, std::string_view ns);
std::string HostName(int host);

// Addresses of the data network.
std::string HostPortAddress(const FabricSpec& spec, int host, int port);
std::string HostGateway(const FabricSpec& spec, int host, int port);
// Where a host is reached and what it sends from: the bonded address, else those of its ports.
std::vector<std::string> HostAddresses(const FabricSpec& spec, int host);
std::string LeafUplinkAddress(const FabricSpec& spec, int leaf, int spine);     // on the leaf
std::string SpineDownlinkAddress(const FabricSpec& spec, int leaf, int spine);  // on the spine
// The addresses of all ports of hosts on a leaf, and of everywhere: "10.3.0.0/16", "fd10:3::/32".
std::string LeafPrefix(const FabricSpec& spec, int leaf);
std::string DefaultPrefix(const FabricSpec& spec);
// The devices that the addresses of HostAddresses stand on, as NCCL_SOCKET_IFNAME wants them.
std::string DataInterfaces(const FabricSpec& spec);
// -1 when it is no host's.
int HostOfAddress(const FabricSpec& spec, std::string_view address);
// The port that a source address goes out of; -1 where the host's routing decides.
int PortOfAddress(const FabricSpec& spec, std::string_view address);

// The management network of block `block` (0 to 255), apart from the data network: a /23 of 198.18.0.0/15.
std::string ManagementSubnet(int block);
std::string ManagementAddress(int block, int host);
std::string ManagementRootAddress(int block);
std::string ManagementRouterAddress(int block);

// A link: of a leaf and a spine, or of a host's port and a leaf.
struct Link {
  enum class Kind { kUplink, kHost };
  Kind kind = Kind::kUplink;
  int leaf = 0;
  int spine = 0;  // kUplink
  int host = 0;   // kHost
  bool operator==(const Link&) const = default;
};

// One end of a link: a device in a namespace.
struct LinkEnd {
  std::string ns;
  std::string device;
};

Link UplinkOf(int leaf, int spine);
Link HostLinkOf(const FabricSpec& spec, int host, int port);
// "leaf0-spine1", "host3-leaf0".
std::string LinkName(const Link& link);
// What LinkName gives, or "host3" for all links of that host.
absl::StatusOr<std::vector<Link>> ParseLink(const FabricSpec& spec, std::string_view text);
std::vector<Link> AllLinks(const FabricSpec& spec);
// The leaf's end of an uplink, the host's end of a host link.
LinkEnd LowerEnd(const FabricSpec& spec, const Link& link);
// The spine's end of an uplink, the leaf's end of a host link.
LinkEnd UpperEnd(const FabricSpec& spec, const Link& link);
// "host3" or "3" to 3.
absl::StatusOr<int> ParseHost(const FabricSpec& spec, std::string_view text);

}  // namespace c4::fabric
