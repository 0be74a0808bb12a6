// Passes of transfers: each is a matching, each link is in one, and there are as many as are promised.
#include "analysis/failslow/link_passes.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace c4::analysis {
namespace {

std::vector<Link> Ring(uint32_t devices) {
  std::vector<Link> links;
  for (uint32_t i = 0; i < devices; ++i) links.push_back({i, (i + 1) % devices});
  return links;
}

std::vector<Link> Tree(uint32_t devices, uint32_t children) {
  std::vector<Link> links;
  for (uint32_t i = 1; i < devices; ++i) links.push_back({i, (i - 1) / children});
  return links;
}

size_t MostLinks(const std::vector<Link>& links) {
  std::map<uint32_t, std::set<uint32_t>> peers;
  size_t most = 0;
  for (const Link& link : links) {
    if (link.a == link.b) continue;
    peers[link.a].insert(link.b);
    peers[link.b].insert(link.a);
    most = std::max({most, peers[link.a].size(), peers[link.b].size()});
  }
  return most;
}

void ExpectSound(const std::vector<Link>& links, const LinkPasses& plan) {
  std::vector<int> times(links.size());
  for (const std::vector<size_t>& pass : plan.passes) {
    EXPECT_FALSE(pass.empty());
    EXPECT_TRUE(std::is_sorted(pass.begin(), pass.end()));
    std::map<uint32_t, uint32_t> partner;
    for (const size_t i : pass) {
      ASSERT_LT(i, links.size());
      ++times[i];
      for (const auto& [device, other] :
           {std::pair(links[i].a, links[i].b), std::pair(links[i].b, links[i].a)}) {
        const auto [at, added] = partner.try_emplace(device, other);
        EXPECT_EQ(at->second, other) << "device " << device << " in two transfers of a pass";
      }
    }
  }
  for (size_t i = 0; i < links.size(); ++i) EXPECT_EQ(times[i], links[i].a == links[i].b ? 0 : 1) << i;
}

TEST(LinkPasses, NothingTakesNone) {
  EXPECT_TRUE(PlanLinkPasses({}).passes.empty());
  const std::vector<Link> self = {{3, 3}};
  EXPECT_TRUE(PlanLinkPasses(self).passes.empty());
}

TEST(LinkPasses, ARingTakesTwoOrThree) {
  for (uint32_t devices = 3; devices < 40; ++devices) {
    const std::vector<Link> links = Ring(devices);
    const LinkPasses plan = PlanLinkPasses(links);
    ExpectSound(links, plan);
    EXPECT_EQ(plan.shape, LinkShape::kRing);
    EXPECT_EQ(plan.passes.size(), devices % 2 == 0 ? 2u : 3u) << devices;
  }
  EXPECT_EQ(PlanLinkPasses(Ring(4097)).passes.size(), 3u);
}

TEST(LinkPasses, BothWaysOfALinkShareAPass) {
  const std::vector<Link> links = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};
  const LinkPasses plan = PlanLinkPasses(links);
  ExpectSound(links, plan);
  EXPECT_EQ(plan.passes.size(), 2u);
  EXPECT_EQ(PlanLinkPasses(Ring(2)).passes.size(), 1u);
}

TEST(LinkPasses, ATreeTakesAsManyAsItsBusiestDeviceHasLinks) {
  for (uint32_t devices = 4; devices < 70; ++devices) {
    for (uint32_t children = 2; children < 6; ++children) {
      const std::vector<Link> links = Tree(devices, children);
      const LinkPasses plan = PlanLinkPasses(links);
      ExpectSound(links, plan);
      EXPECT_EQ(plan.passes.size(), MostLinks(links));
      EXPECT_LE(plan.passes.size(), children + 1);
    }
  }
}

TEST(LinkPasses, AllToAllTakesOneMoreAtMost) {
  for (uint32_t devices = 4; devices < 20; ++devices) {
    std::vector<Link> links;
    for (uint32_t a = 0; a < devices; ++a) {
      for (uint32_t b = a + 1; b < devices; ++b) links.push_back({b, a});
    }
    const LinkPasses plan = PlanLinkPasses(links);
    ExpectSound(links, plan);
    EXPECT_EQ(plan.shape, LinkShape::kOther);
    EXPECT_LE(plan.passes.size(), devices);
  }
}

// Any graph, of several parts, with repetitions, loops and numbers that have gaps.
TEST(LinkPasses, AnyLinksTakeOneMoreThanTheBusiestDeviceHas) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const uint32_t devices = 2 + random() % 40;
    const size_t count = random() % (devices * 6);
    std::vector<Link> links;
    for (size_t i = 0; i < count; ++i) {
      links.push_back(
          {static_cast<uint32_t>(random() % devices) * 977, static_cast<uint32_t>(random() % devices) * 977});
    }
    const LinkPasses plan = PlanLinkPasses(links);
    ExpectSound(links, plan);
    EXPECT_LE(plan.passes.size(), MostLinks(links) + 1) << "seed " << seed;
    EXPECT_GE(plan.passes.size(), MostLinks(links)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace c4::analysis
