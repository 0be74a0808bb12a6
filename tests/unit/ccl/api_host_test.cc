// The exported functions on the host engine, over loopback: communicators in all the ways in which they are
// made and ended, several ranks in this process.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "ccl/monitor/monitor.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecondNs = 1000000000u;

// Read when it is first used, so before that.
[[maybe_unused]] const bool environment = [] {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);  // NOLINT(concurrency-mt-unsafe)
  setenv("NCCL_DEBUG", "NONE", 0);        // NOLINT(concurrency-mt-unsafe)
  setenv("C4_MONITOR", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  setenv("C4_CONTROL", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  setenv("C4_QUEUE_PAIRS", "1", 1);       // NOLINT(concurrency-mt-unsafe)
  unsetenv("NCCL_COMM_ID");               // NOLINT(concurrency-mt-unsafe)
  return true;
}();

int EntriesOf(const char* folder) {
  DIR* const listing = opendir(folder);
  int count = 0;
  while (readdir(listing) != nullptr) ++count;  // NOLINT(concurrency-mt-unsafe): the listing is our own
  closedir(listing);
  return count;
}
int Descriptors() {
  return EntriesOf("/proc/self/fd");
}
int Threads() {
  return EntriesOf("/proc/self/task");
}
long ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long kib = 0;
    if (sscanf(line.c_str(), "VmRSS: %ld kB", &kib) == 1) return kib;
  }
  return 0;
}

class ApiHost : public ::testing::Test {
 protected:
  static std::vector<ncclComm_t> MakeAll(int count) {
    std::vector<ncclComm_t> comms(static_cast<size_t>(count));
    EXPECT_EQ(ncclCommInitAll(comms.data(), count, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    return comms;
  }
  static void DestroyAll(const std::vector<ncclComm_t>& comms) {
    for (const ncclComm_t comm : comms) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
    }
  }
  static int RankOf(ncclComm_t comm) {
    int rank = -1;
    EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess) << ncclGetLastError(nullptr);
    return rank;
  }
  static int CountOf(ncclComm_t comm) {
    int count = -1;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess) << ncclGetLastError(nullptr);
    return count;
  }
  // One sum over all ranks of a communicator, each on a stream of its own, and what it gives is right.
  static void ExpectWorks(const std::vector<ncclComm_t>& comms) {
    const size_t n = comms.size();
    std::vector<float> data(n);
    std::vector<cudaStream_t> streams(n);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t i = 0; i < n; ++i) {
      data[i] = static_cast<float>(i + 1);
      EXPECT_EQ(c4StreamCreate(&streams[i]), ncclSuccess);
      EXPECT_EQ(ncclAllReduce(&data[i], &data[i], 1, ncclFloat, ncclSum, comms[i], streams[i]), ncclSuccess)
          << ncclGetLastError(nullptr);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(c4StreamSynchronize(streams[i]), ncclSuccess);
      EXPECT_EQ(data[i], static_cast<float>(n * (n + 1)) / 2);
      EXPECT_EQ(c4StreamDestroy(streams[i]), ncclSuccess);
    }
  }
  static ncclResult_t Await(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    const uint64_t until = MonotonicNs() + 10 * kSecondNs;
    while (state == ncclInProgress && MonotonicNs() < until) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return state;
  }
  static void Together(int count, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(ApiHost, InitAll) {
  const std::vector<ncclComm_t> comms = MakeAll(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(RankOf(comms[static_cast<size_t>(i)]), i);
  ExpectWorks(comms);
  DestroyAll(comms);
}

// They would wait for each other for ever.
TEST_F(ApiHost, RanksOfOneProcessCannotShareTheNullStream) {
  const std::vector<ncclComm_t> comms = MakeAll(2);
  float data = 1;
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comms[0], nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("give each rank a stream of its own"));
  ExpectWorks(comms);
  const std::vector<ncclComm_t> alone = MakeAll(1);
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, alone[0], nullptr), ncclSuccess);
  EXPECT_EQ(c4StreamSynchronize(nullptr), ncclSuccess);
  DestroyAll(alone);
  DestroyAll(comms);
}

TEST_F(ApiHost, OneThreadMakesAllRanksInAGroup) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(3);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ncclCommInitRankScalable(&comms[static_cast<size_t>(i)], 3, i, 2, ids, nullptr), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ExpectWorks(comms);
  DestroyAll(comms);
}

TEST_F(ApiHost, SplitByColourAndKey) {
  const std::vector<ncclComm_t> world = MakeAll(5);
  std::vector<ncclComm_t> parts(5);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t i = 0; i < 5; ++i) {
    const int colour = i == 4 ? NCCL_SPLIT_NOCOLOR : static_cast<int>(i % 2);
    EXPECT_EQ(ncclCommSplit(world[i], colour, -static_cast<int>(i), &parts[i], nullptr), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(parts[4], nullptr);
  EXPECT_EQ(CountOf(parts[0]), 2);
  EXPECT_EQ(RankOf(parts[0]), 1);  // the greater key
  EXPECT_EQ(RankOf(parts[2]), 0);
  EXPECT_EQ(RankOf(parts[1]), 1);
  EXPECT_EQ(RankOf(parts[3]), 0);
  ExpectWorks({parts[2], parts[0]});
  ExpectWorks({parts[3], parts[1]});
  // A part of a part, by threads.
  std::vector<ncclComm_t> again(2);
  Together(2, [&](int i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(ncclCommSplit(parts[2 * at], 0, i, &again[at], nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
  });
  ExpectWorks(again);
  ExpectWorks(world);
  DestroyAll(again);
  parts.pop_back();
  DestroyAll(parts);
  DestroyAll(world);
}

// Equal on all ranks, and what the formats say.
TEST_F(ApiHost, ChildrenAreRecordedWithTheirParent) {
  const std::vector<ncclComm_t> world = MakeAll(2);
  std::vector<ncclComm_t> parts(2);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "the child";
  Together(2, [&](int i) {
    const auto at = static_cast<size_t>(i);
    ncclComm_t first = nullptr;
    EXPECT_EQ(ncclCommSplit(world[at], NCCL_SPLIT_NOCOLOR, 0, &first, nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(world[at], 9, 0, &parts[at], &config), ncclSuccess) << ncclGetLastError(nullptr);
  });
  int found = 0;
  wire::SegmentHeader& header = Monitor::Get().segment().header();
  for (uint32_t i = 0; i < header.communicators_used; ++i) {
    const wire::CommunicatorSlot& slot = Monitor::Get().segment().communicator(i);
    if (slot.phase != wire::kPhaseReady || std::string(slot.name) != "the child") continue;
    ++found;
    EXPECT_NE(slot.parent_id, 0u);
    EXPECT_EQ(slot.communicator_id, ChildCommunicatorId(slot.parent_id, 1, 9));
  }
  EXPECT_EQ(found, 2);
  DestroyAll(parts);
  DestroyAll(world);
}

TEST_F(ApiHost, SplitsByThreadsAgainAndAgain) {
  const std::vector<ncclComm_t> world = MakeAll(4);
  Together(4, [&](int i) {
    for (int round = 0; round < 8; ++round) {
      ncclComm_t part = nullptr;
      const int colour = (i + round) % 4 == 3 ? NCCL_SPLIT_NOCOLOR : (i >> (round % 2)) & 1;
      ASSERT_EQ(ncclCommSplit(world[static_cast<size_t>(i)], colour, 0, &part, nullptr), ncclSuccess)
          << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    }
  });
  ExpectWorks(world);
  DestroyAll(world);
}

TEST_F(ApiHost, ShrinkOfAHealthyParent) {
  const std::vector<ncclComm_t> world = MakeAll(4);
  std::vector<ncclComm_t> rest(3);
  const int stay[] = {0, 2, 3};
  Together(3, [&](int i) {
    int excluded[] = {1};
    EXPECT_EQ(ncclCommShrink(world[static_cast<size_t>(stay[i])], excluded, 1, &rest[static_cast<size_t>(i)],
                             nullptr, NCCL_SHRINK_DEFAULT),
              ncclSuccess)
        << ncclGetLastError(nullptr);
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(RankOf(rest[static_cast<size_t>(i)]), i);
  ExpectWorks(rest);
  ExpectWorks(world);
  DestroyAll(rest);
  DestroyAll(world);
}

// Rank 1 goes away in the middle of an operation; the others carry on without it.
TEST_F(ApiHost, ShrinkAfterARankIsLost) {
  const std::vector<ncclComm_t> world = MakeAll(3);
  std::vector<float> data(2);
  std::vector<cudaStream_t> streams(2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(c4StreamCreate(&streams[i]), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&data[i], &data[i], 1, ncclFloat, ncclSum, world[2 * i], streams[i]),
              ncclSuccess);
  }
  EXPECT_EQ(ncclCommAbort(world[1]), ncclSuccess);
  std::vector<ncclComm_t> rest(2);
  Together(2, [&](int i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_NE(c4StreamSynchronize(streams[at]), ncclSuccess);
    int excluded[] = {1};
    EXPECT_NE(ncclCommShrink(world[2 * at], excluded, 1, &rest[at], nullptr, NCCL_SHRINK_DEFAULT),
              ncclSuccess);
    EXPECT_EQ(ncclCommShrink(world[2 * at], excluded, 1, &rest[at], nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
        << ncclGetLastError(nullptr);
  });
  ExpectWorks(rest);
  for (const cudaStream_t stream : streams) EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  DestroyAll(rest);
  DestroyAll({world[0], world[2]});
}

TEST_F(ApiHost, RevokeEndsOperationsAndLeavesTheSplit) {
  const std::vector<ncclComm_t> world = MakeAll(2);
  float data = 1;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(c4StreamCreate(&stream), ncclSuccess);
  EXPECT_EQ(ncclRecv(&data, 1, ncclFloat, 1, world[0], stream), ncclSuccess);
  for (const ncclComm_t comm : world) EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
  EXPECT_NE(c4StreamSynchronize(stream), ncclSuccess);
  EXPECT_EQ(ncclSend(&data, 1, ncclFloat, 1, world[0], stream), ncclInvalidUsage);
  EXPECT_EQ(Await(world[0]), ncclSuccess);
  std::vector<ncclComm_t> parts(2);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(ncclCommSplit(world[i], 0, 0, &parts[i], nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ExpectWorks(parts);
  EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  DestroyAll(parts);
  DestroyAll(world);
}

TEST_F(ApiHost, NonBlockingFromOneThread) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> comms(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(i)], 2, id, i, &config), ncclInProgress);
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(Await(comm), ncclSuccess) << ncclGetLastError(comm);
  ExpectWorks(comms);
  std::vector<ncclComm_t> parts(2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ncclCommSplit(comms[i], 3, 0, &parts[i], nullptr), ncclInProgress);
  }
  for (const ncclComm_t comm : parts) EXPECT_EQ(Await(comm), ncclSuccess) << ncclGetLastError(comm);
  for (const ncclComm_t comm : comms) EXPECT_EQ(Await(comm), ncclSuccess) << ncclGetLastError(comm);
  ExpectWorks(parts);
  for (const ncclComm_t comm : parts) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  for (const ncclComm_t comm : parts) EXPECT_EQ(Await(comm), ncclSuccess);
  DestroyAll(parts);
  DestroyAll(comms);
}

// Rank 1 of 2 never comes.
TEST_F(ApiHost, AnAbortEndsAJoin) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t before = MonotonicNs();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_LT(MonotonicNs() - before, kSecondNs / 2);
  // Who comes later is told.
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 0"));
}

TEST_F(ApiHost, AnAbortEndsASplit) {
  const std::vector<ncclComm_t> world = MakeAll(3);
  ncclComm_t parts[2] = {};
  std::thread threads[2];
  ncclResult_t codes[2] = {};
  for (size_t i = 0; i < 2; ++i) {  // rank 2 does not split
    threads[i] = std::thread([&, i] { codes[i] = ncclCommSplit(world[i], 0, 0, &parts[i], nullptr); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(ncclCommAbort(world[2]), ncclSuccess);
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(codes[i], ncclRemoteError);
    EXPECT_EQ(parts[i], nullptr);
    EXPECT_EQ(ncclCommAbort(world[i]), ncclSuccess);
  }
}

// What the engine leaves to itself may end a moment later: roots, and the pins of background threads.
void Settle(int threads, int descriptors, int turns) {
  for (int i = 0; i < turns && (Threads() > threads || Descriptors() > descriptors); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// A child may end what it inherited, which stays the parent's, and make its own.
TEST_F(ApiHost, AForkedChildHasNoneOfItsParentsCommunicators) {
  const std::vector<ncclComm_t> comms = MakeAll(2);
  ExpectWorks(comms);
  // Of a sum that waits for the other rank.
  cudaStream_t stream = nullptr;
  float value = 1;
  EXPECT_EQ(c4StreamCreate(&stream), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], stream), ncclSuccess);
  const auto child = [&] {
    float data = 1;
    int count = 0;
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat, ncclSum, comms[0], nullptr), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("forked"));
    EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidUsage);
    EXPECT_EQ(ncclCommGetAsyncError(comms[0], &error), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comms[1]), ncclInvalidUsage);
    EXPECT_EQ(c4StreamSynchronize(stream), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(comms[0]), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
#if !defined(__SANITIZE_THREAD__)  // which lets no child start a thread
    const std::vector<ncclComm_t> own = MakeAll(2);
    ExpectWorks(own);
    DestroyAll(own);
#endif
    return !HasFailure();
  };
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(child() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  float other = 2;
  cudaStream_t second = nullptr;
  EXPECT_EQ(c4StreamCreate(&second), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&other, &other, 1, ncclFloat, ncclSum, comms[1], second), ncclSuccess);
  EXPECT_EQ(c4StreamSynchronize(stream), ncclSuccess);
  EXPECT_EQ(c4StreamSynchronize(second), ncclSuccess);
  EXPECT_EQ(value, 3);
  ExpectWorks(comms);
  DestroyAll(comms);
  EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  EXPECT_EQ(c4StreamDestroy(second), ncclSuccess);
}

// The thread's own matter: others work, and what waits in it harms nobody.
TEST_F(ApiHost, AGroupThatIsNeverEnded) {
  const std::vector<ncclComm_t> comms = MakeAll(2);
  float value = 1;
  std::thread([&] {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(c4StreamCreate(&stream), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], stream), ncclSuccess);
    EXPECT_EQ(c4StreamSynchronize(stream), ncclSuccess) << "nothing of it was enqueued";
    EXPECT_NE(ncclCommDestroy(comms[0]), ncclSuccess);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("group"));
    EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  }).join();
  EXPECT_EQ(value, 1);
  // It had called an operation that never comes; C4D would name it for that.
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// C4_HUGE: 10 GiB of memory and half a minute.
TEST_F(ApiHost, MoreThanFourGibibytesAtATime) {
  const char* const wanted = getenv("C4_HUGE");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  if (wanted == nullptr) GTEST_SKIP() << "needs 10 GiB: C4_HUGE=1";
  constexpr size_t kCount = (size_t{1} << 32) + 1;
  const std::vector<ncclComm_t> comms = MakeAll(2);
  const auto checked = [](size_t i) { return i < 1000 || i > kCount - 1000 || i % 999983 == 0; };
  Together(2, [&](int rank) {
    const ncclComm_t comm = comms[static_cast<size_t>(rank)];
    cudaStream_t stream = nullptr;
    EXPECT_EQ(c4StreamCreate(&stream), ncclSuccess);
    std::vector<uint8_t> data(kCount);
    for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<uint8_t>(i % 101 + static_cast<size_t>(rank));
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kCount, ncclUint8, ncclSum, comm, stream), ncclSuccess);
    EXPECT_EQ(c4StreamSynchronize(stream), ncclSuccess);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(!checked(i) || data[i] == 2 * (i % 101) + 1) << i;
    }
    if (rank == 0) data[kCount - 1] = 7;
    const ncclResult_t moved = rank == 0 ? ncclSend(data.data(), kCount, ncclUint8, 1, comm, stream)
                                         : ncclRecv(data.data(), kCount, ncclUint8, 0, comm, stream);
    EXPECT_EQ(moved, ncclSuccess);
    EXPECT_EQ(c4StreamSynchronize(stream), ncclSuccess);
    EXPECT_EQ(data[kCount - 1], 7);
    EXPECT_EQ(c4StreamDestroy(stream), ncclSuccess);
  });
  DestroyAll(comms);
}

// C4_LIVES: another number of them.
TEST_F(ApiHost, TwoHundredLivesLeaveNothing) {
  const char* const wanted = getenv("C4_LIVES");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  const int lives = wanted == nullptr ? 200 : atoi(wanted);  // NOLINT(cert-err34-c): for people
  const auto live = [](int round) {
    std::vector<ncclComm_t> comms = MakeAll(2);
    if (round % 4 == 0) ExpectWorks(comms);
    if (round % 8 == 0) {
      std::vector<ncclComm_t> parts(2);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_EQ(ncclCommSplit(comms[i], 0, 0, &parts[i], nullptr), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
      DestroyAll(parts);
    }
    if (round % 3 == 0) {
      for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    } else {
      DestroyAll(comms);
    }
  };
  for (int round = 0; round < 20; ++round) live(round);
  Settle(1, 0, 20);
  const int threads = Threads();
  const int descriptors = Descriptors();
  const long kib = ResidentKib();
  for (int round = 20; round < lives; ++round) live(round);
  Settle(threads, descriptors, 500);
  printf("after 20 lives and after %d: %d and %d threads, %d and %d descriptors, %ld and %ld KiB\n", lives,
         threads, Threads(), descriptors, Descriptors(), kib, ResidentKib());
  EXPECT_LE(Threads(), threads);
  EXPECT_LE(Descriptors(), descriptors);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(ResidentKib(), kib + 2048);
#endif
}

}  // namespace
}  // namespace c4
