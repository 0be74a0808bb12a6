// The emulated fabric on real namespaces with real TCP connections: the oracle tells the truth, faults do
// what they say, and nothing is left.
#include "fabric/emulator/fabric.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "fabric/emulator/cgroup.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/oracle.h"
#include "tests/net/traffic.h"

namespace c4::net_test {
namespace {

using fabric::Fabric;
using fabric::FabricSpec;
using fabric::FiveTuple;
using fabric::Path;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kName[] = "ntfab";
constexpr int kPort = 5000;
constexpr int kLimitMs = 2000;

class FabricTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    Fabric::Down(kName).IgnoreError();  // what an earlier run left
  }
  void TearDown() override {
    if (fabric::CheckRights().ok()) Fabric::Down(kName).IgnoreError();
  }

  Fabric MustUp(FabricSpec spec) {
    spec.name = kName;
    absl::StatusOr<Fabric> made = Fabric::Up(spec);
    if (!made.ok()) throw std::runtime_error(made.status().ToString());
    return *std::move(made);
  }

  static std::string Host(int host) { return absl::StrCat(kName, "-host", host); }
  static FiveTuple Tuple(const FabricSpec& spec, int from, int to, int source_port) {
    return {fabric::HostAddresses(spec, from).front(), source_port, fabric::HostAddresses(spec, to).front(),
            kPort};
  }
  // A tuple from `from` to `to` whose data take that spine.
  static FiveTuple TupleOver(const FabricSpec& spec, int from, int to, int spine) {
    for (int port = 40000; port < 40200; ++port) {
      const FiveTuple tuple = Tuple(spec, from, to, port);
      const absl::StatusOr<Path> path = fabric::PathOf(spec, tuple);
      EXPECT_TRUE(path.ok()) << path.status();
      if (path.ok() && path->spine == spine) return tuple;
    }
    ADD_FAILURE() << "no port of 200 leads over spine " << spine;
    return {};
  }
};

uint64_t Grown(const std::map<std::string, uint64_t>& before, const std::map<std::string, uint64_t>& after,
               const std::string& device) {
  return after.at(device) - before.at(device);
}

TEST_F(FabricTest, TheOracleKnowsTheWayOfDataAndAcknowledgements) {
  FabricSpec spec;
  spec.spines = 4;
  const Fabric fabric = MustUp(spec);
  const Sink sink(Host(1), kPort);
  std::set<int> data_spines, ack_spines;
  for (int port = 41000; port < 41024; ++port) {
    const FiveTuple tuple = Tuple(fabric.spec(), 0, 1, port);
    const absl::StatusOr<Path> data = fabric::PathOf(fabric.spec(), tuple);
    const absl::StatusOr<Path> acks = fabric::PathOf(fabric.spec(), Reversed(tuple));
    ASSERT_TRUE(data.ok()) << data.status();
    ASSERT_TRUE(acks.ok()) << acks.status();
    const std::string leaf0 = fabric::LeafNamespace(fabric.spec(), 0),
                      leaf1 = fabric::LeafNamespace(fabric.spec(), 1);
    const auto sent0 = SentBytes(leaf0), sent1 = SentBytes(leaf1);
    ASSERT_TRUE(SendBytes(Host(0), tuple, 100000, kLimitMs).ok());
    const auto after0 = SentBytes(leaf0), after1 = SentBytes(leaf1);
    for (int spine = 0; spine < spec.spines; ++spine) {
      const std::string device = absl::StrCat("up", spine);
      if (spine == data->spine) {
        EXPECT_GE(Grown(sent0, after0, device), 100000U) << TupleText(tuple);
      } else {
        EXPECT_LT(Grown(sent0, after0, device), 1000U) << TupleText(tuple) << " also takes spine " << spine;
      }
      if (spine == acks->spine) {
        EXPECT_GT(Grown(sent1, after1, device), 100U) << TupleText(tuple);
      }
    }
    data_spines.insert(data->spine);
    ack_spines.insert(acks->spine);
  }
  EXPECT_GE(data_spines.size(), 3U);
  EXPECT_GE(ack_spines.size(), 3U);
}

TEST_F(FabricTest, ABrokenLinkIsABlackHoleUntilTheRemoteLeafConverges) {
  FabricSpec spec;
  Fabric fabric = MustUp(spec);
  const Sink sink(Host(0), kPort);
  // From the leaf that does not see it: leaf1 sends to spine 0, which has no way down to leaf0.
  const FiveTuple tuple = TupleOver(fabric.spec(), 1, 0, 0);
  ASSERT_TRUE(SendBytes(Host(1), tuple, 10000, kLimitMs).ok());
  const auto start = std::chrono::steady_clock::now();
  auto broken = std::async(std::launch::async, [&] { return fabric.Break("leaf0-spine0", 900); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  FiveTuple early = tuple;
  EXPECT_FALSE(SendBytes(Host(1), early, 10000, 400).ok()) << "nothing may get through yet";
  const absl::Status done = broken.get();
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(900));
  for (int port = 42000; port < 42016; ++port) {
    EXPECT_TRUE(SendBytes(Host(1), Tuple(fabric.spec(), 1, 0, port), 10000, kLimitMs).ok()) << port;
  }
  absl::StatusOr<fabric::FabricStatus> status = fabric.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_FALSE(status->links[0].carrier);
  EXPECT_THAT(status->links[0].faults, testing::ElementsAre(fabric::FaultKind::kBreak));

  ASSERT_TRUE(fabric.Heal("leaf0-spine0").ok());
  TupleOver(fabric.spec(), 1, 0, 0);  // used again, from both sides
  TupleOver(fabric.spec(), 0, 1, 0);
  const FiveTuple again = TupleOver(fabric.spec(), 1, 0, 0);
  EXPECT_TRUE(SendBytes(Host(1), {again.source, 43000, again.destination, kPort}, 10000, kLimitMs).ok());
  status = fabric.Status();
  EXPECT_TRUE(status->links[0].carrier);
  EXPECT_THAT(status->state.faults, IsEmpty());
}

TEST_F(FabricTest, ACutLinkKeepsItsCarrierAndDropsInSilence) {
  Fabric fabric = MustUp({});
  const Sink sink(Host(1), kPort);
  const FiveTuple through = TupleOver(fabric.spec(), 0, 1, 0);
  ASSERT_TRUE(fabric.Cut("leaf0-spine0").ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(SendBytes(Host(0), through, 1000, 400)));
  EXPECT_TRUE(fabric.Status()->links[0].carrier);
  // The oracle still says so: no router knows.
  EXPECT_EQ(fabric::PathOf(fabric.spec(), through)->spine, 0);
  ASSERT_TRUE(fabric.Heal("leaf0-spine0").ok());
  EXPECT_TRUE(SendBytes(Host(0), through, 1000, kLimitMs).ok());
}

TEST_F(FabricTest, ASlowLinkSlowsWhatTakesItAndNothingElse) {
  FabricSpec spec;
  spec.rate_mbps = 400;
  Fabric fabric = MustUp(spec);
  const Sink sink(Host(1), kPort);
  const FiveTuple slow = TupleOver(fabric.spec(), 0, 1, 1), other = TupleOver(fabric.spec(), 0, 1, 0);
  const auto seconds = [&](const FiveTuple& tuple) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status sent = SendBytes(Host(0), tuple, 1000000, 5000);
    EXPECT_TRUE(sent.ok()) << sent;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  ASSERT_TRUE(fabric.Slow("leaf1-spine1", 20).ok());
  EXPECT_GT(seconds(slow), 0.25);  // 0.35 s for what does not fit into the bucket
  EXPECT_LT(seconds(other), 0.2);
  ASSERT_TRUE(fabric.Heal("leaf1-spine1").ok());
  EXPECT_LT(seconds({slow.source, slow.source_port, slow.destination, kPort}), 0.2);
  EXPECT_THAT(std::string(fabric.Slow("leaf1-spine7", 20).message()), HasSubstr("leaf1-spine1"));
}

TEST_F(FabricTest, WithPlanesTheSourceAddressChoosesTheLeaf) {
  FabricSpec spec;
  spec.leaves = 4;
  spec.ports = fabric::Ports::kPlanes;
  const Fabric fabric = MustUp(spec);
  const Sink sink(Host(1), kPort);
  for (int port = 0; port < 2; ++port) {
    const std::string leaf = fabric::LeafNamespace(fabric.spec(), port);
    const FiveTuple tuple = {fabric::HostPortAddress(fabric.spec(), 0, port), 44000 + port,
                             fabric::HostPortAddress(fabric.spec(), 1, port), kPort};
    const absl::StatusOr<Path> path = fabric::PathOf(fabric.spec(), tuple);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(path->source_leaf, port);
    EXPECT_EQ(path->destination_leaf, 2 + port);
    const auto before = SentBytes(leaf);
    ASSERT_TRUE(SendBytes(Host(0), tuple, 100000, kLimitMs).ok());
    EXPECT_GE(Grown(before, SentBytes(leaf), absl::StrCat("up", path->spine)), 100000U);
  }
}

TEST_F(FabricTest, WithBondedPortsTheHashChoosesPlaneAndLeaf) {
  FabricSpec spec;
  spec.leaves = 4;
  spec.ports = fabric::Ports::kBonded;
  Fabric fabric = MustUp(spec);
  const Sink sink(Host(1), kPort);
  const auto sent = [&](int leaf, const std::string& device) {
    return SentBytes(fabric::LeafNamespace(fabric.spec(), leaf)).at(device);
  };
  for (int port = 45000; port < 45016; ++port) {
    ASSERT_TRUE(SendBytes(Host(0), Tuple(fabric.spec(), 0, 1, port), 50000, kLimitMs).ok());
  }
  // Data went up from both leaves of the sender and down from both of the receiver.
  for (const int leaf : {0, 1}) EXPECT_GE(sent(leaf, "up0") + sent(leaf, "up1"), 50000U) << leaf;
  for (const int leaf : {2, 3}) EXPECT_GE(sent(leaf, "h0"), 50000U) << leaf;
  EXPECT_EQ(fabric::PathOf(fabric.spec(), Tuple(fabric.spec(), 0, 1, 45000)).status().code(),
            absl::StatusCode::kUnimplemented);
  // A port of the receiver fails: everything finds the other one.
  ASSERT_TRUE(fabric.Break("host1-leaf3", 0).ok());
  for (int port = 46000; port < 46008; ++port) {
    EXPECT_TRUE(SendBytes(Host(0), Tuple(fabric.spec(), 0, 1, port), 10000, kLimitMs).ok()) << port;
  }
  ASSERT_TRUE(fabric.Heal("host1-leaf3").ok());
  EXPECT_TRUE(SendBytes(Host(0), Tuple(fabric.spec(), 0, 1, 46100), 10000, kLimitMs).ok());
}

TEST_F(FabricTest, BirdFindsTheWayAroundABrokenLink) {
  FabricSpec spec;
  spec.convergence = fabric::Convergence::kBird;
  if (access("/usr/sbin/bird", X_OK) != 0) GTEST_SKIP() << "bird2 is not installed";
  Fabric fabric = MustUp(spec);
  const Sink sink(Host(1), kPort);
  const FiveTuple tuple = TupleOver(fabric.spec(), 0, 1, 0);
  EXPECT_TRUE(SendBytes(Host(0), tuple, 10000, kLimitMs).ok());
  ASSERT_TRUE(fabric.Break("leaf1-spine0").ok());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(fabric::PathOf(fabric.spec(), tuple)->spine, 1);
  EXPECT_TRUE(SendBytes(Host(0), Tuple(fabric.spec(), 0, 1, 47000), 10000, kLimitMs).ok());
}

TEST_F(FabricTest, AnIsolatedHostIsOffTheManagementNetworkOnly) {
  Fabric fabric = MustUp({});
  const Sink sink(Host(1), kPort);
  const FiveTuple management = {fabric::ManagementAddress(fabric.management_block(), 0), 48000,
                                fabric::ManagementAddress(fabric.management_block(), 1), kPort};
  EXPECT_TRUE(SendBytes(Host(0), management, 1000, kLimitMs).ok());
  ASSERT_TRUE(fabric.Isolate(1, true).ok());
  EXPECT_FALSE(SendBytes(Host(0), {management.source, 48001, management.destination, kPort}, 1000, 300).ok());
  EXPECT_TRUE(SendBytes(Host(0), Tuple(fabric.spec(), 0, 1, 48002), 1000, kLimitMs).ok());
  ASSERT_TRUE(fabric.HealAll().ok());
  EXPECT_TRUE(
      SendBytes(Host(0), {management.source, 48003, management.destination, kPort}, 1000, kLimitMs).ok());
}

TEST_F(FabricTest, ComesOnceAndLeavesNothing) {
  FabricSpec spec;
  spec.quota_percent = 40;
  {
    Fabric fabric = MustUp(spec);
    FabricSpec again = fabric.spec();
    EXPECT_TRUE(absl::IsAlreadyExists(Fabric::Up(again).status()));
    EXPECT_TRUE(fabric.SetQuota(1, 10).ok());
    EXPECT_EQ(fabric.Status()->state.quotas.at(1), 10);
  }
  // Also without what was written down about it, and with something that runs in it.
  std::filesystem::remove(fabric::StatePath(kName));
  EXPECT_TRUE(absl::IsNotFound(Fabric::Open(kName).status()));
  EXPECT_THAT(Fabric::Names(), testing::Contains(kName));
  auto stuck = std::async(std::launch::async, [] {
    return fabric::RunCommand({"sleep", "60"}, "", Host(0));
  });
  while (fabric::ProcessesIn(Host(0)).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const absl::StatusOr<fabric::DownReport> report = Fabric::Down(kName);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->processes, 1);
  EXPECT_EQ(report->namespaces, 7);
  stuck.get().IgnoreError();
  EXPECT_THAT(fabric::NamespaceNames(), Each(Not(testing::StartsWith(absl::StrCat(kName, "-")))));
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat("/sys/class/net/", kName, "-mgmt")));
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(fabric::CpuHierarchy(), "/c4-", kName)));
  EXPECT_FALSE(std::filesystem::exists(fabric::StatePath(kName)));
  EXPECT_TRUE(absl::IsNotFound(Fabric::Down(kName).status()));
}

}  // namespace
}  // namespace c4::net_test
