// The node's NICs on the data network, as the path master is told.
//
// Reads the kernel each time; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "c4/v1/c4p.pb.h"

namespace c4::agent {

// Whether `name` is one of `filter`: prefixes separated by commas, ^ in front excludes them, = in front wants
// exact names (as NCCL_SOCKET_IFNAME). An empty filter takes all.
bool NicSelected(std::string_view filter, std::string_view name);

// Those that are selected, have an address of a network (IPv6: no link-local one) and are no loopback, by
// name; plane 0 is the first. Of an interface with several addresses, the first of IPv4, or of IPv6 where
// `prefer_ipv6`; of the other version where it has none of that. `sys_root`: where /sys is.
std::vector<v1::NicInfo> ListNics(std::string_view filter, bool prefer_ipv6,
                                  const std::string& sys_root = "/sys");

}  // namespace c4::agent
