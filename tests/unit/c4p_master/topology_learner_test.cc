// The network learnt from what answered: the same as the one that answered, whatever the order, and dead
// links are found.
#include "c4p_master/topology_learner.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4p_master/topology_file.h"
#include "tests/unit/c4p_master/fake_fabric.h"

namespace c4::c4p {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void AddNics(const FakeFabric& fabric, TopologyLearner* learner) {
  for (int host = 0; host < fabric.hosts(); ++host) {
    int plane = 0;
    for (const service::IpAddress address : fabric.Addresses(host)) {
      learner->AddNic(FakeFabric::Name("host", host), FakeFabric::Name("eth", plane), address, plane);
      ++plane;
    }
  }
}

// Across planes too: only so does it show that they share their spines.
std::vector<PathObservation> Mesh(FakeFabric* fabric, int ports) {
  std::vector<PathObservation> seen;
  for (int from = 0; from < fabric->hosts(); ++from) {
    for (int to = 0; to < fabric->hosts(); ++to) {
      if (from == to) continue;
      for (const service::IpAddress source : fabric->Addresses(from)) {
        for (const service::IpAddress destination : fabric->Addresses(to)) {
          for (int port = 40000; port < 40000 + ports; ++port) {
            seen.push_back(fabric->Probe(
                {service::IpProtocol::kUdp, source, static_cast<uint16_t>(port), destination, 4791}));
          }
        }
      }
    }
  }
  return seen;
}

void ExpectRightLinks(FakeFabric* fabric, const Topology& topology,
                      const std::vector<PathObservation>& seen) {
  for (const PathObservation& one : seen) {
    const absl::StatusOr<FabricPath> path = topology.Resolve(one.tuple, one.hops);
    ASSERT_TRUE(path.ok()) << path.status();
    ASSERT_TRUE(path->complete) << TupleText(one.tuple);
    std::vector<std::string> names;
    for (const LinkId link : path->links) names.push_back(topology.LinkName(link));
    ASSERT_EQ(names, fabric->PathOf(one.tuple).links) << TupleText(one.tuple);
  }
}

struct Shape {
  const char* name;
  FakeSpec spec;
};

class LearnerTest : public testing::TestWithParam<Shape> {};

TEST_P(LearnerTest, LearnsTheNetworkThatAnswers) {
  FakeFabric fabric(GetParam().spec);
  const FakeSpec& spec = GetParam().spec;
  TopologyLearner learner;
  AddNics(fabric, &learner);
  const std::vector<PathObservation> seen = Mesh(&fabric, 24 * spec.spines);
  for (const PathObservation& one : seen) learner.Add(one);
  const Topology topology = learner.Learn(nullptr);
  EXPECT_EQ(learner.answers_by_switch(), spec.one_address);
  EXPECT_EQ(topology.leaves().size(), static_cast<size_t>(spec.leaves));
  EXPECT_EQ(topology.spines().size(), static_cast<size_t>(spec.spines));
  EXPECT_EQ(topology.uplinks().size(), static_cast<size_t>(spec.leaves * spec.spines));
  EXPECT_EQ(topology.servers().size(), static_cast<size_t>(fabric.hosts()));
  EXPECT_EQ(topology.ports().size(), static_cast<size_t>(fabric.hosts() * fabric.per_host()));
  ExpectRightLinks(&fabric, topology, seen);
  for (const LinkId link : topology.AllLinks())
    EXPECT_FALSE(topology.IsFaulty(link)) << topology.LinkName(link);
  // It agrees with itself, and survives being written down.
  const absl::StatusOr<Topology> read = ParseTopology(TopologyJson(topology));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(TopologyJson(*read), TopologyJson(topology));
  EXPECT_THAT(learner.Contradictions(*read), IsEmpty());
  // The order of the probes does not matter.
  std::mt19937_64 random(7);
  for (int round = 0; round < 3; ++round) {
    std::vector<PathObservation> shuffled = seen;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    TopologyLearner other;
    for (const PathObservation& one : shuffled) other.Add(one);
    AddNics(fabric, &other);
    EXPECT_EQ(TopologyJson(other.Learn(nullptr)), TopologyJson(topology));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LearnerTest,
    testing::Values(
        Shape{"one_port", {2, 4, 4}}, Shape{"four_leaves", {4, 2, 2}}, Shape{"one_spine", {3, 1, 2}},
        Shape{"planes", {4, 2, 2, FakePorts::kPlanes}}, Shape{"bonded", {4, 2, 2, FakePorts::kBonded}},
        Shape{"bonded_one_host", {4, 3, 1, FakePorts::kBonded}},
        Shape{"slash_30", {3, 4, 2, FakePorts::kOne, FakeHash::kMixed, true}},
        Shape{"bonded_slash_30", {4, 2, 2, FakePorts::kBonded, FakeHash::kMixed, true}},
        Shape{"one_address", {3, 4, 2, FakePorts::kOne, FakeHash::kMixed, false, true}},
        Shape{"ipv6", {.leaves = 3, .spines = 4, .hosts_per_leaf = 2, .ipv6 = true}},
        Shape{"ipv6_planes", {.leaves = 4, .spines = 2, .ports = FakePorts::kPlanes, .ipv6 = true}},
        Shape{"ipv6_bonded",
              {.leaves = 4, .spines = 2, .hosts_per_leaf = 2, .ports = FakePorts::kBonded, .ipv6 = true}},
        Shape{"ipv6_slash_126", {.leaves = 3, .spines = 4, .slash_30 = true, .ipv6 = true}},
        Shape{"ipv6_one_address", {.leaves = 3, .spines = 4, .one_address = true, .ipv6 = true}}),
    [](const auto& shape) { return shape.param.name; });

TEST(TopologyLearnerTest, ProbesFromOneServerAloneShowTheFarLeafAsOne) {
  FakeFabric fabric({2, 4, 2});
  TopologyLearner learner;
  AddNics(fabric, &learner);
  for (int port = 0; port < 64; ++port) learner.Add(fabric.Probe(fabric.Tuple(0, 2, 40000 + port)));
  const Topology topology = learner.Learn(nullptr);
  EXPECT_EQ(topology.leaves().size(), 2U);
  EXPECT_EQ(topology.spines().size(), 4U);
  EXPECT_EQ(topology.uplinks().size(), 8U);
}

TEST(TopologyLearnerTest, NamesStayWhenMoreIsLearnt) {
  FakeFabric fabric({4, 3, 1});
  TopologyLearner learner;
  AddNics(fabric, &learner);
  // First the last two leaves only.
  for (int port = 0; port < 64; ++port) {
    learner.Add(fabric.Probe(fabric.Tuple(2, 3, 40000 + port)));
    learner.Add(fabric.Probe(fabric.Tuple(3, 2, 40000 + port)));
  }
  const Topology before = learner.Learn(nullptr);
  ASSERT_EQ(before.leaves().size(), 2U);
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  const Topology after = learner.Learn(&before);
  EXPECT_EQ(after.leaves().size(), 4U);
  for (const Uplink& uplink : before.uplinks()) {
    const int now = after.UplinkAt(uplink.spine_address);
    ASSERT_GE(now, 0);
    EXPECT_EQ(after.LinkName(after.UplinkLink(now, true)),
              before.LinkName(before.UplinkLink(before.UplinkAt(uplink.spine_address), true)));
  }
}

std::vector<std::string> FaultyUplinks(const Topology& topology) {
  std::vector<std::string> names;
  for (int uplink = 0; uplink < static_cast<int>(topology.uplinks().size()); ++uplink) {
    if (topology.uplinks()[static_cast<size_t>(uplink)].faulty) {
      names.push_back(topology.LinkName(topology.UplinkLink(uplink, true)));
    }
  }
  return names;
}

TEST(TopologyLearnerTest, ADeadLinkIsMarkedAndAHealedOneIsNot) {
  for (const FakePorts ports : {FakePorts::kOne, FakePorts::kPlanes, FakePorts::kBonded}) {
    FakeFabric fabric({4, 4, 2, ports});
    TopologyLearner learner;
    AddNics(fabric, &learner);
    for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
    const Topology whole = learner.Learn(nullptr);
    EXPECT_THAT(FaultyUplinks(whole), IsEmpty());
    fabric.Cut(1, 2);
    learner.BeginRound();
    for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
    EXPECT_THAT(FaultyUplinks(learner.Learn(&whole)), ElementsAre("leaf1>spine2"));
    Topology file = whole;  // as if it came from a file
    learner.MarkFaults(&file, nullptr);
    EXPECT_THAT(FaultyUplinks(file), ElementsAre("leaf1>spine2"));
    fabric.Heal(1, 2);
    learner.BeginRound();
    for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
    EXPECT_THAT(FaultyUplinks(learner.Learn(&whole)), IsEmpty());
    learner.MarkFaults(&file, nullptr);
    EXPECT_THAT(FaultyUplinks(file), IsEmpty());
  }
}

TEST(TopologyLearnerTest, ALinkThatWasDeadFromTheStartIsFound) {
  FakeFabric fabric({2, 4, 2});
  fabric.Cut(1, 2);
  TopologyLearner learner;
  AddNics(fabric, &learner);
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  const Topology topology = learner.Learn(nullptr);
  EXPECT_THAT(FaultyUplinks(topology), ElementsAre("leaf1>spine2"));
  EXPECT_EQ(topology.uplinks().size(), 8U);
}

TEST(TopologyLearnerTest, SilenceAloneCondemnsNoLink) {
  FakeFabric fabric({2, 4, 2});
  TopologyLearner learner;
  AddNics(fabric, &learner);
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  const Topology whole = learner.Learn(nullptr);
  // A spine that no longer answers is still named by hop 3; when all is silent nothing is said.
  fabric.Silence('s', 1);
  learner.BeginRound();
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  EXPECT_THAT(FaultyUplinks(learner.Learn(&whole)), IsEmpty());
  for (const int number : {0, 1, 2, 3}) fabric.Silence('s', number);
  for (const int number : {0, 1}) fabric.Silence('l', number);
  learner.BeginRound();
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  EXPECT_THAT(FaultyUplinks(learner.Learn(&whole)), IsEmpty());
}

// Routes that change while a tuple is probed: hops of two ways in one observation.
TEST(TopologyLearnerTest, AMixtureOfTwoWaysIsOutvoted) {
  for (const FakePorts ports : {FakePorts::kOne, FakePorts::kPlanes, FakePorts::kBonded}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      FakeFabric fabric({4, 4, 2, ports});
      TopologyLearner clean, mixed;
      AddNics(fabric, &clean);
      AddNics(fabric, &mixed);
      std::vector<PathObservation> all = Mesh(&fabric, 64);
      for (const PathObservation& one : all) clean.Add(one);
      std::mt19937_64 random(seed);
      for (int i = 0; i < 20; ++i) {
        PathObservation& one = all[random() % all.size()];
        service::IpTuple tuple = one.tuple;
        tuple.source_port = static_cast<uint16_t>(50000 + i);
        const PathObservation other = fabric.Probe(tuple);
        if (one.hops.within_leaf || other.hops.within_leaf) continue;
        service::IpAddress HopPath::*const hop = i % 2 == 0 ? &HopPath::egress : &HopPath::remote;
        one.hops.*hop = other.hops.*hop;
      }
      for (const PathObservation& one : all) mixed.Add(one);
      EXPECT_EQ(TopologyJson(mixed.Learn(nullptr)), TopologyJson(clean.Learn(nullptr)));
      EXPECT_THAT(mixed.Contradictions(clean.Learn(nullptr)), IsEmpty());
    }
  }
}

// A server rations what it says of closed ports; such silence has nothing to do with uplinks.
TEST(TopologyLearnerTest, SilenceWithinALeafCondemnsNoLink) {
  FakeFabric fabric({2, 4, 2});
  TopologyLearner learner;
  AddNics(fabric, &learner);
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  const Topology whole = learner.Learn(nullptr);
  learner.BeginRound();
  learner.Add(fabric.Probe(fabric.Tuple(0, 2, 40000)));
  for (int port = 40000; port < 40100; ++port) {
    const SeenHop hops[] = {{1, HopState::kAnswered, fabric.Gateway(0, 0)},
                            {2, HopState::kSilent, {}},
                            {3, HopState::kSilent, {}}};
    learner.Add(Observe(fabric.Tuple(0, 1, port), hops));
  }
  EXPECT_THAT(FaultyUplinks(learner.Learn(&whole)), IsEmpty());
}

TEST(TopologyLearnerTest, WhereTheFileIsWrongItIsSaid) {
  FakeFabric fabric({2, 2, 2});
  TopologyLearner learner;
  AddNics(fabric, &learner);
  for (const PathObservation& one : Mesh(&fabric, 64)) learner.Add(one);
  std::string text = TopologyJson(learner.Learn(nullptr));
  const auto swap = [&text](const std::string& a, const std::string& b) {
    const size_t at_a = text.find(a), at_b = text.find(b);
    ASSERT_NE(at_a, std::string::npos);
    ASSERT_NE(at_b, std::string::npos);
    ASSERT_EQ(a.size(), b.size());
    text.replace(at_a, a.size(), b);
    text.replace(at_b, b.size(), a);
  };
  {  // two servers exchanged
    const std::string kept = text;
    swap("\"10.0.0.2\"", "\"10.1.0.2\"");
    const absl::StatusOr<Topology> file = ParseTopology(text);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::vector<std::string> said = learner.Contradictions(*file);
    EXPECT_THAT(said, Contains(HasSubstr("10.0.0.2 is host2's by the file, and host0's says its agent")));
    EXPECT_THAT(said, Contains(HasSubstr("host0's eth0 hangs on leaf0, which the file does not say")));
    text = kept;
  }
  {  // two cables exchanged
    const std::string kept = text;
    swap("\"172.16.0.1\"", "\"172.17.1.1\"");
    const absl::StatusOr<Topology> file = ParseTopology(text);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(learner.Contradictions(*file),
                Contains(HasSubstr("172.16.0.1 faces leaf0, and leaf1 by the file")));
    text = kept;
  }
  {  // an address that nobody has
    const std::string kept = text;
    swap("\"172.16.1.1\"", "\"172.16.1.1\"");
    text.replace(text.find("\"172.16.1.1\""), 12, "\"172.16.1.9\"");
    const absl::StatusOr<Topology> file = ParseTopology(text);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(learner.Contradictions(*file),
                Contains(HasSubstr("172.16.1.1 answers as a spine, and is none")));
    text = kept;
  }
}

}  // namespace
}  // namespace c4::c4p
