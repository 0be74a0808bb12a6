// Every version of NCCL's profiler table, driven as NCCL drives it: the same sequences, the same records.
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "ccl/base/clock.h"
#include "tests/unit/ccl/nccl_core.h"
#include "tests/unit/ccl/profiler_world.h"

namespace c4::profiler {
namespace {

using nccl_profiler::kKernelCh;
using nccl_profiler::kProxyCtrl;
using test::Collective;
using test::CollTask;
using test::NcclCore;
using test::P2p;
using test::P2pTask;

class ProfilerTables : public ::testing::TestWithParam<int> {
 protected:
  ProfilerTables() { Replace(&world_.events, {}); }
  ~ProfilerTables() override { Replace(nullptr, {}); }

  std::unique_ptr<NcclCore> Core(int rank = 0, int ranks = 4, uint64_t hash = 77) {
    std::unique_ptr<NcclCore> core = NcclCore::Make(GetParam());
    core->Init(rank, ranks, hash);
    EXPECT_NE(core->context(), nullptr);
    return core;
  }
  bool gpu_times() const { return GetParam() >= 4; }
  static uint64_t Gpu() { return MonotonicNs() + 1'700'000'000'000'000'000; }
  static void Call(ObservedCommunicator* comm, const ObservedCall& call) { comm->Called(call, NowTicks()); }
  // The progress thread has done all that there was.
  static void Sleep(NcclCore* core) {
    void* const control = core->StartProxyCtrl();
    core->Record(control, nccl_profiler::kProxyCtrlSleep, 0, 0);
    core->Record(control, 16, 0, 0);  // awake
    core->Stop(control);
  }
  static void Run(NcclCore* core, void* task, int channels) {
    std::vector<void*> kernels;
    for (int i = 0; i < channels; ++i) kernels.push_back(core->StartKernel(task, i, Gpu()));
    core->Stop(task);
    for (void* kernel : kernels) core->StopKernel(kernel, Gpu());
  }

  test::World world_;
};

INSTANTIATE_TEST_SUITE_P(Versions, ProfilerTables, ::testing::Values(3, 4, 5, 6, 7),
                         [](const auto& tested) { return "v" + std::to_string(tested.param); });

TEST_P(ProfilerTables, OneAllReduce) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  Call(comm, Collective(wire::kAllReduce, 1 << 20));
  core->UnaskedEvents();
  void* const group = core->StartGroup();
  CollTask task;
  task.count = 1 << 20;
  task.channels = 4;
  void* const coll = core->StartColl(task, group);
  ASSERT_NE(coll, nullptr);
  Run(core.get(), coll, 4);
  core->Stop(group);
  EXPECT_EQ(world_.Slot(1).started.count, 1u);
  Sleep(core.get());
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  EXPECT_EQ(world_.Slot(1).seen, wire::kSeesEvents | wire::kSeesKernels);
  EXPECT_EQ(world_.Slot(1).kernel_error_ns == UINT32_MAX, !gpu_times());
  ASSERT_EQ(world_.Records().size(), 1u);
  EXPECT_EQ(world_.events.counts(core->context()).overtaken, 0u);
  const wire::OperationRecord record = world_.Records()[0];
  EXPECT_LE(record.called_ticks, record.started_ticks);
  EXPECT_LE(record.started_ticks, record.finished_ticks);
  core->Finalize();
}

TEST_P(ProfilerTables, OneEndsBeforeTheNextBeginsAtTheLatest) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  CollTask task;
  task.channels = 2;
  for (uint64_t i = 1; i <= 5; ++i) {
    Call(comm, Collective(wire::kAllReduce, i));
    task.count = i;
    void* const coll = core->StartColl(task, core->StartGroup());
    void* const first = core->StartKernel(coll, 0, Gpu());
    EXPECT_EQ(world_.Slot(1).finished.count, i - 1);
    EXPECT_EQ(world_.Records().size(), i - 1) << "each with an end of its own";
    void* const second = core->StartKernel(coll, 1, Gpu());
    core->Stop(coll);
    core->StopKernel(first, Gpu());
    core->StopKernel(second, Gpu());
  }
  EXPECT_EQ(world_.events.counts(core->context()).overtaken, 0u);
}

TEST_P(ProfilerTables, EveryFunctionIsMet) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  struct Case {
    wire::Function function;
    const char* name;
    int root;
    bool bytes;  // NCCL makes bytes of what it gathers and broadcasts
  };
  const Case cases[] = {{wire::kAllReduce, "AllReduce", -1, false},
                        {wire::kReduce, "Reduce", 2, false},
                        {wire::kBroadcast, "Broadcast", 3, true},
                        {wire::kAllGather, "AllGather", -1, true},
                        {wire::kReduceScatter, "ReduceScatter", -1, false}};
  uint64_t finished = 0;
  char send = 0;
  char recv = 0;
  for (const Case& c : cases) {
    ObservedCall call = Collective(c.function, 100);
    call.info.root = c.root;
    call.send_buffer = &send;
    call.recv_buffer = &recv;
    Call(comm, call);
    CollTask task;
    task.func = c.name;
    task.send = &send;
    task.recv = &recv;
    task.root = c.root < 0 ? 0 : c.root;
    task.count = c.bytes ? 400 : 100;
    if (c.bytes) task.datatype = "ncclInt8";
    void* const coll = core->StartColl(task, core->StartGroup());
    ASSERT_NE(coll, nullptr) << c.name;
    Run(core.get(), coll, 1);
    Sleep(core.get());
    EXPECT_EQ(world_.Slot(1).finished.count, ++finished) << c.name;
  }
  for (const bool sends : {true, false}) {
    Call(comm, P2p(sends ? wire::kSend : wire::kRecv, 9, 2, &send));
    P2pTask task;
    task.func = sends ? "Send" : "Recv";
    task.buff = &send;
    task.count = 9;
    task.peer = 2;
    Run(core.get(), core->StartP2p(task, core->StartGroup()), 1);
  }
  Sleep(core.get());
  EXPECT_EQ(world_.Slot(1).p2p_finished.count, 2u);
  for (const char* name : {"SendRecv", "PutSignal", "", "Unknown"}) {
    CollTask task;
    task.func = name;
    EXPECT_EQ(core->StartColl(task, nullptr), nullptr);
  }
  CollTask nameless;
  nameless.func = nullptr;
  nameless.datatype = nullptr;
  EXPECT_EQ(core->StartColl(nameless, nullptr), nullptr);
}

// A step at each end, its states in NCCL's order; SendPeerWait comes again at each attempt.
TEST_P(ProfilerTables, StepsOfTheNetwork) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  Call(comm, Collective(wire::kAllReduce, 5));
  CollTask task;
  task.count = 5;
  void* const coll = core->StartColl(task, core->StartGroup());
  void* const kernel = core->StartKernel(coll, 0, Gpu());
  core->Stop(coll);
  void* const send = core->StartProxyOp(coll, getpid(), 0, 1, true);
  void* const recv = core->StartProxyOp(coll, getpid(), 0, 3, false);
  EXPECT_EQ(core->StartProxyOp(coll, getpid() + 1, 0, 1, true), nullptr) << "PXN";
  EXPECT_EQ(core->StartStep(nullptr, 0), nullptr) << "of a proxy operation that was dropped";
  core->Record(send, 19, 0, 0);
  for (int step = 0; step < 20; ++step) {
    void* const out = core->StartStep(send, step);
    core->Record(out, nccl_profiler::kSendGpuWait, 0, 0);
    for (int i = 0; i < 3; ++i) core->Record(out, nccl_profiler::kSendPeerWait, 4096, 0);
    core->Record(out, nccl_profiler::kSendWait, 4096, 0);
    EXPECT_NE(core->StartStep(recv, step), nullptr);  // the receive could not be posted at the first attempt
    void* const in = core->StartStep(recv, step);
    core->Record(in, nccl_profiler::kRecvWait, 0, 0);
    core->Record(in, nccl_profiler::kRecvFlushWait, 4096, 0);
    core->Record(in, nccl_profiler::kRecvGpuWait, 4096, 0);
    core->Stop(in);
    core->Stop(out);
  }
  core->Stop(send);
  core->Stop(recv);
  core->StopKernel(kernel, Gpu());
  Sleep(core.get());
  EXPECT_EQ(world_.Slot(1).finished.count, 1u);
  EXPECT_EQ(world_.Slot(1).seen, wire::kSeesEvents | wire::kSeesKernels | wire::kSeesSteps);
  const wire::QueuePairSlot* const sender = world_.Connection(wire::kDirectionSend, 1);
  const wire::QueuePairSlot* const receiver = world_.Connection(wire::kDirectionReceive, 3);
  ASSERT_NE(sender, nullptr);
  ASSERT_NE(receiver, nullptr);
  EXPECT_EQ(sender->transport, wire::kTransportVendor);
  EXPECT_EQ(sender->wanted_messages, 20u);
  EXPECT_EQ(sender->granted_messages, 20u);
  EXPECT_EQ(sender->posted_messages, 20u);
  EXPECT_EQ(sender->done_messages, 20u);
  EXPECT_EQ(receiver->wanted_messages, 20u);
  EXPECT_EQ(receiver->done_messages, 20u);
  EXPECT_EQ(receiver->first_waits, 1u);
  if (gpu_times()) {
    EXPECT_EQ(sender->done_bytes, 20u * 4096);
    EXPECT_EQ(receiver->done_bytes, 20u * 4096);
    EXPECT_GT(sender->credit_wait_sum_ticks, 0u);
    EXPECT_GT(sender->gpu_wait_sum_ticks, 0u);
  }
  core->Finalize();
  EXPECT_EQ(world_.Connection(wire::kDirectionSend, 1), nullptr);
}

TEST_P(ProfilerTables, MasksAreTheSameForAllAndFollowTheKnob) {
  EXPECT_EQ(Core()->mask(), Core()->mask());
  EXPECT_NE(Core()->mask() & static_cast<int>(kKernelCh), 0);
  EXPECT_EQ((Core()->mask() & static_cast<int>(kProxyCtrl)) != 0, GetParam() < 7);
  EXPECT_EQ(Core()->mask() & ~0x7f, 0) << "nothing of the API's own";
  Replace(&world_.events, {.on = true, .kernels = false, .kernels_without_times = false});
  const int mask = Core()->mask();
  EXPECT_EQ(mask & static_cast<int>(kKernelCh | kProxyCtrl), 0);
  EXPECT_NE(mask, 0);
  Replace(nullptr, {.on = false});
  const auto blind = NcclCore::Make(GetParam());
  blind->Init(0, 4, 1);
  EXPECT_EQ(blind->mask(), 0);
  EXPECT_EQ(blind->context(), nullptr);
  EXPECT_EQ(blind->StartGroup(), nullptr);
  blind->Finalize();
}

// Without kernel events nothing starts or ends, and the slot says that nobody may think it hung.
TEST_P(ProfilerTables, WithoutKernelsTheCountersSayNothing) {
  Replace(&world_.events, {.on = true, .kernels = false, .kernels_without_times = false});
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  Call(comm, Collective(wire::kAllReduce, 5));
  CollTask task;
  task.count = 5;
  void* const coll = core->StartColl(task, core->StartGroup());
  Run(core.get(), coll, 1);
  void* const recv = core->StartProxyOp(coll, getpid(), 0, 3, false);
  void* const in = core->StartStep(recv, 0);
  core->Record(in, nccl_profiler::kRecvWait, 0, 0);
  core->Record(in, nccl_profiler::kRecvFlushWait, 64, 0);
  EXPECT_EQ(world_.Slot(1).started.count, 0u);
  EXPECT_EQ(world_.Slot(1).seen, wire::kSeesEvents | wire::kSeesSteps);
  EXPECT_EQ(world_.Connection(wire::kDirectionReceive, 3)->first_waits, 0u) << "a wait since when?";
  EXPECT_EQ(world_.Connection(wire::kDirectionReceive, 3)->done_messages, 1u);
}

TEST_P(ProfilerTables, TwoCommunicatorsAtOnce) {
  ObservedCommunicator* const one = world_.Communicator(1, 0, 4);
  ObservedCommunicator* const two = world_.Communicator(2, 0, 4);
  const auto first = Core(0, 4, 11);
  const auto second = Core(0, 4, 22);
  char a = 0;
  char b = 0;
  for (int i = 0; i < 10; ++i) {
    Call(one, Collective(wire::kAllReduce, 5, &a));
    Call(two, Collective(wire::kAllReduce, 5, &b));
    CollTask task;
    task.count = 5;
    task.send = task.recv = &b;
    void* const of_two = second->StartColl(task, second->StartGroup());
    task.send = task.recv = &a;
    void* const of_one = first->StartColl(task, first->StartGroup());
    void* const kernel = first->StartKernel(of_one, 0, Gpu());
    Run(second.get(), of_two, 1);
    first->Stop(of_one);
    first->StopKernel(kernel, Gpu());
    Sleep(first.get());
    Sleep(second.get());
    EXPECT_EQ(world_.Slot(1).finished.count, static_cast<uint64_t>(i + 1));
    EXPECT_EQ(world_.Slot(2).finished.count, static_cast<uint64_t>(i + 1));
  }
  first->Finalize();
  second->Finalize();
}

// A captured graph: its calls are made once, its operations come at every launch, from a host callback.
TEST_P(ProfilerTables, LaunchesOfAGraph) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  const auto core = Core();
  constexpr uint64_t kLaunches = 50;
  for (uint64_t i = 0; i < 3; ++i) {
    Call(comm, Collective(wire::kAllReduce, 10 + i));
    CollTask task;
    task.count = 10 + i;
    core->CapturedCall(task);
  }
  std::thread callback([&] {
    for (uint64_t launch = 0; launch < kLaunches; ++launch) {
      void* const group = core->StartGroup();
      for (uint64_t i = 0; i < 3; ++i) {
        CollTask task;
        task.count = 10 + i;
        Run(core.get(), core->StartColl(task, group), 1);
      }
      core->Stop(group);
      Sleep(core.get());
    }
  });
  callback.join();
  // Until v5 nobody says that the calls were captured: the first launch is taken for theirs.
  const uint64_t seen = 3 + (GetParam() >= 5 ? 3 * kLaunches : 0);
  EXPECT_EQ(world_.Slot(1).finished.count, seen);
  Call(comm, Collective(wire::kAllReduce, 99));
  CollTask task;
  task.count = 99;
  Run(core.get(), core->StartColl(task, core->StartGroup()), 1);
  Sleep(core.get());
  EXPECT_EQ(world_.Slot(1).finished.count, seen + 1) << "the binding has held";
  core->Finalize();
}

// The calling thread, the progress thread, the thread of kernel times and a teardown in the middle.
TEST_P(ProfilerTables, ThreadsAtOnce) {
  ObservedCommunicator* const comm = world_.Communicator(1);
  for (int round = 0; round < 4; ++round) {
    const auto core = Core();
    constexpr int kOperations = 300;
    std::array<std::atomic<void*>, kOperations> tasks{};
    std::atomic<bool> done{false};
    std::thread progress([&] {
      for (std::atomic<void*>& task : tasks) {
        void* coll = nullptr;
        while ((coll = task.load(std::memory_order_acquire)) == nullptr && !done) std::this_thread::yield();
        if (coll == nullptr) return;
        void* const op = core->StartProxyOp(coll, getpid(), 0, 1, true);
        void* const step = core->StartStep(op, 0);
        core->Record(step, nccl_profiler::kSendGpuWait, 0, 0);
        core->Record(step, nccl_profiler::kSendWait, 8, 0);
        core->Stop(step);
        core->Stop(op);
      }
    });
    std::thread kernels([&] {
      for (std::atomic<void*>& task : tasks) {
        void* coll = nullptr;
        while ((coll = task.load(std::memory_order_acquire)) == nullptr && !done) std::this_thread::yield();
        if (coll == nullptr) return;
        Run(core.get(), coll, 2);
      }
    });
    for (int i = 0; i < kOperations; ++i) {
      Call(comm, Collective(wire::kAllReduce, 5));
      CollTask task;
      task.count = 5;
      task.channels = 2;
      void* const group = core->StartGroup();
      void* const coll = core->StartColl(task, group);
      ASSERT_NE(coll, nullptr);
      tasks[static_cast<size_t>(i)].store(coll, std::memory_order_release);
      core->Stop(coll);
      core->Stop(group);
      if (round == 3 && i == kOperations / 2) core->Finalize();
      if (round == 3 && i == kOperations / 2) break;
    }
    done = round == 3;
    progress.join();
    kernels.join();
    if (round < 3) {
      Sleep(core.get());
      EXPECT_EQ(world_.Slot(1).finished.count, static_cast<uint64_t>((round + 1) * kOperations));
      core->Finalize();
    }
  }
}

}  // namespace
}  // namespace c4::profiler
