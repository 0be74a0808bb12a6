// Which messages are an answer to a probe: the true one is, and none that differs from it in anything that
// matters.
#include "c4a/probe_answer.h"

#include <gtest/gtest.h>
#include <linux/errqueue.h>
#include <netinet/ip_icmp.h>
#include <random>
#include <vector>

namespace c4::agent {
namespace {

using service::IpProtocol;
using service::IpTuple;
using service::Ipv4;

constexpr uint64_t kMark = 0x1234567890abcdefU;

class AnswerTest : public testing::Test {
 protected:
  AnswerTest() {
    tuple_ = {IpProtocol::kUdp, *service::ParseIpv4("10.0.0.2"), 40000, *service::ParseIpv4("10.1.0.2"),
              4791};
    payload_.resize(kMarkBytes);
    WriteMark(kMark, 1, payload_.data());
    error_.origin = SO_EE_ORIGIN_ICMP;
    error_.type = ICMP_TIME_EXCEEDED;
    error_.code = ICMP_EXC_TTL;
    error_.offender = *service::ParseIpv4("172.16.1.1");
    error_.destination = tuple_.destination;
    error_.destination_port = tuple_.destination_port;
    error_.quoted = payload_;
  }
  Judgement Judged() const { return Judge(tuple_, kMark, 2, segment_, error_); }

  // As the answer to a single TCP segment that went out as the second one.
  void QuoteSegment() {
    segment_ = true;
    tuple_.protocol = IpProtocol::kTcp;
    const uint32_t mark = SegmentMark(kMark, 1);
    payload_ = {static_cast<unsigned char>(tuple_.source_port >> 8),
                static_cast<unsigned char>(tuple_.source_port),
                static_cast<unsigned char>(tuple_.destination_port >> 8),
                static_cast<unsigned char>(tuple_.destination_port),
                static_cast<unsigned char>(mark >> 24),
                static_cast<unsigned char>(mark >> 16),
                static_cast<unsigned char>(mark >> 8),
                static_cast<unsigned char>(mark)};
    error_.quoted = payload_;
    error_.destination_port = 0;  // a raw socket's error queue has none
  }

  bool segment_ = false;
  IpTuple tuple_;
  std::vector<unsigned char> payload_;
  QueuedError error_;
};

TEST_F(AnswerTest, ARouterOnTheWay) {
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  EXPECT_EQ(Judged().tried, 1);
}

TEST_F(AnswerTest, ARouterThatQuotesTheLeastThatItMust) {
  error_.quoted = {};
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  EXPECT_EQ(Judged().tried, -1);
}

TEST_F(AnswerTest, EveryBitOfTheMarkCounts) {
  for (size_t bit = 0; bit < kMarkBytes * 8; ++bit) {
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    const Judgement judged = Judged();
    // One bit can make the mark that of the other try.
    EXPECT_TRUE(judged.verdict == Verdict::kAlien || judged.tried == 0) << bit;
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
}

TEST_F(AnswerTest, ASegmentIsKnownByPortsAndSequenceNumber) {
  QuoteSegment();
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  EXPECT_EQ(Judged().tried, 1);
  for (size_t bit = 0; bit < payload_.size() * 8; ++bit) {
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    const Judgement judged = Judged();
    EXPECT_TRUE(judged.verdict == Verdict::kAlien || judged.tried == 0) << bit;
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  for (size_t bytes = 0; bytes < payload_.size(); ++bytes) {
    error_.quoted = {payload_.data(), bytes};
    EXPECT_EQ(Judged().verdict, Verdict::kAlien) << bytes;
  }
}

TEST_F(AnswerTest, OfATryThatWasNotMade) {
  WriteMark(kMark, 2, payload_.data());
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
}

TEST_F(AnswerTest, AnotherDestinationOrPort) {
  error_.destination.bits ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
  error_.destination = tuple_.destination;
  error_.destination_port ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
}

TEST_F(AnswerTest, FromAnAddressThatNoRouterHas) {
  for (const char* address : {"0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "10.0.0.2"}) {
    error_.offender = *service::ParseIpv4(address);
    EXPECT_EQ(Judged().verdict, Verdict::kAlien) << address;
  }
}

TEST_F(AnswerTest, OtherOriginsTypesAndCodes) {
  std::mt19937_64 random(3);
  for (int origin = 0; origin < 8; ++origin) {
    for (int type = 0; type < 256; ++type) {
      for (int code = 0; code < 32; ++code) {
        error_.origin = static_cast<uint8_t>(origin);
        error_.type = static_cast<uint8_t>(type);
        error_.code = static_cast<uint8_t>(code);
        Verdict expected = Verdict::kAlien;
        if (origin == SO_EE_ORIGIN_LOCAL) expected = Verdict::kLocal;
        if (origin == SO_EE_ORIGIN_ICMP && type == 11 && code == 0) expected = Verdict::kHop;
        const bool final =
            code == 2 || code == 3 || code == 4;  // protocol, port, size: not a router's to say
        if (origin == SO_EE_ORIGIN_ICMP && type == 3 && !final) expected = Verdict::kUnreachable;
        ASSERT_EQ(Judged().verdict, expected) << origin << " " << type << " " << code;
      }
    }
  }
}

TEST_F(AnswerTest, TheDestination) {
  error_.offender = tuple_.destination;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien) << "it does not pass packets on";
  error_.type = ICMP_DEST_UNREACH;
  error_.code = ICMP_PORT_UNREACH;
  EXPECT_EQ(Judged().verdict, Verdict::kReached);
}

TEST_F(AnswerTest, ThisHostSaysThatItsGatewayIsGone) {
  error_.offender = tuple_.source;
  error_.type = ICMP_DEST_UNREACH;
  error_.code = ICMP_HOST_UNREACH;
  EXPECT_EQ(Judged().verdict, Verdict::kLocal);
}

TEST_F(AnswerTest, TcpQuotesItsPorts) {
  tuple_.protocol = IpProtocol::kTcp;
  payload_ = {40000 >> 8, 40000 & 255, 4791 >> 8, 4791 & 255, 0, 0, 0, 1};
  error_.quoted = payload_;
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  payload_[1] ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
  payload_[1] ^= 1;
  payload_[3] ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
  error_.quoted = {};
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
}

TEST(IpTupleTest, AddressesAreReadExactly) {
  EXPECT_EQ(service::ParseIpv4("10.1.2.255"), service::Ipv4{0x0a0102ff});
  EXPECT_EQ(Ipv4Text(*service::ParseIpv4("10.1.2.255")), "10.1.2.255");
  for (const char* text : {"", "10", "10.1.2", "10.1.2.3.4", "10.1.2.256", "10.1.2.03", " 10.1.2.3",
                           "10.1.2.3 ", "10..2.3", "1e1.1.1.1", "-1.0.0.0", "10.1.2.", "4294967296.1.1.1"}) {
    EXPECT_FALSE(service::ParseIpv4(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace c4::agent
