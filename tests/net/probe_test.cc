// Prober, plan, topology and catalogue together on real fabrics: every path that is learnt is the one that
// the kernel's own tables name (fabric/emulator/oracle.h), and what is broken or silent is said.
#include <algorithm>
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "c4p_master/catalogue.h"
#include "c4p_master/probe_plan.h"
#include "c4p_master/topology_learner.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/net/probe_support.h"

namespace c4::net_test {
namespace {

using c4p::FlowGroup;
using c4p::PathObservation;
using c4p::Topology;
using fabric::Fabric;
using fabric::FabricSpec;
using fabric::Ports;
using service::IpProtocol;
using service::IpTuple;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kName[] = "pbmap";
constexpr uint32_t kPacketsPerSecond = 20000;

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

c4p::HopState StateOf(agent::HopStatus status) {
  switch (status) {
    case agent::HopStatus::kAnswered:
      return c4p::HopState::kAnswered;
    case agent::HopStatus::kSilent:
      return c4p::HopState::kSilent;
    case agent::HopStatus::kReached:
      return c4p::HopState::kReached;
    case agent::HopStatus::kUnreachable:
      return c4p::HopState::kUnreachable;
  }
  return c4p::HopState::kNotProbed;
}

PathObservation Observed(const agent::ProbeResult& result) {
  std::vector<c4p::SeenHop> hops;
  hops.reserve(result.hops.size());
  for (const agent::ProbedHop& hop : result.hops) hops.push_back({hop.ttl, StateOf(hop.status), hop.address});
  return c4p::Observe(result.tuple, hops);
}

// A master without its gRPC: the parts, and an agent's prober in every host.
class Mapper {
 public:
  explicit Mapper(const FabricSpec& spec) : spec_(spec), plan({}) {
    agent::ProberOptions options;
    options.per_second = kPacketsPerSecond;
    options.burst = 128;
    options.tries = 4;
    options.first_wait_ms = 20;
    for (int host = 0; host < fabric::HostCount(spec); ++host) {
      c4p::PlanAgent one = {fabric::HostName(host), {}, kPacketsPerSecond};
      int plane = 0;
      for (const std::string& address : fabric::HostAddresses(spec, host)) {
        one.addresses.push_back(Address(address));
        learner.AddNic(one.server, absl::StrCat("eth", plane), Address(address), plane);
        ++plane;
      }
      agents_.push_back(std::move(one));
      probers_[fabric::HostName(host)] =
          std::make_unique<HostProber>(fabric::HostNamespace(spec, host), options);
    }
    plan.SetNetwork(agents_, topology, false);
  }

  // Until the plan has nothing more to ask, and what it has led to changes nothing. In a fabric that has just
  // come up a router leaves out neighbours that it does not know yet, so that ways change while they are
  // probed: what is learnt of the network then must be right all the same, single paths need not be.
  void Run() {
    for (int round = 0; round < 200; ++round) {
      RunOrders();
      if (!plan.done()) continue;
      const Topology next = learner.Learn(&topology);
      const bool same = TopologyJson(next) == TopologyJson(topology);
      topology = next;
      plan.SetNetwork(agents_, topology, false);
      if (same && plan.done()) return;
    }
    ADD_FAILURE() << "the plan does not come to an end";
  }
  void Again() {
    learner.BeginRound();
    plan.Restart();
    seen.clear();
    Run();
  }

 private:
  void RunOrders() {
    const std::vector<c4p::PlannedOrder> orders = plan.Next(NowNs());
    if (orders.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // All agents at once, each its orders one after the other.
    std::map<std::string, std::vector<const c4p::PlannedOrder*>> by_server;
    for (const c4p::PlannedOrder& order : orders) by_server[order.server].push_back(&order);
    std::vector<std::future<std::vector<agent::ProbeResult>>> answers;
    answers.reserve(by_server.size());
    for (const auto& [server, own] : by_server) {
      answers.push_back(std::async(std::launch::async, [this, &server = server, &own = own] {
        std::vector<agent::ProbeResult> all;
        for (const c4p::PlannedOrder* order : own) {
          for (agent::ProbeResult& result :
               probers_.at(server)->Ask(order->tuples, order->first_ttl, order->last_ttl)) {
            all.push_back(std::move(result));
          }
        }
        return all;
      }));
    }
    for (auto& answer : answers) {
      for (const agent::ProbeResult& result : answer.get()) {
        const PathObservation one = Observed(result);
        const bool failed = result.fault != agent::ProbeFault::kNone;
        if (!failed) {
          learner.Add(one);
          catalogue.Record(one, NowNs());
          seen.push_back(one);
        }
        plan.Reported(one, failed);
      }
    }
  }

  const FabricSpec spec_;
  std::vector<c4p::PlanAgent> agents_;
  std::map<std::string, std::unique_ptr<HostProber>> probers_;

 public:
  c4p::TopologyLearner learner;
  Topology topology;
  c4p::Catalogue catalogue;
  c4p::ProbePlan plan;
  std::vector<PathObservation> seen;  // of this round
};

class ProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    Fabric::Down(kName).IgnoreError();  // what an earlier run left
  }
  void TearDown() override {
    if (fabric::CheckRights().ok()) Fabric::Down(kName).IgnoreError();
  }

  Fabric MustUp(int leaves, int spines, int hosts, Ports ports = Ports::kOne) {
    spec_.name = kName;
    spec_.leaves = leaves;
    spec_.spines = spines;
    spec_.hosts_per_leaf = hosts;
    spec_.ports = ports;
    absl::StatusOr<Fabric> made = Fabric::Up(spec_);
    if (!made.ok()) throw std::runtime_error(made.status().ToString());
    return *std::move(made);
  }

  static std::vector<std::string> LinksOf(const fabric::Path& path) {
    std::vector<std::string> names;
    const std::string from = fabric::HostName(path.source_host), to = fabric::HostName(path.destination_host);
    names.push_back(absl::StrCat(from, ">leaf", path.source_leaf));
    if (path.spine >= 0) {
      names.push_back(absl::StrCat("leaf", path.source_leaf, ">spine", path.spine));
      names.push_back(absl::StrCat("leaf", path.destination_leaf, "<spine", path.spine));
    }
    names.push_back(absl::StrCat(to, "<leaf", path.destination_leaf));
    return names;
  }

  std::vector<fabric::Path> Oracle(const Mapper& mapper) const {
    std::vector<fabric::FiveTuple> tuples;
    std::vector<int> leaves;
    for (const PathObservation& one : mapper.seen) {
      tuples.push_back(OracleTuple(one.tuple));
      leaves.push_back(static_cast<int>(one.hops.egress.v4() >> 16 & 255));  // 10.LEAF.slot.1
    }
    auto paths = fabric::PathsOf(spec_, tuples, spec_.ports == Ports::kBonded ? leaves : std::vector<int>());
    EXPECT_TRUE(paths.ok()) << paths.status();
    return paths.ok() ? *std::move(paths) : std::vector<fabric::Path>(mapper.seen.size());
  }

  // Every learnt path against the oracle; gives those over a spine that are not named. Within a leaf the
  // second hop is a host, which rations what it says of closed ports.
  std::vector<fabric::Path> Compare(const Mapper& mapper) const {
    const std::vector<fabric::Path> oracle = Oracle(mapper);
    std::vector<fabric::Path> unnamed;
    size_t right = 0, unnamed_within = 0;
    for (size_t i = 0; i < mapper.seen.size(); ++i) {
      const PathObservation& one = mapper.seen[i];
      const auto path = mapper.catalogue.Links(mapper.topology, one.tuple, NowNs());
      EXPECT_TRUE(path.ok()) << path.status();
      if (!path.ok() || !path->has_value() || !one.names_path()) {
        if (oracle[i].spine >= 0) unnamed.push_back(oracle[i]);
        unnamed_within += oracle[i].spine >= 0 ? 0 : 1;
        continue;
      }
      EXPECT_TRUE((*path)->complete) << TupleText(one.tuple);
      std::vector<std::string> names;
      for (const c4p::LinkId link : (*path)->links) names.push_back(mapper.topology.LinkName(link));
      EXPECT_EQ(names, LinksOf(oracle[i])) << TupleText(one.tuple);
      right += names == LinksOf(oracle[i]) ? 1 : 0;
    }
    const size_t not_named = unnamed.size() + unnamed_within;
    printf("%zu of %zu named paths are the oracle's; %zu over a spine and %zu within a leaf not named\n",
           right, mapper.seen.size() - not_named, unnamed.size(), unnamed_within);
    return unnamed;
  }

  static std::vector<std::string> Faulty(const Topology& topology) {
    std::vector<std::string> names;
    for (const c4p::LinkId link : topology.AllLinks()) {
      const std::string name = topology.LinkName(link);
      if (topology.IsFaulty(link) && name.find('>') != std::string::npos) names.push_back(name);
    }
    return names;
  }

  void Quiet(const std::string& ns) {
    const absl::Status done = fabric::RunNft(
        {ns,
         "table ip quiet { chain out { type filter hook output priority 0; ip protocol icmp drop; }; }\n"});
    ASSERT_TRUE(done.ok()) << done;
  }

  // The whole network was found, and all of its ways were seen.
  void ExpectAll(const Mapper& mapper, int pairs) const {
    EXPECT_EQ(mapper.topology.leaves().size(), static_cast<size_t>(spec_.leaves));
    EXPECT_EQ(mapper.topology.spines().size(), static_cast<size_t>(spec_.spines));
    EXPECT_EQ(mapper.topology.uplinks().size(), static_cast<size_t>(spec_.leaves * spec_.spines));
    EXPECT_EQ(mapper.topology.ports().size(),
              static_cast<size_t>(fabric::HostCount(spec_) * fabric::PortsPerHost(spec_)));
    EXPECT_EQ(mapper.plan.coverage().possible, pairs * spec_.spines);
    EXPECT_EQ(mapper.plan.coverage().seen, pairs * spec_.spines);
    EXPECT_FALSE(mapper.learner.answers_by_switch());
    EXPECT_THAT(Faulty(mapper.topology), IsEmpty());
    EXPECT_THAT(mapper.learner.Contradictions(mapper.topology), IsEmpty());
  }

  FabricSpec spec_;
};

TEST_F(ProbeTest, OnePort) {
  MustUp(2, 4, 4);
  Mapper mapper(spec_);
  mapper.Run();
  mapper.Again();
  // And a pair that is asked for, whose protocol hashes otherwise.
  const FlowGroup group = {Tuple(IpProtocol::kTcp, fabric::HostAddresses(spec_, 1).front(), 0,
                                 fabric::HostAddresses(spec_, 6).front(), 5000)};
  ASSERT_FALSE(mapper.plan.Ask(group, 64, {}).empty());
  mapper.Run();
  EXPECT_TRUE(Compare(mapper).empty());
  ExpectAll(mapper, 2);
  EXPECT_EQ(mapper.catalogue.SteeringOf(group, 4), c4p::Steering::kByPort);
  // The kernel's hash is not linear: that must be noticed, not guessed around.
  EXPECT_NE(mapper.catalogue.LearnHash(group).state, c4p::LinearState::kVerified);
}

TEST_F(ProbeTest, Planes) {
  MustUp(4, 2, 2, Ports::kPlanes);
  Mapper mapper(spec_);
  mapper.Run();
  mapper.Again();
  EXPECT_TRUE(Compare(mapper).empty());
  ExpectAll(mapper, 12);
}

TEST_F(ProbeTest, Bonded) {
  MustUp(4, 2, 2, Ports::kBonded);
  Mapper mapper(spec_);
  mapper.Run();
  mapper.Again();
  EXPECT_TRUE(Compare(mapper).empty());
  ExpectAll(mapper, 8);
  // The oracle took the first leaf from the prober's word: the host's own counters tell.
  const IpTuple* tuple = nullptr;
  std::map<uint32_t, const PathObservation*> one_each;
  for (const PathObservation& one : mapper.seen) one_each.emplace(one.hops.egress.v4(), &one);
  EXPECT_EQ(one_each.size(), static_cast<size_t>(2 * fabric::HostCount(spec_))) << "both ports of every host";
  for (const auto& [egress, one] : one_each) {
    tuple = &one->tuple;
    const int host = fabric::HostOfAddress(spec_, IpText(tuple->source));
    const std::string ns = fabric::HostNamespace(spec_, host);
    const std::string device =
        absl::StrCat("eth", (egress >> 16 & 255) - static_cast<uint32_t>(fabric::LeafOfHost(spec_, host, 0)));
    agent::ProberOptions options;
    HostProber prober(ns, options);
    const auto before = SentPackets(ns);
    prober.Ask(std::vector<IpTuple>(20, *tuple), 1, 1);
    EXPECT_GE(SentPackets(ns).at(device) - before.at(device), 20U) << TupleText(*tuple);
  }
}

TEST_F(ProbeTest, ACutUplink) {
  Fabric fabric = MustUp(3, 4, 2);
  Mapper mapper(spec_);
  mapper.Run();
  mapper.Again();
  EXPECT_TRUE(Compare(mapper).empty());
  ASSERT_TRUE(fabric.Cut("leaf1-spine2").ok());
  mapper.Again();
  EXPECT_THAT(Faulty(mapper.topology), ElementsAre("leaf1>spine2"));
  const fabric::Link dead = fabric::UplinkOf(1, 2);
  for (const fabric::Path& path : Compare(mapper)) EXPECT_TRUE(Takes(path, dead));
  EXPECT_EQ(mapper.plan.coverage().possible, 6 * 4 - 4) << "two pairs of leaves and directions lack one";
  ASSERT_TRUE(fabric.Heal("leaf1-spine2").ok());
  mapper.Again();
  EXPECT_THAT(Faulty(mapper.topology), IsEmpty());
  EXPECT_TRUE(Compare(mapper).empty());
  // With converged routes other ports take other ways: the catalogue follows.
  ASSERT_TRUE(fabric.Break("leaf0-spine1").ok());
  mapper.Again();
  EXPECT_TRUE(Compare(mapper).empty());
  EXPECT_THAT(Faulty(mapper.topology), ElementsAre("leaf0>spine1"));
}

TEST_F(ProbeTest, SilentRouters) {
  MustUp(2, 2, 2);
  // One spine says nothing: hop 3 names it.
  Mapper mapper(spec_);
  mapper.Run();
  Quiet(fabric::SpineNamespace(spec_, 1));
  mapper.Again();
  EXPECT_TRUE(Compare(mapper).empty());
  EXPECT_THAT(Faulty(mapper.topology), IsEmpty());
  // Nobody says anything: no path is named, no link accused, and what works end to end is known.
  Quiet(fabric::SpineNamespace(spec_, 0));
  for (int leaf = 0; leaf < 2; ++leaf) Quiet(fabric::LeafNamespace(spec_, leaf));
  Mapper blind(spec_);
  const FlowGroup group = {Tuple(IpProtocol::kUdp, fabric::HostAddresses(spec_, 0).front(), 0,
                                 fabric::HostAddresses(spec_, 2).front(), 5000)};
  ASSERT_FALSE(blind.plan.Ask(group, 16, {}).empty());
  blind.Run();
  EXPECT_TRUE(blind.topology.uplinks().empty());
  EXPECT_THAT(Faulty(blind.topology), IsEmpty());
  EXPECT_THAT(blind.catalogue.Statement(group, 0), HasSubstr("paths known by behaviour only"));
}

}  // namespace
}  // namespace c4::net_test
