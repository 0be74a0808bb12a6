// Tells which way the packets of a TCP connection take, by the kernel's own tables.
//
// Only tests, judges and injectors may use it: it reads what the emulator knows, which the product must not.
// It answers for the fabric as it is now: once a failure has converged, the answer differs. Needs root; any
// thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/spec.h"

namespace c4::fabric {

struct FiveTuple {
  std::string source;
  int source_port = 0;
  std::string destination;
  int destination_port = 0;
  std::string protocol = "tcp";  // or udp: they hash differently
  auto operator<=>(const FiveTuple&) const = default;
};

// The other direction of the same connection.
FiveTuple Reversed(const FiveTuple& tuple);
// "10.0.0.2:40000 -> 10.1.0.2:5000"
std::string TupleText(const FiveTuple& tuple);

struct Path {
  int source_host = -1;
  int destination_host = -1;
  int source_leaf = -1;
  int spine = -1;  // -1: within one leaf
  int destination_leaf = -1;
  std::vector<Link> links;  // in the order in which a packet meets them
};
bool Takes(const Path& path, const Link& link);

// The paths of packets of each tuple, in its own direction. NotFound when an end is no host of the fabric;
// Unavailable when a router has no route; Unimplemented for IPv6, and for hosts with a bonded address,
// unless `source_leaves` says by which leaf each tuple goes out.
absl::StatusOr<std::vector<Path>> PathsOf(const FabricSpec& spec, const std::vector<FiveTuple>& tuples,
                                          const std::vector<int>& source_leaves = {});
absl::StatusOr<Path> PathOf(const FabricSpec& spec, const FiveTuple& tuple);

// "... dev up3 ..." of `ip route get` to "up3"; empty when there is none.
std::string DeviceOfRoute(std::string_view line);

}  // namespace c4::fabric
