// Sends and receives of the host engine, alone, in groups, and beside collectives.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <random>

#include "ccl/base/clock.h"
#include "ccl/base/data_type.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

using EngineP2p = EngineRanks;
using std::chrono::milliseconds;

// What rank `from` sends to rank `to` as message `number`.
std::vector<char> Payload(int from, int to, int number, size_t bytes) {
  std::vector<char> payload(bytes);
  std::mt19937 random(static_cast<unsigned>(from * 10007 + to * 101 + number));
  for (char& c : payload) c = static_cast<char>(random());
  return payload;
}

uint64_t ProcessCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

TEST_F(EngineP2p, OneSendsOneReceivesWhateverTheSizeAndTheNumberOfQueuePairs) {
  const ScopedKnob chunk("C4_CHUNK_BYTES", "4096");
  for (const char* queue_pairs : {"1", "2", "3", "4"}) {
    const ScopedKnob knob("C4_QUEUE_PAIRS", queue_pairs);
    Ranks(2, [](HostCommunicator& communicator) {
      const OwnStream stream;
      int number = 0;
      for (const size_t bytes : {0, 1, 7, 4095, 4096, 4097, 100000, 1000003}) {
        const std::vector<char> sent = Payload(0, 1, ++number, bytes);
        std::vector<char> got(bytes + 1, 'g');
        const Operation operation = communicator.rank() == 0 ? Send(sent.data(), bytes, 1, stream.handle)
                                                             : Recv(got.data(), bytes, 0, stream.handle);
        ASSERT_TRUE(Run(communicator, operation).ok());
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
        if (communicator.rank() == 0) continue;
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin())) << bytes;
        EXPECT_EQ(got[bytes], 'g') << "wrote behind the buffer";
      }
      EXPECT_TRUE(communicator.Finalize().ok());
    });
  }
}

TEST_F(EngineP2p, EveryDataTypeIsMovedByItsBytes) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    for (int type = 0; type < ncclNumTypes; ++type) {
      const size_t bytes = 5 * ElementBytes(type);
      ASSERT_GT(bytes, 0u) << type;
      const std::vector<char> sent = Payload(0, 1, type, bytes);
      std::vector<char> got(bytes + 8, 'g');
      const auto data_type = static_cast<ncclDataType_t>(type);
      const Operation operation = communicator.rank() == 0 ? Send(sent.data(), 5, 1, stream.handle, data_type)
                                                           : Recv(got.data(), 5, 0, stream.handle, data_type);
      ASSERT_TRUE(Run(communicator, operation).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      if (communicator.rank() == 0) continue;
      EXPECT_EQ(std::vector<char>(got.begin(), got.begin() + static_cast<ptrdiff_t>(bytes)), sent) << type;
      EXPECT_EQ(got[bytes], 'g') << type;
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(EngineP2p, RingsInAGroupDoNotWaitForEachOther) {
  for (const int n : {2, 3, 5}) {
    Ranks(n, [n](HostCommunicator& communicator) {
      const OwnStream stream;
      const int rank = communicator.rank();
      constexpr size_t kBytes = 300000;  // more than a window: a send alone would not come to its end
      for (int round = 0; round < 5; ++round) {
        const std::vector<char> out = Payload(rank, (rank + 1) % n, round, kBytes);
        std::vector<char> in(kBytes);
        ASSERT_TRUE(Run(communicator, {Send(out.data(), kBytes, (rank + 1) % n, stream.handle),
                                       Recv(in.data(), kBytes, (rank + n - 1) % n, stream.handle)})
                        .ok());
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
        EXPECT_EQ(in, Payload((rank + n - 1) % n, rank, round, kBytes));
      }
      EXPECT_TRUE(communicator.Finalize().ok());
    });
  }
}

// All to all, itself included: several messages between each two, in order; another order of calls on each
// rank.
TEST_F(EngineP2p, ManyMessagesBetweenAllRanksKeepTheirOrder) {
  const unsigned seed = 4711;
  SCOPED_TRACE(seed);
  constexpr int kRanks = 4;
  constexpr int kMessages = 3;
  Ranks(kRanks, [](HostCommunicator& communicator) {
    const OwnStream stream;
    const int rank = communicator.rank();
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    std::vector<std::vector<char>> out;
    std::vector<std::vector<char>> in;
    const auto bytes = [](int from, int to, int number) {
      return static_cast<size_t>((from * 31 + to * 17 + number * 7) % 5 * 20011);
    };
    std::vector<std::pair<int, bool>> calls;  // peer, sends
    for (int peer = 0; peer < kRanks; ++peer) {
      for (int i = 0; i < kMessages; ++i) {
        calls.emplace_back(peer, true);
        calls.emplace_back(peer, false);
      }
    }
    std::shuffle(calls.begin(), calls.end(), random);
    out.reserve(calls.size());
    in.reserve(calls.size());
    std::vector<Operation> group;
    std::map<std::pair<int, bool>, int> number;
    std::vector<std::vector<char>> expected;
    for (const auto& [peer, sends] : calls) {
      const int i = number[{peer, sends}]++;
      if (sends) {
        out.push_back(Payload(rank, peer, i, bytes(rank, peer, i)));
        group.push_back(Send(out.back().data(), out.back().size(), peer, stream.handle));
      } else {
        expected.push_back(Payload(peer, rank, i, bytes(peer, rank, i)));
        in.emplace_back(expected.back().size());
        group.push_back(Recv(in.back().data(), in.back().size(), peer, stream.handle));
      }
    }
    ASSERT_TRUE(Run(communicator, group).ok());
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_EQ(in, expected);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(EngineP2p, WithoutAGroupTheyRunInStreamOrder) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    const int peer = 1 - communicator.rank();
    std::vector<char> token(1000, static_cast<char>(communicator.rank() == 0 ? 1 : 0));
    // Ping-pong: each sends what it has just received, one more.
    for (int round = 0; round < 10; ++round) {
      const bool mine = (round % 2 == 0) == (communicator.rank() == 0);
      if (mine) {
        for (char& c : token) ++c;
        ASSERT_TRUE(Run(communicator, Send(token.data(), token.size(), peer, stream.handle)).ok());
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      } else {
        ASSERT_TRUE(Run(communicator, Recv(token.data(), token.size(), peer, stream.handle)).ok());
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
        EXPECT_EQ(token, std::vector<char>(1000, static_cast<char>(round + 2)));
      }
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

// Whatever order a rank puts them in, and all on one stream.
TEST_F(EngineP2p, AGroupMixesCollectivesSendsAndReceivesInAnyOrder) {
  Ranks(3, [](HostCommunicator& communicator) {
    const OwnStream stream;
    const int rank = communicator.rank();
    for (int round = 0; round < 6; ++round) {
      std::vector<float> sums[2] = {std::vector<float>(5000, 1.0f), std::vector<float>(7000, 2.0f)};
      const std::vector<char> out = Payload(rank, (rank + 1) % 3, round, 50000);
      std::vector<char> in(out.size());
      std::vector<Operation> transfers = {Send(out.data(), out.size(), (rank + 1) % 3, stream.handle),
                                          Recv(in.data(), in.size(), (rank + 2) % 3, stream.handle)};
      std::vector<Operation> group;
      for (auto& sum : sums) group.push_back(AllReduce(sum.data(), sum.data(), sum.size(), stream.handle));
      const auto place = [&](int i) { return group.begin() + (round + i * rank) % (2 + i); };
      group.insert(place(0), transfers[0]);
      group.insert(place(1), transfers[1]);
      ASSERT_TRUE(Run(communicator, group).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      EXPECT_EQ(sums[0], std::vector<float>(5000, 3.0f));
      EXPECT_EQ(sums[1], std::vector<float>(7000, 6.0f));
      EXPECT_EQ(in, Payload((rank + 2) % 3, rank, round, in.size()));
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

// As the API layer enqueues a group over two communicators: one after the other, in the order of their ids.
TEST_F(EngineP2p, GroupsOverTwoCommunicatorsAndStreams) {
  for (const bool one_stream : {false, true}) {
    RanksOfTwo(2, [one_stream](HostCommunicator& first, HostCommunicator& second) {
      const OwnStream streams[2];
      const int peer = 1 - first.rank();
      EXPECT_NE(first.id(), second.id());
      for (int round = 0; round < 5; ++round) {
        std::vector<char> out[2];
        std::vector<char> in[2];
        std::vector<float> sum(3000, 1.0f);
        HostCommunicator* const communicators[] = {&first, &second};
        for (int i = 0; i < 2; ++i) {
          out[i] = Payload(first.rank(), peer, 10 * round + i, 200000);
          in[i].resize(out[i].size());
          const cudaStream_t stream = streams[one_stream ? 0 : i].handle;
          std::vector<Operation> group = {Send(out[i].data(), out[i].size(), peer, stream),
                                          Recv(in[i].data(), in[i].size(), peer, stream)};
          if (i == 1) group.push_back(AllReduce(sum.data(), sum.data(), sum.size(), stream));
          ASSERT_TRUE(Run(*communicators[i], group).ok());
        }
        for (const OwnStream& stream : streams) ASSERT_EQ(stream.Synchronize(), ncclSuccess);
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(in[i], Payload(peer, first.rank(), 10 * round + i, in[i].size()));
        EXPECT_EQ(sum, std::vector<float>(3000, 2.0f));
      }
      EXPECT_TRUE(first.Finalize().ok());
      EXPECT_TRUE(second.Finalize().ok());
    });
  }
}

// A send that the other side is not ready for yet holds nothing up: neither the wire nor a processor.
TEST_F(EngineP2p, AnEarlySenderWaitsWithoutWork) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<char> data(1000000, 'd');
    if (communicator.rank() == 0) {
      ASSERT_TRUE(Run(communicator, Send(data.data(), data.size(), 1, stream.handle)).ok());
      std::this_thread::sleep_for(milliseconds(100));
      const uint64_t before = ProcessCpuNs();
      std::this_thread::sleep_for(milliseconds(400));
      EXPECT_LT(ProcessCpuNs() - before, kSecondNs / 10) << "all threads of this process wait";
    } else {
      std::this_thread::sleep_for(milliseconds(550));
      std::vector<char> got(data.size());
      ASSERT_TRUE(Run(communicator, Recv(got.data(), got.size(), 0, stream.handle)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      EXPECT_EQ(got, data);
    }
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

// The same for a rank that waits for one peer while another has connected that it does not receive from yet.
TEST_F(EngineP2p, AnEarlyConnectionWakesNobody) {
  Ranks(3, [](HostCommunicator& communicator) {
    const OwnStream stream;
    char bytes[3] = {};
    const int rank = communicator.rank();
    if (rank == 0) {
      ASSERT_TRUE(Run(communicator, Recv(&bytes[0], 1, 2, stream.handle)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      ASSERT_TRUE(Run(communicator, Recv(&bytes[1], 1, 2, stream.handle)).ok());  // late
      std::this_thread::sleep_for(milliseconds(100));
      const uint64_t before = ProcessCpuNs();
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_LT(ProcessCpuNs() - before, kSecondNs / 10);
      ASSERT_TRUE(Run(communicator, Recv(&bytes[2], 1, 1, stream.handle)).ok());
    } else if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));  // rank 0 takes nobody in any more
      ASSERT_TRUE(Run(communicator, Send(&bytes[0], 1, 0, stream.handle)).ok());
    } else {
      ASSERT_TRUE(Run(communicator, Send(&bytes[0], 1, 0, stream.handle)).ok());
      std::this_thread::sleep_for(milliseconds(500));
      ASSERT_TRUE(Run(communicator, Send(&bytes[1], 1, 0, stream.handle)).ok());
    }
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(EngineP2p, BadPeersAreRefused) {
  Ranks(2, [](HostCommunicator& communicator) {
    char byte = 0;
    for (const int peer : {-1, 2, 1000}) {
      EXPECT_EQ(communicator.Supports(Send(&byte, 1, peer, nullptr)).code(), ncclInvalidArgument) << peer;
      EXPECT_EQ(communicator.Supports(Recv(&byte, 1, peer, nullptr)).code(), ncclInvalidArgument) << peer;
    }
    const OwnStream stream;
    EXPECT_TRUE(communicator.Supports(Send(&byte, 1, 1, stream.handle)).ok());
    EXPECT_TRUE(communicator.Supports(Recv(&byte, 1, 0, stream.handle)).ok()) << "also from itself";
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(EngineP2p, ToItselfBothSidesAreInTheGroup) {
  Ranks(1, [](HostCommunicator& communicator) {
    const OwnStream stream;
    const std::vector<char> out = Payload(0, 0, 1, 1000);
    std::vector<char> in(1000);
    ASSERT_TRUE(
        Run(communicator, {Recv(in.data(), 1000, 0, stream.handle), Send(out.data(), 1000, 0, stream.handle)})
            .ok());
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_EQ(in, out);
    ASSERT_TRUE(Run(communicator, Send(out.data(), 1000, 0, stream.handle)).ok());
    EXPECT_EQ(stream.Synchronize(), ncclInvalidUsage) << "nobody would ever receive it";
    communicator.Abort();
  });
}

TEST_F(EngineP2p, TheirCountersAreApartFromThoseOfCollectives) {
  Ranks(2, [this](HostCommunicator& communicator) {
    const OwnStream stream;
    const int peer = 1 - communicator.rank();
    std::vector<float> sum(64, 1.0f);
    char out[3] = {};
    char in[3];
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(Run(communicator, AllReduce(sum.data(), sum.data(), sum.size(), stream.handle)).ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          Run(communicator, {Send(&out[i], 1, peer, stream.handle), Recv(&in[i], 1, peer, stream.handle)})
              .ok());
    }
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    const wire::CommunicatorSlot slot = SlotOf(communicator.rank());
    EXPECT_EQ(slot.finished.count, 5u);
    EXPECT_EQ(slot.called.count, 5u);
    EXPECT_EQ(slot.enqueued.count, 5u);
    EXPECT_EQ(slot.started.count, 5u);
    EXPECT_EQ(slot.p2p_finished.count, 6u);
    EXPECT_EQ(slot.p2p_called.count, 6u);
    EXPECT_EQ(slot.p2p_enqueued.count, 6u);
    EXPECT_EQ(slot.p2p_started.count, 6u);
    EXPECT_EQ(slot.last_p2p_called.function, wire::kRecv);
    EXPECT_EQ(slot.last_p2p_called.root, peer);
    EXPECT_EQ(slot.last_called.function, wire::kAllReduce);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(EngineP2p, AVanishedPeerFailsEveryRankWithinFiveSeconds) {
  Ranks(4, [](HostCommunicator& communicator) {
    const OwnStream stream;
    char byte = 0;
    const uint64_t before = MonotonicNs();
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      communicator.Abort();  // closes without a goodbye, as a dead process does
      return;
    }
    // 0 waits for the one that goes, 1 for 0, 3 for nobody.
    if (communicator.rank() != 3) {
      ASSERT_TRUE(Run(communicator, Recv(&byte, 1, communicator.rank() == 0 ? 2 : 0, stream.handle)).ok());
      EXPECT_EQ(stream.Synchronize(), ncclRemoteError);
    }
    while (communicator.AsyncError().ok() && MonotonicNs() - before < 5 * kSecondNs) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(communicator.AsyncError().code(), ncclRemoteError) << communicator.AsyncError().message();
    EXPECT_LT(MonotonicNs() - before, 5 * kSecondNs);
    // A send to who is not there any more is refused, or fails; it does not wait.
    EXPECT_EQ(Run(communicator, Send(&byte, 1, 2, stream.handle)).code(), ncclRemoteError);
    communicator.Abort();
  });
}

TEST_F(EngineP2p, AnAbortEndsAWaitingReceiveAndAWaitingSendAtOnce) {
  for (const bool sends : {false, true}) {
    Ranks(2, [sends](HostCommunicator& communicator) {
      const OwnStream stream;
      char byte = 0;
      if (communicator.rank() == 1) {
        std::this_thread::sleep_for(milliseconds(300));
        communicator.Abort();
        return;
      }
      ASSERT_TRUE(
          Run(communicator, sends ? Send(&byte, 1, 1, stream.handle) : Recv(&byte, 1, 1, stream.handle))
              .ok());
      std::thread other([&communicator] {
        std::this_thread::sleep_for(milliseconds(50));
        communicator.Abort();
      });
      const uint64_t before = MonotonicNs();
      EXPECT_NE(stream.Synchronize(), ncclSuccess);
      EXPECT_LT(MonotonicNs() - before, kSecondNs / 4);
      other.join();
    });
  }
}

TEST_F(EngineP2p, AnotherSizeIsAnErrorThatNamesBoth) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    char data[64] = {};
    ASSERT_TRUE(Run(communicator, communicator.rank() == 0 ? Send(data, 64, 1, stream.handle)
                                                           : Recv(data, 32, 0, stream.handle))
                    .ok());
    // A message that the receiver's memory holds is sent; its sender hears of the rest later.
    const ncclResult_t over = stream.Synchronize();
    if (communicator.rank() == 0) {
      const uint64_t before = MonotonicNs();
      while (communicator.AsyncError().ok() && MonotonicNs() - before < 2 * kSecondNs) {
        std::this_thread::sleep_for(milliseconds(5));
      }
      EXPECT_FALSE(communicator.AsyncError().ok());
    } else {
      EXPECT_NE(over, ncclSuccess);
      EXPECT_NE(communicator.AsyncError().message().find("64 bytes where rank 1 expects 32"),
                std::string::npos)
          << communicator.AsyncError().message();
    }
    communicator.Abort();
  });
}

// What was received counts as finished; a rank that has left in order disturbs nobody who wants nothing of
// it.
TEST_F(EngineP2p, APeerThatLeavesInOrderAfterItsSendsDisturbsNobody) {
  for (int round = 0; round < 5; ++round) {
    Ranks(3, [](HostCommunicator& communicator) {
      const OwnStream stream;
      std::vector<char> data(200000, 'x');
      if (communicator.rank() == 0) {
        ASSERT_TRUE(Run(communicator, {Send(data.data(), data.size(), 1, stream.handle),
                                       Send(data.data(), data.size(), 2, stream.handle)})
                        .ok());
      } else {
        ASSERT_TRUE(Run(communicator, Recv(data.data(), data.size(), 0, stream.handle)).ok());
      }
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      std::this_thread::sleep_for(milliseconds(20) * communicator.rank());
      EXPECT_TRUE(communicator.AsyncError().ok()) << communicator.AsyncError().message();
      EXPECT_TRUE(communicator.Finalize().ok());
    });
  }
}

}  // namespace
}  // namespace c4::host
