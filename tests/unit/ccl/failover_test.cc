// Fail-over, apart from streams: histories of deaths and losses in simulated time, from their seeds.
// C4_HISTORIES says how many.
#include <cstdlib>

#include "tests/unit/ccl/failover_sim.h"

namespace c4::sim {
namespace {

unsigned Histories() {
  const char* text = getenv("C4_HISTORIES");
  return text == nullptr ? 10000 : static_cast<unsigned>(strtoul(text, nullptr, 10));
}

TEST(FailOver, EveryByteArrivesOnceInOrderWhateverDies) {
  uint64_t fences = 0;
  uint64_t resent = 0;
  uint64_t moves = 0;
  for (unsigned seed = 1; seed <= Histories(); ++seed) {
    World world(seed);
    const std::string fault = world.Run();
    ASSERT_EQ(fault, "") << "seed " << seed;
    fences += world.fences();
    resent += world.resent();
    moves += world.moves();
  }
  EXPECT_GT(fences, Histories() / 2) << "histories in which nothing happens";
  EXPECT_GT(resent, Histories() / 2);
  EXPECT_GT(moves, Histories() / 2);
  printf("%llu fences, %llu moves, %llu chunks sent again\n", static_cast<unsigned long long>(fences),
         static_cast<unsigned long long>(moves), static_cast<unsigned long long>(resent));
}

// The checks see a receiver that answers and goes on reading.
TEST(FailOver, AnAnswerWithoutClosingIsNoticed) {
  unsigned noticed = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) noticed += World(seed, {true}).Run().empty() ? 0 : 1;
  EXPECT_GT(noticed, 30u);
}

// The checks see a sender that has chunks sent elsewhere while its own end still reads them.
TEST(FailOver, AFenceBeforeItHasDrainedIsNoticed) {
  unsigned noticed = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) noticed += World(seed, {false, true}).Run().empty() ? 0 : 1;
  EXPECT_GT(noticed, 30u);
}

// A queue pair that says when it was last heard, and whether it was given up.
class HeardSend final : public SendQueuePair {
 public:
  void Post(const Chunk&, const Buffer&, const std::shared_ptr<SharedMessage>&, uint64_t) override {}
  uint64_t completed() const override { return done; }
  uint64_t granted() const override { return 1; }
  Result Progress(bool*) override {
    done = acknowledged;
    return Ok();
  }
  uint64_t heard_ns() const override { return heard; }
  void Lose() override { lost = true; }
  bool connected() const override { return true; }
  pollfd Poll() const override { return {-1, 0, 0}; }
  void SayGoodbye() override {}
  bool peer_left() const override { return left; }
  QueuePairRecorder& recorder() override { return recorder_; }

  uint64_t heard = 0;
  uint64_t done = 0;
  uint64_t acknowledged = 0;  // from the next look on
  bool left = false;
  bool lost = false;

 private:
  wire::QueuePairSlot slot_{};
  QueuePairRecorder recorder_{&slot_, 0};
};

// After SIGCONT one stream is read before the other: that says nothing about the other's path.
TEST(FailOver, NobodyIsUnheardForAPauseOfOurOwn) {
  World world(1);
  for (const bool stopped : {true, false}) {
    now_ns = 1000000 * kMs;
    auto early = std::make_unique<HeardSend>();
    auto late = std::make_unique<HeardSend>();
    HeardSend* const first = early.get();
    HeardSend* const second = late.get();
    std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
    queue_pairs.push_back(std::move(early));
    queue_pairs.push_back(std::move(late));
    SendConnection connection(1, std::move(queue_pairs), kChunkBytes, kChunkBytes, Now);
    connection.FailOver(std::make_unique<FakeSendFenceChannel>(&world), 3600000 * kMs);
    first->heard = second->heard = now_ns;
    bool moved = false;
    for (int look = 0; look < 10; ++look) {
      ASSERT_TRUE(connection.Progress(&moved).ok());
      now_ns += 300 * kMs;
      first->heard = second->heard = now_ns;
    }
    if (stopped) {
      now_ns += 10000 * kMs;
      first->heard = now_ns;  // the other's words are still in its socket
      ASSERT_TRUE(connection.Progress(&moved).ok());
    } else {
      for (int look = 0; look < 20; ++look) {
        now_ns += 300 * kMs;
        first->heard = now_ns;
        ASSERT_TRUE(connection.Progress(&moved).ok());
      }
    }
    EXPECT_FALSE(first->lost);
    EXPECT_EQ(second->lost, !stopped) << (stopped ? "our own pause" : "a path that is dead");
  }
}

// Goodbye takes another way than the acknowledgements of the data, and may be there before them.
TEST(FailOver, WhatComesBehindAGoodbyeIsWaitedFor) {
  World world(1);
  for (const bool comes : {true, false}) {
    now_ns = 1000000 * kMs;
    auto owned = std::make_unique<HeardSend>();
    HeardSend* const queue_pair = owned.get();
    std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
    queue_pairs.push_back(std::move(owned));
    SendConnection connection(1, std::move(queue_pairs), kChunkBytes, kChunkBytes, Now);
    connection.FailOver(std::make_unique<FakeSendFenceChannel>(&world), 3600000 * kMs);
    char byte = 0;
    connection.Post(&byte, 1);
    bool moved = false;
    ASSERT_TRUE(connection.Progress(&moved).ok());
    queue_pair->left = true;
    ASSERT_TRUE(connection.Progress(&moved).ok());
    EXPECT_TRUE(connection.watchful());
    now_ns += 150 * kMs;
    queue_pair->heard = now_ns;
    ASSERT_TRUE(connection.Progress(&moved).ok());
    queue_pair->acknowledged = comes ? 1 : 0;
    now_ns += 100 * kMs;
    queue_pair->heard = now_ns;
    const Result later = connection.Progress(&moved);
    EXPECT_EQ(later.ok(), comes);
    EXPECT_EQ(later.message().find("left the communicator") == std::string::npos, comes) << later.message();
  }
}

TEST(FenceBook, AFenceIsAskedForUntilItIsAnswered) {
  FenceBook book(3);
  std::vector<FenceCall> due;
  book.Open(1, 7, 1000 * kMs);
  book.TakeDue(1000 * kMs, &due);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].queue_pair, 1u);
  EXPECT_EQ(due[0].epoch, 7u);
  book.TakeDue(1019 * kMs, &due);
  EXPECT_EQ(due.size(), 1u);
  book.TakeDue(1020 * kMs, &due);
  EXPECT_EQ(due.size(), 2u);
  book.Hurry();
  book.TakeDue(1021 * kMs, &due);
  EXPECT_EQ(due.size(), 3u);
  // At first often, then less and less, but at least once a second.
  uint64_t last = 1021 * kMs;
  for (uint64_t at = last; at < 20000 * kMs; at += kMs) {
    const size_t before = due.size();
    book.TakeDue(at, &due);
    EXPECT_LE(at - last, FenceBook::kLongestPauseNs);
    if (due.size() != before) last = at;
  }
  EXPECT_LT(due.size(), 40u);
  EXPECT_FALSE(book.Close({1, 6, true, 0, 0})) << "of another epoch";
  EXPECT_FALSE(book.Close({1, 7, false, 0, 0})) << "it is not closed";
  EXPECT_FALSE(book.Close({2, 7, true, 0, 0}));
  EXPECT_FALSE(book.Close({9, 7, true, 0, 0}));
  EXPECT_TRUE(book.Close({1, 7, true, 0, 0}));
  EXPECT_FALSE(book.Close({1, 7, true, 0, 0})) << "once";
  EXPECT_FALSE(book.any());
}

}  // namespace
}  // namespace c4::sim
