// What one event costs in the user's process (budget: 30 ns an event, docs/benchmarks.md). An operation is
// five events: called, enqueued, started, finished, and its record in the ring; a message of a queue pair is
// posted, moved and completed. Writes to a real segment on the tmpfs of C4_RUN_DIR's default.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "ccl/monitor/marks.h"
#include "ccl/monitor/monitor.h"

namespace c4 {
namespace {

// One monitor for all benchmarks, its file removed at the end.
class Bench {
 public:
  Bench() : directory_(MakeDirectory()), monitor_(directory_, SegmentGeometry(), JobIdentity()) {
    communicator = monitor_.OpenCommunicator({1, 0, 0, 8, wire::kEngineHost, "bench"});
    queue_pair = monitor_.OpenQueuePair(communicator, {});
    ring = monitor_.LeaseRing();
    monitor_.SetLevel(wire::kLevelFine);
    info.function = wire::kAllReduce;
    info.count = 1 << 20;
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    unlink((directory_ + "/" + monitor_.segment().file_name()).c_str());
    rmdir(directory_.c_str());
  }

  CommunicatorRecorder communicator;
  QueuePairRecorder queue_pair;
  RingWriter ring;
  wire::OperationInfo info{};

  Monitor& monitor() { return monitor_; }

 private:
  static std::string MakeDirectory() {
    char name[] = "/dev/shm/c4-bench-XXXXXX";
    const char* made = mkdtemp(name);
    return made == nullptr ? "" : made;
  }

  std::string directory_;
  Monitor monitor_;
};

Bench& Get() {
  static Bench bench;
  return bench;
}

void BM_Stamp(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(NowTicks());
}
BENCHMARK(BM_Stamp);

void BM_ClockGettime(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(MonotonicNs());
}
BENCHMARK(BM_ClockGettime);

// A mark is two calls: its beginning and its end (ccl/include/c4/marks.h).
void BM_Mark(benchmark::State& state) {
  static MarkWriter marks(&Get().monitor());
  Get().monitor().SetLevel(state.range(0) == 0 ? wire::kLevelCoarse : wire::kLevelFine);
  wire::MarkRecord mark{};
  mark.kind = wire::kMarkForwardCompute;
  for ([[maybe_unused]] auto _ : state) marks.Write(mark, marks.Begin());
  Get().monitor().SetLevel(wire::kLevelFine);
}
BENCHMARK(BM_Mark)->ArgName("fine")->Arg(0)->Arg(1);

void BM_OperationCalled(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) bench.communicator.Called(bench.info, 0, NowTicks());
}
BENCHMARK(BM_OperationCalled);

void BM_OperationFinished(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) bench.communicator.Finished(0, NowTicks());
}
BENCHMARK(BM_OperationFinished);

void BM_OperationRecord(benchmark::State& state) {
  Bench& bench = Get();
  uint64_t sequence = 0;
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t now = NowTicks();
    bench.ring.Operation(bench.communicator, {sequence++, now, now, now, bench.info});
  }
}
BENCHMARK(BM_OperationRecord);

void BM_MessagePosted(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) bench.queue_pair.Posted(4096, NowTicks());
}
BENCHMARK(BM_MessagePosted);

void BM_MessageMoved(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) bench.queue_pair.Moved(4096, NowTicks());
}
BENCHMARK(BM_MessageMoved);

void BM_MessageCompleted(benchmark::State& state) {
  Bench& bench = Get();
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t now = NowTicks();
    bench.queue_pair.Completed(4096, now - 100, now);
  }
}
BENCHMARK(BM_MessageCompleted);

void BM_MessageRecord(benchmark::State& state) {
  Bench& bench = Get();
  uint64_t sequence = 0;
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t now = NowTicks();
    bench.ring.Message(bench.queue_pair, {sequence++, now, now, 4096, {}});
  }
}
BENCHMARK(BM_MessageRecord);

// A whole operation, as the host engine records it: four counters and a record, with the stamps it takes.
void BM_WholeOperation(benchmark::State& state) {
  Bench& bench = Get();
  uint64_t sequence = 0;
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t called = NowTicks();
    bench.communicator.Called(bench.info, 0, called);
    bench.communicator.Enqueued(0, NowTicks());
    const uint64_t started = NowTicks();
    bench.communicator.Started(bench.info, 0, started);
    const uint64_t finished = NowTicks();
    bench.communicator.Finished(0, finished);
    bench.ring.Operation(bench.communicator, {sequence++, called, started, finished, bench.info});
  }
  state.counters["events"] = benchmark::Counter(5.0 * static_cast<double>(state.iterations()),
                                                benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_WholeOperation);

}  // namespace
}  // namespace c4

BENCHMARK_MAIN();
