// The wait-for graph: cases that a reader can check by eye, and random graphs against a brute force that
// knows nothing of the implementation (reachability by Warshall's algorithm).
#include "analysis/wait_for.h"

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Node = WaitForGraph::Node;
using Cycle = WaitForGraph::Cycle;

TEST(WaitForTest, EmptyGraphHasNothingToBlame) {
  const WaitForGraph graph(3);
  EXPECT_THAT(graph.Roots(), IsEmpty());
  EXPECT_THAT(graph.Cycles(), IsEmpty());
}

TEST(WaitForTest, ChainEndsAtTheOneWhoWaitsForNobody) {
  WaitForGraph graph(4);
  graph.AddEdge(0, 1, 10);
  graph.AddEdge(1, 2, 11);
  EXPECT_THAT(graph.Roots(), ElementsAre(2));  // 3 is not waited for
  EXPECT_THAT(graph.WaitersOf(2), ElementsAre(0, 1));
  EXPECT_THAT(graph.WaitersOf(0), IsEmpty());
  ASSERT_EQ(graph.EdgesInto(2).size(), 1U);
  EXPECT_EQ(graph.EdgesInto(2)[0].from, 1U);
  EXPECT_EQ(graph.EdgesInto(2)[0].reason, 11U);
  EXPECT_TRUE(graph.Waits(0));
  EXPECT_FALSE(graph.Waits(2));
}

TEST(WaitForTest, SeveralRoots) {
  WaitForGraph graph(4);
  graph.AddEdge(0, 2);
  graph.AddEdge(0, 3);
  graph.AddEdge(1, 3);
  EXPECT_THAT(graph.Roots(), ElementsAre(2, 3));
  EXPECT_THAT(graph.WaitersOf(2), ElementsAre(0));
  EXPECT_THAT(graph.WaitersOf(3), ElementsAre(0, 1));
}

TEST(WaitForTest, ClosedCycleHasNoRoot) {
  WaitForGraph graph(4);
  graph.AddEdge(3, 0);
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  graph.AddEdge(2, 0);
  EXPECT_THAT(graph.Roots(), IsEmpty());
  EXPECT_THAT(graph.Cycles(), ElementsAre(Cycle{{0, 1, 2}, true}));
}

TEST(WaitForTest, OpenCycleIsHeldUpByTheRoot) {
  WaitForGraph graph(3);
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 0);
  graph.AddEdge(1, 2);
  EXPECT_THAT(graph.Roots(), ElementsAre(2));
  EXPECT_THAT(graph.WaitersOf(2), ElementsAre(0, 1));
  EXPECT_THAT(graph.Cycles(), ElementsAre(Cycle{{0, 1}, false}));
}

TEST(WaitForTest, SelfEdgeIsACycleOfOne) {
  WaitForGraph graph;
  const Node node = graph.AddNode();
  graph.AddEdge(node, node);
  EXPECT_THAT(graph.Roots(), IsEmpty());
  EXPECT_THAT(graph.WaitersOf(node), IsEmpty());
  EXPECT_THAT(graph.Cycles(), ElementsAre(Cycle{{0}, true}));
}

TEST(WaitForTest, LongChainNeedsNoRecursion) {
  constexpr size_t kNodes = 200'000;
  WaitForGraph graph(kNodes);
  for (Node node = 0; node + 1 < kNodes; ++node) graph.AddEdge(node, node + 1);
  EXPECT_THAT(graph.Roots(), ElementsAre(kNodes - 1));
  EXPECT_EQ(graph.WaitersOf(kNodes - 1).size(), kNodes - 1);
  EXPECT_THAT(graph.Cycles(), IsEmpty());
}

// reach[a][b]: b can be reached from a over one edge or more.
std::vector<std::vector<bool>> Reach(const WaitForGraph& graph) {
  const size_t n = graph.node_count();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  for (const WaitForGraph::Edge& edge : graph.edges()) reach[edge.from][edge.to] = true;
  for (size_t k = 0; k < n; ++k) {
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        if (reach[a][k] && reach[k][b]) reach[a][b] = true;
      }
    }
  }
  return reach;
}

void CheckAgainstBruteForce(const WaitForGraph& graph) {
  const auto reach = Reach(graph);
  const size_t n = graph.node_count();
  std::vector<Node> roots;
  for (Node node = 0; node < n; ++node) {
    std::vector<Node> waiters;
    bool waits = false;
    bool waited_for = false;
    for (Node other = 0; other < n; ++other) {
      waits = waits || reach[node][other];
      waited_for = waited_for || reach[other][node];
      if (other != node && reach[other][node]) waiters.push_back(other);
    }
    EXPECT_EQ(graph.Waits(node), waits);
    EXPECT_EQ(graph.WaitedFor(node), waited_for);
    EXPECT_EQ(graph.WaitersOf(node), waiters);
    if (waited_for && !waits) roots.push_back(node);
  }
  EXPECT_EQ(graph.Roots(), roots);

  std::vector<Cycle> cycles;
  std::set<Node> done;
  for (Node node = 0; node < n; ++node) {
    if (!reach[node][node] || done.count(node) != 0) continue;
    Cycle cycle{{}, true};
    for (Node other = 0; other < n; ++other) {
      if (reach[node][other] && reach[other][node]) {
        cycle.nodes.push_back(other);
        done.insert(other);
      } else if (reach[node][other]) {
        cycle.closed = false;
      }
    }
    cycles.push_back(cycle);
  }
  EXPECT_EQ(graph.Cycles(), cycles);
}

TEST(WaitForTest, RandomGraphsAgreeWithBruteForce) {
  constexpr uint32_t kSeed = 20240611;
  std::mt19937 random(kSeed);  // NOLINT: a fixed seed, so that a failure can be repeated
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ", round " << round);
    const size_t nodes = 1 + random() % 12;
    const size_t edges = random() % (2 * nodes);
    WaitForGraph graph(nodes);
    for (size_t i = 0; i < edges; ++i) {
      graph.AddEdge(static_cast<Node>(random() % nodes), static_cast<Node>(random() % nodes), i);
    }
    CheckAgainstBruteForce(graph);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace c4::analysis
