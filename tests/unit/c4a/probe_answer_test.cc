// Which messages are an answer to a probe: the true one is, and none that differs from it in anything that
// matters.
#include "c4a/probe_answer.h"

#include <gtest/gtest.h>
#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <random>
#include <vector>

namespace c4::agent {
namespace {

using service::IpAddress;
using service::IpProtocol;
using service::IpTuple;

constexpr uint64_t kMark = 0x1234567890abcdefU;

// The parameter: over IPv6.
class AnswerTest : public testing::TestWithParam<bool> {
 protected:
  AnswerTest() {
    tuple_ = {IpProtocol::kUdp, Address("10.0.0.2", "fd10::2"), 40000, Address("10.1.0.2", "fd10:1::2"),
              4791};
    payload_.resize(kMarkBytes);
    WriteMark(kMark, 1, payload_.data());
    error_.origin = Origin();
    error_.type = GetParam() ? ICMP6_TIME_EXCEEDED : ICMP_TIME_EXCEEDED;
    error_.code = 0;
    error_.offender = Address("172.16.1.1", "fd20:10::1");
    error_.destination = tuple_.destination;
    error_.destination_port = tuple_.destination_port;
    error_.quoted = payload_;
  }
  static IpAddress Address(const char* v4, const char* v6) {
    return service::ParseIp(GetParam() ? v6 : v4).value();
  }
  static uint8_t Origin() { return GetParam() ? SO_EE_ORIGIN_ICMP6 : SO_EE_ORIGIN_ICMP; }
  void SayUnreachable(int v4_code, int v6_code) {
    error_.type = GetParam() ? ICMP6_DST_UNREACH : ICMP_DEST_UNREACH;
    error_.code = static_cast<uint8_t>(GetParam() ? v6_code : v4_code);
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

TEST_P(AnswerTest, ARouterOnTheWay) {
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  EXPECT_EQ(Judged().tried, 1);
}

TEST_P(AnswerTest, ARouterThatQuotesTheLeastThatItMust) {
  error_.quoted = {};
  EXPECT_EQ(Judged().verdict, Verdict::kHop);
  EXPECT_EQ(Judged().tried, -1);
}

TEST_P(AnswerTest, EveryBitOfTheMarkCounts) {
  for (size_t bit = 0; bit < kMarkBytes * 8; ++bit) {
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    const Judgement judged = Judged();
    // One bit can make the mark that of the other try.
    EXPECT_TRUE(judged.verdict == Verdict::kAlien || judged.tried == 0) << bit;
    payload_[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
}

TEST_P(AnswerTest, ASegmentIsKnownByPortsAndSequenceNumber) {
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

TEST_P(AnswerTest, OfATryThatWasNotMade) {
  WriteMark(kMark, 2, payload_.data());
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
}

TEST_P(AnswerTest, AnotherDestinationOrPort) {
  error_.destination.low ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
  error_.destination = tuple_.destination;
  error_.destination_port ^= 1;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien);
}

TEST_P(AnswerTest, FromAnAddressThatNoRouterHas) {
  for (const char* address : {"0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "10.0.0.2", "::", "::1",
                              "ff02::1", "fe80::1", "fd10::2"}) {
    const IpAddress own = *service::ParseIp(address);
    // This host's address of the other version is like any router's: the kernel says who sent it.
    if (own.known() && own.is_of_network() && own.is_v4() == GetParam()) continue;
    error_.offender = own;
    EXPECT_EQ(Judged().verdict, Verdict::kAlien) << address;
  }
}

TEST_P(AnswerTest, OtherOriginsTypesAndCodes) {
  std::mt19937_64 random(3);
  for (int origin = 0; origin < 8; ++origin) {
    for (int type = 0; type < 256; ++type) {
      for (int code = 0; code < 32; ++code) {
        error_.origin = static_cast<uint8_t>(origin);
        error_.type = static_cast<uint8_t>(type);
        error_.code = static_cast<uint8_t>(code);
        Verdict expected = Verdict::kAlien;
        if (origin == SO_EE_ORIGIN_LOCAL) expected = Verdict::kLocal;
        const bool ours = origin == Origin();
        if (ours && type == (GetParam() ? 3 : 11) && code == 0) expected = Verdict::kHop;
        // Protocol, port, size: not a router's to say.
        const bool final = GetParam() ? code == 4 : code == 2 || code == 3 || code == 4;
        if (ours && type == (GetParam() ? 1 : 3) && !final) expected = Verdict::kUnreachable;
        ASSERT_EQ(Judged().verdict, expected) << origin << " " << type << " " << code;
      }
    }
  }
}

TEST_P(AnswerTest, TheDestination) {
  error_.offender = tuple_.destination;
  EXPECT_EQ(Judged().verdict, Verdict::kAlien) << "it does not pass packets on";
  SayUnreachable(ICMP_PORT_UNREACH, ICMP6_DST_UNREACH_NOPORT);
  EXPECT_EQ(Judged().verdict, Verdict::kReached);
}

TEST_P(AnswerTest, ThisHostSaysThatItsGatewayIsGone) {
  error_.offender = tuple_.source;
  SayUnreachable(ICMP_HOST_UNREACH, ICMP6_DST_UNREACH_ADDR);
  EXPECT_EQ(Judged().verdict, Verdict::kLocal);
}

TEST_P(AnswerTest, TcpQuotesItsPorts) {
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

TEST_P(AnswerTest, WhyNoWayLeadsFurther) {
  SayUnreachable(ICMP_NET_UNREACH, ICMP6_DST_UNREACH_NOROUTE);
  EXPECT_STREQ(Judged().why, "has no route to the network");
  SayUnreachable(ICMP_HOST_UNREACH, ICMP6_DST_UNREACH_ADDR);
  EXPECT_STREQ(Judged().why, "has no route to the host");
  SayUnreachable(ICMP_PKT_FILTERED, ICMP6_DST_UNREACH_ADMIN);
  EXPECT_STREQ(Judged().why, "filters the packets");
}

INSTANTIATE_TEST_SUITE_P(Ip, AnswerTest, testing::Bool(), [](const testing::TestParamInfo<bool>& version) {
  return version.param ? "v6" : "v4";
});

TEST(IpTupleTest, AddressesAreReadExactly) {
  EXPECT_EQ(service::ParseIp("10.1.2.255"), IpAddress::V4(0x0a0102ff));
  EXPECT_EQ(service::ParseIp("::ffff:10.1.2.255"), IpAddress::V4(0x0a0102ff)) << "one value";
  EXPECT_EQ(service::ParseIp("::ffff:0.0.0.0"), IpAddress()) << "none";
  EXPECT_EQ(IpText(*service::ParseIp("FD10:0:0:1::00a")), "fd10:0:0:1::a");
  EXPECT_EQ(service::IpPortText(*service::ParseIp("fd10::a"), 80), "[fd10::a]:80");
  EXPECT_EQ(service::IpPortText(*service::ParseIp("10.0.0.1"), 80), "10.0.0.1:80");
  std::mt19937_64 random(4);
  for (int i = 0; i < 1000; ++i) {
    const IpAddress address =
        i % 2 == 0 ? IpAddress{random(), random()} : IpAddress::V4(static_cast<uint32_t>(random()));
    EXPECT_EQ(service::ParseIp(IpText(address)), address) << IpText(address);
    const service::IpSocketAddress socket = SocketAddressOf(address, static_cast<uint16_t>(i + 1));
    EXPECT_EQ(service::AddressOf(&socket.storage), address);
    EXPECT_EQ(service::PortOf(&socket.storage), i + 1);
    unsigned char bytes[16];
    address.ToBytes(bytes);
    EXPECT_EQ(IpAddress::FromBytes(bytes), address);
  }
  EXPECT_EQ(IpText(*service::ParseIp("10.1.2.255")), "10.1.2.255");
  for (const char* text : {"",          "10",         "10.1.2",           "10.1.2.3.4",  "10.1.2.256",
                           "10.1.2.03", " 10.1.2.3",  "10.1.2.3 ",        "10..2.3",     "1e1.1.1.1",
                           "-1.0.0.0",  "10.1.2.",    "4294967296.1.1.1", "fd10",        "fd10::1%eth0",
                           "[fd10::1]", "fd10::1/64", "fd10::1::2",       "fd10::12345", "1:2:3:4:5:6:7:8:9",
                           " fd10::1"}) {
    EXPECT_FALSE(service::ParseIp(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace c4::agent
