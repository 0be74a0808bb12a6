// How comms of the network plugin begin and end: half made, in any order, with messages under way, over
// streams that break, beside a fork. And that nobody is busy while nothing is to be done.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/plugins/net/handle.h"
#include "ccl/plugins/net/own_net.h"
#include "tests/unit/ccl/plugins/nccl_core.h"

namespace c4::net::test {
namespace {

using std::chrono::milliseconds;

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;  // NOLINT(concurrency-mt-unsafe): nobody else's
  closedir(folder);
  return count;
}

bool HasServiceThread() {
  bool found = false;
  DIR* const folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
    const std::string path = std::string("/proc/self/task/") + entry->d_name + "/comm";
    FILE* const file = fopen(path.c_str(), "re");
    char name[32] = "";
    if (file == nullptr) continue;
    if (fgets(name, sizeof name, file) != nullptr && std::string(name) == "c4-net\n") found = true;
    fclose(file);
  }
  closedir(folder);
  return found;
}

class NetLifetime : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(core_->Init(&context_), ncclSuccess); }

  void SayByte(const Ends& ends) {
    char byte = 'x';
    char place = 0;
    void* to = &place;
    const size_t room = 1;
    int tag = 0;
    std::vector<void*> requests(2);
    ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &requests[0]), ncclSuccess);
    ASSERT_EQ(core_->Send(ends.send, &byte, 1, 0, &requests[1]), ncclSuccess);
    ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests));
    EXPECT_EQ(place, 'x');
  }

  const std::unique_ptr<Core> core_ = CoreOf(11);
  void* context_ = nullptr;
};

TEST_F(NetLifetime, NothingIsLeftBehindWhateverTheOrderOfClosing) {
  {
    Ends first;  // what the process makes once
    ASSERT_NO_FATAL_FAILURE(first.Connect(core_.get(), context_));
    const uint64_t until_ns = MonotonicNs() + kPatienceNs;
    while (!HasServiceThread()) ASSERT_LT(MonotonicNs(), until_ns);  // it takes its name when it runs
    first.Close(core_.get());
  }
  EXPECT_FALSE(HasServiceThread());
  const size_t before = OpenDescriptors();
  std::vector<int> order = {0, 1, 2};
  do {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
    // Messages under way on both ends, some of which match.
    std::vector<char> data(500000);
    void* to = data.data();
    const size_t room = data.size();
    int tag = 1;
    void* request = nullptr;
    ASSERT_EQ(core_->Send(ends.send, data.data(), data.size(), 1, &request), ncclSuccess);
    ASSERT_EQ(core_->Send(ends.send, data.data(), 10, 2, &request), ncclSuccess);
    ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &request), ncclSuccess);
    for (const int which : order) {
      if (which == 0) {
        EXPECT_EQ(core_->CloseSend(ends.send), ncclSuccess);
      }
      if (which == 1) {
        EXPECT_EQ(core_->CloseReceive(ends.receive), ncclSuccess);
      }
      if (which == 2) {
        EXPECT_EQ(core_->CloseListen(ends.listen), ncclSuccess);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_FALSE(HasServiceThread());
}

TEST_F(NetLifetime, AListenCommThatNobodyAcceptsFromTakesAllWithIt) {
  const size_t before = OpenDescriptors();
  Handle handle;
  void* listen = nullptr;
  ASSERT_EQ(core_->Listen(context_, 0, &handle, &listen), ncclSuccess);
  void* send = nullptr;
  for (int i = 0; i < 1000 && send == nullptr; ++i) {
    ASSERT_EQ(core_->Connect(context_, 0, &handle, &send), ncclSuccess);
  }
  ASSERT_NE(send, nullptr) << "the peer need not accept for that";
  EXPECT_EQ(core_->CloseListen(listen), ncclSuccess);
  EXPECT_EQ(core_->CloseSend(send), ncclSuccess);
  EXPECT_EQ(OpenDescriptors(), before);
}

// The core may copy the handle as long as it has not connected; several may connect with copies of one.
TEST_F(NetLifetime, SeveralConnectOverCopiesOfOneHandle) {
  Handle handle;
  void* listen = nullptr;
  ASSERT_EQ(core_->Listen(context_, 0, &handle, &listen), ncclSuccess);
  constexpr size_t kMany = 5;
  std::vector<Handle> copies(kMany, handle);
  std::vector<void*> sends(kMany);
  std::vector<void*> receives;
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  while (receives.size() < kMany || std::count(sends.begin(), sends.end(), nullptr) > 0) {
    for (size_t i = 0; i < kMany; ++i) {
      if (sends[i] == nullptr) {
        ASSERT_EQ(core_->Connect(context_, 0, &copies[i], &sends[i]), ncclSuccess);
      }
    }
    void* receive = nullptr;
    if (receives.size() < kMany) {
      ASSERT_EQ(core_->Accept(listen, &receive), ncclSuccess);
    }
    if (receive != nullptr) receives.push_back(receive);
    ASSERT_LT(MonotonicNs(), until_ns);
  }
  // Which is which shows in what comes.
  std::vector<std::string> from(kMany);
  std::vector<std::string> to(kMany, std::string(1, '~'));
  std::vector<void*> requests(2 * kMany);
  for (size_t i = 0; i < kMany; ++i) {
    from[i] = std::string(1, static_cast<char>('a' + i));
    void* data = to[i].data();
    const size_t room = 1;
    int tag = 0;
    ASSERT_EQ(core_->Receive(receives[i], 1, &data, &room, &tag, &requests[i]), ncclSuccess);
    ASSERT_EQ(core_->Send(sends[i], from[i].data(), 1, 0, &requests[kMany + i]), ncclSuccess);
  }
  ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests));
  std::sort(to.begin(), to.end());
  EXPECT_EQ(to, from);
  EXPECT_EQ(core_->CloseListen(listen), ncclSuccess);
  for (void* comm : sends) EXPECT_EQ(core_->CloseSend(comm), ncclSuccess);
  for (void* comm : receives) EXPECT_EQ(core_->CloseReceive(comm), ncclSuccess);
}

TEST_F(NetLifetime, AHandleThatIsNoneOfOursIsAnErrorThatSaysSo) {
  Handle handle;
  void* comm = &handle;
  handle.fill(0);
  EXPECT_EQ(core_->Connect(context_, 0, &handle, &comm), ncclInvalidUsage);
  EXPECT_EQ(comm, nullptr);
  void* listen = nullptr;
  ASSERT_EQ(core_->Listen(context_, 0, &handle, &listen), ncclSuccess);
  for (size_t i = sizeof(uint64_t); i < handle.size(); ++i) {
    Handle damaged = handle;
    damaged[i] = static_cast<char>(damaged[i] + 1);
    ListenerInfo info;
    EXPECT_FALSE(ReadHandle(damaged.data(), &info).ok() && i < 120) << "byte " << i;
  }
  EXPECT_EQ(core_->Connect(context_, 7, &handle, &comm), ncclInvalidArgument) << "no such device";
  EXPECT_EQ(core_->CloseListen(listen), ncclSuccess);
  // Nobody listens any more.
  ncclResult_t result = ncclSuccess;
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  while (result == ncclSuccess && comm == nullptr && MonotonicNs() < until_ns) {
    result = core_->Connect(context_, 0, &handle, &comm);
  }
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_FALSE(HasServiceThread());
}

// More than may be under way: call again, no error; and the same call succeeds once something is done.
TEST_F(NetLifetime, BeyondTheLimitARequestIsNull) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  std::vector<void*> sends;
  std::vector<void*> receives;
  char byte = 'b';
  char place = 0;
  for (;;) {
    void* request = &byte;
    ASSERT_EQ(core_->Send(ends.send, &byte, 1, 5, &request), ncclSuccess);
    if (request == nullptr) break;
    sends.push_back(request);
    ASSERT_LT(sends.size(), 100000u);
  }
  EXPECT_GE(sends.size(), static_cast<size_t>(abi::kMaxRequests));
  for (;;) {
    void* to = &place;
    const size_t room = 1;
    int tag = 6;
    void* request = nullptr;
    ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &request), ncclSuccess);
    if (request == nullptr) break;
    receives.push_back(request);
    ASSERT_LT(receives.size(), 100000u);
  }
  EXPECT_GE(receives.size(), static_cast<size_t>(abi::kMaxRequests * kMostReceives));
  // However many are early, those that there is a receive for are taken.
  std::vector<void*> matching;
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  while (matching.size() < receives.size()) {
    void* request = nullptr;
    ASSERT_EQ(core_->Send(ends.send, &byte, 1, 6, &request), ncclSuccess);
    if (request != nullptr) {
      ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), {request, receives[matching.size()]}));
      matching.push_back(request);
    }
    ASSERT_LT(MonotonicNs(), until_ns);
  }
  ends.Close(core_.get());
}

// A message that is larger than its receive is the program's fault: an error on the receiver.
TEST_F(NetLifetime, AMessageThatDoesNotFitIsAnError) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  char data[8] = {};
  void* to = data;
  const size_t room = 4;
  int tag = 0;
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &receive), ncclSuccess);
  ASSERT_EQ(core_->Send(ends.send, data, 8, 0, &send), ncclSuccess);
  ncclResult_t result = ncclSuccess;
  const uint64_t until_ns = MonotonicNs() + kPatienceNs;
  while (result == ncclSuccess && MonotonicNs() < until_ns) {
    int done = 0;
    (void)core_->Test(send, &done, nullptr);
    result = core_->Test(receive, &done, nullptr);
    ASSERT_EQ(done, 0);
  }
  EXPECT_EQ(result, ncclInvalidUsage);
  ends.Close(core_.get());
}

// Streams are shut down under messages of all sizes; NCCL sees nothing of it.
TEST_F(NetLifetime, StreamsThatBreakAreNoError) {
  std::mt19937 random(3);
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  std::vector<char> from(400000);
  std::vector<char> to(500000);
  for (int round = 0; round < 12; ++round) {
    std::fill(from.begin(), from.end(), static_cast<char>(round));
    void* place = to.data();
    const size_t room = to.size();
    int tag = round % 3;
    std::vector<void*> requests(2);
    ASSERT_EQ(core_->Receive(ends.receive, 1, &place, &room, &tag, &requests[0]), ncclSuccess);
    ASSERT_EQ(core_->Send(ends.send, from.data(), from.size(), tag, &requests[1]), ncclSuccess);
    for (int fd = 3; fd < 256; ++fd) {
      SocketAddress peer;
      if (PeerAddress(fd, &peer).ok() && peer.storage.ss_family == AF_INET && random() % 8 == 0) {
        shutdown(fd, SHUT_RDWR);
        break;
      }
    }
    ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests)) << round;
    ASSERT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << round;
  }
  ends.Close(core_.get());
}

// The peer's end is closed: whoever still wants something of it hears so, and at once.
TEST_F(NetLifetime, APeerThatHasLeftIsARemoteError) {
  for (const bool sender_leaves : {true, false}) {
    Ends ends;
    ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
    char byte = 0;
    void* to = &byte;
    const size_t room = 1;
    int tag = 0;
    void* request = nullptr;
    if (sender_leaves) {
      ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &request), ncclSuccess);
      ASSERT_EQ(core_->CloseSend(ends.send), ncclSuccess);
      ends.send = nullptr;
    } else {
      ASSERT_EQ(core_->Send(ends.send, &byte, 1, 0, &request), ncclSuccess);
      ASSERT_EQ(core_->CloseReceive(ends.receive), ncclSuccess);
      ends.receive = nullptr;
    }
    ncclResult_t result = ncclSuccess;
    const uint64_t until_ns = MonotonicNs() + kPatienceNs;
    int done = 0;
    while (result == ncclSuccess && done == 0 && MonotonicNs() < until_ns) {
      result = core_->Test(request, &done, nullptr);
    }
    EXPECT_EQ(result, ncclRemoteError) << sender_leaves;
    ends.Close(core_.get());
  }
}

// Ten connections that nobody uses: the thread sleeps.
TEST_F(NetLifetime, AnIdleConnectionKeepsNobodyAwake) {
  std::vector<Ends> all(10);
  for (Ends& ends : all) ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  std::this_thread::sleep_for(milliseconds(100));  // it takes them over
  Service* const service = static_cast<OwnNet*>(TheProvider())->service();
  ASSERT_NE(service, nullptr);
  const uint64_t before = service->turns();
  timespec cpu_before{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
  std::this_thread::sleep_for(milliseconds(300));
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  EXPECT_LT(service->turns() - before, 60u);
  EXPECT_LT((cpu.tv_sec - cpu_before.tv_sec) * 1000 + (cpu.tv_nsec - cpu_before.tv_nsec) / 1000000, 60);
  for (Ends& ends : all) ends.Close(core_.get());
}

TEST_F(NetLifetime, SeveralInitsAndFinalizesAlsoOfNothing) {
  void* other = nullptr;
  EXPECT_EQ(core_->Init(&other), ncclSuccess);
  EXPECT_EQ(core_->Finalize(nullptr), ncclSuccess);
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), other));
  EXPECT_EQ(core_->Finalize(context_), ncclSuccess) << "the other's comms go on";
  ASSERT_NO_FATAL_FAILURE(SayByte(ends));
  ends.Close(core_.get());
  EXPECT_EQ(core_->Finalize(other), ncclSuccess);
}

TEST_F(NetLifetime, AMergedDeviceCarriesToo) {
  int device = -1;
  ASSERT_EQ(core_->Merge(&device, {0}), ncclSuccess);
  abi::Properties12 properties;
  ASSERT_EQ(core_->Properties(device, &properties), ncclSuccess);
  EXPECT_EQ(properties.members.count, 1);
  EXPECT_EQ(properties.members.devices[0], 0);
  int none = -1;
  EXPECT_EQ(core_->Merge(&none, {0, 0}), ncclInvalidUsage);
  EXPECT_EQ(core_->Merge(&none, {}), ncclInvalidUsage);
  EXPECT_EQ(core_->Merge(&none, {99}), ncclInvalidUsage);
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_, device));
  ASSERT_NO_FATAL_FAILURE(SayByte(ends));
  ends.Close(core_.get());
}

// The child leaves alone what it has from its parent, and can make comms of its own.
TEST_F(NetLifetime, AForkedChildHasNothingOfItsParents) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not follow a fork of many threads";
#endif
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  char byte = 'p';
  char place = 0;
  void* to = &place;
  const size_t room = 1;
  int tag = 0;
  std::vector<void*> requests(2);
  ASSERT_EQ(core_->Receive(ends.receive, 1, &to, &room, &tag, &requests[0]), ncclSuccess);
  const pid_t child = fork();
  if (child == 0) {
    int done = 0;
    void* request = nullptr;
    bool good = core_->Test(requests[0], &done, nullptr) != ncclSuccess && done == 0;
    good = core_->Send(ends.send, &byte, 1, 0, &request) != ncclSuccess && request == nullptr && good;
    good = core_->CloseSend(ends.send) == ncclSuccess && core_->CloseReceive(ends.receive) == ncclSuccess &&
           good;
    good = core_->CloseListen(ends.listen) == ncclSuccess && good;
    Ends own;
    void* context = nullptr;
    good = core_->Init(&context) == ncclSuccess && good;
    own.Connect(core_.get(), context);
    own.Close(core_.get());
    _exit(good && !testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_EQ(core_->Send(ends.send, &byte, 1, 0, &requests[1]), ncclSuccess);
  ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests));
  EXPECT_EQ(place, 'p');
  ends.Close(core_.get());
}

}  // namespace
}  // namespace c4::net::test
