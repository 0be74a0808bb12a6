// The path master whole, with agents and a network in memory: what it advises is where packets go, loads come
// out even, failures move what they concern, and messages that cannot be are refused.
#include <gmock/gmock.h>

#include "tests/unit/c4p_master/cluster.h"

namespace c4::c4p {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

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

// Its packets leave from ports of their own, and nobody who speaks TCP has them.
TEST(C4pHandlerTest, QueuePairsOfRoceGetPortsOfRoce) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.AskRoce(0, 2, "rdma");
  cluster.Ask(0, 2, "tcp");
  cluster.Use("rdma");
  cluster.Run(3000);
  EXPECT_THAT(cluster.Spines("rdma"), testing::UnorderedElementsAre(0, 1, 2, 3));
  for (const auto& path : cluster.answers["rdma"].paths()) EXPECT_GE(path.source_port(), 49152u);
  for (const auto& path : cluster.answers["tcp"].paths()) EXPECT_LE(path.source_port(), 28191u);
  cluster.Use("rdma");
  const v1::QueuePairPath path = cluster.answers["rdma"].paths(0);
  const service::IpTuple tuple = {service::IpProtocol::kUdp, cluster.fabric.Address(0, 0),
                                  static_cast<uint16_t>(path.source_port()), cluster.fabric.Address(2, 0),
                                  4791};
  EXPECT_FALSE(cluster.handler.book().IsFree(tuple));
  // What C4D asks for is known.
  v1::ResolvePathsRequest asked;
  v1::FiveTuple* const five = asked.add_tuples();
  five->set_protocol(v1::IP_PROTOCOL_UDP);
  five->set_source(service::IpText(tuple.source));
  five->set_source_port(path.source_port());
  five->set_destination(service::IpText(tuple.destination));
  five->set_destination_port(4791);
  EXPECT_TRUE(cluster.handler.ResolvePaths(asked, cluster.now_ns).paths(0).known());
}

// Until its user has left it: two queue pairs that both want it would fight for it.
TEST(C4pHandlerTest, APortInUseIsNobodyElses) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 4});
  cluster.Run(2000);
  cluster.Ask(0, 4, "a");
  cluster.Run(2000);
  cluster.Use("a");
  const std::vector<int> spines = cluster.Spines("a");
  const size_t lost = static_cast<size_t>(std::find(spines.begin(), spines.end(), 1) - spines.begin());
  ASSERT_LT(lost, spines.size());
  const uint32_t port = cluster.answers["a"].paths(static_cast<int>(lost)).source_port();
  const auto is_free = [&] {
    return cluster.handler.book().IsFree({service::IpProtocol::kTcp, cluster.fabric.Address(0, 0),
                                          static_cast<uint16_t>(port), cluster.fabric.Address(4, 0), 5000});
  };
  // It is advised another port, and has not moved yet.
  cluster.fabric.Cut(0, 1);
  cluster.Use("a", {{static_cast<uint32_t>(lost), 1}, {static_cast<uint32_t>(lost == 0 ? 1 : 0), 1}});
  cluster.Run(4000);
  ASSERT_NE(cluster.answers["a"].paths(static_cast<int>(lost)).source_port(), port);
  EXPECT_FALSE(is_free());
  cluster.Use("a");
  EXPECT_TRUE(is_free());
}

TEST(C4pHandlerTest, APathThatSomebodyAsksForIsLearnt) {
  Cluster cluster({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  cluster.Run(2000);
  // Back, from a listener's port: nobody would probe that for its own sake.
  v1::ResolvePathsRequest request;
  v1::FiveTuple* const tuple = request.add_tuples();
  tuple->set_protocol(v1::IP_PROTOCOL_TCP);
  tuple->set_source(service::IpText(cluster.fabric.Address(2, 0)));
  tuple->set_source_port(45001);
  tuple->set_destination(service::IpText(cluster.fabric.Address(0, 0)));
  tuple->set_destination_port(20007);
  EXPECT_FALSE(cluster.handler.ResolvePaths(request, cluster.now_ns).paths(0).known());
  cluster.Run(500);
  const v1::ResolvePathsReply reply = cluster.handler.ResolvePaths(request, cluster.now_ns);
  ASSERT_TRUE(reply.paths(0).known());
  EXPECT_EQ(reply.paths(0).links_size(), 4);
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
  near->set_source(service::IpText(cluster.fabric.Address(0)));
  near->set_destination(service::IpText(cluster.fabric.Address(1)));
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

// What `first` has advised on connection "a", said to a master that is new; queue pairs of `elsewhere` have
// ports that no master gave out.
void SayInUse(Cluster& first, const std::set<uint32_t>& elsewhere, Cluster* second) {
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
    pair->mutable_tuple()->set_source_port(elsewhere.contains(path.index()) ? 50000 + path.index()
                                                                            : path.source_port());
    pair->mutable_tuple()->set_destination_port(5000);
  }
  second->Say(0, message);
  EXPECT_THAT(second->agents[0].refused, IsEmpty());
}

TEST(C4pHandlerTest, AMasterThatComesBackLeavesWhatIsInUse) {
  Cluster first({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  first.Run(2000);
  first.Ask(0, 2, "a");
  first.Run(3000);
  Cluster second({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  SayInUse(first, {}, &second);
  second.Run(20000);
  EXPECT_FALSE(second.answers.contains("a")) << "it moves: " << second.answers["a"].ShortDebugString();
  const v1::ListPathsReply paths = second.handler.ListPaths({}, second.now_ns);
  ASSERT_EQ(paths.connections_size(), 1);
  for (const v1::QueuePairStatus& pair : paths.connections(0).queue_pairs()) {
    EXPECT_GT(pair.links_size(), 0) << pair.index();
  }
  EXPECT_TRUE(second.handler.book().connections().at("a").complete);
}

TEST(C4pHandlerTest, OfATakenOverConnectionOnlyStraysMove) {
  Cluster first({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  first.Run(2000);
  first.Ask(0, 2, "a");
  first.Run(3000);
  Cluster second({.leaves = 2, .spines = 4, .hosts_per_leaf = 2});
  SayInUse(first, {1, 3}, &second);
  second.Run(20000);
  ASSERT_TRUE(second.answers.contains("a"));
  EXPECT_GT(second.answers["a"].epoch(), first.answers["a"].epoch()) << "an older epoch would be ignored";
  for (const int stays : {0, 2}) {
    EXPECT_EQ(second.answers["a"].paths(stays).source_port(), first.answers["a"].paths(stays).source_port());
  }
  second.requests["a"] = first.requests["a"];
  EXPECT_THAT(second.Spines("a"), UnorderedElementsAre(0, 1, 2, 3));
}

TEST(C4pHandlerTest, AnAgentThatFloodsIsStoppedAndTheOthersAreNot) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Run(2000);
  for (size_t i = 0; i <= kMostConnections; ++i) {
    v1::AgentToC4p message;
    *message.mutable_request() = cluster.RequestOf(0, 2, "flood-" + std::to_string(i), 1);
    cluster.Say(0, message);
  }
  EXPECT_EQ(cluster.handler.book().connections().size(), kMostConnections);
  EXPECT_THAT(cluster.agents[0].refused, ElementsAre(HasSubstr("65536 connections, which is the most")));
  cluster.Ask(1, 3, "a");
  cluster.Run(3000);
  EXPECT_THAT(cluster.Spines("a"), UnorderedElementsAre(0, 0, 1, 1));
  // What is closed makes room.
  v1::AgentToC4p over;
  over.mutable_use()->set_connection("flood-7");
  cluster.Say(0, over);
  cluster.Ask(0, 2, "b");
  EXPECT_EQ(cluster.agents[0].refused.size(), 1u);
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
  EXPECT_THAT(refused(0, message), HasSubstr("no two addresses of one IP version"));
  message.mutable_request()->mutable_ends(0)->set_destination("fd10:1::2");
  EXPECT_THAT(refused(0, message), HasSubstr("no two addresses of one IP version"));
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
  v1::NicInfo* const nic = message.mutable_hello()->add_nics();
  nic->set_address("10.0.0.2");
  EXPECT_THAT(refused(99, message), HasSubstr("NIC ''")) << "it would be lost in silence";
  nic->set_name("eth0");
  EXPECT_THAT(refused(99, message), HasSubstr("host0's"));
  nic->set_address("10.9.9.9");
  *message.mutable_hello()->add_nics() = *nic;
  EXPECT_THAT(refused(99, message), HasSubstr("two NICs eth0"));
  message.mutable_hello()->set_host("a host");
  EXPECT_THAT(refused(99, message), HasSubstr("host 'a host'"));
}

// Nobody becomes another host in the middle of a session, and what he leaves behind is whole.
TEST(C4pHandlerTest, ASecondHelloOfASessionIsRefused) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  v1::AgentToC4p message;
  message.mutable_hello()->set_host("somebody");
  cluster.Say(0, message);
  EXPECT_THAT(cluster.agents[0].refused, ElementsAre(HasSubstr("has said hello already, as host0")));
  cluster.handler.Disconnect(cluster.agents[0].session, cluster.now_ns);
  cluster.Run(1000);
  cluster.Join(0);
  EXPECT_THAT(cluster.agents[0].refused, IsEmpty());
}

TEST(C4pHandlerTest, WhatIsTakenOverLeavesFromTheAgentsOwnNics) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  v1::AgentToC4p message;
  v1::PathUse* const use = message.mutable_use();
  use->set_connection("stolen");
  *use->mutable_request() = cluster.RequestOf(1, 2, "stolen", 1);
  use->add_queue_pairs()->mutable_tuple()->set_source(service::IpText(cluster.fabric.Address(1, 0)));
  use->mutable_queue_pairs(0)->mutable_tuple()->set_destination(
      service::IpText(cluster.fabric.Address(2, 0)));
  use->mutable_queue_pairs(0)->mutable_tuple()->set_source_port(50000);
  use->mutable_queue_pairs(0)->mutable_tuple()->set_destination_port(5000);
  cluster.Say(0, message);
  EXPECT_THAT(cluster.agents[0].refused, ElementsAre(HasSubstr("no NIC that this agent has told of")));
  // Its own request with a tuple of somebody else's is no better.
  *use->mutable_request() = cluster.RequestOf(0, 2, "stolen", 1);
  cluster.Say(0, message);
  EXPECT_EQ(cluster.agents[0].refused.size(), 2u);
  EXPECT_THAT(cluster.handler.book().connections(), IsEmpty());
}

TEST(C4pHandlerTest, AConnectionWhoseAgentIsAwayIsNobodyElses) {
  Cluster cluster({.leaves = 2, .spines = 2, .hosts_per_leaf = 2});
  cluster.Ask(1, 2, "a");
  cluster.handler.Disconnect(cluster.agents[1].session, cluster.now_ns);
  // Released, and asked for, by its name.
  v1::AgentToC4p message;
  message.mutable_use()->set_connection("a");
  cluster.Say(0, message);
  *message.mutable_request() = cluster.RequestOf(0, 2, "a");
  cluster.Say(0, message);
  EXPECT_EQ(cluster.agents[0].refused.size(), 2u);
  ASSERT_TRUE(cluster.handler.book().connections().contains("a"));
  EXPECT_EQ(cluster.handler.book().connections().at("a").session, 0u);
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
