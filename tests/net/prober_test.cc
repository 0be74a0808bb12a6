// The prober on real routers: every hop is the one that the kernel's own tables name, also where answers are
// rationed, forged or missing, and fast enough.
#include "c4a/prober.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "tests/net/probe_support.h"
#include "tests/net/traffic.h"

namespace c4::net_test {
namespace {

using agent::HopStatus;
using agent::ProbeFault;
using agent::ProbeResult;
using agent::ProberOptions;
using fabric::Fabric;
using fabric::FabricSpec;
using service::IpProtocol;
using service::IpTuple;

constexpr char kName[] = "pbprb";
constexpr int kPort = 4791;

class ProberNetTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    Fabric::Down(kName).IgnoreError();  // what an earlier run left
  }
  void TearDown() override {
    if (fabric::CheckRights().ok()) Fabric::Down(kName).IgnoreError();
  }

  Fabric MustUp(int leaves, int spines, int hosts) {
    FabricSpec spec;
    spec.name = kName;
    spec.leaves = leaves;
    spec.spines = spines;
    spec.hosts_per_leaf = hosts;
    absl::StatusOr<Fabric> made = Fabric::Up(spec);
    if (!made.ok()) throw std::runtime_error(made.status().ToString());
    spec_ = spec;
    return *std::move(made);
  }

  std::string HostAddress(int host) const { return fabric::HostAddresses(spec_, host).front(); }
  std::string HostNs(int host) const { return fabric::HostNamespace(spec_, host); }

  std::vector<IpTuple> Tuples(IpProtocol protocol, int from, int to, int first_port, int ports) const {
    std::vector<IpTuple> tuples;
    for (int port = first_port; port < first_port + ports; ++port) {
      tuples.push_back(Tuple(protocol, HostAddress(from), port, HostAddress(to), kPort));
    }
    return tuples;
  }

  // Each result's three hops against the oracle.
  void ExpectRight(const std::vector<ProbeResult>& results) const {
    std::vector<fabric::FiveTuple> tuples;
    tuples.reserve(results.size());
    for (const ProbeResult& result : results) tuples.push_back(OracleTuple(result.tuple));
    const auto paths = fabric::PathsOf(spec_, tuples);
    ASSERT_TRUE(paths.ok()) << paths.status();
    for (size_t i = 0; i < results.size(); ++i) {
      const fabric::Path& path = (*paths)[i];
      ASSERT_EQ(results[i].fault, ProbeFault::kNone) << results[i].error;
      ASSERT_EQ(results[i].hops.size(), 3U) << TupleText(results[i].tuple);
      const std::string expected[] = {fabric::HostGateway(spec_, path.source_host, 0),
                                      fabric::SpineDownlinkAddress(spec_, path.source_leaf, path.spine),
                                      fabric::LeafUplinkAddress(spec_, path.destination_leaf, path.spine)};
      for (size_t hop = 0; hop < 3; ++hop) {
        EXPECT_EQ(results[i].hops[hop].status, HopStatus::kAnswered)
            << TupleText(results[i].tuple) << " hop " << hop + 1;
        EXPECT_EQ(IpText(results[i].hops[hop].address), expected[hop])
            << TupleText(results[i].tuple) << " hop " << hop + 1;
      }
    }
  }

  FabricSpec spec_;
};

ProberOptions Fast() {
  ProberOptions options;
  options.per_second = 200000;
  options.burst = 256;
  options.max_open = 512;
  return options;
}

TEST_F(ProberNetTest, AThousandPathsInHalfASecondAllRight) {
  MustUp(2, 4, 4);
  std::vector<IpTuple> tuples;
  for (int to = 4; to < 8; ++to) {
    for (const IpTuple& tuple : Tuples(IpProtocol::kUdp, 0, to, 40000, 256)) tuples.push_back(tuple);
  }
  HostProber host(HostNs(0), Fast());
  // The best of three: others may want the machine as well.
  double best_s = 1e9;
  for (int round = 0; round < 3 && best_s > 0.5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<ProbeResult> results = host.Ask(tuples, 1, 3);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_EQ(results.size(), 1024U);
    ExpectRight(results);
    best_s = std::min(best_s, took.count());
    printf("1024 UDP tuples, 3 hops each: %.0f ms, %lu packets in all\n", took.count() * 1000,
           host.prober().counts().packets);
  }
  EXPECT_LE(best_s, 0.5);
}

TEST_F(ProberNetTest, TcpHasAMapOfItsOwnAndIsLearntAsWell) {
  MustUp(2, 4, 2);
  HostProber host(HostNs(0), Fast());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ProbeResult> tcp = host.Ask(Tuples(IpProtocol::kTcp, 0, 2, 40000, 256), 1, 3);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  printf("256 TCP tuples, 3 hops each: %.0f ms\n", took.count() * 1000);
  ASSERT_EQ(tcp.size(), 256U);
  ExpectRight(tcp);
  std::vector<ProbeResult> udp = host.Ask(Tuples(IpProtocol::kUdp, 0, 2, 40000, 256), 1, 3);
  ASSERT_EQ(udp.size(), 256U);
  const auto spine_by_port = [](const std::vector<ProbeResult>& results) {
    std::map<int, service::IpAddress> spines;
    for (const ProbeResult& result : results) spines[result.tuple.source_port] = result.hops.at(1).address;
    return spines;
  };
  EXPECT_NE(spine_by_port(tcp), spine_by_port(udp));
  // The ports are free again, and the paths hold for real connections.
  const Sink sink(HostNs(2), kPort);
  const absl::Status sent =
      SendBytes(HostNs(0), OracleTuple(Tuple(IpProtocol::kTcp, HostAddress(0), 40000, HostAddress(2), kPort)),
                10000, 2000);
  EXPECT_TRUE(sent.ok()) << sent;
}

// The two ends of a connection that lives, each in its host.
class Live {
 public:
  Live(const std::string& from_ns, const std::string& to_ns, const IpTuple& tuple) {
    const auto address_of = [](service::IpAddress host, int port) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(host.v4());
      address.sin_port = htons(static_cast<uint16_t>(port));
      return address;
    };
    const sockaddr_in source = address_of(tuple.source, tuple.source_port);
    const sockaddr_in destination = address_of(tuple.destination, tuple.destination_port);
    const auto make = [](const sockaddr_in& own, int* fd) {
      *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      return bind(*fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0
                 ? absl::OkStatus()
                 : absl::ErrnoToStatus(errno, "bind");
    };
    EXPECT_TRUE(fabric::InNamespace(to_ns, [&] { return make(destination, &listen_fd_); }).ok());
    EXPECT_TRUE(fabric::InNamespace(from_ns, [&] { return make(source, &fd_); }).ok());
    listen(listen_fd_, 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&destination), sizeof destination), 0);
    accepted_fd_ = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    EXPECT_GE(accepted_fd_, 0);
  }
  ~Live() {
    for (const int fd : {fd_, accepted_fd_, listen_fd_}) close(fd);
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  bool Exchange() const {
    char data = 'x';
    return send(fd_, &data, 1, MSG_NOSIGNAL) == 1 && recv(accepted_fd_, &data, 1, 0) == 1 &&
           send(accepted_fd_, &data, 1, MSG_NOSIGNAL) == 1 && recv(fd_, &data, 1, 0) == 1;
  }

 private:
  int listen_fd_ = -1;
  int fd_ = -1;
  int accepted_fd_ = -1;
};

TEST_F(ProberNetTest, BothWaysOfAConnectionThatLivesAreLearntAndItIsNotDisturbed) {
  MustUp(2, 4, 2);
  std::vector<IpTuple> out = Tuples(IpProtocol::kTcp, 0, 2, 40000, 24);
  std::vector<std::unique_ptr<Live>> connections;
  std::vector<IpTuple> back;
  for (IpTuple& tuple : out) {
    tuple.destination_port = static_cast<uint16_t>(tuple.source_port + 1000);
    connections.push_back(std::make_unique<Live>(HostNs(0), HostNs(2), tuple));
    back.push_back(
        {IpProtocol::kTcp, tuple.destination, tuple.destination_port, tuple.source, tuple.source_port});
  }
  HostProber here(HostNs(0), Fast());
  HostProber there(HostNs(2), Fast());
  const std::vector<ProbeResult> data = here.Ask(out, 1, 3);
  ASSERT_EQ(data.size(), out.size());
  ExpectRight(data);
  const std::vector<ProbeResult> acks = there.Ask(back, 1, 3);
  ASSERT_EQ(acks.size(), back.size());
  ExpectRight(acks);
  // All the way to the other end, which takes none of it in.
  const std::vector<ProbeResult> far = here.Ask(out, 4, 5);
  ASSERT_EQ(far.size(), out.size());
  for (const ProbeResult& result : far) EXPECT_EQ(result.hops.at(0).status, HopStatus::kSilent);
  for (const auto& connection : connections) EXPECT_TRUE(connection->Exchange());
}

TEST_F(ProberNetTest, TheDestinationIsRecognised) {
  MustUp(2, 2, 2);
  HostProber host(HostNs(0), Fast());
  for (const IpProtocol protocol : {IpProtocol::kUdp, IpProtocol::kTcp}) {
    const std::vector<ProbeResult> near = host.Ask(Tuples(protocol, 0, 1, 41000, 1), 1, 8);
    ASSERT_EQ(near.size(), 1U);
    ASSERT_EQ(near[0].hops.size(), 2U) << near[0].error;
    EXPECT_EQ(near[0].hops[1].status, HopStatus::kReached);
    EXPECT_EQ(IpText(near[0].hops[1].address), HostAddress(1));
    const std::vector<ProbeResult> far = host.Ask(Tuples(protocol, 0, 2, 41000, 1), 1, 8);
    ASSERT_EQ(far.size(), 1U);
    ASSERT_EQ(far[0].hops.size(), 4U) << far[0].error;
    EXPECT_EQ(far[0].hops[3].status, HopStatus::kReached);
    EXPECT_GT(far[0].hops[3].rtt_ns, 0);
  }
  {  // somebody listens: the connection comes about, and is gone
    const Sink sink(HostNs(2), kPort);
    const std::vector<ProbeResult> far = host.Ask(Tuples(IpProtocol::kTcp, 0, 2, 41001, 1), 4, 4);
    ASSERT_EQ(far.at(0).hops.size(), 1U) << far[0].error;
    EXPECT_EQ(far[0].hops[0].status, HopStatus::kReached);
  }
}

TEST_F(ProberNetTest, RationedAnswersAreLearntAllTheSame) {
  MustUp(2, 4, 1);
  // 50 answers a second and asker, 6 at once, of each router.
  for (const std::string& ns : {fabric::LeafNamespace(spec_, 0), fabric::LeafNamespace(spec_, 1),
                                fabric::SpineNamespace(spec_, 0), fabric::SpineNamespace(spec_, 1),
                                fabric::SpineNamespace(spec_, 2), fabric::SpineNamespace(spec_, 3)}) {
    ASSERT_TRUE(
        fabric::WriteSysctls(ns, {{"ipv4/icmp_ratemask", "6168"}, {"ipv4/icmp_ratelimit", "20"}}).ok());
  }
  ProberOptions options = Fast();
  options.tries = 8;
  HostProber host(HostNs(0), options);
  const std::vector<ProbeResult> results = host.Ask(Tuples(IpProtocol::kUdp, 0, 1, 40000, 64), 1, 3);
  ASSERT_EQ(results.size(), 64U);
  ExpectRight(results);
  EXPECT_GT(host.prober().counts().packets, 64U * 3 + 30) << "nothing was rationed";
}

TEST_F(ProberNetTest, ASilentRouterIsAGapAndNoMore) {
  MustUp(2, 2, 1);
  ASSERT_TRUE(fabric::RunNft({fabric::SpineNamespace(spec_, 0),
                              "table ip quiet { chain out { type filter hook output priority 0; icmp type "
                              "time-exceeded drop; }; }\n"})
                  .ok());
  ProberOptions options = Fast();
  options.tries = 2;
  HostProber host(HostNs(0), options);
  const std::vector<ProbeResult> results = host.Ask(Tuples(IpProtocol::kUdp, 0, 1, 40000, 32), 1, 3);
  ASSERT_EQ(results.size(), 32U);
  int silent = 0;
  for (const ProbeResult& result : results) {
    const auto path = fabric::PathOf(spec_, OracleTuple(result.tuple));
    ASSERT_TRUE(path.ok());
    ASSERT_EQ(result.hops.size(), 3U);
    EXPECT_EQ(result.hops[1].status, path->spine == 0 ? HopStatus::kSilent : HopStatus::kAnswered);
    EXPECT_EQ(result.hops[1].tries, path->spine == 0 ? 2 : 1);
    EXPECT_EQ(IpText(result.hops[2].address), fabric::LeafUplinkAddress(spec_, 1, path->spine));
    silent += path->spine == 0 ? 1 : 0;
  }
  EXPECT_GT(silent, 4);
  EXPECT_LT(silent, 28);
}

// An ICMP message from `from` that quotes a UDP packet of that tuple with that payload.
std::string Forged(const IpTuple& tuple, int type, int code, const std::string& payload) {
  icmphdr icmp{};
  icmp.type = static_cast<uint8_t>(type);
  icmp.code = static_cast<uint8_t>(code);
  iphdr ip{};
  ip.version = 4;
  ip.ihl = 5;
  ip.protocol = IPPROTO_UDP;
  ip.tot_len = htons(static_cast<uint16_t>(sizeof(iphdr) + sizeof(udphdr) + payload.size()));
  ip.saddr = htonl(tuple.source.v4());
  ip.daddr = htonl(tuple.destination.v4());
  udphdr udp{};
  udp.source = htons(tuple.source_port);
  udp.dest = htons(tuple.destination_port);
  udp.len = htons(static_cast<uint16_t>(sizeof(udphdr) + payload.size()));
  std::string packet(sizeof icmp + sizeof ip + sizeof udp, '\0');
  memcpy(packet.data(), &icmp, sizeof icmp);
  memcpy(packet.data() + sizeof icmp, &ip, sizeof ip);
  memcpy(packet.data() + sizeof icmp + sizeof ip, &udp, sizeof udp);
  packet += payload;
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < packet.size(); i += 2) {
    sum += static_cast<uint32_t>(static_cast<unsigned char>(packet[i]) << 8 |
                                 static_cast<unsigned char>(packet[i + 1]));
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  icmp.checksum = htons(static_cast<uint16_t>(~sum));
  memcpy(packet.data(), &icmp, sizeof icmp);
  return packet;
}

TEST_F(ProberNetTest, ForgedAnswersAreNotBelieved) {
  MustUp(2, 2, 2);
  // The spine says nothing, so that the prober keeps waiting while another host floods it with forgeries.
  for (int spine = 0; spine < 2; ++spine) {
    ASSERT_TRUE(fabric::RunNft({fabric::SpineNamespace(spec_, spine),
                                "table ip quiet { chain out { type filter hook output priority 0; icmp type "
                                "time-exceeded drop; }; }\n"})
                    .ok());
  }
  const IpTuple tuple = Tuple(IpProtocol::kUdp, HostAddress(0), 40000, HostAddress(2), kPort);
  std::atomic<bool> stop = false;
  std::thread forger([&] {
    const absl::Status done = fabric::InNamespace(HostNs(1), [&]() -> absl::Status {
      const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(tuple.source.v4());
      const std::string payload(16, 'x'), similar("c4probe\n12345678");
      while (!stop.load()) {
        for (const std::string& packet : {Forged(tuple, ICMP_TIME_EXCEEDED, ICMP_EXC_TTL, payload),
                                          Forged(tuple, ICMP_TIME_EXCEEDED, ICMP_EXC_TTL, similar),
                                          Forged(tuple, ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, payload),
                                          Forged(tuple, ICMP_DEST_UNREACH, ICMP_PORT_UNREACH, payload)}) {
          sendto(fd, packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
        }
        usleep(1000);
      }
      close(fd);
      return absl::OkStatus();
    });
    EXPECT_TRUE(done.ok()) << done;
  });
  ProberOptions options = Fast();
  options.tries = 2;
  HostProber host(HostNs(0), options);
  const std::vector<ProbeResult> results = host.Ask({tuple}, 1, 3);
  stop = true;
  forger.join();
  ASSERT_EQ(results.size(), 1U);
  ASSERT_EQ(results[0].hops.size(), 3U) << results[0].error;
  EXPECT_EQ(IpText(results[0].hops[0].address), fabric::HostGateway(spec_, 0, 0));
  EXPECT_EQ(results[0].hops[1].status, HopStatus::kSilent);
  EXPECT_EQ(results[0].hops[2].status, HopStatus::kAnswered);
  EXPECT_GT(host.prober().counts().aliens, 20U) << "no forgery arrived: this test tests nothing";
}

TEST_F(ProberNetTest, ThePaceIsKeptOnTheWire) {
  MustUp(2, 2, 1);
  ProberOptions options;
  options.per_second = 400;
  options.burst = 10;
  HostProber host(HostNs(0), options);
  const uint64_t before = SentPackets(HostNs(0)).at("eth0");
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ProbeResult> results = host.Ask(Tuples(IpProtocol::kUdp, 0, 1, 40000, 70), 1, 3);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const uint64_t packets = SentPackets(HostNs(0)).at("eth0") - before;
  ExpectRight(results);
  EXPECT_GE(packets, 210U);
  EXPECT_LE(packets, 215U);  // an ARP or two
  EXPECT_GE(took.count(), 200 / 400.0);
  EXPECT_LE(took.count(), 1.5) << "the budget is there to be used";
}

}  // namespace
}  // namespace c4::net_test
