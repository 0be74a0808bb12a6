// The network as a master learns it, bit by bit.
#include <cmath>
#include <gtest/gtest.h>

#include "c4p_master/alloc/allocator.h"

namespace c4::c4p {
namespace {

using absl::StatusCode;

TEST(Network, GrowsWhileItIsUsed) {
  Network network;
  Allocator allocator(&network);
  EXPECT_EQ(allocator.Allocate({.connection = 0, .from = 0, .to = 1, .queue_pairs = 1}).status().code(),
            StatusCode::kNotFound);
  for (const LeafId leaf : {0U, 1U}) {
    ASSERT_TRUE(network.AddLeaf(leaf, 0, 0).ok());
    ASSERT_TRUE(network.AddPort(leaf, 0, leaf, 1000).ok());
  }
  EXPECT_EQ(allocator.Allocate({.connection = 0, .from = 0, .to = 1, .queue_pairs = 1}).status().code(),
            StatusCode::kUnavailable)
      << "no spine";
  // Every spine that turns up is used at once.
  for (SpineId spine = 0; spine < 70; ++spine) {
    ASSERT_TRUE(network.AddSpine(spine, 0).ok());
    ASSERT_TRUE(network.AddLeafLink(0, spine, 1000).ok());
    ASSERT_TRUE(network.AddLeafLink(1, spine, 1000).ok());
    const auto result =
        allocator.Allocate({.connection = spine, .from = 0, .to = 1, .queue_pairs = 1, .demand_mbps = 1});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->queue_pairs[0], (Place{0, spine}));
  }
  // And so are a second pod and its cores.
  ASSERT_TRUE(network.AddLeaf(2, 1, 0).ok());
  ASSERT_TRUE(network.AddPort(2, 0, 2, 1000).ok());
  ASSERT_TRUE(network.AddSpine(70, 1).ok());
  ASSERT_TRUE(network.AddLeafLink(2, 70, 1000).ok());
  EXPECT_FALSE(allocator.Allocate({.connection = 100, .from = 0, .to = 2, .queue_pairs = 1}).ok());
  for (const CoreId core : {0U, 1U}) {
    ASSERT_TRUE(network.AddCore(core).ok());
    ASSERT_TRUE(network.AddSpineLink(5 + core, core, 1000).ok());
    ASSERT_TRUE(network.AddSpineLink(70, core, 1000).ok());
    const auto result = allocator.Allocate({.connection = 100 + core, .from = 0, .to = 2, .queue_pairs = 1});
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->queue_pairs[0], (Place{0, core}));
  }
}

TEST(Network, WhatContradictsIsRefused) {
  Network network;
  EXPECT_EQ(network.AddLeaf(kMostNumbers, 0, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(network.AddLeaf(0, kMostNumbers, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(network.AddLeaf(0, 0, kMostPlanes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(network.AddSpine(kNobody, 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(network.AddCore(kNobody).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(network.AddPort(0, 0, 0, 100).code(), StatusCode::kNotFound);
  EXPECT_EQ(network.AddLeafLink(0, 0, 100).code(), StatusCode::kNotFound);
  EXPECT_EQ(network.AddSpineLink(0, 0, 100).code(), StatusCode::kNotFound);
  ASSERT_TRUE(network.AddLeaf(0, 0, 0).ok());
  ASSERT_TRUE(network.AddLeaf(1, 0, 1).ok());
  ASSERT_TRUE(network.AddLeaf(2, 0, 0).ok());
  ASSERT_TRUE(network.AddSpine(0, 0).ok());
  ASSERT_TRUE(network.AddSpine(1, 0).ok());
  ASSERT_TRUE(network.AddSpine(2, 1).ok());
  ASSERT_TRUE(network.AddCore(0).ok());
  EXPECT_TRUE(network.AddLeaf(0, 0, 0).ok()) << "again";
  EXPECT_EQ(network.AddLeaf(0, 1, 0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(network.AddSpine(0, 1).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(network.AddPort(0, 1, 0, 100).code(), StatusCode::kInvalidArgument) << "the other plane's leaf";
  ASSERT_TRUE(network.AddPort(0, 0, 0, 100).ok());
  EXPECT_EQ(network.AddPort(0, 0, 2, 100).code(), StatusCode::kFailedPrecondition);
  for (const double mbps : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(network.AddPort(1, 0, 0, mbps).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(network.AddLeafLink(0, 0, mbps).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(network.AddLeafLink(0, 2, 100).code(), StatusCode::kInvalidArgument) << "another pod's spine";
  ASSERT_TRUE(network.AddSpineLink(0, 0, 100).ok());
  EXPECT_EQ(network.AddSpineLink(1, 0, 100).code(), StatusCode::kFailedPrecondition);
  for (const Link& link : {Link{Tier::kPort, 5, 0}, Link{Tier::kPort, 0, 1}, Link{Tier::kLeaf, 0, 0},
                           Link{Tier::kLeaf, 9, 9}, Link{Tier::kSpine, 1, 0}, Link{Tier::kSpine, 0, 9}}) {
    EXPECT_EQ(network.SetUp(link, false).code(), StatusCode::kNotFound) << LinkName(link);
    EXPECT_EQ(network.SetCapacity(link, Direction::kUp, 1).code(), StatusCode::kNotFound);
  }
}

TEST(Network, ALinkThatIsToldOfAgainStaysDown) {
  Network network;
  for (const LeafId leaf : {0U, 1U}) {
    ASSERT_TRUE(network.AddLeaf(leaf, 0, 0).ok());
    ASSERT_TRUE(network.AddPort(leaf, 0, leaf, 1000).ok());
  }
  ASSERT_TRUE(network.AddSpine(0, 0).ok());
  ASSERT_TRUE(network.AddLeafLink(0, 0, 1000).ok());
  ASSERT_TRUE(network.SetUp({Tier::kLeaf, 0, 0}, Direction::kDown, false).ok());
  ASSERT_TRUE(network.AddLeafLink(0, 0, 500).ok());
  const Network::Row& up = network.RowAt(RowOf(Tier::kLeaf, 0, Direction::kUp));
  const Network::Row& down = network.RowAt(RowOf(Tier::kLeaf, 0, Direction::kDown));
  EXPECT_EQ(up.down, 0U);
  EXPECT_EQ(up.up_kbps, 500000);
  EXPECT_EQ(down.down, 1U);
  EXPECT_EQ(down.up_kbps, 0);
  ASSERT_TRUE(network.SetUp({Tier::kLeaf, 0, 0}, true).ok());
  EXPECT_EQ(down.down, 0U);
  EXPECT_EQ(down.up_kbps, 500000);
}

// A link of half the capacity gets half of the traffic.
TEST(Network, SlowLinksGetLess) {
  Network network;
  Allocator allocator(&network);
  for (const LeafId leaf : {0U, 1U}) {
    ASSERT_TRUE(network.AddLeaf(leaf, 0, 0).ok());
    ASSERT_TRUE(network.AddPort(leaf, 0, leaf, 100000).ok());
  }
  for (SpineId spine = 0; spine < 3; ++spine) {
    ASSERT_TRUE(network.AddSpine(spine, 0).ok());
    for (const LeafId leaf : {0U, 1U}) ASSERT_TRUE(network.AddLeafLink(leaf, spine, 1000).ok());
  }
  ASSERT_TRUE(network.SetCapacity({Tier::kLeaf, 1, 1}, Direction::kDown, 500).ok());
  for (ConnectionId i = 0; i < 50; ++i) {
    ASSERT_TRUE(
        allocator.Allocate({.connection = i, .from = 0, .to = 1, .queue_pairs = 10, .demand_mbps = 10}).ok());
  }
  EXPECT_EQ(allocator.LoadOf({Tier::kLeaf, 0, 0}, Direction::kUp), 200000);
  EXPECT_EQ(allocator.LoadOf({Tier::kLeaf, 0, 1}, Direction::kUp), 100000);
  EXPECT_EQ(allocator.LoadOf({Tier::kLeaf, 1, 2}, Direction::kDown), 200000);
}

}  // namespace
}  // namespace c4::c4p
