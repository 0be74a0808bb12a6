// A profiler plugin of the user's beside ours (plugins/profiler/chain.h): what it hears, in its own version,
// and that ours sees what it sees without it.
#include <dlfcn.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "ccl/plugins/profiler/chain.h"
#include "tests/unit/ccl/nccl_core.h"
#include "tests/unit/ccl/profiler_world.h"
#include "tests/unit/ccl/temp_dir.h"

namespace c4::profiler {
namespace {

using test::Collective;
using test::CollTask;
using test::NcclCore;
using test::P2p;
using test::P2pTask;
using testing::HasSubstr;

std::string Plugin(const std::string& name) {
  const char* const folder = getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe)
  return std::string(folder == nullptr ? "build" : folder) + "/tests/profilers/libnccl-profiler-fake" + name +
         ".so";
}

std::string Said(const std::string& name) {
  void* const handle = dlopen(Plugin(name).c_str(), RTLD_NOW);
  if (handle == nullptr) return "not there";
  return reinterpret_cast<const char* (*)()>(dlsym(handle, "FakeProfilerSaid"))();
}

// The version by which NCCL speaks, and the user's.
struct Versions {
  int nccl;
  int user;
};

class ProfilerChain : public ::testing::Test {
 protected:
  ProfilerChain() { Replace(&world_.events, {}); }
  ~ProfilerChain() override {
    Chain::Replace(nullptr);
    Replace(nullptr, {});
    unsetenv("FAKE_PROFILER");       // NOLINT(concurrency-mt-unsafe)
    unsetenv("FAKE_PROFILER_MASK");  // NOLINT(concurrency-mt-unsafe)
  }

  // False: it cannot be had, and fault_ says why.
  bool Put(const std::string& name, int version) {
    std::unique_ptr<Foreign> foreign = Foreign::Open(Plugin(name), version, &fault_);
    if (foreign == nullptr) return false;
    chain_ = std::make_unique<Chain>(std::move(foreign), 5);
    Chain::Replace(chain_.get());
    (void)Said(name);
    return true;
  }
  static uint64_t Gpu() { return MonotonicNs() + 1'700'000'000'000'000'000; }

  // One all-reduce with a step of its network.
  void AllReduce(NcclCore* core, ObservedCommunicator* comm) {
    comm->Called(Collective(wire::kAllReduce, 1 << 20), NowTicks());
    void* const group = core->StartGroup();
    CollTask task;
    task.count = 1 << 20;
    task.channels = 2;
    void* const coll = core->StartColl(task, group);
    ASSERT_NE(coll, nullptr);
    void* const op = core->StartProxyOp(coll, getpid(), 1, 3, true);
    void* const step = core->StartStep(op, 7);
    core->Record(step, nccl_profiler::kSendWait, 4096, 0);
    core->Stop(step);
    std::vector<void*> kernels;
    for (int i = 0; i < 2; ++i) kernels.push_back(core->StartKernel(coll, i, Gpu()));
    core->Stop(coll);
    core->Stop(group);
    for (void* kernel : kernels) core->StopKernel(kernel, Gpu());
    core->Stop(op);
  }

  test::World world_;
  std::unique_ptr<Chain> chain_;
  std::string fault_;
};

class ProfilerChainOf : public ProfilerChain, public ::testing::WithParamInterface<Versions> {};

std::vector<Versions> AllVersions() {
  std::vector<Versions> all;
  for (int nccl = 3; nccl <= 7; ++nccl) {
    for (int user = 1; user <= nccl; ++user) all.push_back({nccl, user});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Versions, ProfilerChainOf, ::testing::ValuesIn(AllVersions()),
                         [](const auto& tested) {
                           return "nccl_v" + std::to_string(tested.param.nccl) + "_user_v" +
                                  std::to_string(tested.param.user);
                         });

TEST_P(ProfilerChainOf, BothHearOfEverything) {
  const auto [nccl, user] = GetParam();
  const std::string name = std::to_string(user);
  ASSERT_TRUE(Put(name, nccl)) << fault_;
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = NcclCore::Make(nccl);
  core->Init(0, 4, 77);
  ASSERT_NE(core->context(), nullptr);
  EXPECT_NE(core->mask() & nccl_profiler::kKernelCh, 0) << "ours asks for more";
  AllReduce(core.get(), comm);
  core->Finalize();

  // As it hears it from NCCL where it is alone.
  const std::string comm_name = nccl == 4 ? "-" : "name";
  std::string expected = user < 4 ? "init - 0 0/0\n" : "init " + comm_name + " 4d 0/4\n";
  expected += "2 = start 1 under 0 rank 0\n";
  const bool by_number = user == 1;
  expected += user < 5 ? "3 = start 2 under 2 rank 0 " : "3 = start 2 under 0 rank 0 ";
  expected += by_number ? "4 1048576 7" : "AllReduce 1048576 ncclFloat32";
  if (user < 4) expected += " of " + comm_name + " 4d";
  if (user >= 5) expected += " in 2";
  expected += by_number ? " 1 2\n" : " RING SIMPLE\n";
  expected +=
      "4 = start 8 under 3 rank 0 peer 3 channel 1\n"
      "5 = start 16 under 4 rank 0 step 7\n"
      "state 9 of 5, ";
  // The double of NCCL's v3 fills in nothing here.
  expected += nccl == 3 ? "0\n" : "4096\n";
  expected += "stop 5\nstop 3\nstop 2\nstop 4\nfinalize 1\n";
  EXPECT_EQ(Said(name), expected);

  // And ours as without it.
  EXPECT_EQ(world_.Slot(1).started.count, 1u);
  EXPECT_EQ(world_.Slot(1).seen & wire::kSeesEvents, wire::kSeesEvents);
  if (nccl > 3) {
    EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  }
}

TEST_F(ProfilerChain, SendsAndKernelsToo) {
  setenv("FAKE_PROFILER_MASK", "70", 1);  // NOLINT(concurrency-mt-unsafe): collectives, sends, kernels
  ASSERT_TRUE(Put("4", 6)) << fault_;
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = NcclCore::Make(6);
  core->Init(2, 4, 77);
  comm->Called(P2p(wire::kSend, 10, 3), NowTicks());
  P2pTask task;
  task.count = 10;
  task.peer = 3;
  void* const send = core->StartP2p(task, core->StartGroup());
  void* const kernel = core->StartKernel(send, 4, Gpu());
  core->StopKernel(kernel, Gpu());
  const std::string said = Said("4");
  EXPECT_THAT(said, testing::StartsWith("init name 4d 2/4\n"
                                        "2 = start 1 under 0 rank 2\n"
                                        "3 = start 4 under 2 rank 2 Send 10 ncclFloat32 peer 3\n"
                                        "4 = start 64 under 3 rank 2 channel 4\n"
                                        "state 22 of 4, "));
  EXPECT_THAT(said, testing::EndsWith("stop 4\n"));
}

TEST_F(ProfilerChain, TheNewestThatBothKnow) {
  for (const auto& [nccl, user] : {std::pair(7, 5), std::pair(5, 5), std::pair(4, 2), std::pair(3, 2)}) {
    ASSERT_TRUE(Put("25", nccl)) << fault_;
    EXPECT_EQ(chain_->foreign().version(), user) << "NCCL speaks v" << nccl;
  }
  EXPECT_FALSE(Put("8", 7));
  EXPECT_THAT(fault_, HasSubstr("only versions of the profiler interface that are newer than v7"));
  EXPECT_FALSE(Put("6", 4));
  EXPECT_THAT(fault_, HasSubstr("no version of the profiler interface up to v4"));
}

TEST_F(ProfilerChain, OneThatFailsToLoadIsNamed) {
  EXPECT_EQ(Foreign::Open("/nowhere/libx.so", 5, &fault_), nullptr);
  EXPECT_THAT(fault_, HasSubstr("cannot be opened: /nowhere/libx.so"));
  EXPECT_EQ(Foreign::Open("libm.so.6", 5, &fault_), nullptr);
  EXPECT_THAT(fault_, HasSubstr("has no version of the profiler interface up to v5"));
  // Nobody asked for the default one.
  EXPECT_EQ(Foreign::Open("", 5, &fault_), nullptr);
  EXPECT_EQ(fault_, "");
}

TEST_F(ProfilerChain, OneThatRefusesACommunicatorHearsNothingOfIt) {
  setenv("FAKE_PROFILER", "fails", 1);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_TRUE(Put("5", 5)) << fault_;
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = NcclCore::Make(5);
  core->Init(0, 4, 77);
  AllReduce(core.get(), comm);
  core->Finalize();
  EXPECT_EQ(Said("5"), "init name 4d 0/4\n");
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
}

// As it ends one without us: at once, with its status, and nobody waits for a lock.
TEST_F(ProfilerChain, OneThatExitsEndsTheProcessAsItWould) {
  // A copy: what is loaded already is not loaded again.
  const c4::test::TempDir folder;
  const std::string copy = folder.path() + "/fake6.so";
  std::filesystem::copy_file(Plugin("6"), copy);
  for (const char* when : {"exits", "exits-when-loaded"}) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      setenv("FAKE_PROFILER", when, 1);  // NOLINT(concurrency-mt-unsafe)
      std::unique_ptr<Foreign> foreign = Foreign::Open(copy, 6, &fault_);
      if (foreign == nullptr) _exit(1);
      Chain::Replace(new Chain(std::move(foreign), 5));  // to the end of the process
      NcclCore::Make(6)->Init(0, 4, 77);
      _exit(2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << when << ": " << status;
  }
}

// Operations of another process run on this one's progress thread, with that process's handles.
TEST_F(ProfilerChain, WhatIsAnotherProcessesIsHandedOnAsNcclDoes) {
  ASSERT_TRUE(Put("5", 5)) << fault_;
  const auto core = NcclCore::Make(5);
  core->Init(0, 4, 77);
  void* const foreign = reinterpret_cast<void*>(0x123456789abcdef0);  // NOLINT(performance-no-int-to-ptr)
  void* const op = core->StartProxyOp(foreign, getpid() + 1, 0, 1, true);
  core->Stop(core->StartStep(op, 0));
  core->Stop(foreign);
  core->Record(foreign, nccl_profiler::kSendWait, 1, 0);
  EXPECT_EQ(Said("5"),
            "init name 4d 0/4\n"
            "NOT MINE 0x123456789abcdef0\n"
            "2 = start 8 under -1 rank 0 peer 1 channel 0\n"
            "3 = start 16 under 2 rank 0 step 0\n"
            "stop 3\n");
}

// One that keeps events for longer than that finds the old ones gone, and nothing else.
TEST_F(ProfilerChain, TheNewestEventsAreKept) {
  EventPairs pairs(3);
  int handle = 0;
  void* const first = pairs.Keep(nccl_profiler::kColl, {&handle, nullptr});
  void* const control = pairs.Keep(nccl_profiler::kProxyCtrl, {nullptr, &handle});
  EXPECT_EQ(pairs.Find(first).ours, &handle);
  for (uint32_t i = 0; i < EventPairs::kKept; ++i) (void)pairs.Keep(nccl_profiler::kColl, {&pairs, nullptr});
  EXPECT_EQ(pairs.Find(first).ours, nullptr);
  EXPECT_EQ(pairs.Find(control).theirs, &handle);
  EXPECT_EQ(pairs.Keep(nccl_profiler::kColl, {}), nullptr);
  EXPECT_EQ(EventPairs(4).Find(control).theirs, nullptr) << "of another process";
}

TEST_F(ProfilerChain, ManyThreads) {
  EventPairs pairs(3);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (intptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (intptr_t i = 0; i < 20000; ++i) {
        void* const mine = reinterpret_cast<void*>(t << 32 | i);  // NOLINT(performance-no-int-to-ptr)
        const void* const number = pairs.Keep(nccl_profiler::kProxyStep, {mine, mine});
        const EventPair found = pairs.Find(number);
        if (found.ours != found.theirs || (found.ours != nullptr && found.ours != mine)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace c4::profiler
