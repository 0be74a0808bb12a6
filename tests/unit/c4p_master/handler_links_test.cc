// Which links the path master takes for dead, when it looks, and when they are back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/c4p_master/cluster.h"

namespace c4::c4p {
namespace {

// A connection of each host of the first leaf to one of the second, in use. The queue pairs on that spine,
// by connection.
std::map<std::string, uint32_t> Fill(Cluster* cluster, int hosts, int spine) {
  cluster->Run(4000);
  std::map<std::string, uint32_t> over;
  for (int host = 0; host < hosts; ++host) {
    const std::string name = "c" + std::to_string(host);
    cluster->Ask(host, hosts + host, name);
    cluster->Run(1000);
    cluster->Use(name);
    const std::vector<int> spines = cluster->Spines(name);
    for (size_t i = 0; i < spines.size(); ++i) {
      if (spines[i] == spine) over[name] = static_cast<uint32_t>(i);
    }
  }
  cluster->Run(4000);
  return over;
}

TEST(C4pLinksTest, AnswersThatComeLateCondemnNoLink) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
  const std::map<std::string, uint32_t> over = Fill(&cluster, 4, 1);
  ASSERT_GE(over.size(), 2U);
  cluster.slow_spine = 1;
  const int answers = cluster.answers_seen;
  const uint64_t ordered = cluster.handler.GetTopology(cluster.now_ns).probes_ordered();
  for (const auto& [name, pair] : over) cluster.Use(name, {{pair, 1}});
  for (int i = 0; i < 100; ++i) {
    cluster.Run(60);
    ASSERT_TRUE(cluster.IsUp("leaf0>spine1")) << i;
    ASSERT_TRUE(cluster.IsUp("leaf1>spine1")) << i;
  }
  EXPECT_GT(cluster.handler.GetTopology(cluster.now_ns).probes_ordered(), ordered) << "it did not even look";
  EXPECT_EQ(cluster.answers_seen, answers) << "something was moved";
}

TEST(C4pLinksTest, ADeadLinkStaysDeadInLaterRoundsAndIsSeenToBeBack) {
  for (const bool file : {false, true}) {
    const FakeSpec spec = {.leaves = 2, .spines = 4, .hosts_per_leaf = 4};
    std::optional<Topology> topology;
    if (file) {
      Cluster first(spec);
      first.Run(6000);
      topology = first.handler.view().topology();
    }
    Cluster cluster(spec, {}, topology);
    const std::map<std::string, uint32_t> over = Fill(&cluster, 4, 1);
    cluster.fabric.Cut(0, 1);
    for (const auto& [name, pair] : over) cluster.Use(name, {{pair, 1}});
    cluster.Run(4000);
    ASSERT_FALSE(cluster.IsUp("leaf0>spine1"));
    EXPECT_TRUE(cluster.IsUp("leaf1>spine1"));
    // Another round, for another reason.
    for (const auto& [name, request] : cluster.requests) {
      cluster.Use(name);
      const std::vector<int> spines = cluster.Spines(name);
      for (uint32_t i = 0; i < spines.size(); ++i) {
        if (spines[i] == 2) cluster.Use(name, {{i, 2}});
      }
    }
    for (int i = 0; i < 100; ++i) {
      cluster.Run(60);
      ASSERT_FALSE(cluster.IsUp("leaf0>spine1")) << i;
    }
    cluster.fabric.Heal(0, 1);
    cluster.Run(9000);
    EXPECT_TRUE(cluster.IsUp("leaf0>spine1")) << file;
    std::set<int> in_use;
    for (const auto& [name, request] : cluster.requests) {
      for (const int spine : cluster.Spines(name)) in_use.insert(spine);
    }
    EXPECT_TRUE(in_use.contains(1)) << "nobody goes back";
  }
}

TEST(C4pLinksTest, AFewOfManyThatLoseTheirPathAreNoReasonToProbe) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 12});
  const std::map<std::string, uint32_t> over = Fill(&cluster, 12, 1);
  ASSERT_EQ(over.size(), 12U);
  const auto ordered = [&] { return cluster.handler.GetTopology(cluster.now_ns).probes_ordered(); };
  const uint64_t before = ordered();
  for (auto at = over.begin(); at != std::next(over.begin(), 2); ++at)
    cluster.Use(at->first, {{at->second, 1}});
  cluster.Run(5000);
  EXPECT_EQ(ordered(), before);
  // Several: a round; and the same again: not yet another.
  uint32_t fences = 2;
  const auto lose = [&] {
    for (const auto& [name, pair] : over) cluster.Use(name, {{pair, fences}});
    ++fences;
  };
  lose();
  cluster.Run(3000);
  const uint64_t once = ordered();
  EXPECT_GT(once, before);
  lose();
  cluster.Run(3000);
  const uint64_t twice = ordered();
  EXPECT_GT(twice, once);
  lose();
  cluster.Run(300);
  EXPECT_EQ(ordered(), twice);
}

// The spine that data take, and that acknowledgements take, of each queue pair of a connection over RoCE.
std::vector<std::pair<int, int>> BothWays(Cluster* cluster, const std::string& name) {
  std::vector<std::pair<int, int>> spines;
  const auto& [from, request] = cluster->requests.at(name);
  for (const v1::QueuePairPath& path : cluster->answers[name].paths()) {
    const service::IpTuple data = {service::IpProtocol::kUdp, *service::ParseIp(request.ends(0).source()),
                                   static_cast<uint16_t>(path.source_port()),
                                   *service::ParseIp(request.ends(0).destination()), 4791};
    if (data.source_port == 0) {
      spines.emplace_back(-1, -1);
      continue;
    }
    const service::IpTuple back = {data.protocol, data.destination, data.source_port, data.source, 4791};
    spines.emplace_back(cluster->fabric.PathOf(data).spine, cluster->fabric.PathOf(back).spine);
  }
  return spines;
}

TEST(C4pLinksTest, AcknowledgementsOfRoceComeBackOverTheSpineThatTheDataTake) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Cluster cluster({.leaves = 4, .spines = 2, .hosts_per_leaf = 1, .seed = seed});
    cluster.Run(4000);
    for (int rank = 0; rank < 4; ++rank) cluster.AskRoce(rank, (rank + 1) % 4, "c" + std::to_string(rank));
    cluster.Run(2000);
    for (const auto& [name, request] : cluster.requests) {
      for (const auto& [data, back] : BothWays(&cluster, name)) {
        ASSERT_GE(data, 0) << "seed " << seed;
        EXPECT_EQ(data, back) << name << ", seed " << seed;
      }
    }
  }
}

// Where there are too few ports for data and acknowledgements to go one way, what loses either moves, and to
// where it loses neither.
TEST(C4pLinksTest, QueuePairsWhoseAcknowledgementsAreLostMove) {
  int moved = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Cluster cluster({.leaves = 2, .spines = 8, .hosts_per_leaf = 2, .seed = seed}, {.ports_per_pair = 48});
    cluster.Run(4000);
    for (int rank = 0; rank < 2; ++rank) cluster.AskRoce(rank, 2 + rank, "c" + std::to_string(rank));
    cluster.Run(2000);
    for (const std::string name : {"c0", "c1"}) cluster.Use(name);
    cluster.Run(2000);
    cluster.fabric.Cut(0, 3);
    std::map<std::string, std::map<uint32_t, uint32_t>> lost;
    for (const std::string name : {"c0", "c1"}) {
      const std::vector<std::pair<int, int>> spines = BothWays(&cluster, name);
      for (uint32_t i = 0; i < spines.size(); ++i) {
        if (spines[i].first == 3) lost[name][i] = 1;
        moved += spines[i].first != 3 && spines[i].second == 3 ? 1 : 0;
      }
    }
    for (const auto& [name, pairs] : lost) cluster.Use(name, pairs);
    cluster.Run(6000);
    if (lost.empty()) continue;
    ASSERT_FALSE(cluster.IsUp("leaf0>spine3")) << "seed " << seed;
    for (const std::string name : {"c0", "c1"}) {
      for (const auto& [data, back] : BothWays(&cluster, name)) {
        EXPECT_NE(data, 3) << name << ", seed " << seed;
        EXPECT_NE(back, 3) << name << ", seed " << seed;
        EXPECT_GE(data, 0) << name << ", seed " << seed;
      }
    }
  }
  EXPECT_GT(moved, 0) << "no acknowledgements were lost alone";
}

// Leaves are judged by their own first answers, also when no more answers come after those.
TEST(C4pLinksTest, ALeafThatIsProbedLaterIsJudgedLater) {
  constexpr int64_t kSettleNs = TopologyLearner::kSettleNs;
  FakeFabric fabric({.leaves = 2, .spines = 4, .hosts_per_leaf = 1});
  NetworkView view(std::nullopt, 0);
  for (const int host : {0, 1}) {
    v1::AgentHello hello;
    hello.set_host("host" + std::to_string(host));
    v1::NicInfo* nic = hello.add_nics();
    nic->set_name("eth0");
    nic->set_address(service::IpText(fabric.Address(host, 0)));
    view.SetNics(hello);
  }
  const auto probe = [&](int from, int to, int without_spine, int64_t now_ns) {
    for (int port = 40000; port < 40128; ++port) {
      const service::IpTuple tuple = fabric.Tuple(from, to, port);
      if (fabric.PathOf(tuple).spine != without_spine) view.Add(fabric.Probe(tuple), now_ns);
    }
  };
  probe(0, 1, -1, 0);
  probe(1, 0, -1, 0);
  (void)view.Refresh(kSettleNs);
  view.BeginRound();
  // Routes have changed: nothing is lost, and nothing goes over that link any more.
  const int64_t begin_ns = 10 * kSettleNs;
  probe(0, 1, -1, begin_ns);
  probe(1, 0, 2, begin_ns + kSettleNs / 2);
  EXPECT_TRUE(view.Refresh(begin_ns + kSettleNs / 2).empty());
  ASSERT_TRUE(view.stale(begin_ns + kSettleNs));
  EXPECT_TRUE(view.Refresh(begin_ns + kSettleNs).empty());
  ASSERT_TRUE(view.stale(begin_ns + 2 * kSettleNs)) << "nobody looks again";
  const std::vector<LinkChange> changes = view.Refresh(begin_ns + 2 * kSettleNs);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].name, "leaf1-spine2");
  EXPECT_FALSE(changes[0].up);
  EXPECT_FALSE(view.stale(begin_ns + 20 * kSettleNs));
}

// Whoever is alone on a link and loses it is all that there is to tell of it.
// Also where it is being connected anew when the agent tells of it, its addresses not known.
TEST(C4pLinksTest, OneThatIsAloneOnALinkIsReasonEnough) {
  for (const bool redialled : {false, true}) {
    Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 1});
    const std::map<std::string, uint32_t> over = Fill(&cluster, 1, 1);
    ASSERT_EQ(over.size(), 1U);
    cluster.fabric.Cut(0, 1);
    cluster.Use("c0", {{over.at("c0"), 1}}, redialled);
    cluster.Run(4000);
    EXPECT_FALSE(cluster.IsUp("leaf0>spine1"));
    EXPECT_THAT(cluster.Spines("c0"), testing::Each(testing::Ne(1)));
  }
}

// A host whose agent speaks is not the next one's who says its name; a silent one's is.
TEST(C4pHandlerHostTest, ALivingAgentsHostIsNotTakenOver) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Ask(0, 2, "a");
  std::vector<std::string> refused;
  bool welcome = false;
  const SessionId second = cluster.handler.Connect([&](const v1::C4pToAgent& message) {
    if (message.has_refused()) refused.push_back(message.refused());
    welcome = welcome || message.has_welcome();
  });
  v1::AgentToC4p hello;
  hello.mutable_hello()->set_host("host0");
  const SessionId first = cluster.agents[0].session;
  const auto session_of_a = [&] { return cluster.handler.book().connections().at("a").session; };
  const auto say = [&](uint64_t sequence) {
    hello.set_sequence(sequence);
    cluster.handler.Take(second, hello, cluster.now_ns);
  };
  say(1);
  EXPECT_THAT(refused, testing::ElementsAre(testing::HasSubstr("host host0 has an agent in session")));
  EXPECT_FALSE(welcome);
  EXPECT_EQ(session_of_a(), first);
  // The first goes on saying so.
  v1::AgentToC4p lease;
  lease.mutable_lease()->add_connections("a");
  cluster.now_ns += 10'000 * kMs;
  cluster.Say(0, lease);
  cluster.now_ns += 10'000 * kMs;
  say(2);
  EXPECT_FALSE(welcome);
  cluster.now_ns += 10'000 * kMs;
  say(3);
  EXPECT_TRUE(welcome);
  EXPECT_EQ(session_of_a(), 0u);
  // The first is nobody now, and its end is not the second's.
  cluster.Say(0, lease);
  EXPECT_THAT(cluster.agents[0].refused, testing::ElementsAre(testing::HasSubstr("say hello first")));
  cluster.handler.Disconnect(first, cluster.now_ns);
  cluster.Run(1000);
  EXPECT_EQ(refused.size(), 2u);
  // And one whose stream has ended is let in at once.
  cluster.handler.Disconnect(second, cluster.now_ns);
  cluster.Join(0);
  EXPECT_THAT(cluster.agents[0].refused, testing::IsEmpty());
}

}  // namespace
}  // namespace c4::c4p
