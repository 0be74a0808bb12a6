// Meetings of ranks over loopback: everybody hears of everybody, or everybody hears why not.
#include "ccl/bootstrap/meeting.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"

namespace c4::bootstrap {
namespace {

constexpr uint64_t kSecondNs = 1000000000u;

// Ranks of one communicator, as threads.
class Ranks {
 public:
  explicit Ranks(int count, uint64_t communicator_id = 77) {
    for (size_t i = 0; i < sizeof id_.nonce; ++i) id_.nonce[i] = static_cast<uint8_t>(i * 7);
    std::vector<RankInfo> all(static_cast<size_t>(count));
    for (int rank = 0; rank < count; ++rank) {
      meetings_.push_back(std::make_unique<Meeting>(id_, communicator_id, rank));
      SocketAddress address;
      EXPECT_TRUE(ParseAddress("127.0.0.1:0", &address).ok());
      RankInfo& info = all[static_cast<size_t>(rank)];
      info.listener = ToEndpoint(address);
      const Result opened = meetings_.back()->Open(address, &info);
      EXPECT_TRUE(opened.ok()) << opened.message();
    }
    for (const auto& meeting : meetings_) meeting->Know(all, Sha256Digest{});
    all_ = all;
  }

  Meeting& operator[](int rank) { return *meetings_[static_cast<size_t>(rank)]; }
  void Kill(int rank) { meetings_[static_cast<size_t>(rank)].reset(); }
  SocketAddress PlaceOf(int rank) const {
    wire::Endpoint place = all_[static_cast<size_t>(rank)].listener;
    place.port = place.reserved[0];
    return FromEndpoint(place);
  }
  std::vector<int> Everybody() const {
    std::vector<int> ranks(meetings_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const UniqueId& id() const { return id_; }

 private:
  UniqueId id_{};
  std::vector<RankInfo> all_;
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

Patience Seconds(uint64_t seconds) {
  return {.deadline = MonotonicNs() + seconds * kSecondNs};
}

uint64_t RecordOf(int rank, int round) {
  return static_cast<uint64_t>(rank) * 1000003u + static_cast<uint64_t>(round);
}

// Holds a meeting as `rank` and checks what it hears.
Result Hold(Ranks& ranks, const std::vector<int>& who, int rank, int round, const Patience& patience) {
  const uint64_t mine = RecordOf(rank, round);
  std::vector<uint64_t> all(who.size());
  Result result = ranks[rank].Hold(who, &mine, sizeof mine, all.data(), patience);
  if (!result.ok()) return result;
  for (size_t i = 0; i < who.size(); ++i) EXPECT_EQ(all[i], RecordOf(who[i], round)) << rank;
  return result;
}

// All of `who` at once, `rounds` times one after the other.
std::vector<Result> HoldAll(Ranks& ranks, const std::vector<int>& who, int rounds = 1) {
  std::vector<Result> results(who.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < who.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds && results[i].ok(); ++round) {
        results[i] = Hold(ranks, who, who[i], round, Seconds(10));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

void ExpectAllOk(const std::vector<Result>& results) {
  for (const Result& result : results) EXPECT_TRUE(result.ok()) << result.message();
}

TEST(Meeting, EverybodyHearsOfEverybodyAgainAndAgain) {
  Ranks ranks(8);
  ExpectAllOk(HoldAll(ranks, ranks.Everybody(), 20));
}

TEST(Meeting, OneRankMeetsItself) {
  Ranks ranks(1);
  ExpectAllOk(HoldAll(ranks, {0}));
}

TEST(Meeting, SomeMeetWithoutTheOthers) {
  Ranks ranks(6);
  ranks.Kill(0);
  ranks.Kill(3);
  ExpectAllOk(HoldAll(ranks, {1, 2, 4, 5}, 3));
  ExpectAllOk(HoldAll(ranks, {2, 5}, 3));
}

// Whoever comes first waits for the others, also for the one that gathers.
TEST(Meeting, RanksComeAtAnyTime) {
  std::mt19937 random(3);
  printf("seed 3\n");
  Ranks ranks(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 5; ++rank) {
      const auto late = std::chrono::microseconds(random() % 8000);
      threads.emplace_back([&, rank, late, round] {
        std::this_thread::sleep_for(late);
        const Result result = Hold(ranks, ranks.Everybody(), rank, round, Seconds(10));
        EXPECT_TRUE(result.ok()) << result.message();
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(Meeting, LargeRecords) {
  Ranks ranks(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<char> mine(kMostRecordBytes, static_cast<char>('a' + rank));
      std::vector<char> all(3 * mine.size());
      ASSERT_TRUE(ranks[rank].Hold({0, 1, 2}, mine.data(), mine.size(), all.data(), Seconds(10)).ok());
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], static_cast<char>('a' + i / mine.size()));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  char byte = 0;
  EXPECT_EQ(ranks[0].Hold({0}, &byte, 0, &byte, {}).code(), ncclInternalError);
  EXPECT_EQ(ranks[0].Hold({0}, &byte, kMostRecordBytes + 1, &byte, {}).code(), ncclInternalError);
  EXPECT_EQ(ranks[0].Hold({1, 2}, &byte, 1, &byte, {}).code(), ncclInternalError);
}

TEST(Meeting, ARankThatGivesUpFailsAllWithOneSentence) {
  Ranks ranks(4);
  std::atomic<bool> cancelled{false};
  std::vector<Result> results(4);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {  // rank 3 never comes
    threads.emplace_back([&, rank] {
      Patience patience = Seconds(10);
      if (rank == 2) patience.cancelled = &cancelled;
      results[static_cast<size_t>(rank)] = Hold(ranks, ranks.Everybody(), rank, 0, patience);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const uint64_t before = MonotonicNs();
  cancelled.store(true);
  for (auto& thread : threads) thread.join();
  EXPECT_LT(MonotonicNs() - before, kSecondNs);
  EXPECT_EQ(results[2].code(), ncclInvalidUsage);
  EXPECT_EQ(results[0].code(), ncclRemoteError);
  EXPECT_NE(results[0].message().find("rank 2"), std::string::npos) << results[0].message();
  EXPECT_EQ(results[1].message(), results[0].message());
  // And the next one works.
  ExpectAllOk(HoldAll(ranks, ranks.Everybody()));
}

TEST(Meeting, TheGatheringRankThatGivesUpTellsTheOthers) {
  Ranks ranks(3);
  std::atomic<bool> failed{false};
  Result results[2];
  std::thread threads[2];
  for (int rank = 0; rank < 2; ++rank) {
    threads[rank] = std::thread([&, rank] {
      Patience patience = Seconds(10);
      if (rank == 0) {
        patience.stop = [&] { return failed.load() ? Fail(ncclRemoteError, "rank 2 is gone") : Ok(); };
      }
      results[rank] = Hold(ranks, ranks.Everybody(), rank, 0, patience);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  failed.store(true);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(results[0].message(), "rank 2 is gone");
  EXPECT_EQ(results[1].message(), "rank 0 left: rank 2 is gone");
  EXPECT_EQ(results[1].code(), ncclRemoteError);
}

TEST(Meeting, NobodyWaitsPastTheDeadline) {
  Ranks ranks(2);
  for (const int rank : {0, 1}) {
    const uint64_t before = MonotonicNs();
    const Result result =
        Hold(ranks, ranks.Everybody(), rank, 0, {.deadline = MonotonicNs() + kSecondNs / 20});
    EXPECT_EQ(result.code(), ncclRemoteError);
    EXPECT_LT(MonotonicNs() - before, kSecondNs / 2);
  }
}

TEST(Meeting, StrangersAndOtherCommunicatorsDelayNobody) {
  Ranks ranks(3);
  Ranks others(3, 78);
  Fd silent;
  Fd noisy;
  ASSERT_TRUE(Connect(ranks.PlaceOf(0), AfterSeconds(5), true, &silent).ok());
  ASSERT_TRUE(Connect(ranks.PlaceOf(0), AfterSeconds(5), true, &noisy).ok());
  const std::string noise(1000, '\x7f');
  ASSERT_TRUE(SendAll(noisy.get(), noise.data(), noise.size(), AfterSeconds(5)).ok());
  // One that has the nonce, and belongs to another communicator.
  Meet meet{};
  meet.header.magic = kMeetMagic;
  meet.header.major = kMajor;
  meet.header.endian = wire::kEndianMark;
  meet.header.header_bytes = sizeof meet;
  meet.header.total_bytes = sizeof meet + 8;
  memcpy(meet.nonce, ranks.id().nonce, sizeof meet.nonce);
  meet.communicator_id = 78;
  meet.rank = 1;
  meet.record_bytes = 8;
  EXPECT_NE(CheckMeet(&meet, sizeof meet, ranks.id().nonce, 77), nullptr);
  EXPECT_EQ(CheckMeet(&meet, sizeof meet, ranks.id().nonce, 78), nullptr);
  Fd other;
  ASSERT_TRUE(Connect(ranks.PlaceOf(0), AfterSeconds(5), true, &other).ok());
  ASSERT_TRUE(SendAll(other.get(), &meet, sizeof meet, AfterSeconds(5)).ok());
  ExpectAllOk(HoldAll(ranks, ranks.Everybody(), 2));
}

// One that knows the nonce, the communicator and the meeting, but not the key: it speaks for no rank.
TEST(Meeting, WhoCannotProveToBeARankIsTurnedAway) {
  Ranks ranks(3);
  const int all[] = {0, 1, 2};
  const uint64_t who = HashBytes(all, sizeof all);
  struct {
    Meet meet{};
    char record[16] = {};  // of a size that would fail everybody
  } forged;
  forged.meet.header.magic = kMeetMagic;
  forged.meet.header.major = kMajor;
  forged.meet.header.minor = kMinor;
  forged.meet.header.endian = wire::kEndianMark;
  forged.meet.header.header_bytes = sizeof forged.meet;
  forged.meet.header.total_bytes = sizeof forged;
  memcpy(forged.meet.nonce, ranks.id().nonce, sizeof forged.meet.nonce);
  forged.meet.communicator_id = 77;
  forged.meet.meeting = HashBytes(&who, sizeof who, 0);
  forged.meet.rank = 2;
  forged.meet.record_bytes = sizeof forged.record;
  ASSERT_EQ(CheckMeet(&forged.meet, sizeof forged.meet, ranks.id().nonce, 77), nullptr);
  Sha256Digest guess{};
  guess[0] = 1;
  SignMeet(&forged.meet, forged.record, guess);
  Fd fd;
  ASSERT_TRUE(Connect(ranks.PlaceOf(0), AfterSeconds(5), true, &fd).ok());
  ASSERT_TRUE(SendAll(fd.get(), &forged, sizeof forged, AfterSeconds(5)).ok());
  ExpectAllOk(HoldAll(ranks, ranks.Everybody(), 1));
}

TEST(Meeting, WhoComesEarlyWaitsForItsMeeting) {
  Ranks ranks(4);
  Result early;
  std::thread ahead([&] { early = Hold(ranks, ranks.Everybody(), 3, 0, Seconds(10)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ExpectAllOk(HoldAll(ranks, {0, 1, 2}));
  ExpectAllOk(HoldAll(ranks, {0, 2}));
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const Result result = Hold(ranks, ranks.Everybody(), rank, 0, Seconds(10));
      EXPECT_TRUE(result.ok()) << result.message();
    });
  }
  for (auto& thread : threads) thread.join();
  ahead.join();
  EXPECT_TRUE(early.ok()) << early.message();
}

TEST(Meeting, RecordsOfAnotherSizeFailAll) {
  Ranks ranks(3);
  std::vector<Result> results(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      char mine[16] = {};
      char all[48] = {};
      results[static_cast<size_t>(rank)] =
          ranks[rank].Hold({0, 1, 2}, mine, rank == 1 ? 16 : 8, all, Seconds(10));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Result& result : results) {
    EXPECT_FALSE(result.ok());
    EXPECT_NE(result.message().find("rank 1 brings a record of 16 bytes"), std::string::npos)
        << result.message();
  }
}

}  // namespace
}  // namespace c4::bootstrap
