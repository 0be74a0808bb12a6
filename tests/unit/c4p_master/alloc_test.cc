// The allocator: what holds for every answer, over seeds; accounts; bad input; fairness; evenness.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <set>

#include "tests/unit/c4p_master/alloc_fixture.h"

namespace c4::c4p {
namespace {

using ::testing::HasSubstr;

// Allocations, releases, expiries, truths and failures, in random order: after each the accounts are what
// the connections say, no queue pair was put on a link that is down, or crosses planes; in the end all is 0.
TEST(Allocator, AccountsAreWhatConnectionsSay) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Fabric fabric(spec);
      std::map<ConnectionId, ConnectionRequest> live;
      for (int step = 0; step < 200; ++step) {
        const auto connection = static_cast<ConnectionId>(random() % 60);
        const auto here = live.find(connection);
        switch (random() % 8) {
          case 0:
          case 1:
          case 2:
          case 3: {
            const ConnectionRequest request = fabric.Random(connection, &random);
            const absl::StatusOr<Allocation> result = fabric.allocator.Allocate(request);
            if (here != live.end()) {
              ASSERT_EQ(result.status().code(), absl::StatusCode::kAlreadyExists);
              break;
            }
            if (!result.ok()) {
              ASSERT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
              break;
            }
            live[connection] = request;
            ASSERT_EQ(result->queue_pairs.size(), request.queue_pairs);
            for (const Place& place : result->queue_pairs) {
              Hops hops;
              const Network::Port* const from = fabric.network.FindPort(request.from, place.plane);
              const Network::Port* const to = fabric.network.FindPort(request.to, place.plane);
              ASSERT_NE(from, nullptr);
              ASSERT_NE(to, nullptr);
              ASSERT_TRUE(fabric.network.HopsOf(from->leaf, to->leaf, place.way, &hops));
              ASSERT_TRUE(fabric.network.IsUp(hops));
            }
            break;
          }
          case 4:
            ASSERT_EQ(fabric.allocator.Release(connection).ok(), here != live.end());
            live.erase(connection);
            break;
          case 5:
            ASSERT_TRUE(fabric.network.SetUp(fabric.RandomLink(&random), random() % 2 == 0).ok());
            break;
          case 6:
            ASSERT_EQ(
                (random() % 2 == 0 ? fabric.allocator.Expire(connection) : fabric.allocator.Renew(connection))
                    .ok(),
                here != live.end());
            break;
          default:
            if (here == live.end()) break;
            const auto queue_pair = static_cast<uint32_t>(random() % here->second.queue_pairs);
            if (random() % 2 == 0) {
              ASSERT_TRUE(fabric.allocator.Account(connection, queue_pair, {}).ok());
            } else if (const auto now = fabric.allocator.Get(connection); now.ok()) {
              const Place place = now->queue_pairs[random() % now->queue_pairs.size()];
              ASSERT_TRUE(fabric.allocator.Account(connection, queue_pair, place).ok());
            }
        }
        ASSERT_EQ(fabric.Truth(live), fabric.Accounted());
      }
      for (const auto& [connection, request] : live) ASSERT_TRUE(fabric.allocator.Release(connection).ok());
      EXPECT_TRUE(fabric.Accounted().empty());
      EXPECT_EQ(fabric.allocator.accounts().tenant_rows(), 0U);
      EXPECT_EQ(fabric.allocator.connections(), 0U);
    }
  }
}

TEST(Allocator, SameCallsSameAnswers) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    std::vector<std::vector<Place>> answers[2];
    for (auto& answer : answers) {
      std::mt19937 random(7);
      Fabric fabric(spec);
      for (ConnectionId i = 0; i < 200; ++i) {
        const absl::StatusOr<Allocation> result = fabric.allocator.Allocate(fabric.Random(i, &random));
        ASSERT_TRUE(result.ok());
        answer.push_back(result->queue_pairs);
      }
    }
    EXPECT_EQ(answers[0], answers[1]);
  }
}

TEST(Allocator, PlanesAreEven) {
  Fabric fabric({.leaves = 4, .spines = 4, .hosts_per_leaf = 8, .planes = 2});
  std::mt19937 random(3);
  for (ConnectionId i = 0; i < 200; ++i) {
    const absl::StatusOr<Allocation> result = fabric.allocator.Allocate(fabric.Random(i, &random));
    ASSERT_TRUE(result.ok());
    const auto left = std::count_if(result->queue_pairs.begin(), result->queue_pairs.end(),
                                    [](const Place& place) { return place.plane == 0; });
    EXPECT_LE(std::abs(2 * left - static_cast<ptrdiff_t>(result->queue_pairs.size())), 1);
  }
  // The odd queue pairs of one NIC take turns.
  Fabric other({.leaves = 4, .spines = 4, .hosts_per_leaf = 8, .planes = 2});
  for (ConnectionId i = 0; i < 8; ++i) {
    ASSERT_TRUE(other.allocator
                    .Allocate({.connection = i, .from = 0, .to = 8 + i, .queue_pairs = 1, .demand_mbps = 10})
                    .ok());
  }
  EXPECT_EQ(other.allocator.LoadOf({Tier::kPort, 0, 0}, Direction::kUp),
            other.allocator.LoadOf({Tier::kPort, 0, 1}, Direction::kUp));
}

TEST(Allocator, ADeadPortLeavesTheOtherPlane) {
  Fabric fabric({.leaves = 4, .spines = 4, .hosts_per_leaf = 8, .planes = 2});
  ASSERT_TRUE(fabric.network.SetUp({Tier::kPort, 9, 0}, false).ok());
  const auto one = fabric.allocator.Allocate({.connection = 0, .from = 0, .to = 9, .queue_pairs = 4});
  ASSERT_TRUE(one.ok());
  for (const Place& place : one->queue_pairs) EXPECT_EQ(place.plane, 1U);
  ASSERT_TRUE(fabric.network.SetUp({Tier::kPort, 0, 1}, false).ok());
  const auto none = fabric.allocator.Allocate({.connection = 1, .from = 0, .to = 9, .queue_pairs = 4});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(none.status().message()),
      HasSubstr(
          "no path from NIC 0 to NIC 9: in plane 0 the link of NIC 9 is down; in plane 1 the link of NIC 0"));
  EXPECT_FALSE(fabric.allocator.Has(1));
}

TEST(Allocator, ACutOffLeafIsToldOf) {
  Fabric fabric({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  for (const SpineId spine : {0U, 1U}) ASSERT_TRUE(fabric.network.SetUp({Tier::kLeaf, 1, spine}, false).ok());
  const auto none = fabric.allocator.Allocate({.connection = 0, .from = 0, .to = 2, .queue_pairs = 4});
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("every way from leaf 0 to leaf 1 has a link that is down"));
  EXPECT_TRUE(fabric.allocator.Allocate({.connection = 0, .from = 0, .to = 1, .queue_pairs = 4}).ok())
      << "under it";
  EXPECT_TRUE(fabric.Accounted().contains("host0>leaf0"));
}

TEST(Allocator, OnlyWaysWithPortsAreGiven) {
  for (const flowsim::ClosSpec& spec : SomeNetworks()) {
    for (unsigned seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Fabric fabric(spec);
      ConnectionRequest request = fabric.Random(0, &random);
      std::map<std::pair<PlaneId, Way>, uint32_t> left;
      uint32_t ports = 0;
      Hops hops;
      for (PlaneId plane = 0; plane < fabric.network.planes(); ++plane) {
        PlaneWays ways{.all = false, .ways = {}};
        const LeafId from = fabric.network.FindPort(request.from, plane)->leaf;
        const LeafId to = fabric.network.FindPort(request.to, plane)->leaf;
        for (Way way = 0; way < 20; ++way) {
          if (random() % 3 != 0) continue;
          const auto count = static_cast<uint32_t>(random() % 3);
          ways.ways.push_back({way, count});  // some of them lead nowhere
          left[{plane, way}] = count;
          ports += fabric.network.HopsOf(from, to, way, &hops) ? count : 0;
        }
        if (from == to && random() % 2 == 0) {
          ways.ways.push_back({kDirect, 2});
          left[{plane, kDirect}] = 2;
          ports += 2;
        }
        request.available.push_back(ways);
      }
      const absl::StatusOr<Allocation> result = fabric.allocator.Allocate(request);
      if (ports == 0) {
        EXPECT_THAT(std::string(result.status().message()), HasSubstr("no source port is known"));
        continue;
      }
      ASSERT_TRUE(result.ok()) << result.status().message();
      uint32_t placed = 0;
      for (const Place& place : result->queue_pairs) {
        if (place.way == kNoWay) continue;
        ++placed;
        ASSERT_GT(left[std::pair(place.plane, place.way)]--, 0U);
      }
      EXPECT_EQ(placed, std::min(ports, request.queue_pairs));
      EXPECT_EQ(result->why.empty(), placed == request.queue_pairs);
    }
  }
}

TEST(Allocator, BadInputIsRefusedWithASentence) {
  Fabric fabric({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  Allocator& allocator = fabric.allocator;
  const ConnectionRequest good{.connection = 3, .from = 0, .to = 2, .queue_pairs = 2};
  const auto code = [&](const auto& change) {
    ConnectionRequest request = good;
    change(&request);
    const absl::Status status = allocator.Allocate(request).status();
    EXPECT_EQ(allocator.Admit(request).code(), status.code());
    EXPECT_FALSE(status.message().empty());
    return status.code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code([](auto* r) { r->from = 99; }), StatusCode::kNotFound);
  EXPECT_EQ(code([](auto* r) { r->to = kNobody; }), StatusCode::kNotFound);
  EXPECT_EQ(code([](auto* r) { r->to = r->from; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->queue_pairs = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->queue_pairs = kMostQueuePairs + 1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->demand_mbps = -1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->demand_mbps = std::nan(""); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->demand_mbps = HUGE_VAL; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto* r) { r->connection = kNobody; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.connections(), 0U);

  EXPECT_EQ(allocator.Release(3).code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.Expire(3).code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.Renew(kNobody).code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.Account(3, 0, {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.Get(3).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.PlanConnection(3).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(allocator.Apply({3, 1, {}}).code(), StatusCode::kNotFound);

  ASSERT_TRUE(allocator.Allocate(good).ok());
  EXPECT_EQ(allocator.Allocate(good).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(allocator.Account(3, 2, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Account(3, 0, {0, 7}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Account(3, 0, {1, 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Account(3, 0, {0, kDirect}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Apply({3, 1, {{2, {0, 0}}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Apply({3, 1, {{0, {0, 1}}, {1, {5, 1}}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(allocator.Get(3)->epoch, 1U) << "nothing of a move that is refused is done";
  EXPECT_EQ(allocator.Apply({3, 2, {}}).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(allocator.Release(3).ok());
  EXPECT_EQ(allocator.Release(3).code(), StatusCode::kNotFound);
}

TEST(Allocator, AnEpochIsNeverUsedAgain) {
  Fabric fabric({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  const ConnectionRequest request{.connection = 0, .from = 0, .to = 2, .queue_pairs = 1};
  ASSERT_EQ(fabric.allocator.Allocate(request)->epoch, 1U);
  ASSERT_TRUE(fabric.allocator.Account(0, 0, {0, 1}).ok());
  ASSERT_TRUE(fabric.allocator.Account(0, 0, {0, 1}).ok()) << "no change";
  EXPECT_EQ(fabric.allocator.Get(0)->epoch, 2U);
  ASSERT_TRUE(fabric.allocator.Release(0).ok());
  EXPECT_EQ(fabric.allocator.Allocate(request)->epoch, 3U);
  EXPECT_EQ(fabric.allocator.Apply({0, 2, {{0, {0, 0}}}}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Allocator, TruthIsCountedAndAvoided) {
  Fabric fabric({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
  ASSERT_TRUE(fabric.allocator.Admit({.connection = 0, .from = 0, .to = 4, .queue_pairs = 3}).ok());
  EXPECT_TRUE(fabric.Accounted().empty());
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(fabric.allocator.Account(0, i, {0, i}).ok());
  const auto other = fabric.allocator.Allocate({.connection = 1, .from = 1, .to = 5, .queue_pairs = 1});
  EXPECT_EQ(other->queue_pairs[0].way, 3U);
  // Not renewed: it no longer counts, but is not forgotten.
  ASSERT_TRUE(fabric.allocator.Expire(0).ok());
  EXPECT_EQ(fabric.allocator.LoadOf({Tier::kLeaf, 0, 0}, Direction::kUp), 0);
  EXPECT_EQ(fabric.allocator.Get(0)->queue_pairs[2], (Place{0, 2}));
  ASSERT_TRUE(fabric.allocator.Renew(0).ok());
  EXPECT_GT(fabric.allocator.LoadOf({Tier::kLeaf, 0, 0}, Direction::kUp), 0);
}

// A tenant that asks a hundred times for everything counts for what its NIC can send, no more.
TEST(Allocator, AskingOftenSpoilsNothing) {
  Fabric fabric({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
  ConnectionRequest greedy{
      .connection = 0, .tenant = 1, .from = 0, .to = 4, .queue_pairs = 4, .demand_mbps = 1e12};
  greedy.available = {{.all = false, .ways = {{0, 1000}, {1, 1000}}}};  // it knows ports for half of the ways
  for (; greedy.connection < 100; ++greedy.connection) ASSERT_TRUE(fabric.allocator.Allocate(greedy).ok());
  EXPECT_LE(fabric.allocator.LoadOf({Tier::kPort, 0, 0}, Direction::kUp), 1.5 * 1'000'000);
  // So that another one, with three NICs, uses its half as well.
  std::map<Way, int> ways;
  for (NicId nic = 1; nic < 4; ++nic) {
    const auto result = fabric.allocator.Allocate(
        {.connection = 100 + nic, .tenant = 2, .from = nic, .to = nic + 4, .queue_pairs = 4});
    for (const Place& place : result->queue_pairs) ++ways[place.way];
  }
  EXPECT_GE(ways[0] + ways[1], 2);
  for (ConnectionId i = 0; i < 100; ++i) ASSERT_TRUE(fabric.allocator.Release(i).ok());
  EXPECT_EQ(fabric.allocator.LoadOf({Tier::kPort, 0, 0}, Direction::kUp), 0);
}

// Every tenant's traffic lies about as evenly as the sum does.
TEST(Allocator, NoTenantIsConcentrated) {
  double worst = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Fabric fabric({.leaves = 8, .spines = 8, .hosts_per_leaf = 16, .host_mbps = 8000, .spine_mbps = 16000});
    const uint32_t tenants = 4;
    std::vector<ConnectionRequest> requests;
    for (NicId nic = 0; nic < 128; ++nic) {
      for (uint32_t peer = 0; peer < 8; ++peer) {
        requests.push_back({.connection = static_cast<ConnectionId>(requests.size()),
                            .tenant = nic % tenants,
                            .from = nic,
                            .to = static_cast<NicId>((nic + 16 + random() % 96) % 128),
                            .queue_pairs = 3,
                            .demand_mbps = 1000});
      }
    }
    std::shuffle(requests.begin(), requests.end(), random);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].connection = static_cast<ConnectionId>(i);
      ASSERT_TRUE(fabric.allocator.Allocate(requests[i]).ok());
    }
    for (uint32_t leaf = 0; leaf < 8; ++leaf) {
      for (uint32_t tenant = 0; tenant < tenants; ++tenant) {
        const auto* own =
            fabric.allocator.accounts().LoadsOf(tenant, RowOf(Tier::kLeaf, leaf, Direction::kUp));
        ASSERT_NE(own, nullptr);
        const double even = static_cast<double>(std::accumulate(own->begin(), own->end(), int64_t{0})) / 8;
        worst = std::max(worst, static_cast<double>(*std::max_element(own->begin(), own->end())) / even);
      }
    }
  }
  EXPECT_LE(worst, 1.3);
}

// The fullest link of random permutations between leaves, a few queue pairs a link: one queue pair more than
// even at most. (In full: benchmarks/path_allocation.)
TEST(Allocator, TheFullestLinkIsNearlyEven) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Fabric fabric({.leaves = 8, .spines = 8, .hosts_per_leaf = 16, .host_mbps = 8000, .spine_mbps = 16000});
    std::vector<NicId> peers(128);
    std::iota(peers.begin(), peers.end(), 0U);
    std::shuffle(peers.begin(), peers.end(), random);
    std::vector<int64_t> leaves(16, 0);
    ConnectionId next = 0;
    for (NicId nic = 0; nic < 128; ++nic) {
      if (peers[nic] / 16 == nic / 16) continue;
      ASSERT_TRUE(
          fabric.allocator
              .Allocate(
                  {.connection = next++, .from = nic, .to = peers[nic], .queue_pairs = 4, .demand_mbps = 4})
              .ok());
      leaves[nic / 16] += 4;
      leaves[8 + peers[nic] / 16] += 4;
    }
    const int64_t even = (*std::max_element(leaves.begin(), leaves.end()) + 7) / 8;
    int64_t fullest = 0;
    for (uint32_t leaf = 0; leaf < 8; ++leaf) {
      for (uint32_t spine = 0; spine < 8; ++spine) {
        for (const Direction direction : {Direction::kUp, Direction::kDown}) {
          fullest = std::max(fullest, fabric.allocator.LoadOf({Tier::kLeaf, leaf, spine}, direction) / 1000);
        }
      }
    }
    EXPECT_LE(fullest, even + 1);
  }
}

TEST(AllocatorPolicy, NoFlowOfAPermutationMeetsAnother) {
  const flowsim::Clos clos =
      MakeClos({.leaves = 4, .spines = 8, .hosts_per_leaf = 8, .host_mbps = 200, .spine_mbps = 200});
  std::vector<flowsim::Flow> flows;
  flows.reserve(static_cast<size_t>(clos.hosts()));
  for (int host = 0; host < clos.hosts(); ++host) {
    flows.push_back({.from = {host, 0}, .to = {(host + 8) % clos.hosts(), 0}});
  }
  AllocatorPolicy policy(clos);
  for (const double rate : MaxMinRates(Route(clos, flows, &policy), CapacitiesOf(clos)))
    EXPECT_NEAR(rate, 200, 1e-9);
}

}  // namespace
}  // namespace c4::c4p
