#include "c4p_master/path_observation.h"

namespace c4::c4p {

PathObservation Observe(const service::IpTuple& tuple, std::span<const SeenHop> hops) {
  PathObservation seen;
  seen.tuple = tuple;
  for (const SeenHop& hop : hops) {
    seen.reached = seen.reached || hop.state == HopState::kReached;
    seen.unreachable = seen.unreachable || hop.state == HopState::kUnreachable;
    if (hop.ttl < 1 || hop.ttl > 3) continue;
    seen.states[static_cast<size_t>(hop.ttl - 1)] = hop.state;
    if (hop.ttl == 2 && hop.state == HopState::kReached) seen.hops.within_leaf = true;
    if (hop.state != HopState::kAnswered) continue;
    (hop.ttl == 1 ? seen.hops.egress : hop.ttl == 2 ? seen.hops.spine : seen.hops.remote) = hop.address;
  }
  return seen;
}

}  // namespace c4::c4p
