// A process whose memory is at its end, at every point of a program: every call gives an error with a
// sentence, or works. Nothing aborts, nothing hangs. Each try is a child, with a limit of its own on its
// address space, or where `new` fails from a certain call on.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "ccl/base/caught.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "tests/unit/ccl/temp_dir.h"

namespace {

// Calls of `new` that still work, and how many of those after them fail. Only children set them.
std::atomic<int64_t> good_news{INT64_MAX};
std::atomic<int64_t> bad_news{0};

bool MayHave() {
  if (good_news.load(std::memory_order_relaxed) == INT64_MAX) return true;
  if (good_news.fetch_sub(1) > 0) return true;
  return bad_news.fetch_sub(1) <= 0;
}

}  // namespace

// Apart, or the compiler sees free() where new was.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = MayHave() ? malloc(bytes == 0 ? 1 : bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t /*bytes*/) noexcept {
  free(memory);
}

namespace c4 {
namespace {

constexpr size_t kKib = 1024;
constexpr size_t kElements = 256 * kKib;
constexpr unsigned kHangS = 30;

size_t AddressSpaceBytes() {
  FILE* const file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  const int read = fscanf(file, "%lu", &pages);
  fclose(file);
  return read == 1 ? pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

void LimitAddressSpace(size_t bytes) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = bytes;
  setrlimit(RLIMIT_AS, &limit);
}

// How a child ends.
enum Outcome : int { kWorked = 0, kSaidWhy = 10, kNoSentence = 11, kStrangeCode = 12 };

// What a failed call says. In a child whose memory is at its end: nothing here allocates.
Outcome Judge(const char* call, ncclResult_t code, ncclComm_t comm) {
  const char* const sentence = ncclGetLastError(comm);
  dprintf(STDOUT_FILENO, "%s gave %d: %s\n", call, static_cast<int>(code), sentence);
  if (sentence == nullptr || strlen(sentence) < 20) return kNoSentence;
  // Ranks hear of a peer's end as a remote error.
  const bool known = code == ncclSystemError || code == ncclRemoteError;
  return known ? kSaidWhy : kStrangeCode;
}

// A program of two ranks: it makes a communicator, reduces, splits, sends and receives, and ends.
Outcome Program(std::vector<float>* buffers) {
  ncclComm_t comms[2] = {};
  cudaStream_t streams[2] = {};
  for (cudaStream_t& stream : streams) {
    if (c4StreamCreate(&stream) != ncclSuccess) return kSaidWhy;
  }
  if (const ncclResult_t code = ncclCommInitAll(comms, 2, nullptr); code != ncclSuccess) {
    return Judge("ncclCommInitAll", code, nullptr);
  }
  const auto each = [&](const char* call, const auto& enqueue) {
    ncclGroupStart();
    ncclResult_t first = ncclSuccess;
    for (int rank = 0; rank < 2; ++rank) {
      const ncclResult_t code = enqueue(rank);
      if (first == ncclSuccess) first = code;
    }
    const ncclResult_t end = ncclGroupEnd();
    if (first == ncclSuccess) first = end;
    if (first != ncclSuccess) return Judge(call, first, nullptr);
    for (int rank = 0; rank < 2; ++rank) {
      const ncclResult_t code = c4StreamSynchronize(streams[rank]);
      if (code == ncclSuccess) continue;
      ncclResult_t later = ncclSuccess;
      ncclCommGetAsyncError(comms[rank], &later);
      return Judge(call, code, comms[rank]);
    }
    return kWorked;
  };
  Outcome outcome = each("ncclAllReduce", [&](int rank) {
    return ncclAllReduce(buffers[rank].data(), buffers[rank].data(), kElements, ncclFloat, ncclSum,
                         comms[rank], streams[rank]);
  });
  if (outcome == kWorked) {
    outcome = each("ncclSend and ncclRecv", [&](int rank) {
      return rank == 0 ? ncclSend(buffers[0].data(), kElements, ncclFloat, 1, comms[0], streams[0])
                       : ncclRecv(buffers[1].data(), kElements, ncclFloat, 0, comms[1], streams[1]);
    });
  }
  ncclComm_t halves[2] = {};
  if (outcome == kWorked) {
    outcome = each("ncclCommSplit",
                   [&](int rank) { return ncclCommSplit(comms[rank], 0, rank, &halves[rank], nullptr); });
  }
  for (ncclComm_t* const pair : {halves, comms}) {
    for (int rank = 0; rank < 2; ++rank) {
      if (pair[rank] == nullptr) continue;
      const ncclResult_t code = outcome == kWorked ? ncclCommDestroy(pair[rank]) : ncclCommAbort(pair[rank]);
      if (code != ncclSuccess && outcome == kWorked) outcome = Judge("ncclCommDestroy", code, nullptr);
    }
  }
  return outcome;
}

// The status of a child that runs the program once `starve` has made its memory scarce; its words in `said`.
int Try(const std::function<void()>& starve, bool monitored, const std::string& run_dir, std::string* said) {
  int words[2] = {};
  if (pipe2(words, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(words[1], STDOUT_FILENO);
    dup2(words[1], STDERR_FILENO);
    // NOLINTBEGIN(concurrency-mt-unsafe): the child has one thread
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_DEBUG", "NONE", 1);
    setenv("C4_MONITOR", monitored ? "1" : "0", 1);
    setenv("C4_RUN_DIR", run_dir.c_str(), 1);
    setenv("C4_CONTROL", "0", 1);
    setenv("C4_INIT_TIMEOUT", "1", 1);
    setenv("C4_TIMEOUT", "2", 1);
    // NOLINTEND(concurrency-mt-unsafe)
    std::vector<float> buffers[2];
    for (auto& buffer : buffers) buffer.assign(kElements, 1.0F);
    alarm(kHangS);
    starve();
    _exit(Program(buffers));
  }
  close(words[1]);
  char piece[4096];
  for (ssize_t got = 0; (got = read(words[0], piece, sizeof piece)) > 0;)
    said->append(piece, static_cast<size_t>(got));
  close(words[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

std::function<void()> MoreBytes(size_t bytes) {
  return [bytes] { LimitAddressSpace(AddressSpaceBytes() + bytes); };
}

// It counts the outcomes of well-behaved children.
class MemoryLimit : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers take terabytes of address space, and end the process where there is no more";
#endif
  }
  void ExpectGoodEnd(const std::function<void()>& starve, const std::string& how) {
    std::string said;
    const int status = Try(starve, GetParam(), directory_.path(), &said);
    ASSERT_TRUE(WIFEXITED(status)) << how << " it ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? " (it hung)" : "") << ": " << said;
    const int outcome = WEXITSTATUS(status);
    ++count_[outcome];
    EXPECT_TRUE(outcome == kWorked || outcome == kSaidWhy) << how << ": " << outcome << ", " << said;
  }

  const test::TempDir directory_;
  std::map<int, int> count_;
};

TEST_P(MemoryLimit, EveryCallSaysWhy) {
  // How much the whole program needs.
  size_t enough = 16 * kKib * kKib;
  for (std::string said; Try(MoreBytes(enough), GetParam(), directory_.path(), &said) != 0;
       enough += enough / 2) {
    ASSERT_LT(enough, size_t{8} << 30) << said;
    said.clear();
  }
  constexpr size_t kTries = 40;
  for (size_t i = 0; i < kTries; ++i) {
    const size_t more = enough / kTries * i / (4 * kKib) * (4 * kKib);
    ExpectGoodEnd(MoreBytes(more), "with " + std::to_string(more) + " bytes more than at first");
  }
  EXPECT_GT(count_[kSaidWhy], 10) << "the limits were too wide to test anything";
}

// Of every kind of allocation some try is the one that fails: alone, or with all that come soon after it.
TEST_P(MemoryLimit, NoAllocationEndsTheProcess) {
  constexpr int64_t kMost = 4000;
  for (const int64_t bad : {1, 20, 1000000}) {
    for (int64_t good = 0; good < kMost; good += 1 + good / 8) {
      const auto starve = [good, bad] {
        bad_news = bad;
        good_news = good;
      };
      ExpectGoodEnd(starve, std::to_string(bad) + " calls of new after " + std::to_string(good) + " fail");
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(count_[kSaidWhy], 100);
  EXPECT_GT(count_[kWorked], 10);
}

INSTANTIATE_TEST_SUITE_P(Monitored, MemoryLimit, testing::Bool());

TEST(Caught, SaysHowMuchThereIs) {
  const Result result = Caught([]() -> Result { throw std::bad_alloc(); });
  EXPECT_EQ(result.code(), ncclSystemError);
  EXPECT_NE(result.message().find("MiB of address space"), std::string::npos) << result.message();
  const Result strange = Caught([]() -> Result { throw std::length_error("vector::reserve"); });
  EXPECT_EQ(strange.code(), ncclInternalError);
  EXPECT_NE(strange.message().find("vector::reserve"), std::string::npos);
}

}  // namespace
}  // namespace c4
