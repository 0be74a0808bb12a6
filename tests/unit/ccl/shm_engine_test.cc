// Ranks of the host engine in two processes of this host: what goes between them, asleep and awake, and what
// one hears when the other is killed or does not take part in shared memory.
#include <algorithm>
#include <chrono>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

using std::chrono::milliseconds;

class ShmEngine : public EngineRanks {
 protected:
  // Runs `child` as rank 1 in a process of its own, and `parent` as rank 0 in this one.
  void Processes(const std::function<void(HostCommunicator&, Monitor&)>& child,
                 const std::function<void(HostCommunicator&, Monitor&, pid_t)>& parent) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    // Before this process has any thread.
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      close(ends[1]);
      if (child_knob_ != nullptr) setenv(child_knob_, "0", 1);
      Child(ends[0], child);
    }
    close(ends[0]);
    const bootstrap::UniqueId id = NewId();
    ASSERT_EQ(write(ends[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
    close(ends[1]);
    {
      Monitor monitor("", {256, 1024, 64, 64}, JobIdentity());
      HostCommunicator communicator(&monitor, 0, 2);
      const Result result = communicator.Init(id, "test");
      EXPECT_TRUE(result.ok()) << result.message();
      if (result.ok()) {
        parent(communicator, monitor, pid);
      } else {
        kill(pid, SIGKILL);
      }
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    if (!killed_) {
      EXPECT_EQ(status, 0) << "the other rank failed";
    }
  }

  // Both ranks have joined when it returns.
  static void Meet(HostCommunicator& communicator) {
    const OwnStream stream;
    float one = 1.0f;
    EXPECT_TRUE(Run(communicator, AllReduce(&one, &one, 1, stream.handle)).ok());
    EXPECT_EQ(stream.Synchronize(), ncclSuccess);
  }

  // The transport of the monitor's queue pairs.
  static bool All(Monitor& monitor, wire::TransportKind transport) {
    bool any = false;
    for (uint32_t i = 0; i < 64; ++i) {
      const wire::QueuePairSlot& slot = monitor.segment().queue_pair(i);
      if (slot.phase != wire::kPhaseReady) continue;
      any = true;
      if (slot.transport != transport) return false;
    }
    return any;
  }

  bool killed_ = false;
  const char* child_knob_ = nullptr;  // is 0 there

 private:
  [[noreturn]] static void Child(int from, const std::function<void(HostCommunicator&, Monitor&)>& body) {
    bootstrap::UniqueId id;
    if (read(from, &id, sizeof id) != static_cast<ssize_t>(sizeof id)) _exit(1);
    {
      Monitor monitor("", {256, 1024, 64, 64}, JobIdentity());
      HostCommunicator communicator(&monitor, 1, 2);
      if (!communicator.Init(id, "test").ok()) _exit(2);
      body(communicator, monitor);
    }
    _exit(HasFailure() ? 3 : 0);
  }
};

// What rank `from` sends as message `number`.
std::vector<char> Payload(int from, int number, size_t bytes) {
  std::vector<char> payload(bytes);
  const auto seed = static_cast<size_t>(from) * 101 + static_cast<size_t>(number);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>((i + seed) * 0x9e3779b97f4a7c15 >> 40);
  return payload;
}

TEST_F(ShmEngine, MessagesOfEverySizeBothWaysAtOnceDirectAndThroughThePool) {
  for (const char* copy : {"auto", "direct", "pool"}) {
    const ScopedKnob knob("C4_SHM_COPY", copy);
    for (const char* spin : {"0", "50"}) {
      const ScopedKnob spins("C4_SPIN_US", spin);
      SCOPED_TRACE(testing::Message() << copy << ", spin " << spin);
      const auto body = [](HostCommunicator& communicator, Monitor& monitor) {
        const OwnStream stream;
        const int rank = communicator.rank();
        const int peer = 1 - rank;
        int number = 0;
        for (const size_t bytes : {0, 1, 8, 4095, 4096, 4097, 65536, 524288, 524289, 1200000}) {
          ++number;
          const std::vector<char> out = Payload(rank, number, bytes);
          std::vector<char> in(bytes);
          // Late on one side or the other: both wait for each other in their sleep.
          if (number % 4 == rank) std::this_thread::sleep_for(milliseconds(3));
          ASSERT_TRUE(Run(communicator, {Send(out.data(), bytes, peer, stream.handle),
                                         Recv(in.data(), bytes, peer, stream.handle)})
                          .ok());
          ASSERT_EQ(stream.Synchronize(), ncclSuccess) << communicator.AsyncError().message();
          EXPECT_TRUE(in == Payload(peer, number, bytes)) << bytes;
        }
        std::vector<float> data(10007, 1.0f);
        for (int i = 0; i < 50; ++i) {
          const size_t count = i % 3 == 0 ? 1 : data.size();
          ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), count, stream.handle)).ok());
          if (i % 5 != 0) continue;
          ASSERT_EQ(stream.Synchronize(), ncclSuccess);
          std::fill(data.begin(), data.end(), 1.0f);
        }
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
        EXPECT_TRUE(All(monitor, wire::kTransportShm));
        EXPECT_TRUE(communicator.Finalize().ok());
      };
      Processes(body, [&](HostCommunicator& communicator, Monitor& monitor, pid_t) {
        body(communicator, monitor);
      });
    }
  }
}

TEST_F(ShmEngine, AKilledPeerIsARemoteErrorWithinFiveSeconds) {
  killed_ = true;
  for (const int when : {0, 1, 2}) {
    SCOPED_TRACE(when);
    // 0: nothing is under way; 1: this rank waits for it; 2: in the middle of large messages.
    const auto endless = [](HostCommunicator& communicator) {
      const OwnStream stream;
      std::vector<float> data(1000000, 1.0f);
      while (communicator.AsyncError().ok()) {
        (void)Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle));
        (void)stream.Synchronize();
      }
    };
    Processes(
        [&](HostCommunicator& communicator, Monitor&) {
          if (when == 2) endless(communicator);
          for (;;) pause();
        },
        [&](HostCommunicator& communicator, Monitor&, pid_t pid) {
          std::thread user;
          if (when != 0) user = std::thread([&] { endless(communicator); });
          std::this_thread::sleep_for(milliseconds(20));
          EXPECT_TRUE(communicator.AsyncError().ok());
          const uint64_t before = MonotonicNs();
          kill(pid, SIGKILL);
          while (communicator.AsyncError().ok() && MonotonicNs() - before < 5 * kSecondNs) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          EXPECT_EQ(communicator.AsyncError().code(), ncclRemoteError) << communicator.AsyncError().message();
          EXPECT_LT(MonotonicNs() - before, kSecondNs);
          if (user.joinable()) user.join();
        });
  }
}

TEST_F(ShmEngine, ARankWithoutSharedMemoryIsReachedOverTcp) {
  const auto body = [](HostCommunicator& communicator, Monitor& monitor) {
    const OwnStream stream;
    std::vector<float> data(1000, 1.0f);
    ASSERT_TRUE(Run(communicator, AllReduce(data.data(), data.data(), data.size(), stream.handle)).ok());
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_EQ(data[999], 2.0f);
    EXPECT_TRUE(All(monitor, wire::kTransportTcp));
    EXPECT_TRUE(communicator.Finalize().ok());
  };
  child_knob_ = "C4_SHM";
  Processes([&](HostCommunicator& communicator, Monitor& monitor) { body(communicator, monitor); },
            [&](HostCommunicator& communicator, Monitor& monitor, pid_t) {
              EXPECT_TRUE(All(monitor, wire::kTransportTcp));
              body(communicator, monitor);
            });
}

// An idle rank is not woken by what the other does, and uses no processor.
TEST_F(ShmEngine, IdleRanksSleep) {
  const auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
  };
  Ranks(2, [&](HostCommunicator& communicator) {
    const OwnStream stream;
    float one = 1.0f;
    ASSERT_TRUE(Run(communicator, AllReduce(&one, &one, 1, stream.handle)).ok());
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    std::this_thread::sleep_for(milliseconds(20));
    const uint64_t before = cpu_ns();
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_LT(cpu_ns() - before, 20000000u);
    // And the same while it waits for the other.
    char byte = 0;
    if (communicator.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(200));
      ASSERT_TRUE(Run(communicator, Send(&byte, 1, 1, stream.handle)).ok());
    } else {
      const uint64_t waiting = cpu_ns();
      ASSERT_TRUE(Run(communicator, Recv(&byte, 1, 0, stream.handle)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      EXPECT_LT(cpu_ns() - waiting, 30000000u);
    }
    ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

// A rank that has forked a data loader and dies: over TCP its peers hear it at once, for the loader holds
// none of its streams.
TEST_F(ShmEngine, ADataLoaderDoesNotHideItsParentsDeath) {
  killed_ = true;
  child_knob_ = "C4_SHM";
  Processes(
      [](HostCommunicator& communicator, Monitor&) {
        Meet(communicator);
        // It dies only once the other is done with that as well: what it has sent may go with it.
        const OwnStream stream;
        char go = 0;
        EXPECT_TRUE(Run(communicator, {Recv(&go, 1, 0, stream.handle)}).ok());
        EXPECT_EQ(stream.Synchronize(), ncclSuccess);
        if (fork() == 0) {
          for (const int fd : {0, 1, 2}) close(fd);  // nobody waits for its output
          alarm(20);
          pause();
        }
        raise(SIGKILL);
      },
      [](HostCommunicator& communicator, Monitor&, pid_t) {
        Meet(communicator);
        const OwnStream stream;
        char in[16];
        char go = 1;
        const uint64_t before = MonotonicNs();
        (void)Run(communicator, {Send(&go, 1, 1, stream.handle)});
        const bool begun = Run(communicator, {Recv(in, sizeof in, 1, stream.handle)}).ok();
        EXPECT_FALSE(begun && stream.Synchronize() == ncclSuccess);
        EXPECT_LT(MonotonicNs() - before, 10 * kSecondNs);
      });
}

// A launcher that had a communicator itself and then forks its ranks, which share its monitor's memory.
TEST_F(ShmEngine, SiblingsOfAParentThatHadACommunicatorAreProcessesOfTheirOwn) {
  Monitor monitor("", {256, 1024, 64, 64}, JobIdentity());
  monitor.OpenCommunicator({9, 0, 0, 1, wire::kEngineHost, "the parent's"});
  ForbidNullStream();
  int ends[2][2];
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(pipe(ends[rank]), 0);
    children[rank] = fork();
    ASSERT_GE(children[rank], 0);
    if (children[rank] != 0) continue;
    bootstrap::UniqueId id;
    if (read(ends[rank][0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) _exit(1);
    HostCommunicator communicator(&monitor, rank, 2);
    if (!communicator.Init(id, "siblings").ok()) _exit(2);
    Operation operation;
    operation.function = wire::kAllReduce;
    operation.data_type = ncclFloat;
    const bool supported = communicator.Supports(operation).ok();  // on the null stream
    Meet(communicator);  // whoever leaves at once fails the other's start
    _exit(supported ? 0 : 3);
  }
  const bootstrap::UniqueId id = NewId();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(write(ends[rank][1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  }
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace c4::host
