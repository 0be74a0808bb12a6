// What is known of paths: three providers in their order, contradictions counted, and flows that ports do not
// steer noticed.
#include "c4p_master/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4p_master/topology_file.h"
#include "tests/unit/c4p_master/fake_fabric.h"

namespace c4::c4p {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

// Ports as the plan draws them: spread over the reserved range. From ports that agree in some bits nothing
// follows for those that differ there.
int SpreadPort(int i) {
  return 49152 + static_cast<int>(service::MixBits(static_cast<uint64_t>(i)) % 8192);
}

TEST(ProbedPathsTest, NewsReplacesAndIsCountedLessNewsTakesNothingAway) {
  FakeFabric fabric({2, 4, 1});
  ProbedPaths paths({});
  const service::IpTuple tuple = fabric.Tuple(0, 1, 40000);
  const PathObservation seen = fabric.Probe(tuple);
  EXPECT_EQ(paths.Record(seen, 1), Recorded::kNew);
  EXPECT_EQ(paths.Record(seen, 2), Recorded::kSame);
  PathObservation less = seen;
  less.hops.egress = {};
  less.hops.remote = {};
  EXPECT_EQ(paths.Record(less, 3), Recorded::kSame);
  EXPECT_EQ(paths.Find(tuple, 3)->hops, seen.hops);
  PathObservation other = seen;
  other.hops.spine.low ^= 1U << 8;
  EXPECT_EQ(paths.Record(other, 4), Recorded::kChanged);
  EXPECT_EQ(paths.changes(), 1U);
  EXPECT_EQ(paths.Find(tuple, 4)->hops.spine, other.hops.spine);
  PathObservation nothing;
  nothing.tuple = tuple;
  EXPECT_EQ(paths.Record(nothing, 5), Recorded::kNothing);
  EXPECT_TRUE(paths.Find(tuple, 5)->doubtful) << "silence is a reason to look again, not to forget";
}

TEST(ProbedPathsTest, EntriesAgeAndTheOldestMakeRoom) {
  FakeFabric fabric({2, 4, 1});
  ProbedOptions options;
  options.fresh_ns = 100;
  options.keep_ns = 1000;
  options.max_entries = 100;
  ProbedPaths paths(options);
  for (int i = 0; i < 100; ++i) paths.Record(fabric.Probe(fabric.Tuple(0, 1, 40000 + i)), i);
  EXPECT_FALSE(paths.Find(fabric.Tuple(0, 1, 40000), 100)->doubtful);
  EXPECT_TRUE(paths.Find(fabric.Tuple(0, 1, 40000), 101)->doubtful);
  EXPECT_FALSE(paths.Find(fabric.Tuple(0, 1, 40000), 1001).has_value());
  // What misbehaves comes first, then the oldest.
  paths.Doubt(fabric.Tuple(0, 1, 40050));
  const std::vector<service::IpTuple> again = paths.Doubtful({GroupOf(fabric.Tuple(0, 1, 40000))}, 103, 3);
  EXPECT_EQ(paths.Doubtful({}, 103, 3).size(), 0U) << "nobody uses them";
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].source_port, 40050);
  EXPECT_EQ(again[1].source_port, 40000);
  EXPECT_EQ(again[2].source_port, 40001);
  paths.Record(fabric.Probe(fabric.Tuple(0, 1, 50000)), 200);
  EXPECT_LE(paths.size(), 100U);
  EXPECT_FALSE(paths.Find(fabric.Tuple(0, 1, 40001), 200).has_value());
  EXPECT_TRUE(paths.Find(fabric.Tuple(0, 1, 40099), 200).has_value());
  EXPECT_TRUE(paths.Find(fabric.Tuple(0, 1, 50000), 200).has_value());
  paths.Expire(10000);
  EXPECT_EQ(paths.size(), 0U);
}

TEST(ProbedPathsTest, PathsOverALinkAreFoundTheNewestFirst) {
  FakeFabric fabric({2, 4, 1});
  ProbedPaths paths({});
  std::vector<int> over;  // ports, the newest first
  for (int i = 0; i < 64; ++i) {
    const service::IpTuple tuple = fabric.Tuple(0, 1, 40000 + i);
    paths.Record(fabric.Probe(tuple), 1 + i);
    if (fabric.PathOf(tuple).spine == 2) over.insert(over.begin(), 40000 + i);
  }
  ASSERT_GE(over.size(), 5U);
  const std::vector<service::IpTuple> found = paths.Through({fabric.Upper(0, 2)}, 4);
  ASSERT_EQ(found.size(), 4U);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].source_port, over[i]);
  EXPECT_EQ(paths.Through({fabric.Upper(0, 2)}, 100).size(), over.size());
  EXPECT_TRUE(paths.Through({}, 100).empty());
}

TEST(AffineMapTest, EveryAffineFunctionOfThePortIsLearnt) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const int bits = 1 + round % 6;
    std::array<uint32_t, 16> columns{};
    for (uint32_t& column : columns) column = static_cast<uint32_t>(random() % (1U << bits));
    const auto offset = static_cast<uint32_t>(random() % (1U << bits));
    // What the ways are called has nothing to do with the hash.
    std::vector<service::IpAddress> names(1U << bits);
    for (service::IpAddress& name : names) name = {random(), random()};
    const auto way = [&](uint16_t port) {
      uint32_t hash = offset;
      for (int bit = 0; bit < 16; ++bit)
        hash ^= (port >> bit & 1) != 0 ? columns[static_cast<size_t>(bit)] : 0;
      return names[hash];
    };
    std::vector<AffineMap::Sample> samples;
    for (int i = 0; i < 64 + (1 << bits) * 8; ++i) {
      const auto port = static_cast<uint16_t>(random());
      samples.emplace_back(port, way(port));
    }
    const AffineMap map = AffineMap::Fit(samples);
    ASSERT_TRUE(map.consistent());
    EXPECT_LE(map.bits(), bits);
    int known = 0;
    for (int port = 0; port < 65536; ++port) {
      const std::optional<service::IpAddress> predicted = map.Predict(static_cast<uint16_t>(port));
      if (!predicted.has_value()) continue;
      ++known;
      ASSERT_EQ(*predicted, way(static_cast<uint16_t>(port)));
    }
    EXPECT_GT(known, 65536 * 9 / 10);
  }
}

TEST(LinearPathsTest, LearntWhereTheHashIsLinearAndOnlyThere) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (const FakePorts ports : {FakePorts::kOne, FakePorts::kBonded}) {
      for (const FakeHash hash : {FakeHash::kLinear, FakeHash::kMixed}) {
        SCOPED_TRACE(seed);
        FakeSpec spec = {4, 8, 1, ports, hash};
        spec.seed = seed;
        FakeFabric fabric(spec);
        LinearPaths paths;
        const int to = fabric.hosts() - 1;
        for (int i = 0; i < 600; ++i) {
          paths.Add(fabric.Probe(fabric.Tuple(
                        0, to, 49152 + static_cast<int>(service::MixBits(seed * 1000 + i) % 8192))),
                    1);
        }
        const LinearVerdict verdict = paths.Learn(GroupOf(fabric.Tuple(0, to, 1)));
        if (hash == FakeHash::kMixed) {
          EXPECT_EQ(verdict.state, LinearState::kNotLinear);
          EXPECT_THAT(verdict.text(), HasSubstr("not linear"));
          EXPECT_FALSE(paths.Find(fabric.Tuple(0, to, 50000), 2).has_value()) << "not even for a port it saw";
          continue;
        }
        ASSERT_EQ(verdict.state, LinearState::kVerified) << verdict.text();
        int known = 0;
        for (int port = 49152; port < 57344; ++port) {
          const service::IpTuple tuple = fabric.Tuple(0, to, port);
          const std::optional<KnownPath> path = paths.Find(tuple, 2);
          if (!path.has_value()) continue;
          ++known;
          ASSERT_EQ(path->hops, fabric.Probe(tuple).hops);
          ASSERT_EQ(path->origin, PathOrigin::kPredicted);
        }
        EXPECT_GT(known, 7000);
      }
    }
  }
}

TEST(LinearPathsTest, TooFewProbesAndASingleContradiction) {
  FakeSpec spec = {2, 4, 1, FakePorts::kOne, FakeHash::kLinear};
  FakeFabric fabric(spec);
  LinearPaths paths;
  const FlowGroup group = GroupOf(fabric.Tuple(0, 1, 1));
  for (int i = 0; i < 20; ++i) paths.Add(fabric.Probe(fabric.Tuple(0, 1, SpreadPort(i))), 1);
  EXPECT_EQ(paths.Learn(group).state, LinearState::kTooFew);
  for (int i = 0; i < 200; ++i) paths.Add(fabric.Probe(fabric.Tuple(0, 1, SpreadPort(i))), 1);
  ASSERT_EQ(paths.Learn(group).state, LinearState::kVerified);
  ASSERT_TRUE(paths.Find(fabric.Tuple(0, 1, 51000), 1).has_value());
  const HopPath before = fabric.Probe(fabric.Tuple(0, 1, 51000)).hops;
  while (fabric.Probe(fabric.Tuple(0, 1, 51000)).hops == before) fabric.Rehash();
  int probes = 0;
  while (paths.dropped() == 0 && probes < 100)
    paths.Add(fabric.Probe(fabric.Tuple(0, 1, 51000 + probes++)), 2);
  EXPECT_LT(probes, 30);
  EXPECT_FALSE(paths.Find(fabric.Tuple(0, 1, 52000), 2).has_value());
}

TEST(CatalogueTest, PortsThatDoNotSteerAreNoticed) {
  const struct {
    FakeHash hash;
    Steering steering;
    const char* said;
  } cases[] = {{FakeHash::kMixed, Steering::kByPort, ""},
               {FakeHash::kIgnoresPorts, Steering::kIgnoresPort, "source ports do not steer: all 32"},
               {FakeHash::kSprays, Steering::kSprayed, "adaptive routing or packet spraying"}};
  for (const auto& one : cases) {
    FakeFabric fabric({2, 4, 1, FakePorts::kOne, one.hash});
    Catalogue catalogue;
    const FlowGroup group = GroupOf(fabric.Tuple(0, 1, 1));
    EXPECT_EQ(catalogue.SteeringOf(group, 4), Steering::kNotKnown);
    for (int port = 0; port < 32; ++port) {
      for (int time = 0; time < (port < 16 ? 2 : 1); ++time) {
        catalogue.Record(fabric.Probe(fabric.Tuple(0, 1, 40000 + port)), kSecondNs);
      }
    }
    EXPECT_EQ(catalogue.SteeringOf(group, 4), one.steering);
    const std::string said = catalogue.Statement(group, 4);
    if (*one.said == '\0') {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_THAT(said, HasSubstr(one.said));
    }
  }
}

// Not every probe asks the first hop.
TEST(CatalogueTest, APortThatSaysNothingOfItsLeafIsNotAnotherWay) {
  FakeFabric fabric({2, 4, 1, FakePorts::kOne, FakeHash::kIgnoresPorts});
  Catalogue catalogue;
  for (int port = 0; port < 32; ++port) {
    PathObservation seen = fabric.Probe(fabric.Tuple(0, 1, 40000 + port));
    if (port % 2 == 0) seen.hops.egress = {};
    if (port % 3 == 0) seen.hops.remote = {};
    catalogue.Record(seen, kSecondNs);
  }
  EXPECT_EQ(catalogue.SteeringOf(GroupOf(fabric.Tuple(0, 1, 1)), 4), Steering::kIgnoresPort);
}

TEST(CatalogueTest, AChangeOfRoutesIsNoSpraying) {
  FakeFabric fabric({2, 4, 1});
  Catalogue catalogue;
  const FlowGroup group = GroupOf(fabric.Tuple(0, 1, 1));
  for (int round = 0; round < 4; ++round) {
    if (round == 2) fabric.Rehash();
    for (int port = 0; port < 32; ++port) {
      catalogue.Record(fabric.Probe(fabric.Tuple(0, 1, 40000 + port)), round * 60 * kSecondNs + kSecondNs);
    }
  }
  EXPECT_GT(catalogue.probed().changes(), 10U);
  EXPECT_EQ(catalogue.SteeringOf(group, 4), Steering::kByPort);
}

TEST(CatalogueTest, WhereAllIsSilentPathsAreKnownByBehaviour) {
  FakeFabric fabric({2, 4, 1});
  for (int number = 0; number < 4; ++number) fabric.Silence('s', number);
  for (int number = 0; number < 2; ++number) fabric.Silence('l', number);
  fabric.Cut(0, 1);
  Catalogue catalogue;
  const FlowGroup group = GroupOf(fabric.Tuple(0, 1, 1));
  for (int port = 40000; port < 40064; ++port) {
    catalogue.Record(fabric.Probe(fabric.Tuple(0, 1, port)), kSecondNs);
    catalogue.RecordEndToEnd(fabric.Tuple(0, 1, port), fabric.Arrives(fabric.Tuple(0, 1, port)), kSecondNs);
  }
  EXPECT_EQ(catalogue.SteeringOf(group, 4), Steering::kSilent);
  EXPECT_THAT(catalogue.Statement(group, 4), HasSubstr("paths known by behaviour only"));
  const std::vector<uint16_t> healthy = catalogue.HealthyPorts(group);
  EXPECT_GT(healthy.size(), 30U);
  EXPECT_LT(healthy.size(), 64U);
  for (const uint16_t port : healthy) EXPECT_NE(fabric.PathOf(fabric.Tuple(0, 1, port)).spine, 1);
  EXPECT_FALSE(catalogue.Find(fabric.Tuple(0, 1, 40000), kSecondNs).has_value());
}

// Whose flows are over is forgotten.
TEST(CatalogueTest, WhatWorkedIsForgottenWithThePaths) {
  Catalogue catalogue(ProbedOptions{.fresh_ns = 10, .keep_ns = 100});
  const service::IpTuple tuple = {service::IpProtocol::kTcp, service::IpAddress::V4(1), 50001,
                                  service::IpAddress::V4(2), 5000};
  catalogue.RecordEndToEnd(tuple, true, 1000);
  catalogue.Expire(1100);
  EXPECT_EQ(catalogue.HealthOf(tuple), Health::kWorks);
  catalogue.Expire(1101);
  EXPECT_EQ(catalogue.HealthOf(tuple), Health::kNotKnown);
}

TEST(CatalogueTest, TheProvidersComeInTheirOrder) {
  FakeSpec spec = {2, 4, 1, FakePorts::kOne, FakeHash::kLinear};
  FakeFabric fabric(spec);
  ProbedOptions options;
  options.fresh_ns = 10 * kSecondNs;
  Catalogue catalogue(options);
  const FlowGroup group = GroupOf(fabric.Tuple(0, 1, 1));
  for (int i = 0; i < 300; ++i) catalogue.Record(fabric.Probe(fabric.Tuple(0, 1, SpreadPort(i))), kSecondNs);
  const auto seen = static_cast<uint16_t>(SpreadPort(7)), other = static_cast<uint16_t>(SpreadPort(8));
  uint16_t unseen = 51001;
  while (catalogue.probed().SeenNs(fabric.Tuple(0, 1, unseen)) != 0) ++unseen;
  EXPECT_EQ(catalogue.LearnHash(group).state, LinearState::kVerified);
  EXPECT_EQ(catalogue.Find(fabric.Tuple(0, 1, seen), 2 * kSecondNs)->origin, PathOrigin::kProbed);
  EXPECT_EQ(catalogue.Find(fabric.Tuple(0, 1, unseen), 2 * kSecondNs)->origin, PathOrigin::kPredicted);
  EXPECT_EQ(catalogue.KnownPorts(group, {seen, unseen}, 2 * kSecondNs).size(), 2U);
  // A dead tuple's path is doubtful, and says so.
  catalogue.RecordEndToEnd(fabric.Tuple(0, 1, seen), false, 2 * kSecondNs);
  EXPECT_TRUE(catalogue.Find(fabric.Tuple(0, 1, seen), 2 * kSecondNs)->doubtful);
  EXPECT_EQ(catalogue.KnownPorts(group, {seen, other}, 2 * kSecondNs).back().port, seen);
}

constexpr char kTwoLeaves[] =
    R"({"leaves": [{"name": "leaf0"}, {"name": "leaf1", "addresses": ["192.168.0.2"]}],
  "spines": [{"name": "spine0"}, {"name": "spine1"}],
  "servers": [{"name": "a", "nics": [{"name": "eth0", "address": "10.0.0.2",
                 "ports": [{"leaf": "leaf0", "gateway": "10.0.0.1"}]}]},
              {"name": "b", "nics": [{"name": "eth0", "address": "10.1.0.2", "ports": [{"leaf": "leaf1"}]}]}],
  "uplinks": [{"leaf": "leaf0", "spine": "spine0", "leaf_address": "172.16.0.0", "spine_address": "172.16.0.1"},
              {"leaf": "leaf0", "spine": "spine1", "leaf_address": "172.16.1.0", "spine_address": "172.16.1.1"},
              {"leaf": "leaf1", "spine": "spine0", "leaf_address": "172.17.0.0", "spine_address": "172.17.0.1"},
              {"leaf": "leaf1", "spine": "spine1", "spine_address": "172.17.1.1"}]})";

TEST(ConfiguredPathsTest, TheFirstRuleThatFitsCounts) {
  const absl::StatusOr<Topology> topology = ParseTopology(kTwoLeaves);
  ASSERT_TRUE(topology.ok()) << topology.status();
  absl::StatusOr<ConfiguredPaths> paths = ConfiguredPaths::Parse(R"({"paths": [
    {"protocol": "tcp", "first_port": 50000, "last_port": 50009, "spine": "spine9"},
    {"source": "10.0.0.0/24", "destination": "10.1.0.2", "first_port": 50000, "last_port": 50099, "modulo": 2,
     "remainder": 1, "spine": "spine1"},
    {"first_port": 50000, "last_port": 50099, "destination_port": 4791, "spine": "spine0"}]})");
  ASSERT_TRUE(paths.ok()) << paths.status();
  Catalogue catalogue;
  catalogue.Configure(*paths);
  catalogue.SetTopology(&*topology);
  service::IpTuple tuple = {service::IpProtocol::kUdp, *service::ParseIp("10.0.0.2"), 50001,
                            *service::ParseIp("10.1.0.2"), 4791};
  const auto links = [&]() -> std::string {
    const auto path = catalogue.Links(*topology, tuple, 1);
    if (!path.ok()) return std::string(path.status().message());
    if (!path->has_value()) return "none";
    std::string names;
    for (const LinkId link : (*path)->links) names += topology->LinkName(link) + " ";
    return names;
  };
  EXPECT_EQ(links(), "a>leaf0 leaf0>spine1 leaf1<spine1 b<leaf1 ");
  tuple.source_port = 50002;
  EXPECT_EQ(links(), "a>leaf0 leaf0>spine0 leaf1<spine0 b<leaf1 ");
  tuple.destination_port = 5000;
  EXPECT_EQ(links(), "none");
  tuple.protocol = service::IpProtocol::kTcp;
  EXPECT_EQ(links(), "none") << "a spine that is not there";
  EXPECT_THAT(paths->Contradictions(*topology), testing::ElementsAre("line 2: there is no spine 'spine9'"));
}

TEST(ConfiguredPathsTest, MistakesAreNamedWithTheirLine) {
  const struct {
    const char* text;
    const char* said;
  } cases[] = {
      {"{\"paths\": [\n{\"spin\": \"spine0\"}]}", "line 2: a path has no 'spin'"},
      {"{\"paths\": [\n{\"protocol\": \"sctp\"}]}", "line 2: 'protocol' is tcp or udp"},
      {"{\"paths\": [\n\n{\"source\": \"10.0.0.0/33\"}]}", "line 3: 'source' is an address or a prefix"},
      {"{\"paths\": [{\"first_port\": 9, \"last_port\": 8}]}", "line 1: 'last_port' is before"},
      {"{\"paths\": [{\"modulo\": 4, \"remainder\": 4}]}", "line 1: 'remainder' is below"},
      {"{\"paths\": 1}", "line 1: 'paths' is a list, not a number"},
      {"", "line 1: this is not JSON"}};
  for (const auto& one : cases) {
    EXPECT_THAT(std::string(ConfiguredPaths::Parse(one.text).status().message()), HasSubstr(one.said));
  }
}

}  // namespace
}  // namespace c4::c4p
