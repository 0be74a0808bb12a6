#include "fabric/flowsim/policy.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace c4::flowsim {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input moves every bit of the
// output.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

uint64_t HashOf(const Flow& flow, uint64_t seed) {
  const auto port = [](Port p) { return static_cast<uint64_t>(p.host) * 2 + static_cast<uint64_t>(p.plane); };
  const uint64_t ports = uint64_t{flow.source_port} << 16 | flow.destination_port;
  return Mix(Mix(Mix(seed ^ port(flow.from)) ^ port(flow.to)) ^ ports);
}

}  // namespace

int Ecmp::Choose(const Clos& clos, const Flow& flow) {
  const int ways = clos.Ways(flow.from, flow.to);
  const int spines = std::min(ways, clos.spec().spines);
  const auto is_up = [&](int way) { return clos.IsUp(clos.PathOf(flow.from, flow.to, way)); };
  const auto any_over = [&](int spine) {
    for (int way = spine; way < ways; way += spines) {
      if (is_up(way)) return true;
    }
    return false;
  };
  // The leaf takes a spine, and that one a core.
  std::vector<int> hops;
  for (int spine = 0; spine < spines; ++spine) {
    if (any_over(spine)) hops.push_back(spine);
  }
  if (hops.empty()) return kNoWay;
  const auto pick = [&](uint64_t router) {
    return hops[static_cast<size_t>(HashOf(flow, Mix(seed_ ^ router)) % hops.size())];
  };
  const int leaf = clos.LeafOf(flow.from);
  const int spine = pick(static_cast<uint64_t>(leaf));
  if (ways == spines) return spine;
  hops.clear();
  for (int way = spine; way < ways; way += spines) {
    if (is_up(way)) hops.push_back(way);
  }
  const int router = clos.leaves() + clos.PodOf(flow.from) * clos.spec().spines + spine;
  return pick(static_cast<uint64_t>(router));
}

int LeastLoaded::Choose(const Clos& clos, const Flow& flow) {
  load_.resize(clos.links(), 0);
  const double wants = std::isinf(flow.wants_mbps) ? clos.spec().host_mbps : flow.wants_mbps;
  const std::vector<double>& capacities = clos.capacities_mbps();
  int best = kNoWay;
  // The fullest link, then the sum: of ways that are alike in the first, the emptier one.
  std::array<double, 2> least{};
  const int ways = clos.Ways(flow.from, flow.to);
  for (int way = 0; way < ways; ++way) {
    const Path path = clos.PathOf(flow.from, flow.to, way);
    if (!clos.IsUp(path)) continue;
    std::array<double, 2> load{};
    for (const LinkId link : path) {
      const double after = load_[link] + wants / capacities[link];
      load[0] = std::max(load[0], after);
      load[1] += after;
    }
    if (best != kNoWay && load >= least) continue;
    best = way;
    least = load;
  }
  if (best == kNoWay) return best;
  for (const LinkId link : clos.PathOf(flow.from, flow.to, best)) load_[link] += wants / capacities[link];
  return best;
}

FlowTable Route(const Clos& clos, const std::vector<Flow>& flows, PathPolicy* policy) {
  FlowTable table;
  for (const Flow& flow : flows) {
    const int way = policy->Choose(clos, flow);
    if (way == kNoWay) {
      table.Add(std::array<LinkId, 1>{clos.links()}, flow.wants_mbps);
    } else {
      table.Add(clos.PathOf(flow.from, flow.to, way), flow.wants_mbps);
    }
  }
  return table;
}

std::vector<double> CapacitiesOf(const Clos& clos) {
  std::vector<double> capacities = clos.capacities_mbps();
  for (LinkId link = 0; link < clos.links(); ++link) {
    if (!clos.IsUp(link)) capacities[link] = 0;
  }
  capacities.push_back(0);
  return capacities;
}

}  // namespace c4::flowsim
