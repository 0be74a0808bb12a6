// Whether the iterations of training jobs are found in their calls: runs of random layouts and events, judged
// against the truth; what a call costs, and what a rank's tracking takes in memory. `failslow_periods [RUNS
// [SEED]]`; exit code 1 when a period is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "analysis/failslow/call_periods.h"
#include "analysis/failslow/period_tracker.h"
#include "benchmarks/call_sequences.h"

namespace c4::benchmarks {
namespace {

using failslow::Iteration;
using failslow::PeriodTracker;

struct EventKind {
  const char* name;
  CallEvents events;
};

std::vector<EventKind> EventKinds() {
  return {{"steady", {.iterations = 40}},
          {"evaluation every 7", {.iterations = 40, .evaluate_every = 7}},
          {"evaluation every 12", {.iterations = 40, .evaluate_every = 12, .evaluate_steps = 15}},
          {"a log every 10", {.iterations = 44, .log_every = 10}},
          {"2 % of sizes change", {.iterations = 16, .changing_sizes = 0.02}},
          {"30 % of sizes change", {.iterations = 16, .changing_sizes = 0.3}},
          {"shape changes", {.iterations = 30, .shape_changes_at = 15}}};
}

struct Outcome {
  bool right = false;
  size_t iterations = 0;  // told with the right time
  size_t expected = 0;
};

Outcome Judge(const CallRun& run) {
  PeriodTracker tracker;
  std::vector<Iteration> iterations;
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    tracker.Add(run.tokens[i], run.times_ns[i]);
    const std::vector<Iteration> now = tracker.Take();
    iterations.insert(iterations.end(), now.begin(), now.end());
  }
  Outcome outcome;
  const uint32_t period = failslow::FindCallPeriods(run.tokens).period;
  outcome.right = period == run.period;

  for (size_t i = 0; i < run.iteration_ns.size(); ++i) {
    if (run.iteration_ns[i] == 0) continue;
    ++outcome.expected;
    // Whichever call of the period is taken: the iteration that begins within this one.
    for (const Iteration& told : iterations) {
      if (told.calls != run.period || told.first_call < run.iteration_begins[i] ||
          told.first_call >= run.iteration_begins[i + 1]) {
        continue;
      }
      ++outcome.iterations;
      break;
    }
  }
  return outcome;
}

double NsACall(const CallRun& run, bool repeat) {
  const clock_t begin = clock();
  uint64_t calls = 0;
  PeriodTracker tracker;
  for (int round = 0; calls < 2'000'000; ++round) {
    for (size_t i = 0; i < run.tokens.size(); ++i) {
      // Without a repetition no period is ever known.
      const uint64_t token = repeat ? run.tokens[i] : run.tokens[i] * 0x9e3779b97f4a7c15ull + calls * calls;
      tracker.Add(token, run.times_ns[i] + round * run.times_ns.back());
      ++calls;
    }
    tracker.Take();
  }
  return 1e9 * static_cast<double>(clock() - begin) / CLOCKS_PER_SEC / static_cast<double>(calls);
}

int Main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;          // NOLINT
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;  // NOLINT
  printf("%d runs a row, seed %llu, 50 to 2,000 calls an iteration\n\n", runs,
         static_cast<unsigned long long>(seed));
  printf("%-24s %-22s %8s %12s\n", "layout", "events", "periods", "iterations");
  int wrong = 0;
  for (int kind = 0; kind < kCallKinds; ++kind) {
    for (const EventKind& event : EventKinds()) {
      int right = 0;
      size_t told = 0;
      size_t expected = 0;
      for (int i = 0; i < runs; ++i) {
        const uint64_t own = seed * 1'000'003 + static_cast<uint64_t>(i) * 101 + static_cast<uint64_t>(kind);
        const size_t least = i % 2 == 0 ? 50 : 400;
        const CallRun run = MakeCallRun(LayoutOfKind(kind, own, least, 2000), event.events, own);
        const Outcome outcome = Judge(run);
        right += outcome.right ? 1 : 0;
        told += outcome.iterations;
        expected += outcome.expected;
      }
      wrong += runs - right;
      printf("%-24s %-22s %4d/%-3d %5.1f %% told\n", CallKindName(kind), event.name, right, runs,
             100.0 * static_cast<double>(told) / static_cast<double>(std::max<size_t>(1, expected)));
    }
  }
  const CallRun run = MakeCallRun(LayoutOfKind(2, seed, 800, 1000), {.iterations = 100}, seed);
  PeriodTracker tracker;
  for (size_t i = 0; i < run.tokens.size(); ++i) tracker.Add(run.tokens[i], run.times_ns[i]);
  const double known_ns = NsACall(run, true);
  const double unknown_ns = NsACall(run, false);
  printf("\na call: %.1f ns with the period known, %.1f ns without one; memory of a rank: %.0f KiB\n",
         known_ns, unknown_ns, static_cast<double>(tracker.MemoryBytes()) / 1024);
  printf("an iteration of 1 s with %u calls: %.5f %% of it, %.5f %% without a period\n", run.period,
         known_ns * run.period / 1e7, unknown_ns * run.period / 1e7);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace c4::benchmarks

int main(int argc, char** argv) {
  return c4::benchmarks::Main(argc, argv);
}
