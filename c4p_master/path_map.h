// The mapping from a five-tuple to its way through the network, behind one interface with three providers:
// the table of what was probed (probed_paths.h), the hash where it is linear (linear_paths.h), and the
// operator's configuration (configured_paths.h). The catalogue (catalogue.h) asks them in turn.
//
// A way is kept as the addresses that answer on it, which outlive every relearning of the topology;
// Topology::Resolve makes links of it. Times are the caller's monotonic clock. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "c4p_master/topology.h"
#include "service/ip_tuple.h"

namespace c4::c4p {

enum class PathOrigin { kProbed, kPredicted, kConfigured };

struct KnownPath {
  HopPath hops;
  PathOrigin origin = PathOrigin::kProbed;
  int64_t seen_ns = 0;    // of the observation that it rests on; 0: configured
  bool doubtful = false;  // old, or the path misbehaves: to be probed again
};

class PathMap {
 public:
  virtual ~PathMap() = default;
  // Nothing: this provider does not know.
  virtual std::optional<KnownPath> Find(const service::IpTuple& tuple, int64_t now_ns) const = 0;
};

// A tuple without its source port: the flows among which only the port chooses.
struct FlowGroup {
  service::IpTuple tuple;
  auto operator<=>(const FlowGroup&) const = default;  // NOLINT(modernize-use-nullptr)
};
inline FlowGroup GroupOf(service::IpTuple tuple) {
  tuple.source_port = 0;
  return {tuple};
}
inline service::IpTuple WithPort(const FlowGroup& group, uint16_t source_port) {
  service::IpTuple tuple = group.tuple;
  tuple.source_port = source_port;
  return tuple;
}

// What the acknowledgements of a RoCE v2 flow take: they leave from the port that the data leave from, and go
// to the same one. Of TCP, whose acknowledgements each connection's switches hash by the listener's port:
// none.
inline std::optional<service::IpTuple> AcknowledgementsOf(const service::IpTuple& tuple) {
  if (tuple.protocol != service::IpProtocol::kUdp) return std::nullopt;
  return service::IpTuple{tuple.protocol, tuple.destination, tuple.source_port, tuple.source,
                          tuple.destination_port};
}

}  // namespace c4::c4p
