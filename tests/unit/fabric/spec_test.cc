#include "fabric/emulator/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace c4::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FabricSpec Spec(int leaves, int spines, int hosts, Ports ports = Ports::kOne) {
  FabricSpec spec;
  spec.leaves = leaves;
  spec.spines = spines;
  spec.hosts_per_leaf = hosts;
  spec.ports = ports;
  return spec;
}

TEST(SpecTest, ReadsSizes) {
  FabricSpec spec;
  ASSERT_TRUE(ParseSize("4x8x2", &spec).ok());
  EXPECT_EQ(spec.leaves, 4);
  EXPECT_EQ(spec.spines, 8);
  EXPECT_EQ(spec.hosts_per_leaf, 2);
  for (const char* wrong : {"", "4x8", "4x8x2x1", "ax2x2", "-1x2x2", "2x2x2 ", "2x+2x2"}) {
    EXPECT_FALSE(ParseSize(wrong, &spec).ok()) << wrong;
  }
  EXPECT_TRUE(LooksLikeSize("2x2x1"));
  EXPECT_FALSE(LooksLikeSize("c4"));
}

TEST(SpecTest, RefusesWhatNoFabricCanBe) {
  EXPECT_TRUE(CheckSpec(FabricSpec()).ok());
  const auto refused = [](const auto& change) {
    FabricSpec spec;
    change(&spec);
    return std::string(CheckSpec(spec).message());
  };
  EXPECT_THAT(refused([](FabricSpec* s) { s->name = "Big"; }), HasSubstr("name"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->name = "a-b"; }), HasSubstr("name"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->name = "2x2x2"; }), HasSubstr("size"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->leaves = 17; }), HasSubstr("1 to 16 leaves"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->spines = 0; }), HasSubstr("spines"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->leaves = 16, s->hosts_per_leaf = 64; }), HasSubstr("400 hosts"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->leaves = 3, s->ports = Ports::kPlanes; }), HasSubstr("even"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->mtu = 100; }), HasSubstr("MTU"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->rate_mbps = 0.5; }), HasSubstr("rate"));
  EXPECT_THAT(refused([](FabricSpec* s) { s->quota_shares = {1, 0.5}; }), HasSubstr("share"));
}

TEST(SpecTest, HostsOfManyRanksHaveTheirShareOfCpu) {
  FabricSpec spec = Spec(2, 2, 2);
  spec.quota_percent = 4;
  spec.quota_shares = {8, 1};
  EXPECT_EQ(HostQuotaPercent(spec, 0), 32);
  EXPECT_EQ(HostQuotaPercent(spec, 1), 4);
  EXPECT_EQ(HostQuotaPercent(spec, 3), 4);
}

TEST(SpecTest, HostsHangOnLeavesOrPairsOfThem) {
  const FabricSpec one = Spec(4, 2, 3);
  EXPECT_EQ(HostCount(one), 12);
  EXPECT_EQ(LeafOfHost(one, 7, 0), 2);
  EXPECT_EQ(SlotOfHost(one, 7), 1);
  EXPECT_EQ(HostAt(one, 2, 1), 7);
  EXPECT_EQ(HostPortAddress(one, 7, 0), "10.2.1.2");
  EXPECT_EQ(HostGateway(one, 7, 0), "10.2.1.1");

  const FabricSpec planes = Spec(4, 2, 3, Ports::kPlanes);
  EXPECT_EQ(HostCount(planes), 6);
  EXPECT_EQ(LeafOfHost(planes, 4, 0), 2);
  EXPECT_EQ(LeafOfHost(planes, 4, 1), 3);
  EXPECT_EQ(HostAt(planes, 3, 1), 4);
  EXPECT_THAT(HostAddresses(planes, 4), ElementsAre("10.2.1.2", "10.3.1.2"));
  EXPECT_EQ(PortOfAddress(planes, "10.3.1.2"), 1);

  const FabricSpec bonded = Spec(4, 2, 3, Ports::kBonded);
  EXPECT_THAT(HostAddresses(bonded, 4), ElementsAre("10.129.1.1"));
  EXPECT_EQ(HostOfAddress(bonded, "10.129.1.1"), 4);
  EXPECT_EQ(PortOfAddress(bonded, "10.129.1.1"), -1);
  EXPECT_EQ(HostOfAddress(bonded, "10.2.1.9"), -1);
}

TEST(SpecTest, NoTwoAddressesAreTheSame) {
  for (const Ports ports : {Ports::kOne, Ports::kPlanes, Ports::kBonded}) {
    const FabricSpec spec = Spec(4, 4, 4, ports);
    std::multiset<std::string> all;
    for (int host = 0; host < HostCount(spec); ++host) {
      for (const std::string& address : HostAddresses(spec, host)) all.insert(address);
      if (ports == Ports::kBonded) {
        for (int port = 0; port < 2; ++port) all.insert(HostPortAddress(spec, host, port));
      }
      all.insert(ManagementAddress(0, host));
      all.insert(ManagementAddress(255, host));
    }
    for (int leaf = 0; leaf < 4; ++leaf) {
      for (int spine = 0; spine < 4; ++spine) {
        all.insert(LeafUplinkAddress(spec, leaf, spine));
        all.insert(SpineDownlinkAddress(spec, leaf, spine));
      }
    }
    EXPECT_EQ(all.size(), std::set<std::string>(all.begin(), all.end()).size());
  }
  FabricSpec ipv6;
  ipv6.leaves = 16;
  ipv6.ipv6 = true;
  EXPECT_EQ(HostPortAddress(ipv6, 0, 0), "fd10::2");
  EXPECT_EQ(HostGateway(ipv6, 15, 0), "fd10:f::1");
  EXPECT_EQ(LeafUplinkAddress(ipv6, 15, 1), "fd20:1f:1::");
  EXPECT_EQ(SpineDownlinkAddress(ipv6, 0, 1), "fd20:10:1::1");
  EXPECT_EQ(LeafPrefix(ipv6, 15), "fd10:f::/32");
  EXPECT_TRUE(CheckSpec(ipv6).ok());
  ipv6.ports = Ports::kPlanes;
  EXPECT_THAT(std::string(CheckSpec(ipv6).message()), ::testing::HasSubstr("needs --ports one"));
  EXPECT_EQ(ManagementSubnet(0), "198.18.0.0/23");
  EXPECT_EQ(ManagementSubnet(255), "198.19.254.0/23");
  EXPECT_EQ(ManagementAddress(1, 300), "198.18.3.54");
}

TEST(SpecTest, KnowsItsOwnNamespacesOnly) {
  for (const std::string& ns : AllNamespaces(Spec(2, 2, 2))) EXPECT_TRUE(IsNamespaceOf("c4", ns)) << ns;
  for (const char* other : {"c4", "c4-", "c4-leaf", "c4-leafx", "c4-leaf1a", "c42-leaf0", "xc4-leaf0",
                            "c4-spine-1", "c4-mgmt2"}) {
    EXPECT_FALSE(IsNamespaceOf("c4", other)) << other;
  }
}

TEST(SpecTest, LinksHaveNamesAndEnds) {
  const FabricSpec spec = Spec(4, 2, 2, Ports::kPlanes);
  for (const Link& link : AllLinks(spec)) {
    const auto parsed = ParseLink(spec, LinkName(link));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(*parsed, ElementsAre(link));
  }
  EXPECT_EQ(AllLinks(spec).size(), 4U * 2 + 4 * 2);
  EXPECT_EQ(ParseLink(spec, "host1")->size(), 2U);
  EXPECT_THAT(std::string(ParseLink(spec, "leaf9-spine0").status().message()), HasSubstr("leaf3-spine1"));
  const LinkEnd lower = LowerEnd(spec, HostLinkOf(spec, 3, 1)),
                upper = UpperEnd(spec, HostLinkOf(spec, 3, 1));
  EXPECT_EQ(lower.ns + " " + lower.device, "c4-host3 eth1");
  EXPECT_EQ(upper.ns + " " + upper.device, "c4-leaf3 h1");
  EXPECT_EQ(*ParseHost(spec, "host3"), 3);
  EXPECT_EQ(*ParseHost(spec, "2"), 2);
  EXPECT_FALSE(ParseHost(spec, "host4").ok());
}

}  // namespace
}  // namespace c4::fabric
