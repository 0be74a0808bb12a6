#include "fabric/emulator/batch.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace c4::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

FabricSpec Spec(Ports ports = Ports::kOne) {
  FabricSpec spec;
  spec.leaves = ports == Ports::kOne ? 2 : 4;
  spec.ports = ports;
  return spec;
}

std::string TextOf(const std::vector<NamespaceText>& texts, const std::string& ns) {
  std::string text;
  for (const NamespaceText& part : texts) {
    if (part.ns == ns) text += part.text;
  }
  return text;
}

TEST(BatchTest, EachRouterHasOneGroupForEachOtherLeaf) {
  const auto routing = RoutingText(Spec(), {});
  EXPECT_EQ(TextOf(routing, "c4-leaf0"),
            "neigh replace 172.16.0.1 lladdr 02:c4:01:00:00:00 dev up0 nud permanent\n"
            "nexthop replace id 1 via 172.16.0.1 dev up0\n"
            "neigh replace 172.16.1.1 lladdr 02:c4:01:00:00:01 dev up1 nud permanent\n"
            "nexthop replace id 2 via 172.16.1.1 dev up1\n"
            "nexthop replace id 1001 group 1/2\n"
            "route replace 10.1.0.0/16 nhid 1001\n");
  EXPECT_THAT(TextOf(routing, "c4-spine1"), HasSubstr("route replace 10.0.0.0/16 nhid 1\n"));
  EXPECT_THAT(TextOf(routing, "c4-host0"), IsEmpty());
}

TEST(BatchTest, AFailureChangesOnlyTheWaysOverThatLink) {
  FabricSpec spec = Spec();
  spec.leaves = 3;
  const auto before = RoutingText(spec, {}), after = RoutingText(spec, {UplinkOf(0, 1)});
  const auto changes = Changes(before, after);
  // Leaf 1 loses one way to leaf 0 and keeps both to leaf 2.
  EXPECT_EQ(TextOf(changes, "c4-leaf1"), "nexthop replace id 1000 group 1\n");
  EXPECT_EQ(TextOf(changes, "c4-leaf0"),
            "nexthop replace id 1001 group 1\nnexthop replace id 1002 group 1\n");
  EXPECT_EQ(TextOf(changes, "c4-spine1"), "route replace unreachable 10.0.0.0/16\n");
  EXPECT_EQ(TextOf(changes, "c4-spine0"), "");
  // Back again, the neighbour and the next hop that the kernel threw away come first.
  EXPECT_EQ(TextOf(Changes(after, before), "c4-leaf0"),
            "neigh replace 172.16.1.1 lladdr 02:c4:01:00:00:01 dev up1 nud permanent\n"
            "nexthop replace id 2 via 172.16.1.1 dev up1\n"
            "nexthop replace id 1001 group 1/2\nnexthop replace id 1002 group 1/2\n");
  EXPECT_THAT(Changes(before, before), IsEmpty());
}

TEST(BatchTest, ALeafWithoutUplinksReachesNobody) {
  const auto routing = RoutingText(Spec(), {UplinkOf(0, 0), UplinkOf(0, 1)});
  EXPECT_EQ(TextOf(routing, "c4-leaf0"), "route replace unreachable 10.1.0.0/16\n");
  EXPECT_THAT(TextOf(routing, "c4-leaf1"), HasSubstr("route replace unreachable 10.0.0.0/16\n"));
}

TEST(BatchTest, BondedHostsAreReachedOverBothLeavesOrTheOneThatIsLeft) {
  const FabricSpec spec = Spec(Ports::kBonded);
  const auto healthy = RoutingText(spec, {});
  EXPECT_THAT(TextOf(healthy, "c4-spine0"), HasSubstr("group 3/4\nroute replace 10.129.0.1/32"));
  EXPECT_THAT(TextOf(healthy, "c4-leaf2"), HasSubstr("route replace 10.129.0.1/32 via 10.2.0.2 dev h0\n"));
  EXPECT_THAT(TextOf(healthy, "c4-host1"),
              HasSubstr("group 1/2\nroute replace default nhid 100 src 10.129.0.1"));
  const auto broken = RoutingText(spec, {HostLinkOf(spec, 1, 0)});
  EXPECT_THAT(TextOf(broken, "c4-spine0"), HasSubstr("group 4\nroute replace 10.129.0.1/32"));
  EXPECT_THAT(TextOf(broken, "c4-leaf2"), HasSubstr("group 1/2\nroute replace 10.129.0.1/32 nhid 3001\n"));
  EXPECT_THAT(TextOf(broken, "c4-host1"), HasSubstr("nexthop replace id 100 group 2\n"));
}

TEST(BatchTest, WithBirdThereAreNoRoutesOfOurs) {
  FabricSpec spec = Spec();
  spec.convergence = Convergence::kBird;
  EXPECT_THAT(RoutingText(spec, {}), IsEmpty());
}

TEST(BatchTest, PlanesHaveATableEach) {
  const std::string text = TextOf(FixedRoutesText(Spec(Ports::kPlanes), 0), "c4-host0");
  EXPECT_THAT(text, HasSubstr("route add default via 10.1.0.1 dev eth1 table 102"));
  EXPECT_THAT(text, HasSubstr("rule add from 10.1.0.2 table 102"));
}

// What LinksText gives the device.
std::string MacIn(const std::string& text, const LinkEnd& end) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    for (size_t i = 0; i + 3 < words.size(); ++i) {
      if (words[i] != "name" || words[i + 1] != end.device || words[i + 2] != "address") continue;
      const auto netns = std::find(words.begin() + static_cast<std::ptrdiff_t>(i), words.end(), "netns");
      if (netns != words.end() && netns + 1 != words.end() && netns[1] == end.ns) return words[i + 3];
    }
  }
  return "";
}

// A group's next hops are resolved before the first packet, by the address that the other end really has.
TEST(BatchTest, ARouterKnowsItsNeighboursByTheirOwnAddresses) {
  for (const Ports ports : {Ports::kOne, Ports::kPlanes, Ports::kBonded}) {
    const FabricSpec spec = Spec(ports);
    const std::string links = LinksText(spec);
    const auto routing = RoutingText(spec, {});
    for (const Link& link : AllLinks(spec)) {
      if (link.kind != Link::Kind::kUplink) continue;
      const LinkEnd lower = LowerEnd(spec, link), upper = UpperEnd(spec, link);
      for (const auto& [own, other, address] :
           {std::tuple(lower, upper, SpineDownlinkAddress(spec, link.leaf, link.spine)),
            std::tuple(upper, lower, LeafUplinkAddress(spec, link.leaf, link.spine))}) {
        EXPECT_THAT(TextOf(routing, own.ns),
                    HasSubstr(absl::StrCat("neigh replace ", address, " lladdr ", MacIn(links, other),
                                           " dev ", own.device, " nud permanent\n")));
      }
    }
    if (ports != Ports::kBonded) continue;
    EXPECT_THAT(TextOf(routing, "c4-host1"),
                HasSubstr(absl::StrCat("neigh replace ", HostGateway(spec, 1, 1), " lladdr ",
                                       MacIn(links, UpperEnd(spec, HostLinkOf(spec, 1, 1))),
                                       " dev eth1 nud permanent\n")));
  }
}

TEST(BatchTest, EveryDeviceOfALinkIsMadeOnce) {
  for (const Ports ports : {Ports::kOne, Ports::kPlanes, Ports::kBonded}) {
    const FabricSpec spec = Spec(ports);
    const std::string text = LinksText(spec);
    // A packet fits into the bucket of 200 Mbit/s.
    const std::string device = " mtu 4200 gso_max_size 65536 netns ";
    std::set<std::string> macs;
    for (const Link& link : AllLinks(spec)) {
      const LinkEnd lower = LowerEnd(spec, link), upper = UpperEnd(spec, link);
      const std::string own = MacIn(text, lower), other = MacIn(text, upper);
      const std::string line =
          absl::StrCat("link add name ", lower.device, " address ", own, device, lower.ns,
                       " type veth peer name ", upper.device, " address ", other, device, upper.ns, "\n");
      const size_t at = text.find(line);
      ASSERT_NE(at, std::string::npos) << line;
      EXPECT_EQ(text.find(line, at + 1), std::string::npos) << line;
      macs.insert({own, other});
    }
    EXPECT_EQ(macs.size(), 2 * AllLinks(spec).size());
  }
}

TEST(BatchTest, RoutersHashThePacketWithASeedOfTheirOwn) {
  std::set<std::string> seeds;
  for (const char* ns : {"c4-leaf0", "c4-leaf1", "c4-spine0", "c4-spine1"}) {
    for (const bool ipv6 : {false, true}) {
      FabricSpec spec;
      spec.ipv6 = ipv6;
      const Sysctls sysctls = RouterSysctls(spec, ns);
      const std::map<std::string, std::string> values(sysctls.begin(), sysctls.end());
      EXPECT_EQ(values.at(ipv6 ? "ipv6/fib_multipath_hash_policy" : "ipv4/fib_multipath_hash_policy"), "3");
      EXPECT_EQ(values.at("ipv6/conf/all/disable_ipv6"), ipv6 ? "0" : "1");
      seeds.insert(values.at("ipv4/fib_multipath_hash_seed"));
    }
  }
  EXPECT_EQ(seeds.size(), 4U);
  EXPECT_FALSE(seeds.contains("0"));
}

TEST(BatchTest, RatesAndDropsCanBeTakenOff) {
  const std::string bucket = "qdisc replace dev up0 root tbf rate 12500kbit burst 10240 limit 512k\n";
  EXPECT_EQ(RateText("up0", 12.5, false), bucket);
  EXPECT_EQ(RateText("up0", 12.5, true), "qdisc replace dev up0 root noqueue\n" + bucket);
  EXPECT_EQ(RateText("up0", 0, false), "qdisc replace dev up0 root noqueue\n");
  EXPECT_THAT(DropText("up0", 1000), HasSubstr(" in meta protocol { ip, ip6 } counter drop\n"));
  EXPECT_THAT(DropText("up0", 10), HasSubstr("numgen random mod 1000 < 10 counter drop\n"));
  EXPECT_THAT(DropText("up0", 0), Not(HasSubstr("drop")));
}

}  // namespace
}  // namespace c4::fabric
