#include "c4p_master/alloc/flowsim_policy.h"

#include <cmath>
#include <cstdlib>

namespace c4::c4p {
namespace {

// What the simulator holds is never refused.
void Must(const absl::Status& status) {
  if (!status.ok()) std::abort();
}

flowsim::LinkId Simulated(const flowsim::Clos& clos, const Link& link, bool up) {
  const auto lower = static_cast<int>(link.lower);
  const auto upper = static_cast<int>(link.upper);
  const flowsim::ClosSpec& spec = clos.spec();
  switch (link.tier) {
    case Tier::kPort:
      return clos.HostLink({lower, upper}, up);
    case Tier::kLeaf:
      return clos.SpineLink(lower, upper % spec.spines, up);
    default:
      return clos.CoreLink(lower / spec.spines, lower % spec.spines, upper % spec.cores_per_spine, up);
  }
}

}  // namespace

void Refresh(const flowsim::Clos& clos, const Link& link, Network* network) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    const flowsim::LinkId id = Simulated(clos, link, direction == Direction::kUp);
    Must(network->SetCapacity(link, direction, clos.capacities_mbps()[id]));
    Must(network->SetUp(link, direction, clos.IsUp(id)));
  }
}

Network NetworkOf(const flowsim::Clos& clos) {
  Network network;
  const flowsim::ClosSpec& spec = clos.spec();
  const auto number = [](int value) { return static_cast<uint32_t>(value); };
  const auto planes = number(spec.planes);
  for (int spine = 0; spine < spec.pods * spec.spines; ++spine) {
    Must(network.AddSpine(number(spine), number(spine / spec.spines)));
  }
  for (int leaf = 0; leaf < clos.leaves(); ++leaf) {
    const PodId pod = number(leaf / spec.leaves);
    Must(network.AddLeaf(number(leaf), pod, number(leaf) % planes));
    for (int s = 0; s < spec.spines; ++s) {
      const Link link{Tier::kLeaf, number(leaf), pod * number(spec.spines) + number(s)};
      Must(network.AddLeafLink(link.lower, link.upper, spec.spine_mbps));
      Refresh(clos, link, &network);
    }
  }
  for (int core = 0; spec.pods > 1 && core < spec.spines * spec.cores_per_spine; ++core) {
    Must(network.AddCore(number(core)));
    for (int pod = 0; pod < spec.pods; ++pod) {
      const Link link{Tier::kSpine, number(pod * spec.spines + core / spec.cores_per_spine), number(core)};
      Must(network.AddSpineLink(link.lower, link.upper, spec.core_mbps));
      Refresh(clos, link, &network);
    }
  }
  for (int host = 0; host < clos.hosts(); ++host) {
    for (int plane = 0; plane < spec.planes; ++plane) {
      const Link link{Tier::kPort, number(host), number(plane)};
      Must(network.AddPort(link.lower, link.upper, number(clos.LeafOf({host, plane})), spec.host_mbps));
      Refresh(clos, link, &network);
    }
  }
  return network;
}

int SimulatedWay(const flowsim::Clos& clos, flowsim::Port from, flowsim::Port to, Way way) {
  const flowsim::ClosSpec& spec = clos.spec();
  if (way == kNoWay) return flowsim::kNoWay;
  if (way == kDirect) return 0;
  const auto number = static_cast<int>(way);
  if (clos.PodOf(from) == clos.PodOf(to)) return number % spec.spines;
  return number % spec.cores_per_spine * spec.spines + number / spec.cores_per_spine;
}

flowsim::Path SimulatedPath(const flowsim::Clos& clos, NicId from, NicId to, Place place) {
  const flowsim::Port source{static_cast<int>(from), static_cast<int>(place.plane)};
  const flowsim::Port destination{static_cast<int>(to), static_cast<int>(place.plane)};
  return clos.PathOf(source, destination, SimulatedWay(clos, source, destination, place.way));
}

int AllocatorPolicy::Choose(const flowsim::Clos& clos, const flowsim::Flow& flow) {
  ConnectionRequest request{
      .connection = next_++,
      .tenant = 0,
      .from = static_cast<NicId>(flow.from.host),
      .to = static_cast<NicId>(flow.to.host),
      .queue_pairs = 1,
      .demand_mbps = std::isinf(flow.wants_mbps) ? clos.spec().host_mbps : flow.wants_mbps,
      .available = {}};
  request.available.resize(static_cast<size_t>(clos.spec().planes), PlaneWays{.all = false, .ways = {}});
  request.available[static_cast<size_t>(flow.from.plane)].all = true;
  const absl::StatusOr<Allocation> allocation = allocator_.Allocate(request);
  if (!allocation.ok()) return flowsim::kNoWay;
  return SimulatedWay(clos, flow.from, flow.to, allocation->queue_pairs[0].way);
}

}  // namespace c4::c4p
