// Communicators of the vendor's engine as calls and events tell of them: which call an event belongs to, what
// the counters say, and that nothing of an earlier communicator is counted for a later one.
#include "ccl/monitor/observed.h"

#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace c4 {
namespace {

constexpr uint64_t kStream = 7;

ObservedCall AllReduce(uint64_t count, const void* buffer = nullptr, uint64_t stream = kStream) {
  ObservedCall call;
  call.info.function = wire::kAllReduce;
  call.info.count = count;
  call.info.root = -1;
  call.send_buffer = buffer;
  call.recv_buffer = buffer;
  call.stream = stream;
  return call;
}

ObservedCall Send(uint64_t count, int peer) {
  ObservedCall call;
  call.info.function = wire::kSend;
  call.info.count = count;
  call.info.root = peer;
  call.stream = kStream;
  return call;
}

class ObservedTest : public ::testing::Test {
 protected:
  ObservedTest() { monitor_.SetLevel(wire::kLevelCoarse); }
  ObservedCommunicator* Open(uint64_t id, int rank = 0, int rank_count = 4) {
    CommunicatorIdentity identity;
    identity.id = id;
    identity.rank = rank;
    identity.rank_count = rank_count;
    identity.engine = wire::kEngineVendor;
    return all_.Open(identity);
  }
  const wire::CommunicatorSlot& Slot(uint64_t id) {
    for (uint32_t i = 0; i < monitor_.segment().header().communicators_used; ++i) {
      const wire::CommunicatorSlot& slot = monitor_.segment().communicator(i);
      if (slot.communicator_id == id && slot.phase != wire::kPhaseFree) return slot;
    }
    ADD_FAILURE() << "no communicator " << id;
    return monitor_.segment().communicator(0);
  }
  uint64_t Records() { return monitor_.segment().ring(0).head; }

  Monitor monitor_{"", {64, 16, 4, 1024}, JobIdentity{}};
  ObservedCommunicators all_{&monitor_};
};

TEST_F(ObservedTest, ACallIsCountedFromCallToEnd) {
  ObservedCommunicator* comm = Open(1);
  EXPECT_EQ(Slot(1).phase, wire::kPhaseInit);
  comm->Ready();
  EXPECT_EQ(Slot(1).phase, wire::kPhaseReady);
  EXPECT_EQ(Slot(1).engine, wire::kEngineVendor);
  comm->Called(AllReduce(10), 100);
  comm->Enqueued(wire::kAllReduce, kStream, 110);
  EXPECT_EQ(Slot(1).called.count, 1u);
  EXPECT_EQ(Slot(1).enqueued.count, 1u);
  EXPECT_EQ(Slot(1).started.count, 0u);
  const uint64_t number = comm->Match(AllReduce(10));
  ASSERT_NE(number, 0u);
  EXPECT_EQ(comm->Match(AllReduce(10)), 0u) << "a call is matched once";
  comm->Started(wire::kAllReduce, number, 120);
  EXPECT_EQ(Slot(1).started.count, 1u);
  EXPECT_EQ(Slot(1).finished.count, 0u);
  comm->Finished(wire::kAllReduce, number, 150);
  EXPECT_EQ(Slot(1).finished.count, 1u);
  EXPECT_EQ(Slot(1).finished.ticks, 150u);
  ASSERT_EQ(Records(), 1u);
  const wire::OperationRecord& record = monitor_.segment().ring_records(0)[0].operation;
  EXPECT_EQ(record.sequence, 0u);
  EXPECT_EQ(record.called_ticks, 100u);
  EXPECT_EQ(record.started_ticks, 120u);
  EXPECT_EQ(record.finished_ticks, 150u);
}

TEST_F(ObservedTest, EventsOfAGroupComeInAnyOrder) {
  ObservedCommunicator* comm = Open(1);
  int a = 0, b = 0;
  const uint64_t first = comm->Called(AllReduce(10, &a), 1);
  const uint64_t second = comm->Called(AllReduce(20, &a), 2);
  const uint64_t third = comm->Called(AllReduce(10, &b), 3);
  EXPECT_EQ(comm->Match(AllReduce(10, &b)), third);
  EXPECT_EQ(comm->Match(AllReduce(20)), second) << "an event without buffers";
  EXPECT_TRUE(comm->Match(AllReduce(30)) == 0);
  EXPECT_EQ(comm->Match(AllReduce(10, &a)), first);
}

TEST_F(ObservedTest, SendsAndReceivesAreCountedApart) {
  ObservedCommunicator* comm = Open(1);
  comm->Called(AllReduce(10), 1);
  const uint64_t to_two = comm->Called(Send(5, 2), 2);
  const uint64_t to_three = comm->Called(Send(5, 3), 3);
  EXPECT_EQ(Slot(1).called.count, 1u);
  EXPECT_EQ(Slot(1).p2p_called.count, 2u);
  EXPECT_EQ(comm->Match(Send(5, 3)), to_three);
  EXPECT_EQ(comm->Match(Send(5, 2)), to_two);
  comm->Finished(wire::kSend, to_two, 9);
  EXPECT_EQ(Slot(1).p2p_finished.count, 1u);
  EXPECT_EQ(Slot(1).finished.count, 0u);
}

TEST_F(ObservedTest, CountersTellOfWhatNothingIsMissingBefore) {
  ObservedCommunicator* comm = Open(1);
  const uint64_t slow = comm->Called(AllReduce(1, nullptr, 1), 1);
  const uint64_t quick = comm->Called(AllReduce(1, nullptr, 2), 2);
  comm->Match(AllReduce(1));
  comm->Match(AllReduce(1));
  comm->Started(wire::kAllReduce, quick, 5);
  comm->Finished(wire::kAllReduce, quick, 6);
  EXPECT_EQ(Slot(1).finished.count, 0u) << "another stream's";
  comm->Started(wire::kAllReduce, slow, 7);
  comm->Finished(wire::kAllReduce, slow, 8);
  EXPECT_EQ(Slot(1).finished.count, 2u);
}

TEST_F(ObservedTest, WhatWasNotSeenToEndEndedBeforeWhatIsBehindIt) {
  ObservedCommunicator* comm = Open(1);
  comm->Called(AllReduce(1), 1);
  const uint64_t second = comm->Called(AllReduce(2), 2);
  comm->Started(wire::kAllReduce, second, 5);
  EXPECT_EQ(Slot(1).finished.count, 1u);
  EXPECT_EQ(Slot(1).started.count, 2u);
  comm->Finished(wire::kAllReduce, second, 6);
  EXPECT_EQ(Slot(1).finished.count, 2u);
  EXPECT_EQ(Records(), 1u) << "the first has no times to tell";
}

TEST_F(ObservedTest, WhatIsBehindItMayStartBeforeItsOwnEndIsHeardOf) {
  ObservedCommunicator* comm = Open(1);
  const uint64_t first = comm->Called(AllReduce(1), 1);
  const uint64_t second = comm->Called(AllReduce(2), 2);
  comm->Started(wire::kAllReduce, first, 5);
  comm->Started(wire::kAllReduce, second, 9);
  EXPECT_EQ(Slot(1).finished.count, 1u);
  comm->Finished(wire::kAllReduce, first, 8);
  comm->Finished(wire::kAllReduce, first, 8);
  EXPECT_EQ(Slot(1).finished.count, 1u);
  ASSERT_EQ(Records(), 1u) << "with its own end, once";
  EXPECT_EQ(monitor_.segment().ring_records(0)[0].operation.finished_ticks, 8u);
}

TEST_F(ObservedTest, WhatOneKernelDoesIsDoneSideBySide) {
  ObservedCommunicator* comm = Open(1);
  for (uint64_t count = 1; count <= 3; ++count) comm->Called(AllReduce(count), count);
  const uint64_t first = comm->Match(AllReduce(1), nullptr, 8);
  const uint64_t second = comm->Match(AllReduce(2), nullptr, 8);
  const uint64_t third = comm->Match(AllReduce(3), nullptr, 9);
  comm->Started(wire::kAllReduce, second, 5);
  comm->Started(wire::kAllReduce, first, 6);
  comm->Finished(wire::kAllReduce, second, 7);
  EXPECT_EQ(Slot(1).started.count, 2u);
  EXPECT_EQ(Slot(1).finished.count, 0u) << "the first goes on";
  comm->Started(wire::kAllReduce, third, 9);
  EXPECT_EQ(Slot(1).finished.count, 2u) << "the next kernel comes after it";
}

TEST_F(ObservedTest, AnEarlierStartCorrectsTheFirst) {
  ObservedCommunicator* comm = Open(1);
  const uint64_t number = comm->Called(AllReduce(1), 1);
  comm->Started(wire::kAllReduce, number, 5);
  comm->Started(wire::kAllReduce, number, 4);
  comm->Started(wire::kAllReduce, number, 6);
  comm->Finished(wire::kAllReduce, number, 9);
  EXPECT_EQ(Slot(1).started.count, 1u);
  EXPECT_EQ(monitor_.segment().ring_records(0)[0].operation.started_ticks, 4u);
}

// NCCL turns what it gathers and broadcasts into bytes before its profiler sees it.
TEST_F(ObservedTest, GathersAndBroadcastsAreMatchedByTheirSize) {
  ObservedCommunicator* comm = Open(1);
  ObservedCall call = AllReduce(10);
  call.info.function = wire::kAllGather;
  call.info.data_type = 7;  // float
  ObservedCall seen = call;
  seen.info.data_type = 0;  // char
  const uint64_t number = comm->Called(call, 77);
  EXPECT_EQ(comm->Match(seen), 0u);
  seen.info.count = 40;
  uint64_t called_ticks = 0;
  EXPECT_EQ(comm->Match(seen, &called_ticks), number);
  EXPECT_EQ(called_ticks, 77u);
}

TEST_F(ObservedTest, CallsThatLeaveNoEventsAreWaitedForByNobody) {
  ObservedCommunicator* comm = Open(1);
  const uint64_t first = comm->Called(AllReduce(1), 1);
  comm->Called(AllReduce(0), 2);
  EXPECT_EQ(Slot(1).finished.count, 0u) << "not before what is before it";
  comm->Started(wire::kAllReduce, first, 3);
  comm->Finished(wire::kAllReduce, first, 4);
  EXPECT_EQ(Slot(1).finished.count, 2u);
  ObservedCommunicator* alone = Open(2, 0, 1);
  alone->Called(AllReduce(9), 1);
  EXPECT_EQ(Slot(2).started.count, 1u);
  EXPECT_EQ(Slot(2).finished.count, 1u);
  alone->Called(Send(0, 0), 2);
  EXPECT_EQ(Slot(2).p2p_finished.count, 0u);
}

TEST_F(ObservedTest, WhatIsSeenIsSaid) {
  ObservedCommunicator* comm = Open(1);
  EXPECT_EQ(Slot(1).seen, 0u);
  comm->Sees(wire::kSeesEvents, UINT32_MAX);
  comm->Sees(wire::kSeesKernels, 900);
  EXPECT_EQ(Slot(1).seen, wire::kSeesEvents | wire::kSeesKernels);
  EXPECT_EQ(Slot(1).kernel_error_ns, 900u);
  QueuePairRecorder connection = comm->OpenConnection(
      {.direction = wire::kDirectionReceive, .peer = 3, .transport = wire::kTransportVendor});
  EXPECT_EQ(connection.slot().peer, 3);
  EXPECT_EQ(connection.slot().transport, wire::kTransportVendor);
  EXPECT_EQ(connection.slot().phase, wire::kPhaseReady);
  all_.Drop(comm, wire::kPhaseDestroyed);
  const wire::QueuePairSlot& slot = connection.slot();
  comm->CloseConnection(&connection);
  EXPECT_EQ(slot.phase, wire::kPhaseDestroyed);
}

TEST_F(ObservedTest, CallsThatNobodyEverSeesEndHoldNoCounterForEver) {
  ObservedCommunicator* comm = Open(1);
  comm->Called(AllReduce(1, nullptr, 99), 1);
  for (uint64_t i = 0; i < ObservedCommunicator::kKept; ++i) {
    const uint64_t number = comm->Called(AllReduce(2), 2);
    comm->Match(AllReduce(2));
    comm->Finished(wire::kAllReduce, number, 3);
  }
  EXPECT_EQ(Slot(1).finished.count, ObservedCommunicator::kKept + 1);
}

TEST_F(ObservedTest, AHandleThatComesBackIsAnotherCommunicator) {
  int handle = 0;
  ObservedCommunicator* first = Open(1);
  all_.Bind(&handle, first);
  EXPECT_EQ(all_.Find(&handle), first);
  const uint64_t old = first->Called(AllReduce(1), 1);
  all_.Remove(&handle, wire::kPhaseDestroyed);
  EXPECT_EQ(all_.Find(&handle), nullptr);
  EXPECT_EQ(first->Called(AllReduce(1), 2), 0u) << "closed";
  ObservedCommunicator* second = Open(2);
  EXPECT_EQ(second, first) << "the place is used again";
  all_.Bind(&handle, second);
  EXPECT_EQ(all_.Find(&handle), second);
  second->Called(AllReduce(1), 3);
  second->Finished(wire::kAllReduce, old, 4);
  EXPECT_EQ(Slot(2).finished.count, 0u) << "a late event of the first";
}

TEST_F(ObservedTest, TheOwnerOfAnEventHasItsRankAndTheOldestSuchCall) {
  ObservedCommunicator* world = Open(1, 3, 8);
  ObservedCommunicator* tensor = Open(2, 3, 4);
  ObservedCommunicator* data = Open(3, 1, 2);
  tensor->Called(AllReduce(5), 10);
  world->Called(AllReduce(5), 20);
  data->Called(AllReduce(5), 1);
  EXPECT_EQ(all_.Owner(3, 0, AllReduce(5)), tensor);
  EXPECT_EQ(all_.Owner(3, 8, AllReduce(5)), world);
  EXPECT_EQ(all_.Owner(1, 0, AllReduce(5)), data);
  EXPECT_EQ(all_.Owner(0, 0, AllReduce(5)), nullptr);
  EXPECT_EQ(all_.Owner(3, 0, AllReduce(6)), nullptr);
}

TEST_F(ObservedTest, TheFirstIsTheOneThatWasOpenedFirstOfThoseThatAreOpen) {
  CommunicatorIdentity identity;
  EXPECT_FALSE(all_.First(&identity));
  ObservedCommunicator* world = Open(1);
  ObservedCommunicator* tensor = Open(2);
  ASSERT_TRUE(all_.First(&identity));
  EXPECT_EQ(identity.id, 1u);
  all_.Drop(world, wire::kPhaseDestroyed);
  EXPECT_EQ(Open(3), world) << "in the first one's place";
  ASSERT_TRUE(all_.First(&identity));
  EXPECT_EQ(identity.id, 2u);
  all_.Drop(tensor, wire::kPhaseDestroyed);
  ASSERT_TRUE(all_.First(&identity));
  EXPECT_EQ(identity.id, 3u);
}

TEST_F(ObservedTest, ManyHandlesAreFoundWhileOthersComeAndGo) {
  std::vector<char> handles(64 * 1024);
  std::atomic<bool> done{false};
  ObservedCommunicator* kept = Open(1);
  all_.Bind(handles.data(), kept);
  std::thread reader([&] {
    while (!done.load()) ASSERT_EQ(all_.Find(handles.data()), kept);
  });
  std::mt19937 random(11);
  std::vector<char*> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() >= 32 || (!live.empty() && random() % 2 == 0)) {
      const size_t at = random() % live.size();
      all_.Remove(live[at], wire::kPhaseDestroyed);
      ASSERT_EQ(all_.Find(live[at]), nullptr);
      live.erase(live.begin() + static_cast<ptrdiff_t>(at));
    } else {
      char* handle = &handles[16 * (1 + random() % 4000)];
      if (all_.Find(handle) != nullptr) continue;
      ObservedCommunicator* made = Open(100 + static_cast<uint64_t>(i));
      all_.Bind(handle, made);
      ASSERT_EQ(all_.Find(handle), made);
      live.push_back(handle);
    }
  }
  done = true;
  reader.join();
}

// Against a model: calls on several streams, matched and finished as streams allow, some events lost.
TEST_F(ObservedTest, CountersAreRightWhateverIsSeen) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const uint64_t id = 1000 + seed;
    ObservedCommunicator* comm = Open(id);
    struct Call {
      uint64_t number;
      uint64_t stream;
      bool ended;
    };
    std::deque<Call> calls;
    for (int step = 0; step < 400; ++step) {
      if (random() % 2 == 0) {
        const uint64_t stream = random() % 3;
        calls.push_back({comm->Called(AllReduce(1, nullptr, stream), 1), stream, false});
        continue;
      }
      const uint64_t stream = random() % 3;
      for (Call& call : calls) {
        if (call.stream != stream || call.ended) continue;
        call.ended = true;
        if (random() % 4 == 0) break;  // its events are lost
        comm->Started(wire::kAllReduce, call.number, 2);
        comm->Finished(wire::kAllReduce, call.number, 3);
        break;
      }
      uint64_t finished = 0;
      while (finished < calls.size() && calls[finished].ended) ++finished;
      ASSERT_LE(Slot(id).finished.count, finished) << seed;
      ASSERT_LE(Slot(id).finished.count, Slot(id).started.count) << seed;
    }
    // One seen end on each stream tells of all before it.
    for (uint64_t stream = 0; stream < 3; ++stream) {
      comm->Finished(wire::kAllReduce, comm->Called(AllReduce(1, nullptr, stream), 4), 5);
    }
    EXPECT_EQ(Slot(id).finished.count, Slot(id).called.count) << seed;
    all_.Drop(comm, wire::kPhaseDestroyed);
  }
}

}  // namespace
}  // namespace c4
