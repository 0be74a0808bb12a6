// The plan of probes: every way is seen, nobody is asked for more than its budget, and what is asked for
// comes first.
#include "c4p_master/probe_plan.h"

#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4p_master/catalogue.h"
#include "c4p_master/topology_learner.h"
#include "tests/unit/c4p_master/fake_fabric.h"

namespace c4::c4p {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

// Plays agents and master over a fake fabric.
class Play {
 public:
  Play(const FakeSpec& spec, const PlanOptions& options, uint32_t packets_per_second)
      : fabric(spec), plan(options), budget_(packets_per_second) {
    for (int host = 0; host < fabric.hosts(); ++host) {
      const std::string server = FakeFabric::Name("host", host);
      agents_.push_back({server, fabric.Addresses(host), packets_per_second});
      int plane = 0;
      for (const service::IpAddress address : fabric.Addresses(host)) {
        learner.AddNic(server, FakeFabric::Name("eth", plane), address, plane);
        ++plane;
      }
    }
    plan.SetNetwork(agents_, topology, false);
  }

  // Until the plan is done twice in a row with the network that it has led to. Gives the tuples that were
  // probed.
  int Run(int64_t limit_ns) {
    int probed = 0;
    bool settled = false;
    for (; now_ns < limit_ns; now_ns += 50 * kMsNs) {
      fabric.Refill();
      for (const PlannedOrder& order : plan.Next(now_ns)) {
        Account(order);
        for (const service::IpTuple& tuple : order.tuples) {
          pending_.push_back({tuple, order.first_ttl, order.last_ttl, {}, 0, 0});
          ++probed;
        }
      }
      ++round_;
      std::erase_if(pending_, [this](Pending& one) { return TryOnce(&one); });
      if (!plan.done()) continue;
      const Topology next = learner.Learn(&topology);
      const bool same = TopologyJson(next) == TopologyJson(topology);
      if (same && settled) return probed;
      settled = same;
      topology = next;
      plan.SetNetwork(agents_, topology, false);
      if (!same) plan.Restart();
    }
    ADD_FAILURE() << "not done in time";
    return probed;
  }
  // In no stretch of time more than its worth and a second's.
  void Account(const PlannedOrder& order) {
    std::deque<std::pair<int64_t, int>>& sent = sent_[order.server];
    sent.emplace_back(now_ns, static_cast<int>(order.tuples.size()) * (order.last_ttl - order.first_ttl + 1));
    int64_t packets = 0;
    for (auto at = sent.rbegin(); at != sent.rend(); ++at) {
      packets += at->second;
      const double window_s = static_cast<double>(now_ns - at->first) / kSecondNs;
      ASSERT_LE(static_cast<double>(packets), budget_ * (1 + window_s) + 1e-6) << order.server;
    }
  }

  // As a prober does: what said nothing is asked again, each time after twice as long, five times in all.
  struct Pending {
    service::IpTuple tuple;
    int first_ttl, last_ttl;
    std::map<int, SeenHop> hops;
    int tries, next_round;
  };
  bool TryOnce(Pending* one) {
    if (round_ < one->next_round) return false;
    bool silent = false;
    for (int ttl = one->first_ttl; ttl <= one->last_ttl; ++ttl) {
      SeenHop& hop = one->hops[ttl];
      if (hop.state == HopState::kNotProbed || hop.state == HopState::kSilent) {
        const PathObservation seen = fabric.Probe(one->tuple, ttl, ttl);
        const service::IpAddress by_ttl[] = {seen.hops.egress, seen.hops.spine, seen.hops.remote};
        hop = {ttl, seen.states[static_cast<size_t>(ttl - 1)], by_ttl[ttl - 1]};
      }
      silent = silent || hop.state == HopState::kSilent;
      if (hop.state == HopState::kReached) break;
    }
    one->next_round = round_ + (1 << one->tries);
    if (silent && ++one->tries < 5) return false;
    std::vector<SeenHop> hops;
    for (const auto& [ttl, hop] : one->hops) hops.push_back(hop);
    const PathObservation seen = Observe(one->tuple, hops);
    learner.Add(seen);
    catalogue.Record(seen, now_ns);
    plan.Reported(seen, false);
    silent_ += silent ? 1 : 0;
    return true;
  }

  FakeFabric fabric;
  TopologyLearner learner;
  Topology topology;
  Catalogue catalogue;
  ProbePlan plan;
  int64_t now_ns = kSecondNs;
  int silent_ = 0;  // tuples of which a hop stayed silent

 private:
  std::vector<Pending> pending_;
  int round_ = 0;
  uint32_t budget_;
  std::vector<PlanAgent> agents_;
  std::map<std::string, std::deque<std::pair<int64_t, int>>> sent_;
};

TEST(ProbePlanTest, TheMeshSeesEveryWayWithinEverybodysBudget) {
  int complete = 0, runs = 0;
  for (const FakePorts ports : {FakePorts::kOne, FakePorts::kPlanes, FakePorts::kBonded}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      FakeSpec spec = {4, 4, 2, ports};
      spec.seed = seed;
      PlanOptions options;
      options.seed = seed;
      Play play(spec, options, 500);
      play.Run(200 * kSecondNs);
      EXPECT_EQ(play.topology.leaves().size(), 4U);
      EXPECT_EQ(play.topology.spines().size(), 4U);
      EXPECT_EQ(play.topology.uplinks().size(), 16U);
      const Coverage coverage = play.plan.coverage();
      // With bonded ports the leaves of a pair need no spine between them.
      EXPECT_EQ(coverage.possible, (ports == FakePorts::kBonded ? 8 : 12) * 4);
      EXPECT_GE(coverage.seen, coverage.possible - 1);
      complete += coverage.seen == coverage.possible ? 1 : 0;
      ++runs;
    }
  }
  EXPECT_GE(complete, runs - 2) << "a way is missed once in a thousand pairs of leaves";
}

TEST(ProbePlanTest, SixtyFourSpinesAndRationedAnswers) {
  FakeSpec spec = {4, 64, 2};
  spec.ration = 20;  // answers of each router between two rounds of tries
  PlanOptions options;
  Play play(spec, options, 2000);
  const int probed = play.Run(600 * kSecondNs);
  EXPECT_EQ(play.topology.spines().size(), 64U);
  EXPECT_EQ(play.topology.uplinks().size(), 256U);
  const Coverage coverage = play.plan.coverage();
  EXPECT_EQ(coverage.possible, 12 * 64);
  EXPECT_GE(coverage.share(), 0.99);
  for (const LinkId link : play.topology.AllLinks()) EXPECT_FALSE(play.topology.IsFaulty(link));
  EXPECT_GT(play.silent_, 0) << "nothing was rationed away";
  printf(
      "64 spines, 12 pairs of leaves: %d probes (%d with a hop that stayed silent), %.1f s, %d of %d ways\n",
      probed, play.silent_, static_cast<double>(play.now_ns) / kSecondNs, coverage.seen, coverage.possible);
}

TEST(ProbePlanTest, TheBoundIsTheCouponCollectors) {
  EXPECT_EQ(CouponBudget(1, 1e-3), 1);
  for (const int ways : {2, 4, 16, 64}) {
    const int budget = CouponBudget(ways, 1e-2);
    std::mt19937_64 random(static_cast<uint64_t>(ways));
    int missed = 0;
    for (int round = 0; round < 3000; ++round) {
      std::set<uint64_t> seen;
      for (int i = 0; i < budget; ++i) seen.insert(random() % static_cast<uint64_t>(ways));
      missed += static_cast<int>(seen.size()) < ways ? 1 : 0;
    }
    EXPECT_LE(missed, 60) << ways;  // 1 % of 3000, and chance
    EXPECT_LT(budget, 12 * ways);
  }
}

TEST(ProbePlanTest, WithACompleteFileAPairIsDoneWhenAllWereSeen) {
  FakeSpec spec = {2, 4, 1};
  Play first(spec, {}, 1000);
  first.Run(100 * kSecondNs);
  PlanOptions options;
  options.batch = 4;
  ProbePlan plan(options);
  plan.SetNetwork({{"host0", first.fabric.Addresses(0), 1000}, {"host1", first.fabric.Addresses(1), 1000}},
                  first.topology, true);
  int probed = 0;
  for (int64_t now = 0; !plan.done() && now < 20 * kSecondNs; now += kSecondNs) {
    for (const PlannedOrder& order : plan.Next(now)) {
      for (const service::IpTuple& tuple : order.tuples) {
        plan.Reported(first.fabric.Probe(tuple), false);
        ++probed;
      }
    }
  }
  EXPECT_TRUE(plan.done());
  EXPECT_EQ(plan.coverage().seen, 8);
  EXPECT_LT(probed, 2 * CouponBudget(4, options.miss_chance));
}

TEST(ProbePlanTest, WhatIsAskedForComesFirstAndRepeatsSome) {
  FakeSpec spec = {2, 4, 2};
  Play play(spec, {}, 300);
  play.Run(100 * kSecondNs);
  play.plan.Restart();
  const FlowGroup group = {
      {service::IpProtocol::kTcp, play.fabric.Address(0), 0, play.fabric.Address(2), 5000}};
  const std::set<uint16_t> known = {50000, 50001};
  ASSERT_EQ(play.plan.Ask(group, 40, known).size(), 48U);
  const std::vector<PlannedOrder> orders = play.plan.Next(play.now_ns + 10 * kSecondNs);
  ASSERT_FALSE(orders.empty());
  EXPECT_EQ(orders[0].server, "host0");
  EXPECT_EQ(orders[0].first_ttl, 2) << "host0 hangs on one leaf, which is known";
  std::map<uint16_t, int> times;
  for (const service::IpTuple& tuple : orders[0].tuples) {
    EXPECT_EQ(GroupOf(tuple), group);
    EXPECT_TRUE(SourcePorts().Of(tuple.protocol).Holds(tuple.source_port) &&
                !known.contains(tuple.source_port));
    ++times[tuple.source_port];
  }
  EXPECT_EQ(times.size(), 40U);
  EXPECT_EQ(orders[0].tuples.size(), 48U);
  EXPECT_TRUE(play.plan.Ask({{service::IpProtocol::kTcp, {1}, 0, {2}, 5000}}, 1, {}).empty());
  EXPECT_TRUE(play.plan.Ask(group, 9000, {}).empty()) << "more than the reserved range";
}

TEST(ProbePlanTest, TheSameSeedGivesTheSameOrders) {
  const auto orders = [](uint64_t seed) {
    PlanOptions options;
    options.seed = seed;
    Play play({4, 4, 2}, options, 1000);
    std::vector<service::IpTuple> tuples;
    for (const PlannedOrder& order : play.plan.Next(5)) {
      tuples.insert(tuples.end(), order.tuples.begin(), order.tuples.end());
    }
    return tuples;
  };
  EXPECT_EQ(orders(3), orders(3));
  EXPECT_NE(orders(3), orders(4));
}

TEST(ProbePlanTest, FailedAndLostProbesDoNotHoldItUp) {
  FakeSpec spec = {2, 4, 1};
  Play play(spec, {}, 1000);
  for (int64_t now = 0; !play.plan.done() && now < 1000 * kSecondNs; now += kSecondNs) {
    for (const PlannedOrder& order : play.plan.Next(now)) {
      if (order.server == "host1") {
        play.plan.Lost("host1");  // its orders never come back
        continue;
      }
      for (const service::IpTuple& tuple : order.tuples) {
        PathObservation nothing;
        nothing.tuple = tuple;
        play.plan.Reported(nothing, true);
      }
    }
  }
  EXPECT_TRUE(play.plan.done());
}

}  // namespace
}  // namespace c4::c4p
