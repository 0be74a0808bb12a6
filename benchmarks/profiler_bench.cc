// What NCCL's profiler events cost in the user's process (budget: 30 ns an event where nothing has to be
// looked up), through the table as NCCL calls it, and what an operation costs that is met with its call. A
// channel's kernel is three calls of NCCL's (start, state, stop), a step of the network five at the sender.
#include <benchmark/benchmark.h>
#include <unistd.h>
#include <vector>

#include "ccl/plugins/profiler/profiler.h"

namespace c4::profiler {
namespace {

using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)

struct Bench {
  Bench() {
    monitor.SetLevel(wire::kLevelCoarse);
    Replace(&events, {});
    CommunicatorIdentity identity;
    identity.id = 1;
    identity.rank_count = 8;
    identity.engine = wire::kEngineVendor;
    communicator = all.Open(identity);
    communicator->Ready();
    int mask = 0;
    ncclProfiler_v5.init(&context, 1, &mask, nullptr, 1, 8, 0, nullptr);
  }

  ObservedCall Call() const {
    ObservedCall call;
    call.info.function = wire::kAllReduce;
    call.info.count = 1 << 20;
    call.info.data_type = 7;
    call.info.root = -1;
    return call;
  }
  void* Coll(uint8_t channels) {
    DescriptorV5 group{};
    group.type = kGroup;
    void* group_handle = nullptr;
    ncclProfiler_v5.startEvent(context, &group_handle, &group);
    DescriptorV5 d{};
    d.type = kColl;
    d.coll.func = "AllReduce";
    d.coll.datatype = "ncclFloat32";
    d.coll.count = 1 << 20;
    d.coll.nChannels = channels;
    d.coll.proto = "SIMPLE";
    d.coll.parentGroup = group_handle;
    void* handle = nullptr;
    ncclProfiler_v5.startEvent(context, &handle, &d);
    return handle;
  }
  void* Kernel(void* task, uint8_t channel, uint64_t gpu_ns) {
    DescriptorV5 d{};
    d.type = kKernelCh;
    d.parentObj = task;
    d.kernelCh = {channel, gpu_ns};
    void* handle = nullptr;
    ncclProfiler_v5.startEvent(context, &handle, &d);
    return handle;
  }
  void Stop(void* kernel, uint64_t gpu_ns) {
    StateArgsV4 args{};
    args.pTimer = gpu_ns;
    ncclProfiler_v5.recordEventState(kernel, kKernelChStop, &args);
    ncclProfiler_v5.stopEvent(kernel);
  }

  Monitor monitor{"", {4, 64, 2, 1024}, JobIdentity{}};
  ObservedCommunicators all{&monitor};
  Events events{&all, monitor.segment().header().ticks_per_second};
  ObservedCommunicator* communicator = nullptr;
  void* context = nullptr;
};

Bench& Get() {
  static auto* const bench = new Bench();
  return *bench;
}

// Both halves of the benchmark count calls of NCCL's.
void Report(benchmark::State& state, int calls) {
  state.SetItemsProcessed(state.iterations() * calls);
  state.counters["ns_per_event"] =
      benchmark::Counter(static_cast<double>(calls) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_KernelOfAChannel(benchmark::State& state) {
  Bench& bench = Get();
  bench.communicator->Called(bench.Call(), NowTicks());
  void* const coll = bench.Coll(255);
  uint64_t gpu_ns = MonotonicNs();
  for ([[maybe_unused]] auto _ : state) {
    for (uint8_t i = 0; i < 16; ++i) bench.Stop(bench.Kernel(coll, i, gpu_ns), gpu_ns + 5);
    if ((gpu_ns += 10) % 100 == 0) benchmark::ClobberMemory();
  }
  Report(state, 16 * 3);
}
BENCHMARK(BM_KernelOfAChannel);

void BM_StepOfASender(benchmark::State& state) {
  Bench& bench = Get();
  bench.communicator->Called(bench.Call(), NowTicks());
  void* const coll = bench.Coll(1);
  DescriptorV5 d{};
  d.type = kProxyOp;
  d.parentObj = coll;
  d.proxyOp = {getpid(), 0, 1, 8, 4096, 1};
  void* op = nullptr;
  ncclProfiler_v5.startEvent(bench.context, &op, &d);
  StateArgsV4 args{};
  args.transSize = 4096;
  int number = 0;
  for ([[maybe_unused]] auto _ : state) {
    DescriptorV5 step{};
    step.type = kProxyStep;
    step.parentObj = op;
    step.proxyStep.step = number++;
    void* handle = nullptr;
    ncclProfiler_v5.startEvent(bench.context, &handle, &step);
    ncclProfiler_v5.recordEventState(handle, kSendGpuWait, &args);
    ncclProfiler_v5.recordEventState(handle, kSendPeerWait, &args);
    ncclProfiler_v5.recordEventState(handle, kSendWait, &args);
    ncclProfiler_v5.stopEvent(handle);
  }
  ncclProfiler_v5.stopEvent(op);
  Report(state, 5);
}
BENCHMARK(BM_StepOfASender);

// The progress thread's, at each look for work.
void BM_ProgressEvent(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) {
    DescriptorV5 d{};
    d.type = kProxyCtrl;
    void* handle = nullptr;
    ncclProfiler_v5.startEvent(bench.context, &handle, &d);
    ncclProfiler_v5.stopEvent(handle);
  }
  Report(state, 2);
}
BENCHMARK(BM_ProgressEvent);

void BM_UnaskedEvent(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) {
    DescriptorV5 d{};
    d.type = kCollApi;
    void* handle = nullptr;
    ncclProfiler_v5.startEvent(bench.context, &handle, &d);
  }
  Report(state, 1);
}
BENCHMARK(BM_UnaskedEvent);

// A whole operation from call to end, with that many channels: the call and its record, the group, the match,
// the kernels.
void BM_Operation(benchmark::State& state) {
  Bench& bench = Get();
  const auto channels = static_cast<uint8_t>(state.range(0));
  std::vector<void*> kernels(channels);
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t now = NowTicks();
    bench.communicator->Called(bench.Call(), now);
    bench.communicator->Enqueued(wire::kAllReduce, 0, now);
    void* const coll = bench.Coll(channels);
    ncclProfiler_v5.stopEvent(coll);
    const uint64_t gpu_ns = MonotonicNs();
    for (uint8_t i = 0; i < channels; ++i) kernels[i] = bench.Kernel(coll, i, gpu_ns);
    for (uint8_t i = 0; i < channels; ++i) bench.Stop(kernels[i], gpu_ns + 10);
  }
}
BENCHMARK(BM_Operation)->Arg(1)->Arg(16);

}  // namespace
}  // namespace c4::profiler

BENCHMARK_MAIN();
