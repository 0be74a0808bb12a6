// Connections over shared memory: what arrives, when anything is sent at all, what the monitor sees of it,
// and how the ends wake each other.
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/ccl/shm_ends.h"

namespace c4::shm {
namespace {

using std::chrono::milliseconds;
constexpr Copy kBothCopies[] = {kCopyDirect, kCopyPool};

std::vector<char> Noise(size_t bytes, std::mt19937* random) {
  std::vector<char> noise(bytes);
  for (char& c : noise) c = static_cast<char>((*random)());
  return noise;
}

uint64_t Histogram(const wire::QueuePairSlot& slot) {
  return std::accumulate(std::begin(slot.latency_histogram), std::end(slot.latency_histogram), uint64_t{0});
}

TEST(Shm, EverySizeArrivesWholeDirectAndThroughThePool) {
  constexpr uint32_t kSmall = ShmSendQueuePair::kInlineBytes;
  for (const Shape& shape : {Shape(), SmallShape()}) {
    const uint32_t room = std::min(kSmall, shape.geometry.inline_bytes());
    const uint32_t piece = shape.geometry.piece_bytes;
    const uint32_t chunk = shape.chunk_bytes;
    for (const Copy copy : kBothCopies) {
      std::mt19937 random(20261121);
      ShmEnds ends;
      ASSERT_NO_FATAL_FAILURE(ends.Connect(shape, copy));
      for (const size_t bytes : {0u, 1u, 8u, 9u, room - 1, room, room + 1, piece - 1, piece, piece + 1,
                                 chunk - 1, chunk, chunk + 1, 3 * chunk + 7}) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes, copy " << copy);
        const std::vector<char> sent = Noise(bytes, &random);
        std::vector<char> got(bytes + 1, 'g');
        ends.sender->Post(sent.data(), bytes);
        ends.receiver->Post(got.data(), bytes);
        const uint64_t all = ends.sender->posted();
        ASSERT_TRUE(ends.DriveBoth([&] {
                          return ends.sender->completed() == all && ends.receiver->completed() == all;
                        })
                        .ok());
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin()));
        EXPECT_EQ(got[bytes], 'g') << "wrote behind the buffer";
      }
    }
  }
}

TEST(Shm, ManyMessagesInAnyOrderOfProgressAndBothEndsCountTheSame) {
  constexpr size_t kMessages = 300;
  for (const Copy copy : kBothCopies) {
    const unsigned seed = 20261121 + copy;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ShmEnds ends;
    const Shape shape = SmallShape();
    ASSERT_NO_FATAL_FAILURE(ends.Connect(shape, copy));
    std::vector<std::vector<char>> sent;
    std::vector<std::vector<char>> got;
    uint64_t bytes = 0;
    uint64_t chunks = 0;
    for (size_t i = 0; i < kMessages; ++i) {
      const size_t kind = random() % 10;
      sent.push_back(Noise(kind == 0 ? 0 : random() % (kind < 3 ? 100000 : 2000), &random));
      got.emplace_back(sent.back().size());
      bytes += sent.back().size();
      chunks += ChunkCount(sent.back().size(), shape.chunk_bytes);
    }
    size_t sends = 0;
    size_t receives = 0;
    const Result result = ShmEnds::Drive(
        [&](bool* moved) {
          if (sends < kMessages && random() % 2 == 0) {
            ends.sender->Post(sent[sends].data(), sent[sends].size());
            ++sends;
          }
          if (receives < kMessages && random() % 3 == 0) {
            ends.receiver->Post(got[receives].data(), got[receives].size());
            ++receives;
          }
          if (random() % 2 == 0) C4_RETURN_IF_ERROR(ends.sender->Progress(moved));
          if (random() % 2 == 0) C4_RETURN_IF_ERROR(ends.receiver->Progress(moved));
          // What is complete is complete from the first byte to the last.
          const size_t done = ends.receiver->completed();
          if (done > 0 && got[done - 1] != sent[done - 1])
            return Fail(ncclInternalError, "message %zu is not whole", done - 1);
          return Ok();
        },
        [&] {
          return ends.sender->completed() == kMessages && ends.receiver->completed() == kMessages &&
                 ends.sent().granted_messages == kMessages;
        });
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(sent, got);

    const wire::QueuePairSlot& from = ends.sent();
    const wire::QueuePairSlot& to = ends.received();
    for (const wire::QueuePairSlot* slot : {&from, &to}) {
      EXPECT_EQ(slot->transport, wire::kTransportShm);
      EXPECT_EQ(slot->posted_messages, chunks);
      EXPECT_EQ(slot->posted_bytes, bytes);
      EXPECT_EQ(slot->completed_messages, chunks);
      EXPECT_EQ(slot->completed_bytes, bytes);
      EXPECT_EQ(slot->moved_bytes, bytes);
      EXPECT_EQ(slot->wanted_messages, kMessages);
      EXPECT_EQ(slot->granted_messages, kMessages);
      EXPECT_EQ(slot->done_messages, kMessages);
      EXPECT_EQ(slot->done_bytes, bytes);
    }
    EXPECT_EQ(Histogram(from), chunks);
    EXPECT_EQ(Histogram(to), 0u);
    EXPECT_GT(from.latency_max_ticks, 0u);
    EXPECT_EQ(from.queue_pair_number, to.queue_pair_number);
    EXPECT_EQ(memcmp(&from.local, &to.remote, sizeof from.local), 0);
    EXPECT_EQ(memcmp(&from.remote, &to.local, sizeof from.local), 0);
  }
}

TEST(Shm, NothingIsPostedBeforeTheReceiverHasItsBuffers) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
  const std::vector<char> data(10000, 'x');
  std::vector<char> got(10000);
  for (int i = 0; i < 3; ++i) ends.sender->Post(data.data(), data.size());
  ends.DriveBothFor(5000000);
  EXPECT_EQ(ends.sent().posted_messages, 0u);
  EXPECT_EQ(ends.sent().wanted_messages, 3u);
  EXPECT_EQ(ends.sent().granted_messages, 0u);
  EXPECT_GT(ends.sent().last_heard_ticks, 0u) << "it says that it lives before it receives anything";
  ends.receiver->Post(got.data(), got.size());
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 1; }).ok());
  ends.DriveBothFor(5000000);
  EXPECT_EQ(ends.sender->completed(), 1u);
  EXPECT_EQ(ends.sent().posted_messages, 1u);
  EXPECT_EQ(data, got);
}

// Through the pool a sender need not wait for its receiver, and goes when it likes.
TEST(Shm, WhatIsInThePoolOutlivesItsSender) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyPool));
  std::mt19937 random(20261122);
  std::vector<std::vector<char>> sent;
  for (const size_t bytes : {0u, 10u, 5000u, 70000u, 300000u}) {
    sent.push_back(Noise(bytes, &random));
    ends.sender->Post(sent.back().data(), bytes);
  }
  bool moved = false;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.sender->Progress(&moved).ok());
  EXPECT_EQ(ends.sender->completed(), sent.size());
  EXPECT_EQ(ends.sent().granted_messages, 0u);
  EXPECT_EQ(ends.sent().posted_messages, sent.size());
  EXPECT_EQ(ends.sent().completed_messages, sent.size());
  ends.DriveBothFor(5000000);
  EXPECT_EQ(ends.received().posted_messages, 0u) << "nobody has asked for it";
  ends.sender->SayGoodbye();
  ends.sender.reset();
  for (const std::vector<char>& message : sent) {
    std::vector<char> got(message.size());
    const uint64_t number = ends.receiver->posted() + 1;
    ends.receiver->Post(got.data(), got.size());
    const Result result = ShmEnds::Drive([&](bool* m) { return ends.receiver->Progress(m); },
                                         [&] { return ends.receiver->completed() == number; });
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(got, message);
  }
  char byte = 0;
  ends.receiver->Post(&byte, 1);
  EXPECT_EQ(ShmEnds::Drive([&](bool* m) { return ends.receiver->Progress(m); }, [] { return false; }).code(),
            ncclRemoteError);
}

// What has begun and is not complete would be taken for a path that is stuck.
TEST(Shm, AheadOfTheReceiverChunksAreWrittenWholeOrNotAtAll) {
  ShmEnds ends;
  const Shape shape = SmallShape();  // 4 pieces of 5000 bytes, chunks of 16384
  ASSERT_NO_FATAL_FAILURE(ends.Connect(shape, kCopyPool));
  std::mt19937 random(20261123);
  const std::vector<char> sent = Noise(2 * shape.chunk_bytes, &random);
  std::vector<char> got(sent.size());
  ends.sender->Post(sent.data(), sent.size());
  ends.DriveBothFor(5000000);
  EXPECT_EQ(ends.sent().posted_messages, 1u);
  EXPECT_EQ(ends.sent().completed_messages, 1u);
  EXPECT_EQ(ends.sender->completed(), 0u);
  ends.receiver->Post(got.data(), got.size());
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.receiver->completed() == 1; }).ok());
  EXPECT_EQ(sent, got);
}

TEST(Shm, ASleepingSenderIsWokenForWhatItWaitsForOnly) {
  for (const Copy copy : kBothCopies) {
    ShmEnds ends;
    const Shape shape = SmallShape();
    ASSERT_NO_FATAL_FAILURE(ends.Connect(shape, copy));
    const std::vector<char> sent(shape.chunk_bytes);
    std::vector<char> got(sent.size());
    const auto rung = [&] {
      pollfd entry{ends.bells[0].fd(), POLLIN, 0};
      const bool is = poll(&entry, 1, 0) == 1;
      ends.bells[0].Drain();
      return is;
    };
    bool moved = false;
    const auto receive = [&] {
      ends.receiver->Post(got.data(), got.size());
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.receiver->Progress(&moved).ok());
    };
    for (int messages = 1; messages <= 2; ++messages) {
      SCOPED_TRACE(testing::Message() << messages << " messages, copy " << copy);
      for (int i = 0; i < messages; ++i) ends.sender->Post(sent.data(), sent.size());
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.sender->Progress(&moved).ok());
      ends.bells[0].BeforeSleep();
      ASSERT_NO_FATAL_FAILURE(receive());
      // One message is in the pool, the sender through with it; a second one has to wait for room.
      EXPECT_EQ(rung(), copy == kCopyDirect || messages == 2);
      ends.bells[0].AfterSleep();
      const uint64_t all = ends.sender->posted();
      if (messages == 2) ends.receiver->Post(got.data(), got.size());
      ASSERT_TRUE(
          ends.DriveBoth([&] { return ends.sender->completed() == all && ends.receiver->completed() == all; })
              .ok());
    }
  }
}

TEST(Shm, WhatComesIsReducedOnItsWay) {
  for (const Shape& shape : {Shape(), SmallShape()}) {
    ShmEnds ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(shape, kCopyPool));
    ASSERT_TRUE(ends.receiver->folds());
    for (const size_t count : {1u, 100u, 5000u, 100000u}) {
      std::vector<int64_t> sent(count);
      std::vector<int64_t> own(count);
      std::vector<int64_t> got(count);
      for (size_t i = 0; i < count; ++i) {
        sent[i] = static_cast<int64_t>(i);
        own[i] = static_cast<int64_t>(1000 * i);
      }
      const auto subtract = [](void* out, const void* a, const void* b, size_t n) {
        for (size_t i = 0; i < n; ++i) {
          static_cast<int64_t*>(out)[i] =
              static_cast<const int64_t*>(a)[i] - static_cast<const int64_t*>(b)[i];
        }
      };
      ends.sender->Post(sent.data(), count * 8);
      ends.receiver->Post(got.data(), count * 8, {subtract, reinterpret_cast<const char*>(own.data()), 8});
      const uint64_t all = ends.receiver->posted();
      ASSERT_TRUE(ends.DriveBoth([&] { return ends.receiver->completed() == all; }).ok());
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], static_cast<int64_t>(999 * i)) << i;
    }
  }
}

TEST(Shm, UnacknowledgedDataShowWhileThePeerDoesNothing) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyDirect));
  const std::vector<char> data(100000);
  std::vector<char> got(100000);
  ends.receiver->BeginOperation();
  ends.receiver->Post(got.data(), got.size());
  bool moved = false;
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());  // its last: it has announced the receive
  ends.sender->Post(data.data(), data.size());
  std::this_thread::sleep_for(milliseconds(10));
  ASSERT_TRUE(ShmEnds::Drive([&](bool* m) { return ends.sender->Progress(m); },
                             [&] { return ends.sent().posted_bytes == 100000; })
                  .ok());
  EXPECT_EQ(ends.sent().completed_bytes, 0u);
  EXPECT_EQ(ends.sent().granted_messages, 1u);
  EXPECT_EQ(ends.sent().done_messages, 0u);
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 1; }).ok());
  EXPECT_EQ(ends.received().first_waits, 1u);
  EXPECT_GE(static_cast<double>(ends.received().first_wait_sum_ticks), 0.008 * 1e9)
      << "ticks of 1 GHz or more";
}

TEST(Shm, AMessageOfAnotherSizeIsAnErrorThatNamesBoth) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
  const char data[64] = {};
  char got[32];
  ends.sender->Post(data, sizeof data);
  ends.receiver->Post(got, sizeof got);
  const Result result = ends.DriveBoth([] { return false; });
  EXPECT_EQ(result.code(), ncclInvalidUsage);
  EXPECT_NE(result.message().find("64 bytes where rank 1 expects 32"), std::string::npos) << result.message();
}

TEST(Shm, AClosedPeerIsARemoteError) {
  const auto never = [] { return false; };
  for (const bool busy : {false, true}) {
    char byte = 0;
    {
      ShmEnds ends;
      ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
      if (busy) ends.sender->Post(&byte, 1);
      ends.receiver.reset();
      const Result result = ShmEnds::Drive([&](bool* m) { return ends.sender->Progress(m); }, never);
      EXPECT_EQ(result.code(), ncclRemoteError) << result.message();
    }
    ShmEnds ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
    if (busy) ends.receiver->Post(&byte, 1);
    ends.sender.reset();
    const Result result = ShmEnds::Drive([&](bool* m) { return ends.receiver->Progress(m); }, never);
    EXPECT_EQ(result.code(), ncclRemoteError) << result.message();
  }
}

// Its buffer may hold something else by the time the receiver looks: that may not be taken for the message.
TEST(Shm, WhatASenderThatGaveUpPointedToIsNotTaken) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyDirect));
  std::vector<char> data(100000, 'a');
  std::vector<char> got(100000);
  ends.receiver->Post(got.data(), got.size());
  bool moved = false;
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());
  ends.sender->Post(data.data(), data.size());
  ASSERT_TRUE(ends.sender->Progress(&moved).ok());
  ASSERT_EQ(ends.sent().posted_bytes, 100000u);
  ends.sender.reset();
  std::fill(data.begin(), data.end(), 'b');
  EXPECT_EQ(ends.receiver->Progress(&moved).code(), ncclRemoteError);
  EXPECT_EQ(ends.receiver->completed(), 0u);
}

TEST(Shm, AGoodbyeIsNoErrorUnlessSomethingIsUnderWay) {
  char byte = 0;
  const auto polled = [](const auto& connection) {
    std::vector<pollfd> polls;
    connection->AppendPolls(&polls);
    return polls.size();
  };
  {
    ShmEnds ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
    ends.receiver->SayGoodbye();
    ends.receiver.reset();
    const auto sender = [&](bool* moved) { return ends.sender->Progress(moved); };
    ASSERT_TRUE(ShmEnds::Drive(sender, [&] { return polled(ends.sender) == 0; }).ok())
        << "a closed stream must not wake an idle thread again and again";
    ends.sender->Post(&byte, 1);
    EXPECT_EQ(ShmEnds::Drive(sender, [] { return false; }).code(), ncclRemoteError);
  }
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
  ends.sender->SayGoodbye();
  ends.sender.reset();
  const auto receiver = [&](bool* moved) { return ends.receiver->Progress(moved); };
  ASSERT_TRUE(ShmEnds::Drive(receiver, [&] { return polled(ends.receiver) == 0; }).ok());
  ends.receiver->Post(&byte, 1);
  EXPECT_EQ(ShmEnds::Drive(receiver, [] { return false; }).code(), ncclRemoteError);
}

// The last message is taken, its acknowledgement under way, when the receiver leaves.
TEST(Shm, WhatWasReceivedBeforeAGoodbyeCounts) {
  ShmEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
  const char data[100] = {};
  char got[100];
  ends.receiver->Post(got, sizeof got);
  bool moved = false;
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());
  ends.sender->Post(data, sizeof data);
  ASSERT_TRUE(ends.sender->Progress(&moved).ok());
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());
  ASSERT_EQ(ends.receiver->completed(), 1u);
  ends.receiver->SayGoodbye();
  ends.receiver.reset();
  const Result result = ShmEnds::Drive([&](bool* m) { return ends.sender->Progress(m); },
                                       [&] { return ends.sender->completed() == 1; });
  EXPECT_TRUE(result.ok()) << result.message();
}

// The bell's page, a pipe, the region: with both ends gone nothing is left.
TEST(Shm, NothingIsLeftOpen) {
  const auto descriptors = [] {
    size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const size_t before = descriptors();
  for (int i = 0; i < 3; ++i) {
    ShmEnds ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(Shape(), kCopyUnknown));
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(Bell, RingsOnlyWhoSleepsAndOnce) {
  Bell bell;
  std::shared_ptr<PeerBell> peer;
  ASSERT_TRUE(bell.Make(CurrentProcess()).ok());
  ASSERT_TRUE(PeerBell::Open(CurrentProcess(), bell.descriptor(), &peer).ok());
  const auto rung = [&] {
    pollfd entry{bell.fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  };
  peer->Ring();
  EXPECT_FALSE(rung());
  bell.BeforeSleep();
  EXPECT_FALSE(rung());
  peer->Ring();
  peer->Ring();
  EXPECT_TRUE(rung());
  char bytes[4];
  EXPECT_EQ(read(bell.fd(), bytes, sizeof bytes), 1);
  bell.AfterSleep();
  peer->Ring();
  EXPECT_FALSE(rung());
}

TEST(Bell, ARankThatHasGoneIsRungWithoutHarm) {
  auto bell = std::make_unique<Bell>();
  std::shared_ptr<PeerBell> peer;
  ASSERT_TRUE(bell->Make(CurrentProcess()).ok());
  ASSERT_TRUE(PeerBell::Open(CurrentProcess(), bell->descriptor(), &peer).ok());
  for (int i = 0; i < 3; ++i) {
    bell->BeforeSleep();
    if (i == 1) bell.reset();  // no SIGPIPE
    peer->Ring();
    if (i == 1) break;
  }
}

TEST(Bell, OnlyOfTheVeryProcessThatWasNamed) {
  Bell bell;
  ASSERT_TRUE(bell.Make(CurrentProcess()).ok());
  std::shared_ptr<PeerBell> peer;
  wire::ProcessIdentity other = CurrentProcess();
  ++other.start_time_ticks;
  EXPECT_EQ(PeerBell::Open(other, bell.descriptor(), &peer).code(), ncclRemoteError);
  EXPECT_EQ(PeerBell::Open(CurrentProcess(), static_cast<uint32_t>(bell.fd()), &peer).code(), ncclRemoteError)
      << "a pipe is no page";
  EXPECT_EQ(PeerBell::Open(CurrentProcess(), 1000000, &peer).code(), ncclRemoteError);
  Bell of_another;
  other = CurrentProcess();
  ++other.pid;
  EXPECT_FALSE(of_another.Make(other).ok());
}

// Two threads that take turns, each asleep until the other has rung, and now and then awake.
TEST(Bell, NoRingIsLost) {
  constexpr uint64_t kTurns = 20000;
  Bell bells[2];
  std::shared_ptr<PeerBell> peers[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(bells[i].Make(CurrentProcess()).ok());
    ASSERT_TRUE(PeerBell::Open(CurrentProcess(), bells[i].descriptor(), &peers[i]).ok());
  }
  std::atomic<uint64_t> turn{0};
  std::atomic<int> lost{0};
  std::atomic<uint64_t> slept{0};
  std::vector<std::thread> threads;
  for (uint64_t me = 0; me < 2; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(static_cast<unsigned>(4711 + me));
      for (;;) {
        // Relaxed, as the counters of a region: the fences of the bell have to order it.
        const auto mine = [&] {
          const uint64_t now = turn.load(std::memory_order_relaxed);
          return now >= kTurns || now % 2 == me;
        };
        for (unsigned spin = random() % 64; spin > 0 && !mine(); --spin) {
        }
        while (!mine()) {
          bells[me].BeforeSleep();
          if (!mine()) {
            pollfd entry{bells[me].fd(), POLLIN, 0};
            if (poll(&entry, 1, 2000) == 0) ++lost;
            slept.fetch_add(1);
          }
          bells[me].AfterSleep();
          bells[me].Drain();
        }
        const uint64_t now = turn.load(std::memory_order_relaxed);
        if (now >= kTurns || lost.load() != 0) break;
        turn.store(now + 1, std::memory_order_relaxed);
        peers[1 - me]->Ring();
      }
      peers[1 - me]->Ring();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lost.load(), 0);
  EXPECT_EQ(turn.load(), kTurns);
  EXPECT_GT(slept.load(), 0u);
}

}  // namespace
}  // namespace c4::shm
