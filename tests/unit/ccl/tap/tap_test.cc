// A program that looks verbs up, on a double of libibverbs: its answers are the same under the tap, and the
// tap's records are what it did.
#include "ccl/tap/tap.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/tap/connection_indices.h"
#include "ccl/tap/watchdog.h"
#include "ccl/transport/verbs/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ccl/tap/verbs_client.h"

namespace c4::tap {
namespace {

class TapTest : public ::testing::Test {
 protected:
  TapTest() : monitor_("", {.communicators = 4, .queue_pairs = 16}, {}) { SetMonitor(&monitor_); }
  ~TapTest() override { SetMonitor(nullptr); }

  Monitor monitor_;
};

TEST_F(TapTest, ItsRecordsAreWhatTheProgramDid) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(client.Receive(b, 100 + i), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(client.Write(a, i, 4096, false), 0);
  ASSERT_EQ(client.Write(a, 7, 1000, true, abi::kOpWriteWithImmediate), 0);
  const std::vector<abi::Completion> sent = client.Poll(a);
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent.back().id, 7U);
  ASSERT_EQ(client.Poll(b).size(), 1U);
  WatchedQueuePair* const from = QueuePairs().Find(a.pair);
  WatchedQueuePair* const to = QueuePairs().Find(b.pair);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  const wire::QueuePairSlot sends = from->sends();
  EXPECT_EQ(sends.posted_messages, 4U);
  EXPECT_EQ(sends.posted_bytes, 3U * 4096 + 1000);
  EXPECT_EQ(sends.completed_messages, 4U);
  EXPECT_EQ(sends.completed_bytes, 3U * 4096 + 1000);
  uint64_t timed = 0;
  for (const uint32_t count : sends.latency_histogram) timed += count;
  EXPECT_GE(timed, 1U);
  const wire::QueuePairSlot receives = to->receives();
  EXPECT_EQ(receives.posted_messages, 4U);
  EXPECT_EQ(receives.completed_messages, 1U);
  EXPECT_EQ(receives.completed_bytes, 1000U);
  client.destroy_qp(a.pair);
  client.destroy_qp(b.pair);
}

// A program that finds two at a time: the second is not as quick as it looks.
TEST_F(TapTest, CompletionsThatAreFoundTogetherShareTheirTime) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  for (int i = 0; i < 6; i += 2) {
    ASSERT_EQ(client.Write(a, 0, 16384, true), 0);
    ASSERT_EQ(client.Write(a, 1, 16384, true), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    ASSERT_EQ(client.Poll(a).size(), 2U);
  }
  const wire::QueuePairSlot sends = QueuePairs().Find(a.pair)->sends();
  const auto least = static_cast<size_t>(wire::LatencyBucket(1'900'000, 16384));
  uint64_t timed = 0;
  for (size_t i = 0; i < wire::kLatencyBuckets; ++i) {
    timed += sends.latency_histogram[i];
    if (i < least) {
      EXPECT_EQ(sends.latency_histogram[i], 0U) << i;
    }
  }
  EXPECT_EQ(timed, 6U);
  client.destroy_qp(a.pair);
  client.destroy_qp(b.pair);
}

TEST_F(TapTest, TheAnswersAreThoseOfTheUntappedCall) {
  for (const bool tapped : {false, true}) {
    Client client(tapped);
    const Client::Pair a = client.Make();
    const Client::Pair b = client.Make();
    client.Connect(a, b, 0);
    client.Connect(b, a, 0);
    ASSERT_EQ(client.Write(a, 1, 64, true, abi::kOpWrite, 999), 0) << tapped;  // of a key that nobody has
    const std::vector<abi::Completion> completions = client.Poll(a);
    ASSERT_EQ(completions.size(), 1U) << tapped;
    EXPECT_EQ(completions[0].status, abi::kRemoteAccess) << tapped;
    WatchedQueuePair* const watched = QueuePairs().Find(a.pair);
    ASSERT_EQ(watched != nullptr, tapped);
    if (tapped) {
      EXPECT_EQ(watched->sends().error, static_cast<uint64_t>(EACCES));
    }
    client.destroy_qp(a.pair);
    client.destroy_qp(b.pair);
  }
}

TEST_F(TapTest, OnceItIsKnownWhoseItIsItStandsInTheSegment) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  ASSERT_EQ(client.Write(a, 1, 8192, true), 0);
  client.Poll(a);
  ObservedCommunicators communicators(&monitor_);
  ObservedCommunicator* const mine = communicators.Open({.id = 9, .rank = 0, .rank_count = 2});
  ObservedCommunicator* const other = communicators.Open({.id = 10, .rank = 0, .rank_count = 2});
  AttributePosted(mine, 1);
  EXPECT_FALSE(QueuePairs().Find(a.pair)->AttributeTo(other, 0));
  AttributePosted(other, 0);  // nothing was posted since
  ASSERT_EQ(client.Write(a, 2, 8192, true), 0);
  client.Poll(a);
  const wire::QueuePairSlot& slot = monitor_.segment().queue_pair(0);
  EXPECT_EQ(slot.peer, 1);
  EXPECT_EQ(slot.communicator_slot, 0U);
  EXPECT_EQ(slot.index, 1);
  EXPECT_EQ(slot.transport, wire::kTransportVerbs);
  EXPECT_EQ(slot.queue_pair_number, a.pair->number);
  EXPECT_EQ(slot.peer_number, b.pair->number);
  client.Connect(a, a, 5);
  EXPECT_EQ(slot.peer_number, a.pair->number);
  EXPECT_EQ(slot.completed_bytes, 2U * 8192);
  EXPECT_EQ(slot.remote.port, 4791);
  EXPECT_NE(slot.local.port, 0);
  client.destroy_qp(a.pair);
  EXPECT_EQ(slot.phase, static_cast<uint32_t>(wire::kPhaseDestroyed));
  client.destroy_qp(b.pair);
}

TEST_F(TapTest, EachQueuePairOfAConnectionHasItsOwnIndex) {
  ObservedCommunicators communicators(&monitor_);
  ObservedCommunicator* const mine = communicators.Open({.id = 9, .rank = 0, .rank_count = 3});
  Client client(true);
  const auto begin = [&](int peer, uint64_t id) {
    const Client::Pair made = client.Make();
    client.Connect(made, made, 5);
    EXPECT_EQ(client.Receive(made, id), 0);
    EXPECT_EQ(client.Write(made, id, 8192, true), 0);
    AttributePosted(mine, peer);
    return made;
  };
  // By number: sending and receiving slot of a queue pair have the same.
  const auto index = [&](const Client::Pair& made) {
    const uint16_t sends = QueuePairs().Find(made.pair)->sends().index;
    EXPECT_EQ(QueuePairs().Find(made.pair)->receives().index, sends);
    return sends;
  };
  const Client::Pair a = begin(1, 1);
  const Client::Pair b = begin(1, 2);
  const Client::Pair c = begin(2, 3);
  EXPECT_EQ(index(a), 1);
  EXPECT_EQ(index(b), 2);
  EXPECT_EQ(index(c), 1);  // of another connection
  client.destroy_qp(a.pair);
  ASSERT_EQ(client.Write(b, 4, 8192, true), 0);
  EXPECT_EQ(index(b), 2);
  const Client::Pair d = begin(1, 5);
  EXPECT_EQ(index(d), 1);
  EXPECT_EQ(index(b), 2);
  for (const Client::Pair& made : {b, c, d}) client.destroy_qp(made.pair);
  EXPECT_EQ(Indices().connections(), 0U);
}

TEST_F(TapTest, PostsByItsOwnCallsAreRecordedAndGivenBack) {
  Client client(true);
  const Client::Pair a = client.MakeExtended();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  auto* const extended = reinterpret_cast<abi::ExtendedQueuePair*>(a.pair);
  WatchedQueuePair* const watched = QueuePairs().Find(a.pair);
  ASSERT_NE(watched, nullptr);
  ASSERT_EQ(client.WriteByCalls(extended, 5, 3, 2048), 0);
  EXPECT_EQ(client.Poll(a).size(), 3U);
  EXPECT_EQ(client.Write(a, 9, 100, true), 0);  // the other way to post, to the same queue pair
  EXPECT_EQ(client.Poll(a).size(), 1U);
  wire::QueuePairSlot sends = watched->sends();
  EXPECT_EQ(sends.posted_messages, 4U);
  EXPECT_EQ(sends.posted_bytes, 3U * 2048 + 100);
  EXPECT_EQ(sends.completed_messages, 4U);
  EXPECT_EQ(sends.completed_bytes, 3U * 2048 + 100);
  // What is begun and given up is nothing.
  extended->calls.start(extended);
  extended->calls.write(extended, client.region->remote_key, 0);
  extended->calls.abort(extended);
  EXPECT_EQ(watched->sends().posted_messages, 4U);
  // Past what it holds the provider refuses all or takes some; the program hears what the provider says.
  client.Connect(a, b, 5);
  a.pair->state = abi::kReset;
  EXPECT_EQ(client.WriteByCalls(extended, 50, 2, 64), EINVAL);
  sends = watched->sends();
  EXPECT_EQ(sends.posted_messages, 4U);
  EXPECT_EQ(sends.posted_bytes, 3U * 2048 + 100);
  const auto ours = extended->calls.complete;
  ASSERT_EQ(client.destroy_qp(b.pair), 0);
  EXPECT_EQ(extended->calls.complete, ours);
  ASSERT_EQ(client.destroy_qp(a.pair), 0);
}

TEST_F(TapTest, WhatIsNotNcclsStandsInTheProgramsOwnCommunicatorFromTheStart) {
  static ObservedCommunicators* const communicators = new ObservedCommunicators(&monitor_);
  static ObservedCommunicator* const own = communicators->Open({.id = 9, .rank = 0, .rank_count = 1});
  SetOwner([] { return own; });
  {
    Client client(true);
    const Client::Pair a = client.Make();
    const Client::Pair b = client.Make();
    client.Connect(a, b, 0);
    client.Connect(b, a, 0);
    // One that is only written to stands there as well, for its other end to be found.
    const wire::QueuePairSlot idle = QueuePairs().Find(b.pair)->sends();
    EXPECT_EQ(idle.phase, static_cast<uint32_t>(wire::kPhaseReady));
    EXPECT_EQ(idle.queue_pair_number, b.pair->number);
    EXPECT_EQ(idle.peer_number, a.pair->number);
    EXPECT_EQ(idle.posted_messages, 0U);
    ASSERT_EQ(client.Receive(a, 1), 0);
    const wire::QueuePairSlot receives = QueuePairs().Find(a.pair)->receives();
    EXPECT_EQ(receives.local.port, 4791);
    EXPECT_EQ(receives.remote.port, 0);          // whichever the other end has chosen
    ASSERT_EQ(client.Write(a, 2, 64, true), 0);  // would be NCCL's clear to send
    client.Poll(a);
    const wire::QueuePairSlot sends = QueuePairs().Find(a.pair)->sends();
    EXPECT_EQ(sends.peer, kUnknownPeer);
    EXPECT_EQ(sends.completed_messages, 1U);
    EXPECT_EQ(sends.completed_bytes, 64U);
    EXPECT_NE(sends.local.port, 0);  // the kernel's own choice
    client.destroy_qp(a.pair);
    client.destroy_qp(b.pair);
  }
  SetOwner(nullptr);
}

TEST_F(TapTest, AQueuePairThatDiesUnheardIsFoundOnce) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  const verbs::Library* library = nullptr;
  ASSERT_TRUE(verbs::ProcessLibrary(&library).ok());
  Watchdog watchdog(&QueuePairs(), library->query_queue_pair);
  uint64_t now_ns = MonotonicNs();
  const auto step = [&] { return watchdog.Step(now_ns += Watchdog::kSeldomNs); };
  EXPECT_EQ(step(), 0U);
  a.pair->state = abi::kError;               // the device's doing
  EXPECT_EQ(watchdog.Step(now_ns + 1), 0U);  // it was looked at just now
  EXPECT_EQ(step(), 1U);
  EXPECT_EQ(QueuePairs().Find(a.pair)->sends().error, static_cast<uint64_t>(EIO));
  EXPECT_EQ(step(), 0U);
  // What the program does itself is no news.
  abi::QpAttributes attributes{};
  attributes.state = abi::kError;
  client.modify_qp(b.pair, &attributes, abi::kMaskState);
  EXPECT_EQ(step(), 0U);
  client.destroy_qp(a.pair);
  client.destroy_qp(b.pair);
  EXPECT_EQ(step(), 0U);
}

TEST_F(TapTest, WhatStandsWhileTheProgramDoesNotPollIsNotHeldAgainstTheNetwork) {
  ObservedCommunicators communicators(&monitor_);
  ObservedCommunicator* const mine = communicators.Open({.id = 9, .rank = 0, .rank_count = 2});
  Client client(true);
  const Client::Pair a = client.Make();
  client.Connect(a, a, 5);
  ASSERT_EQ(client.Write(a, 1, 8192, true), 0);
  AttributePosted(mine, 1);
  const wire::QueuePairSlot& slot = monitor_.segment().queue_pair(0);
  const uint64_t posted_ticks = slot.last_post_ticks;
  ForgiveWhoDoesNotPoll(posted_ticks + 1);  // what was polled before it came is over
  ForgiveWhoDoesNotPoll(posted_ticks + 2);
  EXPECT_EQ(slot.last_post_ticks, posted_ticks + 2);
  EXPECT_EQ(slot.posted_messages, 1U);
  const Client::Pair b = client.Make();
  (void)client.Poll(b);  // it looks, and finds nothing of the first
  ForgiveWhoDoesNotPoll(posted_ticks + 3);
  EXPECT_EQ(slot.last_post_ticks, posted_ticks + 2);
  ASSERT_EQ(client.Poll(a).size(), 1U);
  ForgiveWhoDoesNotPoll(posted_ticks + 4);
  ForgiveWhoDoesNotPoll(posted_ticks + 5);  // nothing is under way
  EXPECT_EQ(slot.last_post_ticks, posted_ticks + 2);
  client.destroy_qp(a.pair);
  client.destroy_qp(b.pair);
}

TEST_F(TapTest, TenThousandQueuePairsAreLookedAtAFewAtATime) {
  Client client(true);
  abi::CompletionQueue* const queue = client.create_cq(client.context, 64, nullptr, nullptr, 0);
  std::vector<abi::QueuePair*> pairs;
  for (int i = 0; i < 10000; ++i) {
    abi::QpInit init{};
    init.send_queue = init.receive_queue = queue;
    init.capacity = {1, 1, 1, 1, 0};
    pairs.push_back(client.create_qp(client.domain, &init));
    abi::QpAttributes attributes{};
    attributes.state = abi::kReadyToSend;
    client.modify_qp(pairs.back(), &attributes, abi::kMaskState);
    if (i % 1000 == 0) pairs.back()->state = abi::kError;
    ASSERT_NE(QueuePairs().Find(pairs.back()), nullptr);
  }
  static uint32_t looks = 0;
  Watchdog watchdog(&QueuePairs(),
                    [](abi::QueuePair* pair, abi::QpAttributes* attributes, int, abi::QpInit*) {
                      ++looks;
                      attributes->state = pair->state;
                      return 0;
                    });
  const uint64_t now_ns = MonotonicNs() + Watchdog::kSeldomNs;
  uint32_t found = 0;
  for (int i = 0; i < 10000 / static_cast<int>(Watchdog::kLooksPerStep) + 1; ++i) {
    const uint32_t before = looks;
    found += watchdog.Step(now_ns);
    EXPECT_LE(looks - before, Watchdog::kLooksPerStep);
  }
  EXPECT_EQ(found, 10U);
  EXPECT_EQ(looks, 10000U);
  for (abi::QueuePair* const pair : pairs) client.destroy_qp(pair);
}

TEST_F(TapTest, TwoThreadsOpenADevice) {
  Client client(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&client] {
      for (int round = 0; round < 200; ++round) {
        int count = 0;
        abi::Context* const own = client.open_device(client.get_device_list(&count)[0]);
        ASSERT_NE(own, nullptr);
        EXPECT_EQ(own->operations.post_send, client.context->operations.post_send) << "not taken over";
        EXPECT_EQ(client.close_device(own), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TapTest, OneIsDestroyedWhileAnotherThreadPolls) {
  Client client(true);
  abi::CompletionQueue* const queue = client.create_cq(client.context, 64, nullptr, nullptr, 0);
  std::atomic<uint64_t> polled{0};
  std::atomic<bool> over{false};
  std::thread poller([&] {
    std::vector<abi::Completion> completions(16);
    while (!over.load()) {
      const int count = client.context->operations.poll_completions(queue, 16, completions.data());
      ASSERT_GE(count, 0);
      for (int i = 0; i < count; ++i) EXPECT_EQ(completions[static_cast<size_t>(i)].status, abi::kSuccess);
      polled += static_cast<uint64_t>(count);
    }
  });
  uint64_t posted = 0;
  for (int round = 0; round < 300; ++round) {
    abi::QpInit init{};
    init.send_queue = init.receive_queue = queue;
    init.capacity = {16, 16, 1, 1, 0};
    const Client::Pair made{queue, client.create_qp(client.domain, &init)};
    client.Connect(made, made, 1);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(client.Write(made, i, 700, true), 0);
    posted += 4;
    if (round % 2 == 0) {  // else while its completions are on their way
      while (polled.load() < posted) std::this_thread::yield();
    }
    EXPECT_EQ(client.destroy_qp(made.pair), 0);
    EXPECT_EQ(QueuePairs().Find(made.pair), nullptr);
  }
  while (polled.load() < posted) std::this_thread::yield();
  over = true;
  poller.join();
  EXPECT_EQ(polled.load(), posted);
}

TEST_F(TapTest, ManyThreadsPostPollAndDestroy) {
  Client client(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client] {
      for (int round = 0; round < 50; ++round) {
        const Client::Pair a = client.Make();
        const Client::Pair b = client.Make();
        client.Connect(a, b, 1);
        client.Connect(b, a, 1);
        for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(client.Write(a, i, 700, true), 0);
        client.Poll(a);
        EXPECT_EQ(QueuePairs().Find(a.pair)->sends().completed_messages, 8U);
        client.destroy_qp(a.pair);
        client.destroy_qp(b.pair);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace c4::tap
