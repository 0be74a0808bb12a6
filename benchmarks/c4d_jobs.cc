// c4d_jobs --ranks N --seed S --trials T [--healthy [--seconds D]] [--fault KIND] [--json FILE]: precision
// and recall of the master's verdicts over simulated hybrid-parallel jobs with one fault each, in simulated
// time.
// --healthy: jobs without a fault, with all that their life brings, each watched for D simulated seconds
// (3600). --report-ms: how often agents look (250); they report as the master of a job of that size asks, or,
// with --per-host-ms P, as one asks that wants to hear every P ms for each host (0: every look). What was not
// right is printed with all that was said. docs/jobsim.md has the kinds and what counts as right. Exit
// status: 0 it ran, 2 it was called wrongly. The numbers are to be judged by who asks.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "benchmarks/job_trial.h"
#include "nlohmann/json.hpp"

namespace {

using c4::jobsim::FaultKind;

constexpr auto kKinds = static_cast<uint64_t>(FaultKind::kCount) - 1;  // without "none"

struct Options {
  uint32_t ranks = 64;
  uint64_t seed = 1;
  uint64_t trials = 4 * kKinds;
  bool healthy = false;
  bool verbose = false;
  uint64_t seconds = 3600;
  uint64_t report_ms = 250;
  uint64_t per_host_ms = c4::c4d::Hearing::kPerHostNs / 1'000'000;
  FaultKind fault = FaultKind::kNone;  // all in turn
  std::string json;
};

bool ReadNumber(const char* text, uint64_t least, uint64_t most, uint64_t* value) {
  char* end = nullptr;
  *value = std::strtoull(text, &end, 10);
  return end != text && *end == '\0' && *text != '-' && *value >= least && *value <= most;
}

bool Read(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--healthy" || word == "--verbose") {
      (word == "--healthy" ? options->healthy : options->verbose) = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    uint64_t number = 0;
    if (word == "--ranks" && ReadNumber(value, 8, 16384, &number)) {
      options->ranks = static_cast<uint32_t>(number);
    } else if (word == "--seed" && ReadNumber(value, 0, UINT64_MAX, &number)) {
      options->seed = number;
    } else if (word == "--trials" && ReadNumber(value, 1, 1'000'000, &number)) {
      options->trials = number;
    } else if (word == "--seconds" && ReadNumber(value, 60, 10'000'000, &number)) {
      options->seconds = number;
    } else if (word == "--report-ms" && ReadNumber(value, 50, 5'000, &number)) {
      options->report_ms = number;
    } else if (word == "--per-host-ms" && ReadNumber(value, 0, 10'000, &number)) {
      options->per_host_ms = number;
    } else if (word == "--json") {
      options->json = value;
    } else if (word == "--fault" && c4::jobsim::FaultOf(value).has_value()) {
      options->fault = *c4::jobsim::FaultOf(value);
    } else {
      return false;
    }
  }
  return true;
}

struct Row {
  uint64_t faults = 0;
  uint64_t right = 0;
  uint64_t ambiguous = 0;
  std::vector<double> seconds;
};

FaultKind KindOf(const Options& options, uint64_t trial) {
  if (options.healthy) return FaultKind::kNone;
  if (options.fault != FaultKind::kNone) return options.fault;
  return static_cast<FaultKind>(1 + trial % kKinds);
}

std::string Describe(const c4::jobsim::Shape& shape, const c4::jobsim::Fault& fault) {
  char text[400];
  std::snprintf(
      text, sizeof text,
      "%s engine, tensor %u, pipeline %u, data %u, expert %u%s, %u ranks and %u NICs a node, rank %u "
      "from %.1f s, factor %.1f, launcher %s",
      shape.engine == c4::jobsim::Engine::kVendor ? "the vendor's" : "the host's", shape.tensor,
      shape.pipeline, shape.data, shape.expert, shape.zero ? ", ZeRO" : "", shape.ranks_per_node,
      shape.nics_per_node, fault.rank,
      fault.at_ns >= c4::jobsim::kNeverNs ? 0 : static_cast<double>(fault.at_ns) / 1e9, fault.factor,
      std::string(c4::jobsim::LauncherName(fault.launcher)).c_str());
  return text;
}

struct Sums {
  std::map<std::string, Row> rows;
  uint64_t right = 0;
  uint64_t wrong = 0;
  uint64_t faults = 0;
  double simulated_s = 0;
  uint64_t batches = 0;
};

void Take(const Options& options, uint64_t seed, FaultKind kind, Sums* sums) {
  c4::jobsim::Shape shape;
  c4::jobsim::Fault fault;
  c4::benchmarks::JobTrial trial;
  const auto per_host_ns = static_cast<int64_t>(options.per_host_ms) * 1'000'000;
  if (options.healthy) {
    trial = c4::benchmarks::RunHealthyTrial(options.ranks, seed, static_cast<double>(options.seconds),
                                            static_cast<int64_t>(options.report_ms) * 1'000'000, per_host_ns);
  } else {
    c4::benchmarks::DrawTrial(options.ranks, kind, seed, &shape, &fault);
    trial = c4::benchmarks::RunJobTrial(shape, fault, seed, per_host_ns);
  }
  const std::string name(c4::jobsim::FaultName(kind));
  Row& row = sums->rows[name];
  sums->wrong += trial.wrong;
  sums->simulated_s += trial.simulated_s;
  sums->batches += trial.batches;
  if (!c4::jobsim::IsHarmless(kind)) {
    ++sums->faults;
    ++row.faults;
    sums->right += trial.right ? 1 : 0;
  }
  row.right += trial.right ? 1 : 0;
  row.ambiguous += trial.right && trial.ambiguous ? 1 : 0;
  if (trial.after_s >= 0) row.seconds.push_back(trial.after_s);
  if (!options.verbose && trial.right && trial.wrong == 0) return;
  std::printf("seed %llu, %s, %s:%s%s\n%s", static_cast<unsigned long long>(seed), name.c_str(),
              options.healthy ? "healthy" : Describe(shape, fault).c_str(), trial.right ? "" : " not right",
              trial.wrong != 0 ? " wrong" : "", trial.told.c_str());
  std::fflush(stdout);
}

nlohmann::json ResultOf(const Options& options, Sums* sums, double wall_s) {
  const auto share = [](uint64_t part, uint64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(all);
  };
  nlohmann::json by_kind = nlohmann::json::object();
  for (auto& [name, row] : sums->rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    by_kind[name] = {{"faults", row.faults},
                     {"right", row.right},
                     {"ambiguous", row.ambiguous},
                     {"median_s", row.seconds.empty() ? nlohmann::json()
                                                      : nlohmann::json(row.seconds[row.seconds.size() / 2])},
                     {"most_s", row.seconds.empty() ? nlohmann::json() : nlohmann::json(row.seconds.back())}};
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {{"trials", options.trials},
          {"faults", sums->faults},
          {"precision", share(sums->right, sums->right + sums->wrong)},
          {"recall", share(sums->right, sums->faults)},
          {"by_kind", by_kind},
          {"simulated_s", sums->simulated_s},
          {"batches", sums->batches},
          {"wall_s", wall_s},
          {"peak_mib", usage.ru_maxrss / 1024}};
}

int Run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  Sums sums;
  for (uint64_t i = 0; i < options.trials; ++i) Take(options, options.seed + i, KindOf(options, i), &sums);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const nlohmann::json result = ResultOf(options, &sums, wall.count());
  std::printf("%s\n", result.dump(2).c_str());
  if (options.json.empty()) return 0;
  FILE* file = std::fopen(options.json.c_str(), "w");
  const bool written = file != nullptr && std::fputs((result.dump(2) + "\n").c_str(), file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !written) {
    std::printf("cannot write %s: name a file in a folder that can be written\n", options.json.c_str());
    return 2;
  }
  return 0;
}

void Explain() {
  std::fprintf(
      stderr,
      "c4d_jobs --ranks N --seed S --trials T [--healthy [--seconds D]] [--fault KIND] [--report-ms R] "
      "[--per-host-ms P] "
      "[--verbose] [--json FILE]\nN: from 8 to 16384. KIND:");
  for (uint64_t i = 1; i <= kKinds; ++i) {
    std::fprintf(stderr, "%s %s", i == 1 ? "" : ",",
                 std::string(c4::jobsim::FaultName(static_cast<FaultKind>(i))).c_str());
  }
  std::fprintf(stderr, "\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Read(argc, argv, &options)) {
    Explain();
    return 2;
  }
  if (std::freopen("/dev/null", "w", stderr) == nullptr) return 2;  // the master's log of every verdict
  try {
    return Run(options);
  } catch (const std::exception& fault) {
    std::printf("%s\n", fault.what());
    return 2;
  }
}
