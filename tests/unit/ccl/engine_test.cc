// The host engine as its users see it: ranks as threads of this process, over loopback.
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <thread>

#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

using Engine = EngineRanks;

TEST_F(Engine, AllReduceSumsForEveryRankCountAndSize) {
  setenv("C4_SLICE_BYTES", "4096", 1);  // many slices without many bytes
  ForgetKnobs();
  for (int n = 1; n <= 9; ++n) {
    Ranks(n, [n](HostCommunicator& communicator) {
      const OwnStream stream;
      for (const size_t count : {0, 1, 2, 3, 7, 8, 9, 1000, 1023, 1025, 30011}) {
        for (const bool in_place : {false, true}) {
          std::vector<float> input(count + 1);
          std::vector<float> output(count + 1, -1.0f);
          // Unaligned to a vector, rank- and index-dependent, exact in float.
          float* in = input.data() + 1;
          float* out = in_place ? in : output.data() + 1;
          for (size_t i = 0; i < count; ++i)
            in[i] = static_cast<float>((i % 1000) * (communicator.rank() + 1));
          ASSERT_TRUE(Run(communicator, AllReduce(in, out, count, stream.handle)).ok());
          ASSERT_EQ(stream.Synchronize(), ncclSuccess);
          const auto sum = static_cast<size_t>(n * (n + 1) / 2);
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(out[i], static_cast<float>((i % 1000) * sum)) << n << " " << i;
          EXPECT_EQ(in_place ? input[0] : output[0], in_place ? 0.0f : -1.0f) << "wrote before the buffer";
        }
      }
      EXPECT_TRUE(communicator.Finalize().ok());
    });
  }
  unsetenv("C4_SLICE_BYTES");
  ForgetKnobs();
}

TEST_F(Engine, EnqueueReturnsWhileAPeerIsLate) {
  Ranks(3, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(100000, 1.0f);
    if (communicator.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(1));
    const uint64_t before = MonotonicNs();
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    }
    EXPECT_LT(MonotonicNs() - before, kSecondNs / 4);
    EXPECT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_EQ(data[0], 59049.0f);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(Engine, OneStreamOrdersTheWorkOfManyCommunicators) {
  ncclUniqueId raw[2];
  bootstrap::UniqueId id[2];
  for (int c = 0; c < 2; ++c) {
    ASSERT_TRUE(bootstrap::MakeUniqueId(&raw[c]).ok());
    ASSERT_TRUE(bootstrap::ReadUniqueId(raw[c], &id[c]).ok());
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      HostCommunicator first(&monitor_, rank, 2);
      HostCommunicator second(&monitor_, rank, 2);
      ASSERT_TRUE(first.Init(id[0], "a").ok());
      ASSERT_TRUE(second.Init(id[1], "b").ok());
      const OwnStream stream;
      std::vector<float> data(5000, 1.0f);
      // Each doubles what the one before left: any other order, or any overlap, gives another number.
      for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(Run(first, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
        ASSERT_TRUE(Run(second, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
      }
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      for (const float value : data) ASSERT_EQ(value, 1048576.0f);
      EXPECT_TRUE(first.Finalize().ok());
      EXPECT_TRUE(second.Finalize().ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Engine, CountersAndRecordsTellWhatWasDone) {
  Ranks(2, [this](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(64, 1.0f);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    }
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    uint64_t finished = 0;
    for (uint32_t i = 0; i < 2; ++i) {
      const wire::CommunicatorSlot& slot = monitor_.segment().communicator(i);
      if (slot.rank == communicator.rank()) {
        EXPECT_EQ(slot.called.count, 5u);
        EXPECT_EQ(slot.enqueued.count, 5u);
        EXPECT_EQ(slot.started.count, 5u);
        finished = std::atomic_ref<const uint64_t>(slot.finished.count).load(std::memory_order_acquire);
        EXPECT_EQ(slot.last_called.count, 64u);
        EXPECT_EQ(slot.rank_count, 2u);
      }
    }
    EXPECT_EQ(finished, 5u);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(Engine, AVanishedPeerFailsEveryRankWithinFiveSeconds) {
  for (const bool idle : {false, true}) {
    Ranks(4, [idle](HostCommunicator& communicator) {
      const OwnStream stream;
      std::vector<float> data(1000, 1.0f);
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      const uint64_t before = MonotonicNs();
      if (communicator.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        communicator.Abort();  // closes without a goodbye, as a dead process does
        return;
      }
      if (!idle) {
        ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
        EXPECT_EQ(stream.Synchronize(), ncclRemoteError);
      }
      while (communicator.AsyncError().ok() && MonotonicNs() - before < 5 * kSecondNs) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_EQ(communicator.AsyncError().code(), ncclRemoteError);
      EXPECT_FALSE(communicator.AsyncError().message().empty());
      EXPECT_EQ(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).code(),
                ncclRemoteError);
      EXPECT_LT(MonotonicNs() - before, 5 * kSecondNs);
      communicator.Abort();
    });
  }
}

TEST_F(Engine, APeerThatLeavesInOrderDisturbsNobodyWhoIsIdle) {
  Ranks(3, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(10, 1.0f);
    ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50) * communicator.rank());
    EXPECT_TRUE(communicator.AsyncError().ok()) << communicator.AsyncError().message();
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

TEST_F(Engine, AbortEndsAWaitingOperationAtOnce) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(1000, 1.0f);
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      communicator.Abort();
      return;
    }
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    }
    std::thread other([&communicator] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      communicator.Abort();
    });
    const uint64_t before = MonotonicNs();
    EXPECT_NE(stream.Synchronize(), ncclSuccess);
    EXPECT_LT(MonotonicNs() - before, kSecondNs / 4);
    other.join();
  });
}

TEST_F(Engine, AnAbortFromAnotherThreadCutsAFinalizeShort) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(1000, 1.0f);
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      communicator.Abort();
      return;
    }
    ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    std::thread other([&communicator] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      communicator.Abort();
    });
    const uint64_t before = MonotonicNs();
    EXPECT_FALSE(communicator.Finalize().ok());
    EXPECT_LT(MonotonicNs() - before, kSecondNs / 4);
    other.join();
    EXPECT_NE(stream.Synchronize(), ncclSuccess);
  });
}

TEST_F(Engine, AnotherCountOnOneRankIsAnErrorOnEveryRank) {
  Ranks(3, [](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(3000, 1.0f);
    const size_t count = communicator.rank() == 1 ? 1500 : 3000;
    // Where the others have failed already, it cannot even be begun.
    const Result begun = Run(communicator, AllReduce(data.data(), data.data(), count, stream.handle));
    EXPECT_TRUE(!begun.ok() || stream.Synchronize() != ncclSuccess);
    communicator.Abort();
  });
}

TEST_F(Engine, WhatItCannotDoItSays) {
  Ranks(1, [](HostCommunicator& communicator) {
    Operation operation = AllReduce(nullptr, nullptr, 0, nullptr);
    EXPECT_TRUE(communicator.Supports(operation).ok());
    operation.reduction = ncclNumOps;
    EXPECT_EQ(communicator.Supports(operation).code(), ncclInvalidUsage);
    operation.reduction = ncclSum;
    operation.stream = reinterpret_cast<cudaStream_t>(&operation);
    EXPECT_EQ(communicator.Supports(operation).code(), ncclInvalidArgument);
    EXPECT_TRUE(communicator.Finalize().ok());
    EXPECT_EQ(Run(communicator, AllReduce(nullptr, nullptr, 0, nullptr)).code(), ncclInvalidUsage);
  });
}

TEST_F(Engine, ManyLivesLeaveNoThreadAndNoDescriptor) {
  const auto descriptors = [] {
    size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  const size_t before = descriptors();
  for (int life = 0; life < 20; ++life) {
    Ranks(2, [](HostCommunicator& communicator) {
      const OwnStream stream;
      float one = 1.0f;
      ASSERT_TRUE(Run(communicator, AllReduce(&one, &one, 1, stream.handle)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      EXPECT_TRUE(communicator.Finalize().ok());
    });
  }
  // A root that has answered closes its listener a moment later.
  for (int i = 0; i < 100 && descriptors() > before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(descriptors(), before);
}

// Peers tell each other once a second that they live; that is no progress of an operation.
TEST_F(Engine, SilenceEndsAnOperationAlthoughThePeerLives) {
  const ScopedKnob tcp("C4_SHM", "0");
  const ScopedKnob limit("C4_TIMEOUT", "2");
  std::barrier over(2);
  Ranks(2, [&](HostCommunicator& communicator) {
    const OwnStream stream;
    std::vector<float> data(100, 1.0f);
    if (communicator.rank() == 0) {
      const uint64_t before_ns = MonotonicNs();
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
      EXPECT_EQ(stream.Synchronize(), ncclRemoteError);
      const uint64_t took_ns = MonotonicNs() - before_ns;
      EXPECT_GE(took_ns, 2 * kSecondNs);
      EXPECT_LT(took_ns, 6 * kSecondNs);
    }
    over.arrive_and_wait();
    communicator.Abort();
  });
}

// Another thread that waits on a stream runs the queue itself now and then, and is in the way of the
// communicator's own thread just when that is woken.
TEST_F(Engine, NoWakeUpIsLostToAThreadThatLooksWhetherItMayDrive) {
  Ranks(2, [](HostCommunicator& communicator) {
    const OwnStream looked_at;
    const OwnStream used;
    std::atomic<bool> done{false};
    std::thread looker([&] {
      while (!done.load()) (void)looked_at.Synchronize();
    });
    std::vector<float> data(16, 1.0f);
    std::vector<float> other(16, 1.0f);
    uint64_t longest_ns = 0;
    for (int i = 0; i < 100; ++i) {
      const uint64_t before_ns = MonotonicNs();
      ASSERT_TRUE(Run(communicator, AllReduce(other.data(), other.data(), 1, looked_at.handle)).ok());
      ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), 1, used.handle)).ok());
      // Without driving: only the communicator's thread can finish it.
      while (c4StreamQuery(used.handle) != ncclSuccess) std::this_thread::yield();
      longest_ns = std::max(longest_ns, MonotonicNs() - before_ns);
    }
    EXPECT_LT(longest_ns, kSecondNs - kSecondNs / 10) << "one waited for the look once a second";
    done.store(true);
    looker.join();
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

}  // namespace
}  // namespace c4::host
