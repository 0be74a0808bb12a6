// The table of accepted verdicts, by what the job has to tell of links by.
#include "cli/demonstration/expected_verdict.h"

#include "gtest/gtest.h"

namespace c4::cli {
namespace {

fabric::Applied Uplink(fabric::Kind kind) {
  fabric::Applied applied;
  applied.injection.kind = kind;
  applied.injection.target = "leaf0-spine1";
  applied.links = {fabric::UplinkOf(0, 1)};
  return applied;
}

TEST(ExpectedVerdict, OfALinkWithoutPathsIsTheConnections) {
  for (const auto kind : {fabric::Kind::kCut, fabric::Kind::kSlowLink}) {
    const ExpectedVerdict expected = ExpectedVerdictOf(Uplink(kind));
    EXPECT_EQ(expected.kind, v1::CULPRIT_KIND_CONNECTION);
    EXPECT_TRUE(expected.cable.empty());
  }
}

TEST(ExpectedVerdict, OfALinkWithPathsIsTheLink) {
  const ExpectedVerdict slow = ExpectedVerdictOf(Uplink(fabric::Kind::kSlowLink), {.paths_known = true});
  EXPECT_EQ(slow.syndrome, v1::SYNDROME_COMMUNICATION_SLOW);
  EXPECT_EQ(slow.kind, v1::CULPRIT_KIND_LINK);
  EXPECT_EQ(slow.cable, "leaf0-spine1");
  EXPECT_EQ(slow.limit_s, 10);
  const ExpectedVerdict cut = ExpectedVerdictOf(Uplink(fabric::Kind::kCut), {.paths_known = true});
  EXPECT_EQ(cut.syndrome, v1::SYNDROME_COMMUNICATION_HANG);
  EXPECT_EQ(cut.kind, v1::CULPRIT_KIND_LINK);
  const ExpectedVerdict around =
      ExpectedVerdictOf(Uplink(fabric::Kind::kCut), {.paths_known = true, .fail_over = true});
  EXPECT_EQ(around.syndrome, v1::SYNDROME_PATH_LOST);
  EXPECT_EQ(around.kind, v1::CULPRIT_KIND_LINK);
  EXPECT_EQ(around.cable, "leaf0-spine1");
}

TEST(ExpectedVerdict, OfALinkThatTheTransportGoesAroundWithoutPathsIsNone) {
  EXPECT_EQ(ExpectedVerdictOf(Uplink(fabric::Kind::kCut), {.fail_over = true}).kind,
            v1::CULPRIT_KIND_UNSPECIFIED);
  EXPECT_EQ(ExpectedVerdictOf(Uplink(fabric::Kind::kSlowLink), {.fail_over = true}).kind,
            v1::CULPRIT_KIND_CONNECTION);
}

TEST(ExpectedVerdict, OfAHostsLinkIsItsNicInAnyCase) {
  fabric::Applied applied;
  applied.injection.kind = fabric::Kind::kCut;
  applied.links = {{.kind = fabric::Link::Kind::kHost, .leaf = 0, .spine = 0, .host = 1}};
  for (const NetworkTerms terms : {NetworkTerms{}, NetworkTerms{true, true}}) {
    const ExpectedVerdict expected = ExpectedVerdictOf(applied, terms);
    EXPECT_EQ(expected.syndrome, v1::SYNDROME_COMMUNICATION_HANG);
    EXPECT_EQ(expected.kind, v1::CULPRIT_KIND_NIC);
    EXPECT_EQ(expected.host, "host1");
  }
}

TEST(ExpectedVerdict, OfASlowHostIsItsRankOrTheNode) {
  fabric::Applied applied;
  applied.injection.kind = fabric::Kind::kSlowRank;
  applied.hosts = {4};
  applied.ranks = {7};
  EXPECT_EQ(ExpectedVerdictOf(applied).kind, v1::CULPRIT_KIND_RANK);
  EXPECT_EQ(ExpectedVerdictOf(applied).rank, 7);
  applied.ranks = {7, 8, 9};
  EXPECT_EQ(ExpectedVerdictOf(applied).kind, v1::CULPRIT_KIND_NODE);
  EXPECT_EQ(ExpectedVerdictOf(applied).host, "host4");
}

// Only what all take that has to be named is told apart by nothing.
TEST(ExpectedVerdict, SharedLinksAreThoseOfAllThatHaveToBeNamed) {
  const fabric::Applied applied = Uplink(fabric::Kind::kCut);
  const auto flow = [](int to_leaf, uint64_t queued) {
    fabric::Flow result;
    result.tuple = {"10.0.0.1", 1000 + to_leaf, "10.0.0.9", 9000};
    result.queued_bytes = queued;
    result.data.links = {fabric::UplinkOf(0, 1), fabric::UplinkOf(to_leaf, 1)};
    return result;
  };
  const ExpectedFlows one = ExpectedFlowsOf(applied, {flow(2, 5000), flow(3, 0)});
  EXPECT_EQ(one.must.size(), 1U);
  EXPECT_EQ(one.shared, (std::set<std::string>{"leaf2-spine1"}));
  EXPECT_TRUE(ExpectedFlowsOf(applied, {flow(2, 5000), flow(3, 5000)}).shared.empty());
}

}  // namespace
}  // namespace c4::cli
