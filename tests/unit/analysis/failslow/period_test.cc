#include <gtest/gtest.h>
#include <random>

#include "analysis/failslow/call_periods.h"
#include "benchmarks/call_sequences.h"

namespace c4::failslow {
namespace {

using benchmarks::CallEvents;
using benchmarks::CallLayout;
using benchmarks::CallRun;

std::vector<uint64_t> Repeated(const std::vector<uint64_t>& calls, int times) {
  std::vector<uint64_t> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), calls.begin(), calls.end());
  return all;
}

std::vector<uint64_t> Random(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> calls;
  for (size_t i = 0; i < count; ++i) calls.push_back(random());
  return calls;
}

TEST(CallPeriods, SmallestExactPeriod) {
  EXPECT_EQ(FindCallPeriods(Repeated({1, 2, 3, 2}, 10)).period, 4u);
  EXPECT_EQ(FindCallPeriods(Repeated({7}, 40)).period, 1u);
  EXPECT_EQ(FindCallPeriods(Repeated(Random(1999, 1), 3)).period, 1999u);
}

TEST(CallPeriods, TwoIterationsAreEnoughAndOneIsNot) {
  const CallLayout layout = {.tensor_calls = 4, .micro_batches = 8, .buckets = 5};
  const std::vector<uint64_t> calls = benchmarks::IterationCalls(layout);
  EXPECT_EQ(FindCallPeriods(calls).period, 0u);  // not its micro-batch either
  EXPECT_EQ(FindCallPeriods(Repeated(calls, 2)).period, calls.size());
  EXPECT_EQ(FindCallPeriods(Repeated(calls, 5)).period, calls.size());
}

TEST(CallPeriods, NoneWhereNothingRepeats) {
  EXPECT_EQ(FindCallPeriods({}).period, 0u);
  EXPECT_EQ(FindCallPeriods(Random(5000, 2)).period, 0u);
  EXPECT_EQ(FindCallPeriods(Random(1, 2)).period, 0u);
}

TEST(CallPeriods, MicroBatchesGiveWayToTheirIteration) {
  for (const int micro_batches : {2, 3, 8, 16}) {
    const CallLayout layout = {.layers = 6, .tensor_calls = 4, .micro_batches = micro_batches, .buckets = 3};
    const std::vector<uint64_t> calls = benchmarks::IterationCalls(layout);
    EXPECT_EQ(FindCallPeriods(Repeated(calls, 6)).period, calls.size()) << micro_batches;
  }
}

TEST(CallPeriods, EveryLayoutOfRandomShape) {
  for (int kind = 0; kind < benchmarks::kCallKinds; ++kind) {
    for (uint64_t seed = 500; seed < 504; ++seed) {
      const CallRun run =
          MakeCallRun(benchmarks::LayoutOfKind(kind, seed, 50, 2000), {.iterations = 8}, seed);
      EXPECT_EQ(FindCallPeriods(run.tokens).period, run.period)
          << benchmarks::CallKindName(kind) << " " << seed;
    }
  }
}

TEST(CallPeriods, SizesThatChangeEachTime) {
  for (const double share : {0.02, 0.3}) {
    const CallLayout layout = {.layers = 12, .expert_calls = 2, .micro_batches = 4};
    const CallRun run = MakeCallRun(layout, {.iterations = 12, .changing_sizes = share}, 7);
    EXPECT_EQ(FindCallPeriods(run.tokens).period, run.period) << share;
  }
}

TEST(CallPeriods, BothHalvesOfAPeriodThatChanges) {
  const CallLayout layout = {.layers = 12, .tensor_calls = 4, .micro_batches = 4};
  const CallRun run = MakeCallRun(layout, {.iterations = 30, .shape_changes_at = 10}, 8);
  const CallPeriods found = FindCallPeriods(run.tokens);
  EXPECT_EQ(found.period, run.period);
  ASSERT_GE(found.stretches.size(), 2u);
  EXPECT_EQ(found.stretches.front().period, benchmarks::IterationCalls(layout).size());
}

// Nearly all calls of a long iteration of equal layers repeat with some multiple of a layer as well.
TEST(CallPeriods, OneLayerOverAndOverIsNotTakenForTheIteration) {
  for (const size_t layer : {2, 5}) {
    for (const size_t calls : {500, 1500}) {
      std::vector<uint64_t> iteration = {1};
      while (iteration.size() + layer <= calls - 1) {
        for (size_t i = 0; i < layer; ++i) iteration.push_back(1000 + i);
      }
      while (iteration.size() < calls) iteration.push_back(2);
      EXPECT_EQ(FindCallPeriods(Repeated(iteration, 6)).period, calls) << layer;
    }
  }
}

TEST(CallPeriods, OfTwoOfAboutOneLengthTheOneThatMostCallsHave) {
  for (const uint64_t calls : {64, 341, 1024}) {
    std::vector<uint64_t> before;
    std::vector<uint64_t> after;
    for (uint64_t i = 0; i < calls; ++i) before.push_back(1000 + i);
    for (uint64_t i = 0; i < calls + 2; ++i) after.push_back(i % 3 == 0 ? 70'000 + i : 1000 + i);
    std::vector<uint64_t> all = Repeated(before, 9);
    const std::vector<uint64_t> rest = Repeated(after, 4);
    all.insert(all.end(), rest.begin(), rest.end());
    EXPECT_EQ(FindCallPeriods(all).period, calls);
  }
}

TEST(PeriodTracker, TellsIterationsWithTheirTime) {
  const CallLayout layout = {.layers = 12, .tensor_calls = 4, .micro_batches = 4};
  const CallRun run = MakeCallRun(layout, {.iterations = 40, .noise = 0}, 9);
  PeriodTracker tracker;
  for (size_t i = 0; i < run.tokens.size(); ++i) tracker.Add(run.tokens[i], run.times_ns[i]);
  size_t whole = 0;
  for (const Iteration& iteration : tracker.Take()) {
    if (iteration.calls != run.period) continue;
    ++whole;
    EXPECT_NEAR(static_cast<double>(iteration.duration_ns), static_cast<double>(run.iteration_ns[0]), 2);
  }
  EXPECT_GE(whole, 34u);
}

TEST(PeriodTracker, AnEvaluationHasAnotherShapeAndTrainingItsOwnAgain) {
  const CallLayout layout = {.layers = 12, .tensor_calls = 4, .micro_batches = 2};
  const CallRun run = MakeCallRun(layout, {.iterations = 30, .evaluate_every = 15, .evaluate_steps = 20}, 10);
  PeriodTracker tracker;
  std::vector<Iteration> iterations;
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    tracker.Add(run.tokens[i], run.times_ns[i]);
    for (const Iteration& iteration : tracker.Take()) iterations.push_back(iteration);
  }
  ASSERT_FALSE(iterations.empty());
  EXPECT_EQ(iterations.back().calls, run.period);
  uint64_t training = 0;
  for (const Iteration& iteration : iterations) {
    if (iteration.calls != run.period) continue;
    if (training == 0) training = iteration.shape;
    EXPECT_EQ(iteration.shape, training);
  }
}

TEST(PeriodTracker, TimesThatGoBackAreNotTold) {
  PeriodTracker tracker;
  for (int64_t i = 0; i < 400; ++i) tracker.Add(static_cast<uint64_t>(i % 4), -i);
  EXPECT_TRUE(tracker.Take().empty());
  EXPECT_EQ(tracker.stretch()->period, 4u);
}

TEST(PeriodTracker, BoundedMemoryWhateverComes) {
  PeriodTracker tracker;
  std::mt19937_64 random(11);
  for (int i = 0; i < 200'000; ++i) tracker.Add(random() % 3, i);
  EXPECT_LT(tracker.MemoryBytes(), size_t{1} << 20);
}

}  // namespace
}  // namespace c4::failslow
