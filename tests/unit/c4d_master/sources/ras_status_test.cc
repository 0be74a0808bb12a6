#include "c4d_master/sources/ras_status.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "tests/unit/c4d_master/sources/ras_text.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& reply) {
  const absl::StatusOr<RasStatus> status = ParseRasReply(reply);
  return status.ok() ? "taken" : std::string(status.status().message());
}

TEST(RasStatusTest, RanksCountsAndStatesAreRead) {
  RasTestCommunicator world = RasWorld(3, 640);
  world.ranks[1].all_gathers = 2;
  world.ranks[1].async_error = 6;
  world.ranks[1].aborted = true;
  world.ranks[2].missing = world.ranks[2].dead = true;
  const absl::StatusOr<RasStatus> status = ParseRasReply(RasReply({world}));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->nccl_version, "2.28.9");
  ASSERT_EQ(status->communicators.size(), 1u);
  const RasCommunicator& read = status->communicators[0];
  EXPECT_EQ(read.id, 0xfa93daea854b060bu);
  EXPECT_EQ(read.size, 3u);
  ASSERT_EQ(read.ranks.size(), 2u);
  EXPECT_EQ(read.ranks[0].collectives, 640u);
  EXPECT_EQ(read.ranks[0].host, "10.0.0.1");
  EXPECT_EQ(read.ranks[0].pid, 100u);
  EXPECT_EQ(read.ranks[1].collectives, 642u);
  EXPECT_EQ(read.ranks[1].async_error, 6);
  EXPECT_TRUE(read.ranks[1].aborted);
  EXPECT_FALSE(read.ranks[1].destroyed);
  ASSERT_EQ(read.missing.size(), 1u);
  EXPECT_EQ(read.missing[0].rank, 2u);
  EXPECT_TRUE(read.missing[0].considered_dead);
}

// As NCCL 2.28.9 answered on an H100: three ranks of PyTorch's at work, then one that calls no more, then one
// that was killed.
std::string RealReply(const std::string& name) {
  std::ifstream file(std::string(getenv("C4_SOURCE_DIR")) + "/tests/data/ras/2.28.9-" + name + ".reply");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RasStatusTest, RealAnswersAreRead) {
  const absl::StatusOr<RasStatus> working = ParseRasReply(RealReply("status"));
  ASSERT_TRUE(working.ok()) << working.status();
  ASSERT_EQ(working->communicators.size(), 1U);
  EXPECT_EQ(working->communicators[0].ranks.size(), 3U);
  const absl::StatusOr<RasStatus> behind = ParseRasReply(RealReply("behind"));
  ASSERT_TRUE(behind.ok()) << behind.status();
  const std::vector<RasRank>& ranks = behind->communicators[0].ranks;
  EXPECT_LT(ranks[1].collectives, ranks[0].collectives);
  EXPECT_EQ(ranks[0].collectives, ranks[2].collectives);
}

// A comma is missing there, which makes it no JSON.
TEST(RasStatusTest, ARealAnswerOfADeadRankIsReadThoughItIsNoJson) {
  const absl::StatusOr<RasStatus> killed = ParseRasReply(RealReply("killed"));
  ASSERT_TRUE(killed.ok()) << killed.status();
  const RasCommunicator& world = killed->communicators[0];
  EXPECT_EQ(world.ranks.size(), 2U);
  ASSERT_EQ(world.missing.size(), 1U);
  EXPECT_EQ(world.missing[0].rank, 1U);
  EXPECT_EQ(world.missing[0].pid, 1380U);
  EXPECT_TRUE(world.missing[0].considered_dead);
  EXPECT_EQ(world.ranks[1].async_error, 6);
  // Cut off it is refused as any other.
  const std::string reply = RealReply("killed");
  const size_t last = reply.find_last_of('}');
  for (size_t bytes = 0; bytes <= last; bytes += 7) {
    EXPECT_THAT(Refusal(reply.substr(0, bytes)), HasSubstr("RAS answers with what is not understood"))
        << bytes;
  }
}

TEST(RasStatusTest, AJobWithoutCommunicatorsIsOne) {
  const absl::StatusOr<RasStatus> status = ParseRasReply(RasReply({}));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->communicators.empty());
}

TEST(RasStatusTest, SendsAndReceivesAreNoCollectives) {
  std::string reply = RasReply({RasWorld(1, 5)});
  reply.replace(reply.find("\"Broadcast\": 0"), 14, "\"Send\": 3, \"Recv\": 4, \"SendRecv\": 7");
  EXPECT_EQ(ParseRasReply(reply)->communicators[0].ranks[0].collectives, 5u);
}

TEST(RasStatusTest, WhatRasDoesNotKnowIsLeftEmpty) {
  RasTestCommunicator world = RasWorld(1, 5);
  world.ranks[0].host = "unknown";
  world.ranks[0].pid = -1;
  const absl::StatusOr<RasStatus> status = ParseRasReply(RasReply({world}));
  EXPECT_EQ(status->communicators[0].ranks[0].host, "");
  EXPECT_EQ(status->communicators[0].ranks[0].pid, 0u);
}

TEST(RasStatusTest, CommunicatorsOfOneHashAreToldApartAlwaysAlike) {
  RasTestCommunicator first = RasWorld(1, 5);
  RasTestCommunicator second = RasWorld(1, 7);
  second.secondary = "0x1:0x3";
  const absl::StatusOr<RasStatus> one = ParseRasReply(RasReply({first, second}));
  const absl::StatusOr<RasStatus> other = ParseRasReply(RasReply({second, first}));
  EXPECT_NE(one->communicators[0].id, one->communicators[1].id);
  EXPECT_EQ(one->communicators[0].id, other->communicators[1].id);
  EXPECT_EQ(one->communicators[1].id, other->communicators[0].id);
}

TEST(RasStatusTest, AnAnswerCutOffAnywhereIsRefused) {
  const std::string reply = RasReply({RasWorld(2, 640)});
  const size_t last = reply.find_last_of('}');
  for (size_t bytes = 0; bytes <= last; ++bytes) {
    EXPECT_THAT(Refusal(reply.substr(0, bytes)), HasSubstr("RAS answers with what is not understood"))
        << bytes;
  }
  EXPECT_TRUE(ParseRasReply(reply.substr(0, last + 1)).ok());
}

TEST(RasStatusTest, OlderReleasesAreNamed) {
  const absl::StatusOr<RasStatus> status =
      ParseRasReply("SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\nNCCL version 2.26.2\n");
  EXPECT_EQ(status.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.status().message(), HasSubstr("NCCL 2.28.7 or later"));
}

TEST(RasStatusTest, WhatIsNoRasIsShown) {
  EXPECT_THAT(Refusal("SSH-2.0-OpenSSH_9.2\r\n"), HasSubstr("\"SSH-2.0-OpenSSH_9.2\" where"));
  EXPECT_THAT(Refusal("HTTP/1.1 400 Bad\x1b[2J\r\n\r\n"), HasSubstr("Bad?[2J"));
  EXPECT_THAT(Refusal("SERVER PROTOCOL 3\nERROR: Invalid timeout value\n"), HasSubstr("Invalid timeout"));
  EXPECT_THAT(Refusal("SERVER PROTOCOL 2\nOK\nOK\n[]"), HasSubstr("the answer is no object"));
  EXPECT_THAT(Refusal("SERVER PROTOCOL 2\nOK\nOK\n{\"nccl_version\": 3}"),
              HasSubstr("no text \"nccl_version\""));
}

TEST(RasStatusTest, NumbersThatCannotBeAreNamedWithTheirPlace) {
  const auto with = [](const std::string& what, const std::string& instead) {
    std::string reply = RasReply({RasWorld(2, 640)});
    const size_t at = reply.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return Refusal(reply.replace(at, what.size(), instead));
  };
  EXPECT_THAT(with("\"size\": 2", "\"size\": 0"), HasSubstr("communicator 0 has no \"size\" from 1"));
  EXPECT_THAT(with("\"size\": 2", "\"size\": 1"), HasSubstr("a rank 1 and a size of 1"));
  EXPECT_THAT(with("\"rank\": 1", "\"rank\": 0"), HasSubstr("has a rank twice"));
  EXPECT_THAT(with("\"rank\": 1", "\"rank\": -1"), HasSubstr("no \"rank\" from 0"));
  EXPECT_THAT(with("\"AllReduce\": 640", "\"AllReduce\": -1"), HasSubstr("no \"AllReduce\" from 0"));
  EXPECT_THAT(with("\"AllReduce\": 640", "\"AllReduce\": 18446744073709551615"),
              HasSubstr("no \"AllReduce\""));
  EXPECT_THAT(with("\"AllReduce\": 640", "\"AllReduce\": 1.5"), HasSubstr("no \"AllReduce\""));
  EXPECT_THAT(with("0xfa93daea854b060b", "world"), HasSubstr("no hexadecimal \"hash\""));
  EXPECT_THAT(with("\"missing_ranks\"", "\"absent\""), HasSubstr("no \"missing_ranks\""));
}

TEST(RasStatusTest, NamesOfOthersAreMadePrintable) {
  RasTestCommunicator world = RasWorld(1, 5);
  world.ranks[0].host = "10.0.0.1\\u001b[31m";
  EXPECT_EQ(ParseRasReply(RasReply({world}))->communicators[0].ranks[0].host, "10.0.0.1?[31m");
}

TEST(RasStatusTest, TheRequestAsksForEverythingAtOnce) {
  EXPECT_EQ(RasRequest(3), "CLIENT PROTOCOL 2\nTIMEOUT 3\nSET FORMAT json\nSTATUS\n");
}

}  // namespace
}  // namespace c4::c4d
