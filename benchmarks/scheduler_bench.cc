// What a decision of the queue pair scheduler costs a chunk: where it goes, that it was posted, and that it
// has completed, on 1 to 16 queue pairs. The decision alone has a budget of 50 ns.
#include <benchmark/benchmark.h>
#include <deque>

#include "ccl/transport/scheduler.h"

namespace c4 {
namespace {

constexpr size_t kChunk = 131072;
constexpr size_t kWindow = 4 * kChunk;

// Asks without posting: the decision.
void BM_Pick(benchmark::State& state) {
  const auto queue_pairs = static_cast<int>(state.range(0));
  QpScheduler scheduler(static_cast<size_t>(queue_pairs), kWindow);
  uint64_t now = 10000000000;
  for (int i = 0; i < queue_pairs; ++i) {
    scheduler.Posted(i, kChunk, now);
    scheduler.Completed(i, 1, kChunk, now, now + 100000 + static_cast<uint64_t>(i) * 1000);
    scheduler.Posted(i, kChunk, now);
  }
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(scheduler.Pick(kChunk, ++now));
}
BENCHMARK(BM_Pick)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16);

// A chunk's whole life.
void BM_Chunk(benchmark::State& state) {
  const auto queue_pairs = static_cast<size_t>(state.range(0));
  QpScheduler scheduler(queue_pairs, kWindow);
  std::deque<std::pair<int, uint64_t>> flight;
  uint64_t now = 10000000000;
  for ([[maybe_unused]] auto _ : state) {
    now += 1000;
    const int pick = scheduler.Pick(kChunk, now);
    if (pick != QpScheduler::kNone) {
      scheduler.Posted(pick, kChunk, now);
      flight.emplace_back(pick, now);
    }
    if (flight.size() >= 2 * queue_pairs || pick == QpScheduler::kNone) {
      scheduler.Completed(flight.front().first, 1, kChunk, flight.front().second, now);
      flight.pop_front();
    }
  }
}
BENCHMARK(BM_Chunk)->Arg(1)->Arg(4)->Arg(16);

}  // namespace
}  // namespace c4

BENCHMARK_MAIN();
