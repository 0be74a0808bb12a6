// The path master whole, with agents and a network in memory: what it advises is where packets go, loads come
// out even, failures move what they concern, and messages that cannot be are refused.
#include <gmock/gmock.h>

#include "c4p_master/c4p_handler.h"
#include "tests/unit/c4p_master/fake_fabric.h"

namespace c4::c4p {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

v1::HopStatus StatusOf(HopState state) {
  switch (state) {
    case HopState::kAnswered:
      return v1::HOP_STATUS_ANSWERED;
    case HopState::kReached:
      return v1::HOP_STATUS_REACHED;
    case HopState::kUnreachable:
      return v1::HOP_STATUS_UNREACHABLE;
    default:
      return v1::HOP_STATUS_SILENT;
  }
}

// A cluster: an agent a host, which probes when it is asked to, a tick later.
class Cluster {
 public:
  explicit Cluster(const FakeSpec& spec, HandlerOptions options = {},
                   std::optional<Topology> file = std::nullopt)
      : fabric(spec),
        planes(spec.ports == FakePorts::kPlanes ? 2 : 1),
        handler(options, std::move(file), &metrics) {
    for (int host = 0; host < fabric.hosts(); ++host) Join(host);
  }

  void Join(int host) {
    agents[host] = {};
    agents[host].session = handler.Connect([this, host](const v1::C4pToAgent& message) {
      Agent& agent = agents[host];
      if (message.has_answer()) answers[message.answer().connection()] = message.answer();
      if (message.has_answer()) ++answers_seen;
      if (message.has_probe()) agent.orders.push_back(message.probe());
      if (message.has_refused()) agent.refused.push_back(message.refused());
    });
    v1::AgentToC4p message;
    message.mutable_hello()->set_host("host" + std::to_string(host));
    message.mutable_hello()->set_probes_per_second(20000);
    int plane = 0;
    for (const service::Ipv4 address : fabric.Addresses(host)) {
      v1::NicInfo* const nic = message.mutable_hello()->add_nics();
      nic->set_name("eth" + std::to_string(plane));
      nic->set_address(service::Ipv4Text(address));
      nic->set_plane(static_cast<uint32_t>(plane++));
      nic->set_rate_mbps(1000);
      nic->set_carrier(true);
    }
    Say(host, message);
  }
  void Say(int host, v1::AgentToC4p message) {
    message.set_sequence(++agents[host].sequence);
    handler.Take(agents[host].session, message, now_ns);
  }
  v1::PathRequest RequestOf(int from, int to, const std::string& name, uint32_t queue_pairs = 4) {
    v1::PathRequest request;
    request.set_connection(name);
    request.set_job("job");
    request.set_protocol(v1::IP_PROTOCOL_TCP);
    request.set_destination_port(5000);
    request.set_queue_pairs(queue_pairs);
    for (int plane = 0; plane < planes; ++plane) {
      v1::PathEnds* const ends = request.add_ends();
      ends->set_source(service::Ipv4Text(fabric.Address(from, plane)));
      ends->set_destination(service::Ipv4Text(fabric.Address(to, plane)));
    }
    return request;
  }
  void Ask(int from, int to, const std::string& name, uint32_t queue_pairs = 4) {
    v1::AgentToC4p message;
    *message.mutable_request() = RequestOf(from, to, name, queue_pairs);
    requests[name] = {from, message.request()};
    Say(from, message);
  }
  // Says that it uses what it was advised; where that is any port: 50000 and up.
  void Use(const std::string& name, const std::map<uint32_t, uint32_t>& fences = {}) {
    const auto& [from, request] = requests.at(name);
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(name);
    message.mutable_use()->set_epoch(answers[name].epoch());
    for (const v1::QueuePairPath& path : answers[name].paths()) {
      v1::QueuePairInUse* const pair = message.mutable_use()->add_queue_pairs();
      pair->set_index(path.index());
      pair->set_use(v1::QUEUE_PAIR_USE_LIVE);
      const auto fenced = fences.find(path.index());
      if (fenced != fences.end()) pair->set_fences(fenced->second);
      v1::FiveTuple* const tuple = pair->mutable_tuple();
      tuple->set_source(request.ends(static_cast<int>(path.plane())).source());
      tuple->set_destination(request.ends(static_cast<int>(path.plane())).destination());
      tuple->set_source_port(path.source_port() != 0 ? path.source_port() : 50000 + path.index());
      tuple->set_destination_port(request.destination_port());
    }
    Say(from, message);
  }
  void Close(const std::string& name) {
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(name);
    Say(requests.at(name).first, message);
    requests.erase(name);
    answers.erase(name);
  }
  void Run(int ms) {
    for (int64_t until_ns = now_ns + ms * kMs; now_ns < until_ns; now_ns += 20 * kMs) {
      handler.Tick(now_ns);
      for (auto& [host, agent] : agents) {
        for (const v1::ProbeOrder& order : std::exchange(agent.orders, {})) Probe(host, order);
      }
    }
  }
  void Probe(int host, const v1::ProbeOrder& order) {
    v1::AgentToC4p message;
    message.mutable_probes()->set_order(order.order());
    message.mutable_probes()->set_last(true);
    for (const v1::FiveTuple& asked : order.tuples()) {
      v1::ProbeResult* const result = message.mutable_probes()->add_results();
      *result->mutable_tuple() = asked;
      const PathObservation seen = fabric.Probe(TupleOf(asked), static_cast<int>(order.first_ttl()),
                                                static_cast<int>(order.last_ttl()));
      const service::Ipv4 addresses[] = {seen.hops.egress, seen.hops.spine, seen.hops.remote};
      for (uint32_t ttl = order.first_ttl(); ttl <= order.last_ttl(); ++ttl) {
        v1::Hop* const hop = result->add_hops();
        hop->set_ttl(ttl);
        hop->set_status(StatusOf(seen.states[ttl - 1]));
        const bool reached = seen.states[ttl - 1] == HopState::kReached;
        hop->set_address(service::Ipv4Text(reached ? TupleOf(asked).destination : addresses[ttl - 1]));
        if (reached) break;
      }
    }
    Say(host, message);
  }
  static service::IpTuple TupleOf(const v1::FiveTuple& tuple) {
    return {tuple.protocol() == v1::IP_PROTOCOL_TCP ? service::IpProtocol::kTcp : service::IpProtocol::kUdp,
            *service::ParseIpv4(tuple.source()), static_cast<uint16_t>(tuple.source_port()),
            *service::ParseIpv4(tuple.destination()), static_cast<uint16_t>(tuple.destination_port())};
  }
  // Where a connection's queue pairs really go, by what it was advised: spines, by queue pair; -1: any port.
  std::vector<int> Spines(const std::string& name) {
    std::vector<int> spines;
    const v1::PathRequest& request = requests.at(name).second;
    for (const v1::QueuePairPath& path : answers[name].paths()) {
      if (path.source_port() == 0) {
        spines.push_back(-1);
        continue;
      }
      v1::FiveTuple tuple;
      tuple.set_protocol(request.protocol());
      tuple.set_source(request.ends(static_cast<int>(path.plane())).source());
      tuple.set_destination(request.ends(static_cast<int>(path.plane())).destination());
      tuple.set_source_port(path.source_port());
      tuple.set_destination_port(request.destination_port());
      spines.push_back(fabric.PathOf(TupleOf(tuple)).spine);
    }
    return spines;
  }
  // Queue pairs on each uplink of a leaf, by what was advised.
  std::map<std::pair<int, int>, int> Uplinks() {
    std::map<std::pair<int, int>, int> count;
    for (const auto& [name, request] : requests) {
      const std::vector<int> spines = Spines(name);
      for (size_t i = 0; i < spines.size(); ++i) {
        if (spines[i] >= 0)
          ++count[{fabric.LeafOf(request.first,
                                 static_cast<int>(answers[name].paths(static_cast<int>(i)).plane())),
                   spines[i]}];
      }
    }
    return count;
  }

  struct Agent {
    SessionId session = 0;
    uint64_t sequence = 0;
    std::vector<v1::ProbeOrder> orders;
    std::vector<std::string> refused;
  };
  FakeFabric fabric;
  int planes;
  service::Metrics metrics;
  std::map<int, Agent> agents;
  std::map<std::string, v1::PathAnswer> answers;
  int answers_seen = 0;
  std::map<std::string, std::pair<int, v1::PathRequest>> requests;
  int64_t now_ns = 1'000'000'000;
  C4pHandler handler;
};

TEST(C4pHandlerTest, AnswersAtOnceAndCorrectsOnceItKnows) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Ask(0, 2, "a");
  ASSERT_TRUE(cluster.answers.contains("a")) << "an answer may not wait for probing";
  EXPECT_THAT(cluster.Spines("a"), Each(-1));
  EXPECT_NE(cluster.answers["a"].why(), "");
  cluster.Use("a");
  cluster.Run(3000);
  EXPECT_GT(cluster.answers["a"].epoch(), 1u);
  EXPECT_THAT(cluster.Spines("a"), testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST(C4pHandlerTest, LoadsComeOutEvenOverAllJobs) {
  for (const FakePorts ports : {FakePorts::kOne, FakePorts::kPlanes}) {
    Cluster cluster({.leaves = 4, .spines = 4, .hosts_per_leaf = 4, .ports = ports});
    cluster.Run(3000);
    const int hosts = cluster.fabric.hosts();
    for (int host = 0; host < hosts; ++host) {
      cluster.Ask(host, (host + hosts / 2) % hosts, "c" + std::to_string(host));
    }
    cluster.Run(3000);
    for (const auto& [name, request] : cluster.requests) cluster.Use(name);
    cluster.Run(1000);
    const auto uplinks = cluster.Uplinks();
    ASSERT_FALSE(uplinks.empty());
    int least = INT32_MAX;
    int most = 0;
    for (const auto& [uplink, count] : uplinks) {
      least = std::min(least, count);
      most = std::max(most, count);
    }
    EXPECT_EQ(least, most) << "of every uplink's queue pairs";
    EXPECT_EQ(uplinks.size(), 16u) << "every uplink is used";
  }
}

TEST(C4pHandlerTest, WhatIsKnownIsAnsweredAtOnce) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Ask(0, 2, "a");
  cluster.Run(3000);
  cluster.Use("a");
  cluster.answers_seen = 0;
  cluster.Ask(0, 2, "b");
  EXPECT_EQ(cluster.answers_seen, 1);
  EXPECT_THAT(cluster.Spines("b"), testing::UnorderedElementsAre(0, 1, 2, 3));
  // No port twice from one address.
  std::set<uint32_t> ports;
  for (const char* name : {"a", "b"}) {
    for (const auto& path : cluster.answers[name].paths())
      EXPECT_TRUE(ports.insert(path.source_port()).second);
  }
  // What is closed leaves room.
  cluster.Close("a");
  cluster.Run(100);
  EXPECT_EQ(cluster.handler.book().connections().size(), 1u);
}

TEST(C4pHandlerTest, ACutLinkIsFoundAndOnlyWhatItConcernsMoves) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
  cluster.Run(2000);
  for (int host = 0; host < 4; ++host) cluster.Ask(host, 4 + host, "c" + std::to_string(host));
  cluster.Run(3000);
  std::map<std::string, std::vector<int>> before;
  for (const auto& [name, request] : cluster.requests) {
    cluster.Use(name);
    before[name] = cluster.Spines(name);
  }
  cluster.fabric.Cut(0, 1);
  // The transport reports what it fenced.
  for (const auto& [name, request] : cluster.requests) {
    for (size_t i = 0; i < before[name].size(); ++i) {
      if (before[name][i] == 1) cluster.Use(name, {{static_cast<uint32_t>(i), 1}});
    }
  }
  cluster.Run(4000);
  for (const auto& [name, request] : cluster.requests) {
    const std::vector<int> after = cluster.Spines(name);
    for (size_t i = 0; i < after.size(); ++i) {
      if (before[name][i] == 1) {
        EXPECT_NE(after[i], 1) << name << " " << i << " is still on the dead link";
      } else {
        EXPECT_EQ(after[i], before[name][i]) << name << " " << i << " moved without need";
      }
      EXPECT_GE(after[i], 0);
    }
  }
  EXPECT_THAT(cluster.handler.GetTopology(cluster.now_ns).DebugString(), HasSubstr("fault: "));
}

TEST(C4pHandlerTest, AfterRoutesHashAnewEverythingIsLearntAgain) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Run(2000);
  cluster.Ask(0, 2, "a");
  cluster.Run(3000);
  cluster.Use("a");
  cluster.Ask(1, 3, "b");
  cluster.Run(3000);
  cluster.Use("b");
  cluster.fabric.Cut(0, 1);
  cluster.fabric.Rehash();
  cluster.Use("a", {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  cluster.Use("b", {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  cluster.Run(8000);
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(cluster.Spines(name), testing::Each(testing::AnyOf(0, 2, 3))) << name;
  }
}

TEST(C4pHandlerTest, ResolvesWhatItKnowsForC4d) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Run(2000);
  cluster.Ask(0, 2, "a", 2);
  cluster.Run(3000);
  v1::ResolvePathsRequest request;
  for (const auto& path : cluster.answers["a"].paths()) {
    v1::FiveTuple* const tuple = request.add_tuples();
    tuple->set_protocol(v1::IP_PROTOCOL_TCP);
    tuple->set_source(cluster.requests["a"].second.ends(0).source());
    tuple->set_destination(cluster.requests["a"].second.ends(0).destination());
    tuple->set_source_port(path.source_port());
    tuple->set_destination_port(5000);
  }
  request.add_tuples()->set_source("nonsense");
  v1::FiveTuple* const near = request.add_tuples();
  near->set_protocol(v1::IP_PROTOCOL_TCP);
  near->set_source(service::Ipv4Text(cluster.fabric.Address(0)));
  near->set_destination(service::Ipv4Text(cluster.fabric.Address(1)));
  const v1::ResolvePathsReply reply = cluster.handler.ResolvePaths(request, cluster.now_ns);
  ASSERT_EQ(reply.paths_size(), 4);
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> links(reply.paths(i).links().begin(), reply.paths(i).links().end());
    EXPECT_TRUE(reply.paths(i).known());
    EXPECT_EQ(links.size(), 4u);
    EXPECT_EQ(links.front().substr(0, 5), "host0");
  }
  EXPECT_FALSE(reply.paths(2).known());
  EXPECT_TRUE(reply.paths(3).known());
  EXPECT_EQ(reply.paths(3).links_size(), 2);
}

TEST(C4pHandlerTest, PortsThatDoNotSteerAreSaid) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 8, .hash = FakeHash::kIgnoresPorts});
  cluster.Run(2000);
  for (int host = 0; host < 8; ++host) cluster.Ask(host, 8 + host, "c" + std::to_string(host));
  cluster.Run(20000);
  std::string notes;
  const v1::GetTopologyReply topology = cluster.handler.GetTopology(cluster.now_ns);
  for (const std::string& note : topology.notes()) notes += note + "\n";
  EXPECT_THAT(notes, HasSubstr("ports do not steer")) << notes;
  for (const v1::LinkLoad& link : topology.links())
    EXPECT_TRUE(link.up()) << link.name() << ": " << link.fault();
  const uint64_t ordered = topology.probes_ordered();
  cluster.Run(20000);
  EXPECT_EQ(cluster.handler.GetTopology(cluster.now_ns).probes_ordered(), ordered)
      << "it probes in vain for ever";
}

TEST(C4pHandlerTest, AMasterThatComesBackTakesOverWhatIsInUse) {
  Cluster first({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  first.Run(2000);
  first.Ask(0, 2, "a");
  first.Run(3000);
  Cluster second({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  v1::AgentToC4p message;
  message.mutable_use()->set_connection("a");
  message.mutable_use()->set_epoch(first.answers["a"].epoch());
  *message.mutable_use()->mutable_request() = first.requests["a"].second;
  for (const auto& path : first.answers["a"].paths()) {
    v1::QueuePairInUse* const pair = message.mutable_use()->add_queue_pairs();
    pair->set_index(path.index());
    pair->set_use(v1::QUEUE_PAIR_USE_LIVE);
    pair->mutable_tuple()->set_source("10.0.0.2");
    pair->mutable_tuple()->set_destination("10.1.0.2");
    pair->mutable_tuple()->set_source_port(path.source_port());
    pair->mutable_tuple()->set_destination_port(5000);
  }
  second.Say(0, message);
  EXPECT_THAT(second.agents[0].refused, IsEmpty());
  ASSERT_EQ(second.handler.book().connections().size(), 1u);
  second.Run(4000);
  if (second.answers.contains("a")) {
    EXPECT_GT(second.answers["a"].epoch(), first.answers["a"].epoch()) << "an older epoch would be ignored";
  }
}

TEST(C4pHandlerTest, BadMessagesAreRefusedAndChangeNothing) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Run(2000);
  const auto refused = [&](int host, const v1::AgentToC4p& message) {
    cluster.agents[host].refused.clear();
    cluster.Say(host, message);
    return cluster.agents[host].refused.empty() ? "" : cluster.agents[host].refused.front();
  };
  v1::AgentToC4p message;
  // A NIC of somebody else's.
  *message.mutable_request() = cluster.RequestOf(1, 2, "liar");
  EXPECT_THAT(refused(0, message), HasSubstr("no NIC that this agent"));
  // Impossible requests.
  *message.mutable_request() = cluster.RequestOf(0, 2, "x", 0);
  EXPECT_THAT(refused(0, message), HasSubstr("queue pairs"));
  *message.mutable_request() = cluster.RequestOf(0, 2, "x", 100000);
  EXPECT_THAT(refused(0, message), HasSubstr("queue pairs"));
  *message.mutable_request() = cluster.RequestOf(0, 2, "");
  EXPECT_THAT(refused(0, message), HasSubstr("no name"));
  *message.mutable_request() = cluster.RequestOf(0, 2, "x");
  message.mutable_request()->set_destination_port(0);
  EXPECT_THAT(refused(0, message), HasSubstr("destination port"));
  message.mutable_request()->set_destination_port(5000);
  message.mutable_request()->mutable_ends(0)->set_destination("somewhere");
  EXPECT_THAT(refused(0, message), HasSubstr("IPv4"));
  // An unknown destination gets an answer: any port.
  *message.mutable_request() = cluster.RequestOf(0, 2, "unknown");
  message.mutable_request()->mutable_ends(0)->set_destination("192.168.7.7");
  EXPECT_EQ(refused(0, message), "");
  EXPECT_THAT(cluster.answers["unknown"].why(), HasSubstr("192.168.7.7 is no NIC"));
  // A use of what nobody asked for, a report nobody ordered.
  message.Clear();
  message.mutable_use()->set_connection("never");
  EXPECT_THAT(refused(0, message), HasSubstr("never asked"));
  message.Clear();
  message.mutable_probes()->set_order(999999);
  EXPECT_THAT(refused(0, message), HasSubstr("no order"));
  // Another agent's connection.
  cluster.Ask(0, 2, "mine");
  message.Clear();
  message.mutable_use()->set_connection("mine");
  EXPECT_THAT(refused(1, message), HasSubstr("another agent's"));
  EXPECT_TRUE(cluster.handler.book().connections().contains("mine"));
  // A replay.
  message.set_sequence(2);
  cluster.agents[0].refused.clear();
  cluster.handler.Take(cluster.agents[0].session, message, cluster.now_ns);
  EXPECT_THAT(cluster.agents[0].refused.front(), HasSubstr("repeated"));
  // Somebody who claims a NIC that another agent has.
  cluster.agents[99] = {};
  cluster.agents[99].session = cluster.handler.Connect([&](const v1::C4pToAgent& reply) {
    if (reply.has_refused()) cluster.agents[99].refused.push_back(reply.refused());
  });
  message.Clear();
  message.mutable_lease();
  EXPECT_THAT(refused(99, message), HasSubstr("hello first"));
  message.Clear();
  message.mutable_hello()->set_host("imposter");
  message.mutable_hello()->add_nics()->set_address("10.0.0.2");
  EXPECT_THAT(refused(99, message), HasSubstr("host0's"));
}

TEST(C4pHandlerTest, AnAgentThatLeavesAndComesBackFindsItsConnections) {
  HandlerOptions options;
  options.expiry_ns = 5000 * kMs;
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2}, options);
  cluster.Run(2000);
  cluster.Ask(0, 2, "a", 2);
  cluster.Run(2000);
  cluster.Use("a");
  const auto load = [&] {
    double sum = 0;
    const v1::ListPathsReply paths = cluster.handler.ListPaths({}, cluster.now_ns);
    for (const v1::LinkLoad& link : paths.links()) sum += link.load_mbps();
    return sum;
  };
  EXPECT_GT(load(), 0);
  cluster.handler.Disconnect(cluster.agents[0].session, cluster.now_ns);
  cluster.agents.erase(0);
  cluster.Run(1000);
  EXPECT_GT(load(), 0) << "it may be back in a moment";
  cluster.Run(6000);
  EXPECT_EQ(load(), 0) << "expired";
  cluster.Join(0);
  cluster.Use("a");
  cluster.Run(100);
  EXPECT_GT(load(), 0) << "renewed";
  EXPECT_THAT(cluster.agents[0].refused, IsEmpty());
}

TEST(C4pHandlerTest, TheSameMessagesGiveTheSamePaths) {
  std::string texts[2];
  for (std::string& text : texts) {
    Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
    cluster.Run(1000);
    for (int host = 0; host < 8; ++host) cluster.Ask(host, (host + 5) % 8, "c" + std::to_string(host));
    cluster.Run(3000);
    for (const auto& [name, answer] : cluster.answers) text += answer.DebugString();
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(C4pHandlerTest, ExplainsAConnection) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Run(2000);
  cluster.Ask(0, 2, "host0/1.a");
  cluster.Ask(0, 3, "host0/2.a");
  cluster.Run(2000);
  cluster.Use("host0/1.a");
  const auto reply = cluster.handler.Explain("1.a", cluster.now_ns);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->DebugString(), HasSubstr("leads over host0>"));
  EXPECT_TRUE(absl::IsNotFound(cluster.handler.Explain("a", cluster.now_ns).status()));
  EXPECT_TRUE(absl::IsNotFound(cluster.handler.Explain("", cluster.now_ns).status()));
  EXPECT_TRUE(absl::IsNotFound(cluster.handler.Explain("zzz", cluster.now_ns).status()));
}

}  // namespace
}  // namespace c4::c4p
