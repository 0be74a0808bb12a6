#include "benchmarks/perf_common.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/perf_ranks.h"
#include "benchmarks/perf_report.h"

namespace c4::perf {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string Library() {
  int version = 0;
  ncclGetVersion(&version);
  return "NCCL interface " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

// One thread's run, from joining to leaving. All threads of all processes make the same steps.
class Runner {
 public:
  Runner(const Subject& subject, int first_rank)
      : subject_(subject),
        options_(subject.options),
        ranks_(subject, first_rank),
        report_(subject.program, Library(), subject.ranks, subject.options, first_rank != 0) {}

  int Run(const ncclUniqueId& id) {
    ranks_.Join(id);
    std::string error;
    if (!report_.WriteJson(&error)) ranks_.Die(error);  // now, and not after hours
    ranks_.Allocate();
    const std::vector<Pass> passes = Passes(options_, subject_.kind, subject_.ranks);
    const std::vector<size_t> sizes = Sizes(options_);
    for (int64_t cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      for (const Pass& pass : passes) {
        if (cycle == 0 || passes.size() > 1) ranks_.Begin(pass);
        if (cycle == 0) WarmUp(sizes);
        if (cycle == 0 && &pass == passes.data()) report_.Begin();
        for (const size_t bytes : sizes) report_.Add(Measure(pass, bytes));
      }
      if (!report_.EndCycle(&error)) ranks_.Die(error);
    }
    report_.End();
    ranks_.Leave();
    return report_.wrong() == 0 ? 0 : 1;
  }

 private:
  void WarmUp(const std::vector<size_t>& sizes) {
    RunOnce(sizes.front(), false);
    for (const size_t bytes : {sizes.back(), sizes.front()}) {
      for (int i = 0; i < options_.warmup_iterations; ++i) RunOnce(bytes, false);
    }
  }

  void RunOnce(size_t bytes, bool in_place, int times = 1) {
    ranks_.Enqueue(bytes, in_place, times);
    ranks_.Wait();
  }

  Row Measure(const Pass& pass, size_t bytes) {
    const Shape shape = ShapeOf(subject_.kind, bytes, InfoOf(pass.type).bytes, Place{0, subject_.ranks});
    Row row;
    row.bytes = shape.bytes;
    row.count = shape.count;
    row.type = pass.type;
    row.reduction = pass.reduction;
    row.root = pass.root;
    row.out_of_place = MeasureOneWay(bytes, shape.bytes, false);
    row.in_place = MeasureOneWay(bytes, shape.bytes, true);
    return row;
  }

  Measurement MeasureOneWay(size_t bytes, size_t told_bytes, bool in_place) {
    const bool defined = !in_place || TraitsOf(subject_.kind).in_place;
    Measurement result;
    // Repeated in place, sums grow; to infinity in the end, which takes no longer.
    ranks_.Fill(bytes, in_place);
    result.measured = defined || ranks_.TryEnqueue(bytes, in_place);
    if (!result.measured) return result;
    if (defined) ranks_.Enqueue(bytes, in_place, 1);
    ranks_.Wait();
    ranks_.Share(0);
    const double seconds = Combine(ranks_.Share(TimeOne(bytes, in_place)), options_.average);
    result.SetTime(seconds, told_bytes, BusFactor(subject_.kind, subject_.ranks));
    if (options_.check_iterations > 0 && defined) result.wrong = CheckResults(bytes, in_place);
    return result;
  }

  // Mean time of one operation on this thread's ranks.
  double TimeOne(size_t bytes, bool in_place) {
    const double operations = static_cast<double>(options_.iterations) * options_.aggregate;
    if (options_.pause_ms == 0 && !options_.blocking) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < options_.iterations; ++i) ranks_.Enqueue(bytes, in_place, options_.aggregate);
      ranks_.Wait();
      return SecondsSince(start) / operations;
    }
    double seconds = 0;
    for (int i = 0; i < options_.iterations; ++i) {
      const Clock::time_point start = Clock::now();
      RunOnce(bytes, in_place, options_.aggregate);
      seconds += SecondsSince(start);
      if (options_.pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
    return seconds / operations;
  }

  // Elements that came out wrong, over all ranks and checked operations.
  int64_t CheckResults(size_t bytes, bool in_place) {
    int64_t wrong = 0;
    for (int i = 0; i < options_.check_iterations; ++i) {
      ranks_.Fill(bytes, in_place);
      RunOnce(bytes, in_place);
      wrong += ranks_.CountWrong(bytes, in_place);
    }
    // Each rank of this thread tells its part of the thread's number. Carried by the library that may be at
    // fault: nonsense is no reason to believe in zero.
    const std::vector<double> by_rank = ranks_.Share(static_cast<double>(wrong) / options_.ranks_per_thread);
    const double everywhere = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
    if (!std::isfinite(everywhere) || everywhere < static_cast<double>(wrong) * 0.999)
      return std::max<int64_t>(wrong, 1);
    return std::max<int64_t>(std::llround(everywhere), everywhere > 0 ? 1 : 0);
  }

  const Subject& subject_;
  const Options& options_;
  Ranks ranks_;
  Report report_;
};

int Usage(const std::string& program, const std::string& error) {
  fprintf(stderr, "%s: %s (%s --help lists the options)\n", program.c_str(), error.c_str(), program.c_str());
  return 1;
}

int RunThreads(const Subject& subject, int process) {
  ncclUniqueId id;
  const ncclResult_t code = ncclGetUniqueId(&id);
  if (code != ncclSuccess) {
    const char* const sentence = ncclGetLastError(nullptr);
    fprintf(stderr, "%s: %s [%s]\n", subject.program.c_str(), sentence, ncclGetErrorString(code));
    return 1;
  }
  const int ranks_per_thread = subject.options.ranks_per_thread;
  const int threads = subject.options.threads;
  const int first_rank = process * threads * ranks_per_thread;
  if (threads == 1) return Runner(subject, first_rank).Run(id);
  std::vector<int> statuses(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  running.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      statuses[static_cast<size_t>(i)] = Runner(subject, first_rank + i * ranks_per_thread).Run(id);
    });
  }
  for (std::thread& thread : running) thread.join();
  return *std::max_element(statuses.begin(), statuses.end());
}

}  // namespace

int PerfMain(int argc, char** argv, Kind kind, MakeCall make_call) {
  const std::string path = argc > 0 ? argv[0] : TraitsOf(kind).program;
  Subject subject;
  subject.program = path.substr(path.rfind('/') + 1);
  subject.kind = kind;
  subject.make_call = make_call;
  std::string error;
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!ParseOptions(arguments, &subject.options, &error)) return Usage(subject.program, error);
  if (subject.options.help) {
    printf("%s", HelpText(subject.program.c_str()).c_str());
    return 0;
  }
  if (subject.options.version) {
    printf("%s", VersionText(subject.program.c_str()).c_str());
    return 0;
  }
  Place process;
  const auto environment = [](const char* name) -> const char* {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe): before any other thread
  };
  if (!ReadPlace(environment, &process, &error)) return Usage(subject.program, error);
  subject.ranks = process.ranks * subject.options.threads * subject.options.ranks_per_thread;
  error = TraitsOf(kind).rooted ? WhatIsWrongWithRanks(subject.options, subject.ranks) : "";
  if (!error.empty()) return Usage(subject.program, error);
  return RunThreads(subject, process.rank);
}

}  // namespace c4::perf
