// A network with an allocator on it, and what its accounts have to be by its own words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "c4p_master/alloc/allocator.h"
#include "c4p_master/alloc/flowsim_policy.h"

namespace c4::c4p {

inline flowsim::Clos MakeClos(const flowsim::ClosSpec& spec) {
  absl::StatusOr<flowsim::Clos> clos = flowsim::Clos::Make(spec);
  EXPECT_TRUE(clos.ok()) << clos.status().message();
  return *std::move(clos);
}

// Two tiers of two planes, and three tiers.
inline std::vector<flowsim::ClosSpec> SomeNetworks() {
  return {{.leaves = 4, .spines = 3, .hosts_per_leaf = 4},
          {.leaves = 6, .spines = 8, .hosts_per_leaf = 8, .planes = 2},
          {.pods = 3, .leaves = 4, .spines = 3, .cores_per_spine = 4, .hosts_per_leaf = 6, .planes = 2}};
}

struct Fabric {
  explicit Fabric(const flowsim::ClosSpec& spec)
      : clos(MakeClos(spec)), network(NetworkOf(clos)), allocator(&network) {}

  ConnectionRequest Random(ConnectionId connection, std::mt19937* random) const {
    const auto hosts = static_cast<unsigned>(clos.hosts());
    const auto from = static_cast<NicId>((*random)() % hosts);
    return {.connection = connection,
            .tenant = static_cast<TenantId>((*random)() % 5),
            .from = from,
            .to = static_cast<NicId>((from + 1 + (*random)() % (hosts - 1)) % hosts),
            .queue_pairs = static_cast<uint32_t>(1 + (*random)() % 9),
            .demand_mbps = (*random)() % 2 == 0 ? 0.0 : static_cast<double>((*random)() % 2000) / 3,
            .available = {}};
  }

  // Any link between switches.
  Link RandomLink(std::mt19937* random) const {
    const flowsim::ClosSpec& spec = clos.spec();
    const auto spines = static_cast<uint32_t>(spec.spines);
    if (spec.pods > 1 && (*random)() % 3 == 0) {
      const auto pod = static_cast<uint32_t>((*random)() % static_cast<unsigned>(spec.pods));
      const auto spine = static_cast<uint32_t>((*random)() % spines);
      const auto cores = static_cast<uint32_t>(spec.cores_per_spine);
      return {Tier::kSpine, pod * spines + spine, spine * cores + static_cast<uint32_t>((*random)() % cores)};
    }
    const auto leaf = static_cast<uint32_t>((*random)() % static_cast<unsigned>(clos.leaves()));
    const uint32_t pod = leaf / static_cast<uint32_t>(spec.leaves);
    return {Tier::kLeaf, leaf, pod * spines + static_cast<uint32_t>((*random)() % spines)};
  }

  // kbit/s by row and column and by port, added up from what each connection says of itself.
  std::map<std::string, int64_t> Truth(const std::map<ConnectionId, ConnectionRequest>& live) const {
    std::map<std::string, int64_t> sums;
    for (const auto& [connection, request] : live) {
      const absl::StatusOr<Allocation> now = allocator.Get(connection);
      EXPECT_TRUE(now.ok());
      for (const Place& place : now->queue_pairs) {
        if (place.way == kNoWay || allocator.CountedKbps(connection) == 0) continue;
        for (const auto link : SimulatedPath(clos, request.from, request.to, place)) {
          sums[clos.LinkName(link)] += allocator.CountedKbps(connection);
        }
      }
    }
    return sums;
  }
  std::map<std::string, int64_t> Accounted() const {
    std::map<std::string, int64_t> sums;
    const flowsim::ClosSpec& spec = clos.spec();
    const auto number = [](int value) { return static_cast<uint32_t>(value); };
    const auto note = [&](const Link& link, flowsim::LinkId up, flowsim::LinkId down) {
      for (const Direction direction : {Direction::kUp, Direction::kDown}) {
        const int64_t load = allocator.LoadOf(link, direction);
        EXPECT_GE(load, 0);
        if (load != 0) sums[clos.LinkName(direction == Direction::kUp ? up : down)] += load;
      }
    };
    for (int host = 0; host < clos.hosts(); ++host) {
      for (int plane = 0; plane < spec.planes; ++plane) {
        note({Tier::kPort, number(host), number(plane)}, clos.HostLink({host, plane}, true),
             clos.HostLink({host, plane}, false));
      }
    }
    for (int leaf = 0; leaf < clos.leaves(); ++leaf) {
      for (int s = 0; s < spec.spines; ++s) {
        note({Tier::kLeaf, number(leaf), number(leaf / spec.leaves * spec.spines + s)},
             clos.SpineLink(leaf, s, true), clos.SpineLink(leaf, s, false));
      }
    }
    for (int at = 0; spec.pods > 1 && at < spec.pods * spec.spines; ++at) {
      for (int core = 0; core < spec.cores_per_spine; ++core) {
        const int s = at % spec.spines;
        note({Tier::kSpine, number(at), number(s * spec.cores_per_spine + core)},
             clos.CoreLink(at / spec.spines, s, core, true), clos.CoreLink(at / spec.spines, s, core, false));
      }
    }
    return sums;
  }

  flowsim::Clos clos;
  Network network;
  Allocator allocator;
};

}  // namespace c4::c4p
