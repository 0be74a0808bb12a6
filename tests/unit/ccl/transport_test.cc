// Connections over TCP: what arrives, when anything is sent at all, and what the monitor sees of it.
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "tests/unit/ccl/transport_ends.h"

namespace c4::tcp {
namespace {

using std::chrono::milliseconds;

uint64_t Histogram(const wire::QueuePairSlot& slot) {
  return std::accumulate(std::begin(slot.latency_histogram), std::end(slot.latency_histogram), uint64_t{0});
}

struct Messages {
  Messages(size_t count, size_t most_bytes, std::mt19937* random) {
    for (size_t i = 0; i < count; ++i) {
      const size_t kind = (*random)() % 10;
      const size_t size = kind == 0 ? 0 : (*random)() % (kind < 3 ? most_bytes : most_bytes / 100 + 1);
      sent.emplace_back(size);
      for (char& c : sent.back()) c = static_cast<char>((*random)());
      got.emplace_back(size);
      bytes += size;
    }
  }
  uint64_t chunks(uint32_t chunk_bytes) const {
    uint64_t chunks = 0;
    for (const auto& message : sent) chunks += ChunkCount(message.size(), chunk_bytes);
    return chunks;
  }

  std::vector<std::vector<char>> sent;
  std::vector<std::vector<char>> got;
  uint64_t bytes = 0;
};

TEST(Connection, ManyMessagesArriveWholeAndInOrderOverAnyNumberOfQueuePairs) {
  for (const int queue_pairs : {1, 2, 3, 4}) {
    const unsigned seed = 20261121 + static_cast<unsigned>(queue_pairs);
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Ends ends;
    const Shape shape{static_cast<uint32_t>(queue_pairs), 16384, 40000};
    ASSERT_NO_FATAL_FAILURE(ends.Connect(shape));
    Messages messages(150, 300000, &random);
    size_t sends = 0;
    size_t receives = 0;
    const Result result = Ends::Drive(
        [&](bool* moved) {
          if (sends < messages.sent.size() && random() % 2 == 0) {
            ends.sender->Post(messages.sent[sends].data(), messages.sent[sends].size());
            ++sends;
          }
          if (receives < messages.got.size() && random() % 3 == 0) {
            ends.receiver->Post(messages.got[receives].data(), messages.got[receives].size());
            ++receives;
          }
          C4_RETURN_IF_ERROR(ends.Both(moved));
          // What is complete is complete from the first byte to the last.
          const size_t done = ends.receiver->completed();
          if (done > 0 && messages.got[done - 1] != messages.sent[done - 1])
            return Fail(ncclInternalError, "message %zu is not whole", done - 1);
          return Ok();
        },
        [&] { return ends.sender->completed() == messages.sent.size(); });
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_EQ(messages.sent, messages.got);

    uint64_t chunks = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < queue_pairs; ++i) {
      const wire::QueuePairSlot& sent = ends.sent(i);
      const wire::QueuePairSlot& received = ends.received(i);
      EXPECT_GT(sent.completed_messages, 0u) << "a queue pair that is never used";
      EXPECT_EQ(sent.completed_messages, sent.posted_messages);
      EXPECT_EQ(sent.completed_messages, received.completed_messages);
      EXPECT_EQ(sent.completed_bytes, received.completed_bytes);
      EXPECT_EQ(received.moved_bytes, received.completed_bytes);
      EXPECT_GE(sent.moved_bytes, sent.completed_bytes);
      EXPECT_EQ(Histogram(sent), sent.completed_messages);
      EXPECT_EQ(Histogram(received), 0u);
      EXPECT_GE(sent.latency_max_ticks * sent.completed_messages, sent.latency_sum_ticks);
      EXPECT_EQ(sent.queue_pair_number, received.queue_pair_number);
      EXPECT_EQ(memcmp(&sent.local, &received.remote, sizeof sent.local), 0);
      EXPECT_EQ(memcmp(&sent.remote, &received.local, sizeof sent.local), 0);
      chunks += sent.completed_messages;
      bytes += sent.completed_bytes;
    }
    EXPECT_EQ(chunks, messages.chunks(shape.chunk_bytes));
    EXPECT_EQ(bytes, messages.bytes);
    for (const wire::QueuePairSlot* slot : {&ends.sent(), &ends.received()}) {
      EXPECT_EQ(slot->wanted_messages, 150u);
      EXPECT_EQ(slot->granted_messages, 150u);
      EXPECT_EQ(slot->done_messages, 150u);
      EXPECT_EQ(slot->wanted_bytes, messages.bytes);
      EXPECT_EQ(slot->done_bytes, messages.bytes);
      EXPECT_GE(slot->last_done_ticks, slot->last_wanted_ticks);
    }
    for (int i = 1; i < queue_pairs; ++i)
      EXPECT_EQ(ends.sent(i).wanted_messages, 0u) << "only where index is 0";
  }
}

TEST(Connection, NothingIsPostedBeforeTheReceiverHasItsBuffers) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  std::vector<char> data(10000, 'x');
  std::vector<char> got(10000);
  for (int i = 0; i < 3; ++i) ends.sender->Post(data.data(), data.size());
  ends.DriveBothFor(20000000);
  EXPECT_EQ(ends.sent(0).posted_messages + ends.sent(1).posted_messages, 0u);
  EXPECT_EQ(ends.sent().wanted_messages, 3u);
  EXPECT_EQ(ends.sent().wanted_bytes, 30000u);
  EXPECT_EQ(ends.sent().granted_messages, 0u);
  ends.receiver->Post(got.data(), got.size());
  EXPECT_EQ(ends.received().wanted_messages, 1u);
  EXPECT_EQ(ends.received().granted_messages, 0u) << "announced by Progress";
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 1; }).ok());
  ends.DriveBothFor(20000000);
  EXPECT_EQ(ends.sender->completed(), 1u);
  EXPECT_EQ(ends.sent(0).posted_messages + ends.sent(1).posted_messages, 10u) << "those of the first message";
  EXPECT_EQ(ends.sent().granted_messages, 1u);
  EXPECT_EQ(ends.sent().done_messages, 1u);
  EXPECT_EQ(ends.received().granted_messages, 1u);
  EXPECT_EQ(ends.received().done_bytes, 10000u);
}

TEST(Connection, ReceivesMayBePostedBeforeTheSenderIsThere) {
  Ends ends;
  ends.receiver = std::make_unique<ReceiveConnection>(1, 0);
  std::vector<char> data(5000, 'x');
  std::vector<char> got(5000);
  ends.receiver->BeginOperation();
  ends.receiver->Post(got.data(), got.size());
  bool moved = false;
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());
  std::this_thread::sleep_for(milliseconds(20));
  const uint64_t waited = NowTicks();
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  EXPECT_EQ(ends.received().wanted_bytes, 5000u);
  EXPECT_LT(ends.received().last_wanted_ticks, waited);
  ends.sender->Post(data.data(), data.size());
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 1; }).ok());
  EXPECT_EQ(data, got);
  EXPECT_GE(ends.received().first_wait_max_ticks, waited - ends.received().last_wanted_ticks)
      << "the time before the sender had connected is part of its lateness";
}

TEST(Connection, TheReceiversWaitIsMeasuredAndThatForAnOperationApart) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  char byte = 1;
  char got = 0;
  const auto message = [&](milliseconds late) {
    ends.receiver->Post(&got, 1);
    bool moved = false;
    EXPECT_TRUE(ends.receiver->Progress(&moved).ok());
    const uint64_t posted = NowTicks();
    std::this_thread::sleep_for(late);
    const uint64_t waited = NowTicks() - posted;
    ends.sender->Post(&byte, 1);
    const uint64_t all = ends.sender->posted();
    EXPECT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == all; }).ok());
    return waited;
  };
  const auto waits = [&] { return ends.received(0).wait_sum_ticks + ends.received(1).wait_sum_ticks; };
  ends.receiver->BeginOperation();
  const uint64_t first = message(milliseconds(20));
  EXPECT_GE(waits(), first);
  EXPECT_EQ(ends.received().first_waits, 1u);
  EXPECT_GE(ends.received().first_wait_sum_ticks, first);
  const uint64_t first_sum = ends.received().first_wait_sum_ticks;
  const uint64_t second = message(milliseconds(30));  // the data flow slowly: nobody comes late
  EXPECT_GE(waits(), first + second);
  EXPECT_EQ(ends.received().first_waits, 1u);
  EXPECT_EQ(ends.received().first_wait_sum_ticks, first_sum);
  ends.receiver->BeginOperation();
  const uint64_t third = message(milliseconds(10));
  EXPECT_EQ(ends.received().first_waits, 2u);
  EXPECT_GE(ends.received().first_wait_sum_ticks, first_sum + third);
  EXPECT_LT(ends.received().first_wait_max_ticks, first + second + third) << "a maximum, no sum";
  EXPECT_EQ(ends.sent(0).wait_sum_ticks + ends.sent(1).wait_sum_ticks, 0u);
}

// Four receives at once, as the executor posts them: the wait for the second is none, when its data come with
// those of the first.
TEST(Connection, AWaitIsCountedOnce) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({1, 1024, 65536}));
  char data[4] = {};
  char got[4];
  for (char& place : got) ends.receiver->Post(&place, 1);
  std::this_thread::sleep_for(milliseconds(40));
  const uint64_t before = NowTicks();
  for (const char& byte : data) ends.sender->Post(&byte, 1);
  ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 4; }).ok());
  const uint64_t waited = before - ends.received().last_wanted_ticks;
  EXPECT_GE(ends.received().wait_sum_ticks, waited / 2);
  EXPECT_LT(ends.received().wait_sum_ticks, 3 * waited);
}

TEST(Connection, UnacknowledgedDataShowWhileThePeerDoesNothing) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  std::vector<char> data(1000);
  std::vector<char> got(1000);
  ends.receiver->Post(got.data(), got.size());
  bool moved = false;
  ASSERT_TRUE(ends.receiver->Progress(&moved).ok());  // its last: it has announced the receive
  ends.sender->Post(data.data(), data.size());
  ASSERT_TRUE(Ends::Drive([&](bool* m) { return ends.sender->Progress(m); },
                          [&] { return ends.sent(0).moved_bytes + ends.sent(1).moved_bytes >= 1000; })
                  .ok());
  EXPECT_EQ(ends.sent(0).posted_bytes + ends.sent(1).posted_bytes, 1000u);
  EXPECT_EQ(ends.sent(0).completed_bytes + ends.sent(1).completed_bytes, 0u);
  EXPECT_EQ(ends.sent().granted_messages, 1u);
  EXPECT_EQ(ends.sent().done_messages, 0u);
}

// The process on the other side does not read from one of four queue pairs: the others carry the load, the
// announcements get through, and what the frozen one was given is bounded.
TEST(Connection, AFrozenQueuePairIsAvoided) {
  for (int ill = 0; ill < 4; ++ill) {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect({4, 4096, 65536}));
    ends.frozen[ill] = true;
    std::vector<char> data(40960, 'y');
    std::vector<std::vector<char>> got(100, std::vector<char>(data.size()));
    for (auto& buffer : got) {
      ends.sender->Post(data.data(), data.size());
      ends.receiver->Post(buffer.data(), buffer.size());
    }
    const auto carried = [&] {
      uint64_t chunks = 0;
      for (int i = 0; i < 4; ++i) chunks += i == ill ? 0 : ends.sent(i).completed_messages;
      return chunks;
    };
    ASSERT_TRUE(ends.DriveBoth([&] { return carried() >= 980; }).ok()) << ill << ": " << carried();
    EXPECT_LE(ends.sent(ill).posted_bytes, 65536u);
    EXPECT_EQ(ends.sent(ill).completed_messages, 0u);
    EXPECT_LT(ends.sender->completed(), 100u) << "something of it is still on its way";
    ends.frozen[ill] = false;
    ASSERT_TRUE(ends.DriveBoth([&] { return ends.sender->completed() == 100; }).ok());
    for (const auto& buffer : got) EXPECT_EQ(buffer, data);
  }
}

TEST(Connection, AMessageOfAnotherSizeIsAnErrorThatNamesBoth) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  char data[64] = {};
  char got[32];
  ends.sender->Post(data, sizeof data);
  ends.receiver->Post(got, sizeof got);
  const Result result = ends.DriveBoth([] { return false; });
  EXPECT_EQ(result.code(), ncclInvalidUsage);
  EXPECT_NE(result.message().find("64 bytes where rank 1 expects 32"), std::string::npos) << result.message();
}

TEST(Connection, AClosedPeerIsARemoteError) {
  const auto never = [] { return false; };
  for (const bool busy : {false, true}) {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
    char byte = 0;
    if (busy) ends.sender->Post(&byte, 1);
    ends.receiver.reset();
    EXPECT_EQ(Ends::Drive([&](bool* m) { return ends.sender->Progress(m); }, never).code(), ncclRemoteError);
  }
  for (const bool busy : {false, true}) {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
    char byte = 0;
    if (busy) ends.receiver->Post(&byte, 1);
    ends.sender.reset();
    EXPECT_EQ(Ends::Drive([&](bool* m) { return ends.receiver->Progress(m); }, never).code(),
              ncclRemoteError);
  }
}

TEST(Connection, AGoodbyeIsNoErrorUnlessSomethingIsUnderWay) {
  char byte = 0;
  const auto polled = [](const auto& connection) {
    std::vector<pollfd> polls;
    connection->AppendPolls(&polls);
    return polls.size();
  };
  {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
    ends.receiver->SayGoodbye();
    ends.receiver.reset();
    const auto sender = [&](bool* moved) { return ends.sender->Progress(moved); };
    ASSERT_TRUE(Ends::Drive(sender, [&] { return polled(ends.sender) == 0; }).ok())
        << "a closed stream must not wake an idle thread again and again";
    ends.sender->Post(&byte, 1);
    EXPECT_EQ(Ends::Drive(sender, [] { return false; }).code(), ncclRemoteError);
  }
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect({2, 1024, 65536}));
  ends.sender->SayGoodbye();
  ends.sender.reset();
  const auto receiver = [&](bool* moved) { return ends.receiver->Progress(moved); };
  ASSERT_TRUE(Ends::Drive(receiver, [&] { return polled(ends.receiver) == 0; }).ok());
  ends.receiver->Post(&byte, 1);
  EXPECT_EQ(Ends::Drive(receiver, [] { return false; }).code(), ncclRemoteError);
}

}  // namespace
}  // namespace c4::tcp
