#include "ccl/bootstrap/bootstrap.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"
#include "ccl/bootstrap/planes.h"

namespace c4::bootstrap {
namespace {

class Bootstrap : public testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    unsetenv("NCCL_COMM_ID");
    ForgetKnobs();
  }

  static UniqueId MakeId() {
    ncclUniqueId id;
    const Result made = MakeUniqueId(&id);
    EXPECT_TRUE(made.ok()) << made.message();
    UniqueId read{};
    EXPECT_TRUE(ReadUniqueId(id, &read).ok());
    return read;
  }

  struct Joining {
    int rank;
    int rank_count;
  };
  // Joins all at once; gives each one's result, and checks the table of those that succeeded.
  static std::vector<Result> Join(const UniqueId& id, const std::vector<Joining>& who) {
    std::vector<Result> results(who.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < who.size(); ++i) {
      threads.emplace_back([&, i] {
        RankInfo info{};
        info.host_hash = 1000 + static_cast<uint64_t>(who[i].rank);
        std::vector<RankInfo> all;
        results[i] = JoinAll(id, who[i].rank, who[i].rank_count, info, AfterSeconds(10), &all);
        if (!results[i].ok()) return;
        ASSERT_EQ(all.size(), static_cast<size_t>(who[i].rank_count));
        for (size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].host_hash, 1000 + r);
      });
    }
    for (auto& thread : threads) thread.join();
    return results;
  }
};

TEST_F(Bootstrap, EveryRankHearsOfEveryOther) {
  std::vector<Joining> who;
  for (int r = 0; r < 16; ++r) who.push_back({r, 16});
  for (const Result& result : Join(MakeId(), who)) EXPECT_TRUE(result.ok()) << result.message();
}

TEST_F(Bootstrap, AnotherNumberOfRanksFailsAllWithOneSentence) {
  for (const Result& result : Join(MakeId(), {{0, 3}, {1, 3}, {2, 4}})) {
    EXPECT_EQ(result.code(), ncclInvalidUsage);
    EXPECT_NE(result.message().find("ranks, others say"), std::string::npos) << result.message();
  }
}

// With other knobs, ranks would cut and send by plans that do not fit each other.
TEST_F(Bootstrap, KnobsThatAllRanksShareAreCompared) {
  const std::pair<const char*, const char*> others[] = {
      {"C4_CHANNELS", "2"}, {"C4_SLICE_BYTES", "4096"}, {"C4_ALGORITHM", "tree"}};
  for (const auto& [name, value] : others) {
    ncclUniqueId raw;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv(name, value, 1);
      UniqueId id{};
      std::vector<RankInfo> all;
      const bool read_whole = read(ends[0], &raw, sizeof raw) == sizeof raw && ReadUniqueId(raw, &id).ok();
      _exit(read_whole && JoinAll(id, 1, 2, {}, AfterSeconds(10), &all).code() == ncclInvalidUsage ? 0 : 1);
    }
    ASSERT_TRUE(MakeUniqueId(&raw).ok());
    ASSERT_EQ(write(ends[1], &raw, sizeof raw), static_cast<ssize_t>(sizeof raw));
    UniqueId id{};
    ASSERT_TRUE(ReadUniqueId(raw, &id).ok());
    std::vector<RankInfo> all;
    const Result result = JoinAll(id, 0, 2, {}, AfterSeconds(10), &all);
    EXPECT_EQ(result.code(), ncclInvalidUsage);
    for (const char* part : {name, "rank 0", "rank 1", value}) {
      EXPECT_NE(result.message().find(part), std::string::npos) << result.message();
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << name << ": the other rank has to hear of it too";
    close(ends[0]);
    close(ends[1]);
  }
}

TEST_F(Bootstrap, TheSameRankTwiceFailsAll) {
  for (const Result& result : Join(MakeId(), {{0, 3}, {1, 3}, {1, 3}})) {
    EXPECT_EQ(result.code(), ncclInvalidUsage);
    EXPECT_NE(result.message().find("two processes joined as rank 1"), std::string::npos) << result.message();
  }
}

TEST_F(Bootstrap, ARankThatLeavesFailsTheOthers) {
  const UniqueId id = MakeId();
  std::thread leaver([&] {
    Fd fd;
    ASSERT_TRUE(Connect(FromEndpoint(id.root), AfterSeconds(10), true, &fd).ok());
    struct Join join {};
    join.header.magic = kJoinMagic;
    join.header.major = kMajor;
    join.header.endian = wire::kEndianMark;
    join.header.header_bytes = join.header.total_bytes = sizeof join;
    memcpy(join.nonce, id.nonce, sizeof join.nonce);
    join.rank = 1;
    join.rank_count = 3;
    join.header.minor = kMinor;
    SignJoin(&join, id.secret);
    ASSERT_TRUE(SendAll(fd.get(), &join, sizeof join, AfterSeconds(10)).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  const Result result = Join(id, {{0, 3}})[0];
  leaver.join();
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_NE(result.message().find("rank 1"), std::string::npos) << result.message();
}

// Of all that an id holds the secret alone is never sent: who has overheard the rest is no rank.
TEST_F(Bootstrap, WhoHasNotTheSecretOfTheIdIsNoRank) {
  const UniqueId id = MakeId();
  EXPECT_NE(HashBytes(id.secret, sizeof id.secret), HashBytes(MakeId().secret, sizeof id.secret));
  UniqueId overheard = id;
  overheard.secret[31] ^= 1;
  Result forged;
  std::thread stranger([&] {
    std::vector<RankInfo> all;
    forged = JoinAll(overheard, 1, 2, {}, AfterSeconds(10), &all);
  });
  stranger.join();
  EXPECT_FALSE(forged.ok());
  for (const Result& result : Join(id, {{0, 2}, {1, 2}})) EXPECT_TRUE(result.ok()) << result.message();
}

TEST_F(Bootstrap, TheKeyIsTheSameOnAllRanksAndNewForEachRendezvous) {
  setenv("NCCL_COMM_ID", "127.0.0.1:31998", 1);
  ForgetKnobs();
  const UniqueId id = MakeId();
  Sha256Digest keys[2][2];
  for (auto& use : keys) {
    std::thread other([&] {
      std::vector<RankInfo> all;
      EXPECT_TRUE(JoinAll(id, 1, 2, {}, AfterSeconds(10), &all, nullptr, &use[1]).ok());
    });
    std::vector<RankInfo> all;
    EXPECT_TRUE(JoinAll(id, 0, 2, {}, AfterSeconds(10), &all, nullptr, &use[0]).ok());
    other.join();
    EXPECT_EQ(use[0], use[1]);
  }
  EXPECT_NE(keys[0][0], keys[1][0]) << "an address is no secret, what its root draws is";
}

TEST_F(Bootstrap, AnOlderReleaseIsNamedToAll) {
  const UniqueId id = MakeId();
  Fd fd;
  ASSERT_TRUE(Connect(FromEndpoint(id.root), AfterSeconds(10), true, &fd).ok());
  struct Join join {};
  join.header.magic = kJoinMagic;
  join.header.major = kMajor;
  join.header.minor = 2;
  join.header.endian = wire::kEndianMark;
  join.header.header_bytes = join.header.total_bytes = sizeof join;
  memcpy(join.nonce, id.nonce, sizeof join.nonce);
  join.rank = 1;
  join.rank_count = 2;
  ASSERT_TRUE(SendAll(fd.get(), &join, sizeof join, AfterSeconds(10)).ok());
  const Result result = Join(id, {{0, 2}})[0];
  EXPECT_EQ(result.code(), ncclInvalidUsage);
  EXPECT_NE(result.message().find("older release"), std::string::npos) << result.message();
}

TEST_F(Bootstrap, StrangersDelayNobody) {
  const UniqueId id = MakeId();
  std::vector<Fd> silent(20);
  for (Fd& fd : silent) ASSERT_TRUE(Connect(FromEndpoint(id.root), AfterSeconds(10), true, &fd).ok());
  Fd noisy;
  ASSERT_TRUE(Connect(FromEndpoint(id.root), AfterSeconds(10), true, &noisy).ok());
  const std::string noise(4096, '\xee');
  ASSERT_TRUE(SendAll(noisy.get(), noise.data(), noise.size(), AfterSeconds(10)).ok());
  const uint64_t before = MonotonicNs();
  for (const Result& result : Join(id, {{0, 2}, {1, 2}})) EXPECT_TRUE(result.ok()) << result.message();
  EXPECT_LT(MonotonicNs() - before, 2000000000u);
}

TEST_F(Bootstrap, NobodyWaitsPastTheDeadline) {
  const UniqueId id = MakeId();
  std::vector<RankInfo> all;
  const uint64_t before = MonotonicNs();
  const Result result = JoinAll(id, 0, 2, {}, MonotonicNs() + 100000000u, &all);
  EXPECT_EQ(result.code(), ncclRemoteError);
  EXPECT_LT(MonotonicNs() - before, 2000000000u);
  EXPECT_NE(result.message().find("rank 0"), std::string::npos);
}

TEST_F(Bootstrap, AJoinThatIsCancelledEndsAndFailsTheOthers) {
  const UniqueId id = MakeId();
  std::atomic<bool> cancelled{false};
  Result results[2];
  std::vector<std::thread> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {  // of three
    ranks.emplace_back([&, rank] {
      std::vector<RankInfo> all;
      results[rank] = JoinAll(id, rank, 3, {}, AfterSeconds(20), &all, rank == 1 ? &cancelled : nullptr);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const uint64_t before = MonotonicNs();
  cancelled.store(true);
  for (auto& rank : ranks) rank.join();
  EXPECT_LT(MonotonicNs() - before, 500000000u);
  EXPECT_EQ(results[1].code(), ncclInvalidUsage);
  EXPECT_NE(results[1].message().find("was aborted"), std::string::npos) << results[1].message();
  EXPECT_EQ(results[0].code(), ncclRemoteError);
  EXPECT_NE(results[0].message().find("rank 1"), std::string::npos) << results[0].message();
  // Who comes later is told the same.
  EXPECT_NE(Join(id, {{2, 3}})[0].message().find("rank 1"), std::string::npos);
}

TEST_F(Bootstrap, AJoinThatFindsNoRootIsCancelled) {
  UniqueId id{};
  SocketAddress nobody;
  {
    Fd listener;
    ASSERT_TRUE(ParseAddress("127.0.0.1:0", &nobody).ok());
    ASSERT_TRUE(Listen(&nobody, 1, &listener).ok());
  }
  id.root = ToEndpoint(nobody);
  std::atomic<bool> cancelled{false};
  Result result;
  std::thread rank([&] {
    std::vector<RankInfo> all;
    result = JoinAll(id, 1, 2, {}, AfterSeconds(20), &all, &cancelled);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  cancelled.store(true);
  rank.join();
  EXPECT_EQ(result.code(), ncclInvalidUsage) << result.message();
}

// What waits at an id ends with it: nobody listens there any more.
TEST_F(Bootstrap, AForgottenIdIsFreed) {
  setenv("NCCL_COMM_ID", "127.0.0.1:1", 1);
  ForgetKnobs();
  ncclUniqueId raw;
  UniqueId id{};
  ASSERT_TRUE(MakePrivateId(&raw).ok());
  unsetenv("NCCL_COMM_ID");
  ForgetKnobs();
  ASSERT_TRUE(ReadUniqueId(raw, &id).ok());
  EXPECT_EQ(id.flags, 0u);
  EXPECT_NE(FromEndpoint(id.root).port(), 1);
  ForgetId(id);
  bool listening = true;
  for (int i = 0; i < 200 && listening; ++i) {
    Fd fd;
    listening = Connect(FromEndpoint(id.root), AfterSeconds(1), false, &fd).ok();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(listening);
  const uint64_t before = MonotonicNs();
  ForgetId(id);
  EXPECT_LT(MonotonicNs() - before, 1000000000u);
}

TEST_F(Bootstrap, NoiseIsNoUniqueId) {
  UniqueId read;
  ncclUniqueId id;
  memset(&id, 0x5a, sizeof id);
  EXPECT_EQ(ReadUniqueId(id, &read).code(), ncclInvalidArgument);
  ASSERT_TRUE(MakeUniqueId(&id).ok());
  ASSERT_TRUE(ReadUniqueId(id, &read).ok());
  for (size_t i = 0; i < offsetof(UniqueId, reserved); ++i) {
    ncclUniqueId damaged = id;
    damaged.internal[i] = static_cast<char>(damaged.internal[i] ^ 1);
    EXPECT_FALSE(ReadUniqueId(damaged, &read).ok()) << "byte " << i;
  }
}

TEST_F(Bootstrap, CommunicatorIdsAreEqualOnAllRanksAndNewForEveryUse) {
  const UniqueId id = MakeId();
  EXPECT_EQ(CommunicatorId(id, 0), CommunicatorId(id, 1));
  EXPECT_NE(CommunicatorId(id, 0), CommunicatorId(MakeId(), 0));
  setenv("NCCL_COMM_ID", "127.0.0.1:31999", 1);
  ForgetKnobs();
  const UniqueId fixed = MakeId();
  const uint64_t first = CommunicatorId(fixed, 0);
  EXPECT_EQ(first, CommunicatorId(fixed, 1));
  EXPECT_NE(first, CommunicatorId(fixed, 0));
}

TEST_F(Bootstrap, OneFixedAddressServesManyCommunicatorsInARow) {
  SocketAddress address;
  ASSERT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
  {
    Fd listener;
    ASSERT_TRUE(Listen(&address, 1, &listener).ok());
  }
  setenv("NCCL_COMM_ID", address.ToString().c_str(), 1);
  ForgetKnobs();
  const UniqueId id = MakeId();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int use = 0; use < 10; ++use) {
        std::vector<RankInfo> all;
        const Result result = JoinAll(id, rank, 3, {}, AfterSeconds(20), &all);
        ASSERT_TRUE(result.ok()) << rank << " in use " << use << ": " << result.message();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST_F(Bootstrap, ABadFixedAddressIsNamed) {
  setenv("NCCL_COMM_ID", "nowhere", 1);
  ForgetKnobs();
  ncclUniqueId id;
  const Result result = MakeUniqueId(&id);
  EXPECT_EQ(result.code(), ncclInvalidUsage);
  EXPECT_NE(result.message().find("NCCL_COMM_ID"), std::string::npos);
  EXPECT_NE(result.message().find("nowhere"), std::string::npos);
}

TEST(Planes, TwoAddressesOfOnePortAreToldAndOthersAreNot) {
  const auto address = [](const char* text) {
    SocketAddress parsed;
    EXPECT_TRUE(ParseAddress(text, &parsed).ok());
    return parsed;
  };
  const SocketAddress first = address("10.0.1.2:4791");
  const auto told = [&](const SocketAddress& own, const std::vector<SocketAddress>& planes) {
    std::vector<std::string> texts;
    for (const SocketAddress& plane : PlanesOf(ListenerOf(own, planes))) texts.push_back(plane.ToString());
    return texts;
  };
  EXPECT_EQ(told(first, {first}), std::vector<std::string>{"10.0.1.2:4791"});
  EXPECT_EQ(told(first, {first, address("192.168.200.255:0")}),
            (std::vector<std::string>{"10.0.1.2:4791", "192.168.200.255:4791"}));
  EXPECT_EQ(told(address("[fd00::1]:7"), {address("[fd00::1]:0"), address("[fd00::2]:0")}),
            std::vector<std::string>{"[fd00::1]:7"});
  // The port of its meetings stays.
  wire::Endpoint listener = ListenerOf(first, {first, address("10.0.2.2:0")});
  listener.reserved[0] = 4000;
  EXPECT_EQ(PlanesOf(listener).size(), 2u);
}

}  // namespace
}  // namespace c4::bootstrap
