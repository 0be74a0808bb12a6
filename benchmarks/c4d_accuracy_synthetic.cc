// c4d_accuracy_synthetic [TRIALS] [FIRST_SEED] [paths] [fail-over]: precision and recall of the master's
// verdicts over simulated jobs with noise, contention and one fault each. paths: C4P tells the paths, and
// only the link itself is right. fail-over: the transport goes around links that are cut, and queue pairs are
// fenced under congestion as well. Prints a table, then one JSON object a line; exit status 1 when precision
// is below 1 or recall below 0.99.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/fault_trial.h"

namespace {

using c4::simulation::Fault;

constexpr Fault kFaults[] = {Fault::kStop,        Fault::kKill,     Fault::kMismatch,   Fault::kCutLink,
                             Fault::kCutNic,      Fault::kSlowLink, Fault::kSlowNic,    Fault::kSlowRank,
                             Fault::kLostNode,    Fault::kNone,     Fault::kCheckpoint, Fault::kEvaluation,
                             Fault::kAgentSilent, Fault::kJitter,   Fault::kHiccups};
// The last one needs fail-over.
size_t FaultCount(bool fail_over) {
  return std::size(kFaults) - (fail_over ? 0 : 1);
}

struct Row {
  int trials = 0;
  int found = 0;
  size_t wrong = 0;
  int left_open = 0;
  int ambiguous = 0;
  std::vector<double> seconds;
};

c4::simulation::TrainingShape ShapeOf(uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x5eed);
  c4::simulation::TrainingShape shape;
  shape.data = 3 + static_cast<uint32_t>(random() % 4);
  shape.pipeline = 1 + static_cast<uint32_t>(random() % 3);
  shape.queue_pairs = 2 + static_cast<uint32_t>(random() % 3);
  shape.noise = 0.15 + 0.02 * static_cast<double>(random() % 10);
  shape.contention = 0.2 + 0.04 * static_cast<double>(random() % 10);
  return shape;
}

}  // namespace

int main(int argc, char** argv) {
  char* end = nullptr;
  const long trials = argc > 1 ? std::strtol(argv[1], &end, 10) : 1000;
  const bool trials_read = argc <= 1 || (end != argv[1] && *end == '\0');
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], &end, 10) : 1;
  const bool first_read = argc <= 2 || (end != argv[2] && *end == '\0');
  bool paths = false;
  bool fail_over = false;
  bool words_read = true;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    paths = paths || word == "paths";
    fail_over = fail_over || word == "fail-over";
    words_read = words_read && (word == "paths" || word == "fail-over");
  }
  if (!words_read || trials <= 0 || !trials_read || !first_read) {
    std::fprintf(stderr,
                 "c4d_accuracy_synthetic [TRIALS] [FIRST_SEED] [paths] [fail-over]\n"
                 "precision and recall over simulated jobs with one fault each (1000 trials from seed 1)\n");
    return 2;
  }
  if (std::freopen("/dev/null", "w", stderr) == nullptr) return 2;  // the master's log of every verdict
  std::map<Fault, Row> rows;
  size_t right = 0;
  size_t wrong = 0;
  size_t expected = 0;
  uint64_t seed = first;
  for (long done = 0; done < trials; ++seed) {
    const Fault fault = kFaults[static_cast<size_t>(seed) % FaultCount(fail_over)];
    c4::simulation::TrainingShape shape = ShapeOf(seed);
    shape.fail_over = fail_over;
    shape.steered = paths;
    const c4::simulation::TrialResult result = c4::simulation::RunTrial(fault, shape, seed, paths);
    if (!result.applicable) continue;
    ++done;
    Row& row = rows[fault];
    ++row.trials;
    row.wrong += result.wrong;
    row.left_open += result.cleared ? 0 : 1;
    row.found += result.found ? 1 : 0;
    row.ambiguous += result.found && result.ambiguous ? 1 : 0;
    wrong += result.wrong;
    if (result.confirmed_after_s >= 0) row.seconds.push_back(result.confirmed_after_s);
    // Without paths a link that the transport goes around is no fault to be told of.
    const bool is_fault = fault <= Fault::kLostNode && fault != Fault::kNone &&
                          !(fault == Fault::kCutLink && fail_over && !paths);
    expected += is_fault ? 1 : 0;
    right += is_fault && result.found ? 1 : 0;
    if (!result.found || result.wrong != 0 || !result.cleared) {
      std::printf("seed %llu %s:%s%s%s\n%s", static_cast<unsigned long long>(seed),
                  c4::simulation::FaultName(fault), result.found ? "" : " not found",
                  result.wrong != 0 ? " wrong" : "", result.cleared ? "" : " left open", result.told.c_str());
    }
  }
  std::printf("%-14s %7s %7s %9s %7s %10s %10s %10s\n", "fault", "trials", "right", "ambiguous", "wrong",
              "left open", "median s", "longest s");

  for (auto& [fault, row] : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    const double median = row.seconds.empty() ? 0 : row.seconds[row.seconds.size() / 2];
    const double longest = row.seconds.empty() ? 0 : row.seconds.back();
    std::printf("%-14s %7d %7d %9d %7zu %10d %10.2f %10.2f\n", c4::simulation::FaultName(fault), row.trials,
                row.found, row.ambiguous, row.wrong, row.left_open, median, longest);
  }
  const double precision =
      right + wrong == 0 ? 1 : static_cast<double>(right) / static_cast<double>(right + wrong);
  const double recall = expected == 0 ? 1 : static_cast<double>(right) / static_cast<double>(expected);
  std::printf(
      "{\"trials\":%ld,\"first_seed\":%llu,\"faults\":%zu,\"right\":%zu,\"wrong\":%zu,\"precision\":%.4f,"
      "\"recall\":%.4f}\n",
      trials, static_cast<unsigned long long>(first), expected, right, wrong, precision, recall);
  return precision < 1 || recall < 0.99 ? 1 : 0;
}
