// The cost model that picks an algorithm: latency for each message that has to follow another one, and time
// for each byte that a rank's busiest way carries. Hosts' own memory is shared: what one rank moves there the
// others wait for.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ccl/engine/host/operations.h"
#include "ccl/engine/host/plan.h"

namespace c4::host {
namespace {

// Of a message between neighbours of the ring, and between any two ranks.
struct Way {
  double latency_s;
  double byte_s;
};

Way LocalWay(const Layout& layout, const Costs& costs) {
  size_t most = 0;
  for (const auto& ranks : layout.hosts) most = std::max(most, ranks.size());
  return {costs.local_latency_s, costs.local_byte_s * static_cast<double>(most)};
}

Way AnyWay(const Layout& layout, const Costs& costs) {
  return layout.hosts.size() > 1 ? Way{costs.network_latency_s, costs.network_byte_s}
                                 : LocalWay(layout, costs);
}

// Connections between all ranks cost queue pairs, memory and signs of life on every rank, and messages from
// many at a time collide on the last link: between hosts only what has no other way.
bool IsWorthIt(Algorithm algorithm, wire::Function function, const Layout& layout) {
  const bool all_pairs = algorithm == Algorithm::kDirect || algorithm == Algorithm::kExchange;
  return !all_pairs || layout.hosts.size() == 1 || !Exists(Algorithm::kRing, function, layout);
}

}  // namespace

double Cost(Algorithm algorithm, wire::Function function, const Layout& layout, size_t bytes,
            const Costs& costs) {
  const auto n = static_cast<double>(layout.rank_count);
  const auto b = static_cast<double>(bytes);
  const auto hosts = static_cast<double>(layout.hosts.size());
  const double share = (n - 1) / n;
  const Way way = AnyWay(layout, costs);
  const Way local = LocalWay(layout, costs);
  const double reduce_s = Reduces(function) ? costs.reduce_byte_s : 0;
  // Ranks of one host that send to other hosts at a time share its way out.
  const double sharing = layout.hosts.size() > 1 ? static_cast<double>(layout.hosts.front().size()) : 1;
  const double halves = function == wire::kAllReduce ? 2 : 1;
  switch (algorithm) {
    case Algorithm::kRing:
      if (function == wire::kBroadcast || function == wire::kReduce) {
        return (n - 1) * way.latency_s + b * (way.byte_s + reduce_s);
      }
      return halves * (n - 1) * way.latency_s + share * b * (halves * way.byte_s + reduce_s);
    case Algorithm::kTree:
      // An inner rank takes from two and gives to one, or the other way round.
      return std::ceil(std::log2(n)) * halves * way.latency_s + b * (2 * way.byte_s * halves + 2 * reduce_s);
    case Algorithm::kDirect:
      if (function == wire::kBroadcast || function == wire::kReduce) {
        return way.latency_s + (n - 1) * (b * (way.byte_s * sharing + reduce_s) + costs.local_latency_s / 4);
      }
      return halves * (way.latency_s + (n - 1) * costs.local_latency_s / 4) +
             share * b * (halves * way.byte_s * sharing + reduce_s);
    case Algorithm::kExchange:
      return way.latency_s + (n - 1) * (b * (way.byte_s * sharing + reduce_s) + costs.local_latency_s / 4);
    case Algorithm::kHierarchy: {
      const double places = n / hosts;
      const double inside = halves * (local.latency_s + b * local.byte_s) + b * reduce_s;
      const double between =
          halves * ((hosts - 1) * way.latency_s + (hosts - 1) / hosts * b / places * way.byte_s * sharing);
      return inside + between;
    }
    default:
      return std::numeric_limits<double>::infinity();
  }
}

Algorithm Choose(wire::Function function, const Layout& layout, size_t bytes, const Costs& costs) {
  Algorithm best = Algorithm::kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 1; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (!Exists(algorithm, function, layout) || !IsWorthIt(algorithm, function, layout)) continue;
    const double cost = Cost(algorithm, function, layout, bytes, costs);
    if (cost >= least) continue;
    least = cost;
    best = algorithm;
  }
  return best;
}

}  // namespace c4::host
