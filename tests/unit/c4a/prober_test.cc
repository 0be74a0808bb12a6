// The prober over loopback: what it says of ports that are taken, and that it neither steals nor forgets any.
#include "c4a/prober.h"

#include <arpa/inet.h>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace c4::agent {
namespace {

using service::IpAddress;
using service::IpProtocol;
using service::IpTuple;
using ::testing::HasSubstr;

const IpAddress kSelf = IpAddress::V4(0x7f000001);

class Answers {
 public:
  explicit Answers(const ProberOptions& options = {})
      : prober_(options, [this](uint64_t, ProbeResult result, bool last) {
          const std::lock_guard lock(mutex_);
          results_.push_back(std::move(result));
          lasts_ += last ? 1 : 0;
          changed_.notify_all();
        }) {
    EXPECT_TRUE(prober_.Start().ok());
  }
  std::vector<ProbeResult> Ask(std::vector<IpTuple> tuples, int first_ttl = 1, int last_ttl = 3) {
    const size_t count = tuples.size();
    EXPECT_TRUE(prober_.Submit({1, std::move(tuples), first_ttl, last_ttl}).ok());
    return Await(count);
  }
  std::vector<ProbeResult> Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return results_.size() >= count; });
    EXPECT_EQ(results_.size(), count);
    return std::exchange(results_, {});
  }
  Prober& prober() { return prober_; }
  int lasts() const { return lasts_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ProbeResult> results_;
  int lasts_ = 0;
  Prober prober_;
};

IpTuple Tuple(IpProtocol protocol, int source_port, int destination_port = 9) {
  return {protocol, kSelf, static_cast<uint16_t>(source_port), kSelf,
          static_cast<uint16_t>(destination_port)};
}

// A port of this host that is held by a socket, bound as an ordinary program would.
class Held {
 public:
  explicit Held(IpProtocol protocol, bool share = false)
      : fd_(socket(AF_INET, protocol == IpProtocol::kTcp ? SOCK_STREAM : SOCK_DGRAM, 0)) {
    const int on = 1;
    if (share) setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (share) setsockopt(fd_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(kSelf.v4());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t bytes = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
  }
  ~Held() { close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

// A port that nobody held a moment ago.
int FreePort(IpProtocol protocol) {
  return Held(protocol).port();
}

TEST(ProberTest, AClosedPortOfTheDestinationIsReached) {
  Answers answers;
  for (const IpProtocol protocol : {IpProtocol::kUdp, IpProtocol::kTcp}) {
    const std::vector<ProbeResult> results =
        answers.Ask({Tuple(protocol, FreePort(protocol), FreePort(protocol))});
    ASSERT_EQ(results[0].hops.size(), 1U) << results[0].error;
    EXPECT_EQ(results[0].hops[0].status, HopStatus::kReached);
    EXPECT_EQ(results[0].hops[0].address, kSelf);
    EXPECT_EQ(results[0].fault, ProbeFault::kNone);
  }
  EXPECT_EQ(answers.lasts(), 2);
}

// What it does over IPv4, on the loopback of IPv6.
TEST(ProberTest, OverIpv6) {
  const IpAddress self = *service::ParseIp("::1");
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const service::IpSocketAddress any = SocketAddressOf(self, 0);
  if (bind(fd, any.get(), any.length) != 0) GTEST_SKIP() << "this machine has no ::1";
  sockaddr_storage held{};
  socklen_t bytes = sizeof held;
  getsockname(fd, reinterpret_cast<sockaddr*>(&held), &bytes);
  Answers answers;
  for (const IpProtocol protocol : {IpProtocol::kUdp, IpProtocol::kTcp}) {
    const IpTuple tuple = {protocol, self, 28195, self, 9};
    const std::vector<ProbeResult> results = answers.Ask({tuple});
    ASSERT_EQ(results[0].hops.size(), 1U) << results[0].error;
    EXPECT_EQ(results[0].hops[0].status, HopStatus::kReached);
    EXPECT_EQ(results[0].hops[0].address, self);
  }
  EXPECT_EQ(answers.Ask({{IpProtocol::kUdp, self, service::PortOf(&held), self, 9}})[0].fault,
            ProbeFault::kPortInUse);
  const std::pair<const char*, const char*> bad[] = {
      {"::1", "127.0.0.1"}, {"::1", "ff02::1"}, {"fe80::1", "fe80::2"}, {"::1", "fe80::2"}};
  for (const auto& [source, destination] : bad) {
    const ProbeResult result = answers.Ask(
        {{IpProtocol::kUdp, *service::ParseIp(source), 28195, *service::ParseIp(destination), 9}})[0];
    EXPECT_EQ(result.fault, ProbeFault::kBadTuple) << source << " " << destination << result.error;
  }
  EXPECT_EQ(answers.Ask({{IpProtocol::kUdp, *service::ParseIp("fd99::1"), 28195, self, 9}})[0].fault,
            ProbeFault::kNotOurAddress);
  close(fd);
}

TEST(ProberTest, APortInUseIsReportedAndNotStolen) {
  Answers answers;
  for (const bool share : {false, true}) {
    const Held held(IpProtocol::kUdp, share);
    const std::vector<ProbeResult> results = answers.Ask({Tuple(IpProtocol::kUdp, held.port())});
    EXPECT_EQ(results[0].fault, ProbeFault::kPortInUse) << results[0].error;
    EXPECT_THAT(results[0].error, HasSubstr("is in use"));
    EXPECT_TRUE(results[0].hops.empty());
  }
}

bool MaySendSegments() {
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// What tests/net/prober_test.cc sees of paths; here there is none, and the destination says nothing.
TEST(ProberTest, ATcpPortInUseIsProbedPastItsOwnerWhereThatIsAllowed) {
  Answers answers;
  for (const bool share : {false, true}) {
    const Held held(IpProtocol::kTcp, share);
    const std::vector<ProbeResult> results = answers.Ask({Tuple(IpProtocol::kTcp, held.port())});
    if (!MaySendSegments()) {
      EXPECT_EQ(results[0].fault, ProbeFault::kPortInUse) << results[0].error;
      EXPECT_THAT(results[0].error, HasSubstr("CAP_NET_RAW"));
      continue;
    }
    EXPECT_EQ(results[0].fault, ProbeFault::kNone) << results[0].error;
    ASSERT_FALSE(results[0].hops.empty());
    EXPECT_EQ(results[0].hops[0].status, HopStatus::kSilent);
  }
}

TEST(ProberTest, APortIsFreeAgainAfterwards) {
  Answers answers;
  for (const IpProtocol protocol : {IpProtocol::kUdp, IpProtocol::kTcp}) {
    Held listener(IpProtocol::kTcp);
    listen(listener.fd(), 8);
    const int port = FreePort(protocol);
    for (int round = 0; round < 5; ++round) {
      const std::vector<ProbeResult> results = answers.Ask({Tuple(protocol, port, listener.port())});
      EXPECT_EQ(results[0].fault, ProbeFault::kNone) << results[0].error;
    }
  }
}

TEST(ProberTest, AddressesThatAreNotOursAndTuplesThatCannotBe) {
  Answers answers;
  IpTuple foreign = Tuple(IpProtocol::kUdp, 40000);
  foreign.source = *service::ParseIp("192.0.2.77");
  EXPECT_EQ(answers.Ask({foreign})[0].fault, ProbeFault::kNotOurAddress);
  foreign.protocol = IpProtocol::kTcp;
  EXPECT_EQ(answers.Ask({foreign})[0].fault, ProbeFault::kNotOurAddress);
  IpTuple multicast = Tuple(IpProtocol::kUdp, 40000);
  multicast.destination = *service::ParseIp("224.0.0.1");
  EXPECT_EQ(answers.Ask({multicast})[0].fault, ProbeFault::kBadTuple);
  EXPECT_EQ(answers.Ask({Tuple(IpProtocol::kUdp, 0)})[0].fault, ProbeFault::kBadTuple);
}

TEST(ProberTest, TuplesOfOnePortTakeTurns) {
  Answers answers;
  const int port = FreePort(IpProtocol::kUdp);
  std::vector<IpTuple> tuples;
  for (int destination = 1; destination <= 200; ++destination) {
    tuples.push_back(Tuple(IpProtocol::kUdp, port, destination));
  }
  const std::vector<ProbeResult> results = answers.Ask(tuples);
  std::map<int, int> seen;
  for (const ProbeResult& result : results) {
    EXPECT_EQ(result.fault, ProbeFault::kNone) << result.error;
    ++seen[result.tuple.destination_port];
  }
  EXPECT_EQ(seen.size(), tuples.size());
}

TEST(ProberTest, OrdersAreCheckedAndBounded) {
  ProberOptions options;
  options.max_queued = 10;
  options.per_second = 1;
  Answers answers(options);
  EXPECT_EQ(answers.prober().Submit({1, {}, 1, 3}).code(), absl::StatusCode::kInvalidArgument);
  for (const auto& [first, last] : {std::pair(0, 3), std::pair(3, 2), std::pair(1, 256)}) {
    EXPECT_EQ(answers.prober().Submit({1, {Tuple(IpProtocol::kUdp, 40000)}, first, last}).code(),
              absl::StatusCode::kInvalidArgument);
  }
  const std::vector<IpTuple> eleven(11, Tuple(IpProtocol::kUdp, 40000));
  EXPECT_EQ(answers.prober().Submit({1, eleven, 1, 3}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ProberTest, CancelledTuplesAreAllReported) {
  ProberOptions options;
  options.per_second = 1;
  options.burst = 1;
  options.max_open = 3;
  Answers answers(options);
  std::vector<IpTuple> tuples;
  tuples.reserve(20);
  for (int i = 0; i < 20; ++i) tuples.push_back(Tuple(IpProtocol::kUdp, 40000 + i / 2, 1 + i));
  ASSERT_TRUE(answers.prober().Submit({1, tuples, 1, 3}).ok());
  answers.prober().Cancel();
  const std::vector<ProbeResult> results = answers.Await(20);
  int cancelled = 0;
  for (const ProbeResult& result : results) cancelled += result.fault == ProbeFault::kCancelled ? 1 : 0;
  EXPECT_GE(cancelled, 18);
  EXPECT_EQ(answers.lasts(), 1);
  // And it goes on working: the queue is empty, not lost.
  EXPECT_TRUE(answers.prober().Submit({2, {Tuple(IpProtocol::kUdp, 40000)}, 1, 1}).ok());
}

TEST(ProberTest, StopInTheMiddleOfWork) {
  for (int round = 0; round < 10; ++round) {
    Answers answers;
    std::vector<IpTuple> tuples;
    tuples.reserve(500);
    for (int i = 0; i < 500; ++i) tuples.push_back(Tuple(IpProtocol::kUdp, 41000 + i, 9));
    ASSERT_TRUE(answers.prober().Submit({1, tuples, 1, 3}).ok());
    answers.prober().Stop();
  }
}

TEST(ProberTest, AbsurdOrdersAreRefusedAndCounted) {
  ProberOptions options;
  options.max_orders_per_second = 3;
  options.max_order_tuples = 8;
  options.max_order_targets = 2;
  Answers answers(options);
  const auto submit = [&](int ports, uint32_t targets) {
    std::vector<IpTuple> tuples;
    for (int i = 0; i < ports; ++i) {
      tuples.push_back(Tuple(IpProtocol::kUdp, 28200 + i));
      tuples.back().destination = IpAddress::V4(kSelf.v4() + static_cast<uint32_t>(i) % targets);
    }
    return answers.prober().Submit({1, std::move(tuples), 1, 1});
  };
  EXPECT_THAT(std::string(submit(9, 1).message()), HasSubstr("9 ports to probe, of at most 8"));
  EXPECT_THAT(std::string(submit(8, 3).message()), HasSubstr("3 targets, of at most 2"));
  EXPECT_TRUE(submit(8, 2).ok());
  EXPECT_THAT(std::string(submit(1, 1).message()), HasSubstr("more than 3 orders a second"));
  EXPECT_EQ(answers.prober().counts().refused, 3u);
  answers.Await(8);
  usleep(1'100'000);
  EXPECT_TRUE(submit(1, 1).ok());
  answers.Await(1);
}

}  // namespace
}  // namespace c4::agent
