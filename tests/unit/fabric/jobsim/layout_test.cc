// Layouts, programs and networks of simulated jobs: everybody has a place, stages agree on their messages,
// paths begin and end where their addresses say.
#include "fabric/jobsim/layout.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "fabric/jobsim/draw.h"
#include "fabric/jobsim/network.h"
#include "fabric/jobsim/program.h"

namespace c4::jobsim {
namespace {

Shape SmallShape() {
  Shape shape;
  shape.tensor = 2;
  shape.pipeline = 3;
  shape.data = 4;
  shape.expert = 2;
  shape.ranks_per_node = 4;
  shape.nics_per_node = 2;
  shape.world_reduce = true;
  return shape;
}

TEST(Layout, EachRankIsOnceInAGroupOfEachRole) {
  for (uint64_t seed = 1; seed < 60; ++seed) {
    const Shape shape = DrawShape(48 + seed, seed);
    ASSERT_LE(shape.ranks(), 48 + seed);
    ASSERT_EQ(shape.data % shape.expert, 0U);
    const Layout layout = MakeLayout(shape);
    std::map<Role, std::multiset<uint32_t>> members;
    for (const Group& group : layout.groups) {
      EXPECT_GE(group.ranks.size(), 2U);
      EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
      members[group.role].insert(group.ranks.begin(), group.ranks.end());
    }
    for (const auto& [role, ranks] : members) {
      EXPECT_EQ(ranks.size(), shape.ranks()) << "seed " << seed << " role " << static_cast<int>(role);
      EXPECT_EQ(std::set<uint32_t>(ranks.begin(), ranks.end()).size(), shape.ranks());
    }
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      for (const Place& place : layout.places[rank]) {
        if (place.group == kNoGroup) continue;
        EXPECT_EQ(layout.groups[place.group].ranks[place.member], rank);
      }
    }
  }
}

TEST(Layout, AnotherLifeHasOtherCommunicators) {
  std::set<uint64_t> ids;
  for (uint32_t life = 0; life < 3; ++life) {
    const Layout layout = MakeLayout(SmallShape(), life);
    for (const Group& group : layout.groups) EXPECT_TRUE(ids.insert(group.id).second);
  }
}

TEST(Program, WhatAStageSendsItsNeighbourReceives) {
  for (const uint32_t micro_batches : {1U, 2U, 5U, 8U}) {
    Shape shape = SmallShape();
    shape.micro_batches = micro_batches;
    std::map<std::pair<uint32_t, uint32_t>, int> messages;
    for (uint32_t stage = 0; stage < shape.pipeline; ++stage) {
      for (const Instruction& what : TrainingStep(shape, stage).instructions) {
        if (what.work == Work::kSend) ++messages[{stage, what.peer}];
        if (what.work == Work::kReceive) --messages[{what.peer, stage}];
      }
    }
    EXPECT_EQ(messages.size(), 4U);
    for (const auto& [pair, left] : messages) EXPECT_EQ(left, 0) << pair.first << " to " << pair.second;
  }
}

TEST(Program, TheOptimizerWaitsForGradientsThatOverlap) {
  Shape shape = SmallShape();
  shape.overlaps = true;
  const Program program = TrainingStep(shape, 0);
  ASSERT_FALSE(program.on_stream[1].empty());
  const auto waits =
      std::any_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& what) {
        return what.stream == 0 && what.after == static_cast<int32_t>(program.on_stream[1].back());
      });
  EXPECT_TRUE(waits);
}

TEST(Network, FlowsCrossNodesOnlyAndPathsEndAtTheirNics) {
  for (uint64_t seed = 1; seed < 30; ++seed) {
    const Shape shape = DrawShape(64, seed);
    const Layout layout = MakeLayout(shape);
    const Network network(shape, layout, Fault());
    for (uint32_t group = 0; group < layout.groups.size(); ++group) {
      EXPECT_EQ(network.factor(group), 1);
      for (const Edge& edge : network.edges(group)) {
        ASSERT_NE(edge.from_nic.node, edge.to_nic.node);
        EXPECT_LT(edge.from_nic.number, shape.nics_per_node);
        for (const Flow& flow : edge.flows) {
          const auto path = network.Path(network.local(edge, flow), network.remote(edge, flow));
          ASSERT_TRUE(path.size() == 2 || path.size() == 4);
          EXPECT_EQ(path.front().rfind("node" + std::to_string(edge.from_nic.node) + ">leaf", 0), 0U);
          EXPECT_EQ(path.back().rfind("node" + std::to_string(edge.to_nic.node) + "<leaf", 0), 0U);
        }
      }
    }
  }
}

TEST(Network, KnowsNoPathOfWhatIsNoAddressOfItsOwn) {
  const Shape shape = SmallShape();
  const Network network(shape, MakeLayout(shape), Fault());
  const std::string good = network.address({0, 0}) + ":5";
  EXPECT_FALSE(network.Path(good, network.address({1, 1}) + ":4791").empty());
  for (const std::string bad : {"", ":", "10.0.0.1", "10.0.0.0:5", "10.9.0.1:5", "10.0.3.1:5", "11.0.0.1:5",
                                "10.0.0.1:x", "10.0.0.1:5 ", "[::1]:5", "10.0.0.1:70000"}) {
    EXPECT_TRUE(network.Path(good, bad).empty()) << bad;
    EXPECT_TRUE(network.Path(bad, good).empty()) << bad;
  }
}

TEST(Network, AFaultChangesOnlyWhatCrossesIt) {
  const Shape shape = SmallShape();
  const Layout layout = MakeLayout(shape);
  Fault fault{.kind = FaultKind::kSlowNic, .rank = 5, .at_ns = 0, .factor = 7};
  const Network network(shape, layout, fault);
  const Nic nic{shape.node(5), shape.nic(5)};
  size_t slow = 0;
  for (uint32_t group = 0; group < layout.groups.size(); ++group) {
    for (const Edge& edge : network.edges(group)) {
      const bool touches = edge.from_nic == nic || edge.to_nic == nic;
      slow += touches ? 1 : 0;
      for (const Flow& flow : edge.flows) EXPECT_EQ(flow.factor, touches ? 7 : 1);
    }
  }
  EXPECT_GT(slow, 0U);
}

TEST(Faults, NamesAreReadBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < static_cast<int>(FaultKind::kCount); ++i) {
    const auto kind = static_cast<FaultKind>(i);
    EXPECT_EQ(FaultOf(FaultName(kind)), kind);
    EXPECT_TRUE(names.insert(FaultName(kind)).second);
  }
  EXPECT_EQ(FaultOf("count"), std::nullopt);
  EXPECT_EQ(FaultOf(""), std::nullopt);
}

}  // namespace
}  // namespace c4::jobsim
