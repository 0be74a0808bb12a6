// What moves when a link fails and comes back.
#include <gtest/gtest.h>
#include <set>

#include "tests/unit/c4p_master/alloc_fixture.h"

namespace c4::c4p {
namespace {

std::vector<ConnectionRequest> Fill(Fabric* fabric, ConnectionId count, std::mt19937* random) {
  std::vector<ConnectionRequest> requests;
  for (ConnectionId i = 0; i < count; ++i) {
    requests.push_back(fabric->Random(i, random));
    EXPECT_TRUE(fabric->allocator.Allocate(requests.back()).ok());
  }
  return requests;
}

bool IsUp(const Fabric& fabric, const ConnectionRequest& request, Place place) {
  Hops hops;
  const Network::Port* const from = fabric.network.FindPort(request.from, place.plane);
  const Network::Port* const to = fabric.network.FindPort(request.to, place.plane);
  return from->up[0] && to->up[1] && fabric.network.HopsOf(from->leaf, to->leaf, place.way, &hops) &&
         fabric.network.IsUp(hops);
}

// Exactly those that are concerned, each to a way that is up, in its plane; and planning changes nothing.
TEST(Plan, AFailureMovesOnlyWhatItConcerns) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    for (unsigned seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Fabric fabric(spec);
      const std::vector<ConnectionRequest> requests = Fill(&fabric, 100, &random);
      const auto before = fabric.Accounted();
      EXPECT_EQ(fabric.allocator.PlanRepair().steps(), 0U);
      ASSERT_TRUE(fabric.network.SetUp(fabric.RandomLink(&random), false).ok());
      std::set<std::pair<ConnectionId, uint32_t>> concerned;
      for (const ConnectionRequest& request : requests) {
        const auto now = fabric.allocator.Get(request.connection);
        for (uint32_t i = 0; i < request.queue_pairs; ++i) {
          if (!IsUp(fabric, request, now->queue_pairs[i])) concerned.emplace(request.connection, i);
        }
      }
      const Plan plan = fabric.allocator.PlanRepair();
      EXPECT_EQ(fabric.Accounted(), before);
      EXPECT_EQ(plan.moves, fabric.allocator.PlanRepair().moves) << "the same again";
      EXPECT_TRUE(plan.stranded.empty());
      std::set<std::pair<ConnectionId, uint32_t>> moved;
      for (const Move& move : plan.moves) {
        const auto now = fabric.allocator.Get(move.connection);
        for (const Step& step : move.steps) {
          EXPECT_TRUE(moved.emplace(move.connection, step.queue_pair).second);
          EXPECT_TRUE(IsUp(fabric, requests[move.connection], step.to));
          EXPECT_EQ(step.to.plane, now->queue_pairs[step.queue_pair].plane);
        }
        EXPECT_EQ(move.epoch, now->epoch);
        ASSERT_TRUE(fabric.allocator.Apply(move).ok());
        EXPECT_EQ(fabric.allocator.Apply(move).code(), absl::StatusCode::kFailedPrecondition) << "once";
      }
      EXPECT_EQ(moved, concerned);
      EXPECT_EQ(fabric.allocator.PlanRepair().steps(), 0U);
    }
  }
}

TEST(Plan, WhoeverHasNoWayLeftIsNamed) {
  Fabric fabric({.leaves = 3, .spines = 2, .hosts_per_leaf = 2});
  ASSERT_TRUE(fabric.allocator.Allocate({.connection = 4, .from = 0, .to = 2, .queue_pairs = 4}).ok());
  ASSERT_TRUE(fabric.allocator.Allocate({.connection = 5, .from = 0, .to = 4, .queue_pairs = 4}).ok());
  for (const SpineId spine : {0U, 1U}) ASSERT_TRUE(fabric.network.SetUp({Tier::kLeaf, 1, spine}, false).ok());
  const Plan plan = fabric.allocator.PlanRepair();
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.stranded, std::vector<ConnectionId>{4});
  // What has expired is nobody's business.
  ASSERT_TRUE(fabric.allocator.Expire(4).ok());
  EXPECT_TRUE(fabric.allocator.PlanRepair().stranded.empty());
}

TEST(Plan, PortsThatAreNotKnownAreNotGiven) {
  Fabric fabric({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  ASSERT_TRUE(fabric.allocator.Admit({.connection = 0, .from = 0, .to = 2, .queue_pairs = 4}).ok());
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(fabric.allocator.Account(0, i, {0, 0}).ok());
  ASSERT_TRUE(fabric.network.SetUp({Tier::kLeaf, 0, 0}, false).ok());
  const auto three = [](ConnectionId, PlaneId) {
    return PlaneWays{.all = false, .ways = {{0, 9}, {2, 1}, {3, 2}}};
  };
  const Plan plan = fabric.allocator.PlanRepair(three);
  ASSERT_EQ(plan.steps(), 3U);
  std::multiset<Way> ways;
  for (const Step& step : plan.moves[0].steps) ways.insert(step.to.way);
  EXPECT_EQ(ways, (std::multiset<Way>{2, 3, 3}));
  EXPECT_EQ(plan.stranded, std::vector<ConnectionId>{0}) << "the fourth one";
}

TEST(Plan, WhatHasNoWayGetsOneWhenPortsAreKnown) {
  Fabric fabric({.leaves = 2, .spines = 4, .hosts_per_leaf = 2, .planes = 1});
  ASSERT_TRUE(fabric.allocator.Admit({.connection = 0, .from = 0, .to = 2, .queue_pairs = 4}).ok());
  const absl::StatusOr<Plan> plan = fabric.allocator.PlanConnection(0);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps(), 4U);
  ASSERT_TRUE(fabric.allocator.Apply(plan->moves[0]).ok());
  for (const SpineId spine : {0U, 1U, 2U, 3U}) {
    EXPECT_GT(fabric.allocator.LoadOf({Tier::kLeaf, 0, spine}, Direction::kUp), 0);
  }
}

// After a link has come back, a bounded number of queue pairs moves, and only for the better.
TEST(Plan, ALinkThatComesBackIsUsed) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Fabric fabric(spec);
      const Link link = fabric.RandomLink(&random);
      ASSERT_TRUE(fabric.network.SetUp(link, false).ok());
      Fill(&fabric, 200, &random);
      ASSERT_EQ(fabric.allocator.LoadOf(link, Direction::kUp), 0);
      ASSERT_TRUE(fabric.network.SetUp(link, true).ok());
      const auto before = fabric.Accounted();
      EXPECT_LE(fabric.allocator.PlanEven(3, &link).steps(), 3U);
      const Plan plan = fabric.allocator.PlanEven(1000, &link);
      EXPECT_EQ(fabric.Accounted(), before);
      EXPECT_GT(plan.steps(), 0U);
      for (const Move& move : plan.moves) ASSERT_TRUE(fabric.allocator.Apply(move).ok());
      for (const Direction direction : {Direction::kUp, Direction::kDown}) {
        const RowId row = RowOf(link.tier, link.lower, direction);
        const auto columns = static_cast<double>(fabric.network.RowAt(row).kbps.size());
        const double even = static_cast<double>(fabric.allocator.accounts().Total(row)) / columns;
        // Not all of it: others have filled that spine's other links in the meantime.
        EXPECT_GE(static_cast<double>(fabric.allocator.LoadOf(link, direction)), 0.35 * even);
      }
      EXPECT_EQ(fabric.allocator.PlanEven(1000, &link).steps(), 0U) << "no to and fro";
    }
  }
}

TEST(Plan, APortThatComesBackGetsItsHalf) {
  Fabric fabric({.leaves = 4, .spines = 4, .hosts_per_leaf = 4, .planes = 2});
  const Link port{Tier::kPort, 0, 1};
  ASSERT_TRUE(fabric.allocator.Allocate({.connection = 0, .from = 0, .to = 4, .queue_pairs = 8}).ok());
  ASSERT_TRUE(fabric.network.SetUp(port, false).ok());
  const Plan away = fabric.allocator.PlanRepair();
  EXPECT_EQ(away.steps(), 4U);
  ASSERT_TRUE(fabric.allocator.Apply(away.moves[0]).ok());
  EXPECT_EQ(fabric.allocator.LoadOf(port, Direction::kUp), 0);
  ASSERT_TRUE(fabric.network.SetUp(port, true).ok());
  EXPECT_EQ(fabric.allocator.PlanEven(2, &port).steps(), 2U);
  const Plan back = fabric.allocator.PlanEven(100, &port);
  EXPECT_EQ(back.steps(), 4U);
  ASSERT_TRUE(fabric.allocator.Apply(back.moves[0]).ok());
  EXPECT_EQ(fabric.allocator.LoadOf(port, Direction::kUp),
            fabric.allocator.LoadOf({Tier::kPort, 0, 0}, Direction::kUp));
  EXPECT_EQ(fabric.allocator.PlanEven(100, &port).steps(), 0U);
}

// An odd queue pair stays where it is.
TEST(Plan, EvenPlanesAreLeftAlone) {
  Fabric fabric({.leaves = 4, .spines = 4, .hosts_per_leaf = 4, .planes = 2});
  for (ConnectionId i = 0; i < 3; ++i) {
    ASSERT_TRUE(fabric.allocator
                    .Allocate({.connection = i, .from = 0, .to = 4 + i, .queue_pairs = 7, .demand_mbps = 70})
                    .ok());
  }
  for (const PlaneId plane : {0U, 1U}) {
    const Link port{Tier::kPort, 0, plane};
    EXPECT_EQ(fabric.allocator.PlanEven(100, &port).steps(), 0U);
  }
}

TEST(Plan, EveningOutEndsAndHelps) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Fabric fabric(spec);
      const std::vector<ConnectionRequest> requests = Fill(&fabric, 200, &random);
      // Chance, as the kernel's ports have it, instead of choice.
      for (const ConnectionRequest& request : requests) {
        const auto now = fabric.allocator.Get(request.connection);
        for (uint32_t i = 0; i < request.queue_pairs; ++i) {
          const Place place = now->queue_pairs[random() % request.queue_pairs];
          ASSERT_TRUE(fabric.allocator.Account(request.connection, i, place).ok());
        }
      }
      const auto fullest = [&] {
        int64_t most = 0;
        for (const auto& [name, load] : fabric.Accounted()) {
          if (name.find("spine") != std::string::npos) most = std::max(most, load);
        }
        return most;
      };
      const int64_t before = fullest();
      const Plan plan = fabric.allocator.PlanEven(100000);
      for (const Move& move : plan.moves) ASSERT_TRUE(fabric.allocator.Apply(move).ok());
      EXPECT_LT(fullest(), before);
      EXPECT_EQ(fabric.allocator.PlanEven(100000).steps(), 0U);
    }
  }
}

}  // namespace
}  // namespace c4::c4p
