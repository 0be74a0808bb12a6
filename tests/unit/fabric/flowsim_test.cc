// The flow-level simulator: who is linked to whom, max-min fairness as it is defined, and what the policies
// make of it.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "fabric/flowsim/clos.h"
#include "fabric/flowsim/policy.h"
#include "fabric/flowsim/rates.h"

namespace c4::flowsim {
namespace {

Clos MakeClos(const ClosSpec& spec) {
  absl::StatusOr<Clos> made = Clos::Make(spec);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

// The two switches or hosts that a link joins, by its name.
std::pair<std::string, std::string> Ends(const Clos& clos, LinkId link) {
  const std::string name = clos.LinkName(link);
  const size_t at = name.find_first_of("<>");
  std::pair<std::string, std::string> ends{name.substr(0, at), name.substr(at + 1)};
  // Spines of pods have longer names in the tier above.
  for (std::string* end : {&ends.first, &ends.second}) {
    if (end->rfind("pod", 0) == 0) *end = end->substr(end->find('.') + 1);
  }
  if (name[at] == '<') std::swap(ends.first, ends.second);
  return ends;
}

TEST(Clos, EveryPathJoinsItsEnds) {
  const ClosSpec specs[] = {
      {.leaves = 2, .spines = 2, .hosts_per_leaf = 1},
      {.leaves = 4, .spines = 3, .hosts_per_leaf = 5},
      {.leaves = 4, .spines = 8, .hosts_per_leaf = 4, .planes = 2},
      {.pods = 3, .leaves = 2, .spines = 2, .cores_per_spine = 3, .hosts_per_leaf = 2},
      {.pods = 2, .leaves = 4, .spines = 3, .cores_per_spine = 2, .hosts_per_leaf = 3, .planes = 2},
  };
  for (const ClosSpec& spec : specs) {
    const Clos clos = MakeClos(spec);
    EXPECT_EQ(clos.hosts() * (spec.planes == 2 ? 2 : 1), spec.pods * spec.leaves * spec.hosts_per_leaf);
    std::set<std::string> names;
    for (LinkId link = 0; link < clos.links(); ++link) EXPECT_TRUE(names.insert(clos.LinkName(link)).second);
    std::set<LinkId> used;
    for (int from = 0; from < clos.hosts(); ++from) {
      for (int to = 0; to < clos.hosts(); ++to) {
        for (int plane = 0; plane < spec.planes && from != to; ++plane) {
          const Port source{from, plane};
          const Port destination{to, spec.planes - 1 - plane};
          std::set<std::vector<LinkId>> paths;
          for (int way = 0; way < clos.Ways(source, destination); ++way) {
            const Path path = clos.PathOf(source, destination, way);
            paths.emplace(path.begin(), path.end());
            used.insert(path.begin(), path.end());
            std::string at = "host" + std::to_string(from);
            for (const LinkId link : path) {
              const auto [begin, end] = Ends(clos, link);
              ASSERT_EQ(begin, at) << clos.LinkName(link);
              at = end;
            }
            ASSERT_EQ(at, "host" + std::to_string(to));
          }
          EXPECT_EQ(paths.size(), static_cast<size_t>(clos.Ways(source, destination)))
              << "each way is another";
        }
      }
    }
    EXPECT_EQ(used.size(), clos.links()) << "every link is on some way";
  }
}

TEST(Clos, WhatCannotBeIsRefused) {
  const ClosSpec specs[] = {
      {.pods = 0},
      {.leaves = 0},
      {.spines = -1},
      {.hosts_per_leaf = 0},
      {.planes = 3},
      {.leaves = 3, .planes = 2},
      {.pods = 2, .cores_per_spine = 0},
      {.host_mbps = 0},
      {.spine_mbps = -1},
      {.core_mbps = std::nan("")},
      {.leaves = 65536, .spines = 65536},
  };
  for (const ClosSpec& spec : specs) {
    const absl::StatusOr<Clos> made = Clos::Make(spec);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(made.status().message().empty());
  }
}

TEST(Clos, ACableHasTwoDirections) {
  Clos clos = MakeClos({.pods = 2, .leaves = 2, .spines = 2, .cores_per_spine = 2, .hosts_per_leaf = 1});
  for (LinkId link = 0; link < clos.links(); ++link) {
    clos.SetUp(link, false);
    int down = 0;
    for (LinkId other = 0; other < clos.links(); ++other) {
      if (clos.IsUp(other)) continue;
      ++down;
      const auto there = Ends(clos, link);
      const auto back = Ends(clos, other);
      EXPECT_TRUE(other == link || (there.first == back.second && there.second == back.first));
    }
    EXPECT_EQ(down, 2);
    clos.SetUp(link, true);
  }
}

TEST(MaxMin, KnownCases) {
  {
    FlowTable flows;  // two over one link, one of which wants little
    flows.Add(std::vector<uint32_t>{0}, 2);
    flows.Add(std::vector<uint32_t>{0});
    EXPECT_EQ(MaxMinRates(flows, {10}), (std::vector<double>{2, 8}));
  }
  {
    FlowTable flows;  // one over all three links, others over one each
    flows.Add(std::vector<uint32_t>{0, 1, 2});
    for (uint32_t link = 0; link < 3; ++link) flows.Add(std::vector<uint32_t>{link});
    EXPECT_EQ(MaxMinRates(flows, {1, 2, 3}), (std::vector<double>{0.5, 0.5, 1.5, 2.5}));
  }
  {
    FlowTable flows;  // one that takes no link, one over a dead link
    flows.Add(std::vector<uint32_t>{}, 7);
    flows.Add(std::vector<uint32_t>{0, 1});
    flows.Add(std::vector<uint32_t>{1});
    EXPECT_EQ(MaxMinRates(flows, {0, 4}), (std::vector<double>{7, 0, 4}));
  }
  EXPECT_TRUE(MaxMinRates(FlowTable(), {1, 2}).empty());
}

// The definition itself: no link carries more than it can, and nobody could get more without taking it from
// somebody who has no more.
void ExpectFair(const FlowTable& flows, const std::vector<double>& capacities) {
  const std::vector<double> rates = MaxMinRates(flows, capacities);
  const std::vector<double> loads = LinkLoads(flows, rates, capacities.size());
  std::vector<double> most(capacities.size(), 0);
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    for (uint64_t i = flows.first[flow]; i < flows.first[flow + 1]; ++i) {
      most[flows.links[i]] = std::max(most[flows.links[i]], rates[flow]);
    }
  }
  for (size_t link = 0; link < capacities.size(); ++link) {
    ASSERT_LE(loads[link], capacities[link] * (1 + 1e-9) + 1e-9);
  }
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    bool held = rates[flow] >= flows.wanted[flow] * (1 - 1e-9);
    for (uint64_t i = flows.first[flow]; i < flows.first[flow + 1]; ++i) {
      const uint32_t link = flows.links[i];
      held = held ||
             (loads[link] >= capacities[link] * (1 - 1e-9) - 1e-9 && rates[flow] >= most[link] * (1 - 1e-9));
    }
    ASSERT_TRUE(held) << "flow " << flow << " could get more than " << rates[flow];
  }
}

TEST(MaxMin, NobodyCouldGetMore) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const size_t links = 1 + random() % 30;
    std::vector<double> capacities;
    capacities.reserve(links);
    for (size_t i = 0; i < links; ++i) {
      capacities.push_back(random() % 10 == 0 ? 0 : static_cast<double>(1 + random() % 100));
    }
    FlowTable flows;
    for (size_t i = 0, n = random() % 200; i < n; ++i) {
      std::set<uint32_t> taken;
      for (size_t k = 0, hops = 1 + random() % 5; k < hops; ++k) taken.insert(random() % links);
      flows.Add(taken, random() % 3 == 0 ? static_cast<double>(random() % 20) : kAllItCanGet);
    }
    ExpectFair(flows, capacities);
  }
}

// Each host of a leaf sends to its like under the next leaf, one flow: as many as there are spines.
std::vector<Flow> Permutation(const Clos& clos, std::mt19937* random) {
  std::vector<Flow> flows;
  flows.reserve(static_cast<size_t>(clos.hosts()));
  for (int host = 0; host < clos.hosts(); ++host) {
    flows.push_back({.from = {host, 0},
                     .to = {(host + clos.spec().hosts_per_leaf) % clos.hosts(), 0},
                     .source_port = static_cast<uint16_t>((*random)() % 16384 + 49152)});
  }
  return flows;
}

double Worst(const Clos& clos, const std::vector<Flow>& flows, PathPolicy* policy) {
  const std::vector<double> rates = MaxMinRates(Route(clos, flows, policy), CapacitiesOf(clos));
  return *std::min_element(rates.begin(), rates.end());
}

TEST(Policies, HashesCollideWhereAMasterFindsRoom) {
  const Clos clos =
      MakeClos({.leaves = 4, .spines = 8, .hosts_per_leaf = 8, .host_mbps = 200, .spine_mbps = 200});
  double worst_of_ecmp = 200;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Flow> flows = Permutation(clos, &random);
    Ecmp ecmp(seed);
    LeastLoaded master;
    EXPECT_NEAR(Worst(clos, flows, &master), 200, 1e-9) << "one flow a spine";
    worst_of_ecmp = std::min(worst_of_ecmp, Worst(clos, flows, &ecmp));
  }
  EXPECT_LE(worst_of_ecmp, 200.0 / 3) << "three of eight flows meet on one of eight spines nearly always";
}

TEST(Policies, AHashIsTheSameEveryTimeAndSpreads) {
  const Clos clos =
      MakeClos({.pods = 2, .leaves = 2, .spines = 4, .cores_per_spine = 4, .hosts_per_leaf = 2});
  Ecmp policy(7);
  std::vector<int> counts(16);
  for (int port = 0; port < 16000; ++port) {
    const Flow flow{.from = {0, 0}, .to = {7, 0}, .source_port = static_cast<uint16_t>(port)};
    const int way = policy.Choose(clos, flow);
    ASSERT_EQ(way, policy.Choose(clos, flow));
    ++counts[static_cast<size_t>(way)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Policies, WhatIsDownIsLeftOut) {
  for (const int pods : {1, 2}) {
    Clos clos = MakeClos({.pods = pods, .leaves = 2, .spines = 3, .cores_per_spine = 2, .hosts_per_leaf = 2});
    Ecmp ecmp(1);
    const Port from{0, 0};
    const Port to{clos.hosts() - 1, 0};
    clos.SetUp(clos.SpineLink(clos.leaves() - 1, 1, true), false);  // at the far end
    if (pods == 2) clos.SetUp(clos.CoreLink(1, 2, 0, true), false);
    LeastLoaded master;
    for (int port = 0; port < 300; ++port) {
      const Flow flow{.from = from, .to = to, .source_port = static_cast<uint16_t>(port)};
      for (PathPolicy* policy : {static_cast<PathPolicy*>(&ecmp), static_cast<PathPolicy*>(&master)}) {
        const int way = policy->Choose(clos, flow);
        ASSERT_NE(way, kNoWay);
        ASSERT_TRUE(clos.IsUp(clos.PathOf(from, to, way)));
      }
    }
    for (int spine = 0; spine < 3; ++spine) clos.SetUp(clos.SpineLink(0, spine, true), false);
    const std::vector<Flow> flows = {{.from = from, .to = to}, {.from = from, .to = {1, 0}}};
    const std::vector<double> rates = MaxMinRates(Route(clos, flows, &ecmp), CapacitiesOf(clos));
    EXPECT_EQ(rates, (std::vector<double>{0, 1000})) << "cut off; and under the same leaf";
  }
}

// Pods joined by cores, some links slow and some down, flows within leaves, within pods and between pods.
TEST(ThreeTiers, FairOverLinksThatAreSlowOrDown) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Clos clos = MakeClos({.pods = 3,
                          .leaves = 4,
                          .spines = 3,
                          .cores_per_spine = 2,
                          .hosts_per_leaf = 3,
                          .planes = 1 + static_cast<int>(seed % 2),
                          .host_mbps = 100,
                          .spine_mbps = 80,
                          .core_mbps = 60});
    for (int i = 0; i < 12; ++i) {
      const auto link = static_cast<LinkId>(random() % clos.links());
      if (random() % 2 == 0) {
        clos.SetUp(link, false);
      } else {
        clos.SetCapacity(link, static_cast<double>(1 + random() % 50));
      }
    }
    std::vector<Flow> flows;
    for (int i = 0; i < 200; ++i) {
      const int from = static_cast<int>(random() % static_cast<unsigned>(clos.hosts()));
      const int to =
          (from + 1 + static_cast<int>(random() % static_cast<unsigned>(clos.hosts() - 1))) % clos.hosts();
      const int plane = static_cast<int>(random() % static_cast<unsigned>(clos.spec().planes));
      flows.push_back({.from = {from, plane},
                       .to = {to, plane},
                       .source_port = static_cast<uint16_t>(random()),
                       .wants_mbps = random() % 3 == 0 ? static_cast<double>(random() % 20) : kAllItCanGet});
    }
    Ecmp ecmp(seed);
    LeastLoaded least;
    for (PathPolicy* policy : {static_cast<PathPolicy*>(&ecmp), static_cast<PathPolicy*>(&least)}) {
      const FlowTable table = Route(clos, flows, policy);
      ExpectFair(table, CapacitiesOf(clos));
      for (size_t i = 0; i < flows.size(); ++i) {
        const uint32_t* const first = &table.links[table.first[i]];
        const auto hops = static_cast<size_t>(table.first[i + 1] - table.first[i]);
        if (hops == 1) {  // the black hole: only when there is truly no way
          for (int way = 0; way < clos.Ways(flows[i].from, flows[i].to); ++way) {
            ASSERT_FALSE(clos.IsUp(clos.PathOf(flows[i].from, flows[i].to, way)));
          }
          continue;
        }
        ASSERT_TRUE(std::all_of(first, first + hops, [&](LinkId link) { return clos.IsUp(link); }));
        const bool one_pod = clos.PodOf(flows[i].from) == clos.PodOf(flows[i].to);
        ASSERT_EQ(hops, clos.LeafOf(flows[i].from) == clos.LeafOf(flows[i].to) ? 2U : one_pod ? 4U : 6U);
      }
    }
  }
}

// As many cores as hosts: every host of a pod can send to the next pod at its full rate, and half of the
// cores carry half.
TEST(ThreeTiers, BisectionIsThatOfTheCores) {
  for (const int cores : {4, 2}) {
    const Clos clos = MakeClos({.pods = 3,
                                .leaves = 4,
                                .spines = 4,
                                .cores_per_spine = cores,
                                .hosts_per_leaf = 4,
                                .host_mbps = 100,
                                .spine_mbps = 100,
                                .core_mbps = 100});
    std::vector<Flow> flows;
    flows.reserve(static_cast<size_t>(clos.hosts()));
    for (int host = 0; host < clos.hosts(); ++host) {
      flows.push_back({.from = {host, 0}, .to = {(host + 16) % clos.hosts(), 0}});
    }
    LeastLoaded master;
    EXPECT_NEAR(Worst(clos, flows, &master), 25.0 * cores, 1e-9);
  }
}

}  // namespace
}  // namespace c4::flowsim
