// Whether the changes of iteration times are found: seeded series with the truth, and a file of times in
// which nothing changes, by our detection and by what it is compared with. `failslow_changes [SERIES [SEED
// [TIMES...]]]`; exit code 1 below 99.5 % of series right, with a false alarm, or with a step told more than
// three iterations late.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>

#include "analysis/failslow/change_detector.h"
#include "benchmarks/change_baselines.h"
#include "benchmarks/iteration_series.h"

namespace c4::benchmarks {
namespace {

constexpr uint64_t kNear = 2;  // iterations that a change may be told off its place
constexpr uint64_t kLatest = 3;

struct Tally {
  int series = 0;
  int right = 0;
  int changes = 0;
  int missed = 0;
  int false_alarms = 0;
  int healthy_wrong = 0;
  std::vector<uint64_t> delays;
};

// Every change found once, near its place, and nothing else. A creep is found anywhere in it, and more than
// once.
void Judge(const IterationSeries& series, const std::vector<PlainChange>& found, Tally* tally) {
  std::vector<bool> used(found.size(), false);
  int missed = 0;
  for (const TrueChange& change : series.changes) {
    bool seen = false;
    for (size_t i = 0; i < found.size(); ++i) {
      const bool creep = change.until > change.iteration;
      const uint64_t before = creep ? (change.until - change.iteration) / 2 + 10 : kNear;
      const bool near =
          found[i].iteration + before >= change.iteration && found[i].iteration <= change.until + kNear;
      if (!near || used[i] || (seen && !creep)) continue;
      used[i] = true;
      if (!seen && !creep)
        tally->delays.push_back(found[i].told_at - std::min(found[i].told_at, change.iteration));
      seen = true;
    }
    if (!seen) ++missed;
  }
  const auto wrong = static_cast<int>(std::count(used.begin(), used.end(), false));
  ++tally->series;
  tally->changes += static_cast<int>(series.changes.size());
  tally->missed += missed;
  tally->false_alarms += wrong;
  if (series.kind == SeriesKind::kHealthy && wrong > 0) ++tally->healthy_wrong;
  const bool right = missed == 0 && wrong == 0;
  tally->right += right ? 1 : 0;
}

// All that was ever suspected, the withdrawn too: an alarm is an alarm.
std::vector<PlainChange> OurChanges(std::span<const double> times_s) {
  failslow::ChangeDetector detector;
  std::map<uint64_t, PlainChange> found;
  const auto take = [&detector, &found] {
    for (const failslow::ChangeNews& news : detector.Take()) {
      found[news.number] = {.iteration = news.change.iteration, .told_at = news.change.told_at};
    }
  };
  for (const double time_s : times_s) {
    detector.Add(time_s);
    take();
  }
  detector.Finish();
  take();
  std::vector<PlainChange> changes;
  for (const auto& [number, change] : found) changes.push_back(change);
  return changes;
}

std::vector<PlainChange> OurConfirmed(std::span<const double> times_s) {
  std::vector<PlainChange> changes;
  for (const failslow::Change& change : failslow::FindChanges(times_s)) {
    changes.push_back({.iteration = change.iteration, .told_at = change.told_at});
  }
  return changes;
}

using Method = std::function<std::vector<PlainChange>(std::span<const double>)>;

void Print(const char* name, const Tally& tally) {
  std::vector<uint64_t> delays = tally.delays;
  std::sort(delays.begin(), delays.end());
  const auto late = static_cast<int>(
      std::count_if(delays.begin(), delays.end(), [](uint64_t delay) { return delay > kLatest; }));
  printf("%-26s %6.1f %% (%d/%d) %8d %8d/%-6d", name, 100.0 * tally.right / std::max(1, tally.series),
         tally.right, tally.series, tally.false_alarms, tally.missed, tally.changes);
  if (!delays.empty()) {
    printf(" %6llu %6llu %6d", static_cast<unsigned long long>(delays[delays.size() / 2]),
           static_cast<unsigned long long>(delays.back()), late);
  }
  printf("\n");
}

std::vector<double> ReadTimes(const char* path) {
  std::ifstream file(path);
  std::vector<double> times;
  for (double time_s = 0; file >> time_s;) times.push_back(time_s);
  return times;
}

int Main(int argc, char** argv) {
  const int count = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;       // NOLINT
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;  // NOLINT
  const std::vector<IterationSeries> set = MakeSeriesSet(count, seed);
  const std::pair<const char*, Method> methods[] = {{"sliding window", SlidingWindowChanges},
                                                    {"BOCD", PlainBayesianChanges},
                                                    {"BOCD, verified: suspected", OurChanges},
                                                    {"BOCD, verified", OurConfirmed}};
  printf("%d series, seed %llu\n\n%-26s %18s %8s %15s %6s %6s %6s\n", count,
         static_cast<unsigned long long>(seed), "", "series right", "false", "missed", "delay", "worst",
         "late");
  bool good = true;
  for (const auto& [name, method] : methods) {
    Tally all;
    std::map<SeriesKind, Tally> by_kind;
    const clock_t begin = clock();
    size_t iterations = 0;
    for (const IterationSeries& series : set) {
      const std::vector<PlainChange> found = method(series.times_s);
      iterations += series.times_s.size();
      Judge(series, found, &all);
      Judge(series, found, &by_kind[series.kind]);
    }
    const double us =
        1e6 * static_cast<double>(clock() - begin) / CLOCKS_PER_SEC / static_cast<double>(iterations);
    Print(name, all);
    const bool ours = name == methods[3].first;
    if (!ours) continue;
    for (const auto& [kind, tally] : by_kind) Print(SeriesKindName(kind), tally);
    printf("%.2f us an iteration\n", us);
    const bool late =
        std::any_of(all.delays.begin(), all.delays.end(), [](uint64_t delay) { return delay > kLatest; });
    good = all.right >= 0.995 * all.series && all.false_alarms == 0 && !late;
  }
  for (int i = 3; i < argc; ++i) {
    const std::vector<double> times = ReadTimes(argv[i]);
    printf("%s, %zu iterations, changes told:", argv[i], times.size());
    for (const auto& [name, method] : methods) printf(" %s %zu;", name, method(times).size());
    printf("\n");
    good = good && !times.empty() && OurConfirmed(times).empty();
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace c4::benchmarks

int main(int argc, char** argv) {
  return c4::benchmarks::Main(argc, argv);
}
