// The text that makes a fabric: what is fed to `ip -batch`, `tc -batch` and `nft -f`, and which sysctls are
// set, namespace by namespace.
//
// Pure: a spec (and which links are down) in, text out. Any thread. What is called Routing can be given
// again at any time: it replaces what is there, so that it also says how to converge after a failure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fabric/emulator/spec.h"

namespace c4::fabric {

// Commands for one namespace; `ns` is empty for the caller's own.
struct NamespaceText {
  std::string ns;
  std::string text;
};

// "netns add", a line a namespace.
std::string NamespacesText(const FabricSpec& spec);
// Every veth pair, made directly in the two namespaces that it joins.
std::string LinksText(const FabricSpec& spec);
// Addresses, and every device up.
std::vector<NamespaceText> AddressesText(const FabricSpec& spec, int block);
// Routes of the hosts and of the management network: those that no failure changes.
std::vector<NamespaceText> FixedRoutesText(const FabricSpec& spec, int block);

// Routes of every router (and of hosts with a bonded address) when exactly `down` is broken. Where BIRD
// routes there are none to give.
std::vector<NamespaceText> RoutingText(const FabricSpec& spec, const std::vector<Link>& down);
// The lines of `after` that are not in `before`, namespace by namespace: what is left to do.
std::vector<NamespaceText> Changes(const std::vector<NamespaceText>& before,
                                   const std::vector<NamespaceText>& after);

// The host's device in the management namespace.
std::string ManagementDevice(int host);

// path below /proc/sys/net -> value.
using Sysctls = std::vector<std::pair<std::string, std::string>>;
Sysctls RouterSysctls(const FabricSpec& spec, const std::string& ns);
Sysctls HostSysctls(const FabricSpec& spec, const std::string& ns);
Sysctls ManagementSysctls();

// Lines for `tc -batch`: what leaves the device has that rate; 0 takes the limit off. `slowed`: the link was
// faster.
std::string RateText(const std::string& device, double rate_mbps, bool slowed);
// For `nft -f`: `per_mille` of what arrives at the device is dropped; 1000: all of it; 0 takes the rule off.
std::string DropText(const std::string& device, int per_mille);

}  // namespace c4::fabric
