// The operator's file: what it may say, and that every mistake is named with its line. And which links follow
// from which answers.
#include "c4p_master/topology.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "c4p_master/topology_file.h"

namespace c4::c4p {
namespace {

using service::IpProtocol;
using service::IpTuple;
using service::ParseIp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Golden() {
  const char* source = getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::ifstream file(std::string(source == nullptr ? "." : source) + "/tests/data/formats/topology-1.json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TopologyFileTest, TheDocumentedExampleIsRead) {
  const absl::StatusOr<Topology> read = ParseTopology(Golden());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->leaves().size(), 2U);
  EXPECT_EQ(read->spines().size(), 2U);
  EXPECT_EQ(read->servers().size(), 2U);
  EXPECT_EQ(read->uplinks().size(), 5U);
  EXPECT_TRUE(read->FindLink("leaf0>spine1#2").has_value());
  EXPECT_TRUE(read->IsFaulty(*read->FindLink("leaf1<spine1")));
  EXPECT_EQ(read->PossiblePaths(0, 2), 1) << "over spine0: spine1's cable to leaf1 is faulty";
  EXPECT_EQ(read->PossiblePaths(0, 2, true), 3);
  EXPECT_EQ(read->PossiblePaths(1, 2), 1) << "within a leaf";
  const absl::StatusOr<Topology> again = ParseTopology(TopologyJson(*read, {"a contradiction"}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(TopologyJson(*again), TopologyJson(*read));
}

TEST(TopologyFileTest, EveryMistakeIsNamedWithItsLine) {
  const std::string good = Golden();
  const struct {
    const char* from;
    const char* to;
    const char* said;
  } cases[] = {
      {"\"leaf\": \"leaf1\", \"spine\": \"spine0\"", "\"leaf\": \"leaf9\", \"spine\": \"spine0\"",
       "there is no leaf 'leaf9'"},
      {"\"leaf\": \"leaf1\", \"spine\": \"spine0\"", "\"leaf\": \"leaf1\", \"spine\": \"leaf0\"",
       "'leaf0' is a leaf: an uplink leads from a leaf to a spine"},
      {"\"leaf\": \"leaf1\", \"spine\": \"spine0\"", "\"leaf\": \"spine1\", \"spine\": \"spine0\"",
       "'spine1' is a spine: an uplink leads from a leaf to a spine"},
      {"{\"leaf\": \"leaf0\", \"plane\": 0", "{\"leaf\": \"spine0\", \"plane\": 0",
       "'spine0' is a spine: servers hang on leaves"},
      {"\"plane\": 0", "\"plane\": 9", "'plane' is 0 to 7, not 9"},
      {"\"plane\": 0", "\"plane\": 0.5", "'plane' is a whole number, not 0.5"},
      {"\"plane\": 0", "\"plane\": \"left\"", "'plane' is a number, not a text"},
      {"\"plane\": 0", "\"plain\": 0", "a port has no 'plain'"},
      {"\"plane\": 0", "\"plane\": 0, \"plane\": 0", "the key 'plane' comes twice"},
      {"{\"name\": \"spine1\"}", "{\"name\": \"spine0\"}", "there are two switches 'spine0'"},
      {"{\"name\": \"spine1\"}", "{\"name\": \"leaf0\"}", "there are two switches 'leaf0'"},
      {"{\"name\": \"spine1\"}", "{\"name\": \"spine 1\"}", "letters, digits"},
      {"{\"name\": \"spine1\"}", "{\"name\": 1}", "'name' is a text, not a number"},
      {"{\"name\": \"spine1\"}", "\"spine1\"", "a spine is an object, not a text"},
      {"{\"name\": \"spine1\"}", "{}", "a spine lacks 'name'"},
      {"172.17.0.1", "172.16.0.1", "172.16.0.1 is given to"},
      {"172.17.0.1", "172.17.0.256", "'spine_address' is an IP address of a network, not '172.17.0.256'"},
      {"172.17.0.1", "127.0.0.1", "'spine_address' is an IP address of a network"},
      {"172.17.0.1", "172.17.0.0", "both ends of the link of leaf1 and spine0"},
      {"10.1.0.2", "10.0.0.2", "10.0.0.2 is given to"},
      {"\"spine_port\": \"Ethernet2\"", "\"spine_port\": \"Ethernet1\"",
       "port 'Ethernet1' of spine0 has two cables"},
      {"\"name\": \"host1\"", "\"name\": \"host0\"", "there are two servers 'host0'"},
      {"\"uplinks\"", "\"links\"", "a topology has no 'links'"},
      {"\"faulty\": true", "\"faulty\": 1", "'faulty' is true or false, not a number"},
      {"\"leaves\": [", "\"leaves\": [[", "this is not JSON"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.to);
    const absl::StatusOr<Topology> read = ParseTopology(Replaced(good, one.from, one.to));
    ASSERT_FALSE(read.ok());
    const std::string message(read.status().message());
    EXPECT_THAT(message, HasSubstr(one.said));
    if (std::string(one.said) == "this is not JSON") continue;
    // The line of the change, except where the sentence is of the whole file.
    const size_t at = good.find(one.from);
    const auto line = 1 + std::count(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    EXPECT_THAT(message, testing::StartsWith("line " + std::to_string(line) + ": "));
  }
}

TEST(TopologyFileTest, EmptyHugeDeepAndBroken) {
  for (const char* text : {"", " \n\t ", "null", "[]", "1", "{", "{}", "\xff\xfe", "{\"leaves\": 3}"}) {
    const absl::StatusOr<Topology> read = ParseTopology(text);
    EXPECT_FALSE(read.ok()) << text;
    EXPECT_THAT(std::string(read.status().message()), testing::StartsWith("line 1: ")) << text;
  }
  EXPECT_FALSE(ParseTopology(std::string(100000, '[')).ok());
  EXPECT_FALSE(ParseTopology(std::string((64U << 20) + 1, ' ')).ok());
  const absl::StatusOr<Topology> none = ReadTopologyFile("/nowhere/topology.json");
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("/nowhere/topology.json"));
}

TEST(TopologyFileTest, ANumberAtTheEndOfALineIsOnThatLine) {
  const absl::StatusOr<Topology> read = ParseTopology("{\n\"leaves\":\n[\n7\n,\n8]}");
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("lacks"));
  const absl::StatusOr<Topology> second =
      ParseTopology("{\"spines\": [], \"servers\": [], \"uplinks\": [],\n\"leaves\":\n[\n7\n]}");
  EXPECT_THAT(std::string(second.status().message()), testing::StartsWith("line 4: a leaf is an object"));
}

TEST(TopologyFileTest, DamageAnywhereNeverPassesForAnotherNetwork) {
  const std::string good = Golden();
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (uint64_t i = 0; i <= random() % 3; ++i) {
      text[random() % text.size()] =
          static_cast<char>(random() % 2 == 0 ? random() : "{}[]\",:0"[random() % 8]);
    }
    const absl::StatusOr<Topology> read = ParseTopology(text);
    if (!read.ok()) {
      EXPECT_THAT(std::string(read.status().message()), testing::StartsWith("line "));
      continue;
    }
    EXPECT_TRUE(ParseTopology(TopologyJson(*read)).ok()) << text;
  }
}

class ResolveTest : public testing::Test {
 protected:
  ResolveTest() : topology_(ParseTopology(Golden()).value()) {}
  std::vector<std::string> Links(const HopPath& hops) const {
    const absl::StatusOr<FabricPath> path = topology_.Resolve(tuple_, hops);
    if (!path.ok()) return {std::string(path.status().message())};
    std::vector<std::string> names;
    for (const LinkId link : path->links) names.push_back(topology_.LinkName(link));
    return names;
  }
  static service::IpAddress A(const char* text) { return *ParseIp(text); }

  const Topology topology_;
  const IpTuple tuple_ = {IpProtocol::kTcp, *ParseIp("10.0.0.2"), 40000, *ParseIp("10.1.0.2"), 5000};
};

TEST_F(ResolveTest, FromAllAnswersAndFromSome) {
  const std::vector<std::string> over_spine0 = {"host0>leaf0", "leaf0>spine0", "leaf1<spine0", "host1<leaf1"};
  EXPECT_EQ(Links({A("10.0.0.1"), A("172.16.0.1"), A("172.17.0.0")}), over_spine0);
  EXPECT_EQ(Links({{}, A("172.16.0.1"), A("172.17.0.0")}), over_spine0);
  EXPECT_EQ(Links({{}, A("172.16.0.1"), {}}), over_spine0);
  EXPECT_EQ(Links({{}, {}, A("172.17.0.0")}), over_spine0);
  EXPECT_EQ(Links({}), (std::vector<std::string>{"host0>leaf0", "host1<leaf1"})) << "not complete";
  EXPECT_FALSE(topology_.Resolve(tuple_, {})->complete);
  EXPECT_EQ(Links({A("10.0.0.1"), A("172.16.1.3"), A("172.17.1.0")}),
            (std::vector<std::string>{"host0>leaf0", "leaf0>spine1#2", "leaf1<spine1", "host1<leaf1"}));
}

TEST_F(ResolveTest, WhatCannotBeIsSaid) {
  EXPECT_THAT(Links({A("10.9.0.1"), {}, {}}),
              ElementsAre(HasSubstr("hop 1 is 10.9.0.1, which is no leaf's")));
  EXPECT_THAT(Links({{}, A("172.16.0.0"), {}}),
              ElementsAre(HasSubstr("hop 2 is 172.16.0.0, which is no spine's")));
  EXPECT_THAT(Links({{}, {}, A("172.17.0.1")}),
              ElementsAre(HasSubstr("hop 3 is 172.17.0.1, which is no leaf's")));
  EXPECT_THAT(Links({A("10.0.0.1"), A("172.17.0.1"), {}}), ElementsAre(HasSubstr("faces leaf1")));
  EXPECT_THAT(Links({{}, A("172.16.0.1"), A("172.17.1.0")}), ElementsAre(HasSubstr("hop 3 faces spine1")));
  EXPECT_THAT(Links({A("10.1.1.1"), {}, {}}), ElementsAre(HasSubstr("where its source has no port")));
}

}  // namespace
}  // namespace c4::c4p
