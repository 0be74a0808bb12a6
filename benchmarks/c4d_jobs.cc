// c4d_jobs --ranks N --seed S --trials T [--healthy] [--fault KIND] [--json FILE]: precision and recall of
// the master's verdicts over simulated hybrid-parallel jobs with one fault each, in simulated time.
// --healthy: jobs without a fault, with checkpoints now and then. What was not right is printed with all that
// was said. Exit status: 0 it ran, 2 it was called wrongly. The numbers are to be judged by who asks.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/job_trial.h"
#include "nlohmann/json.hpp"

namespace {

using c4::jobsim::FaultKind;

constexpr FaultKind kFaults[] = {FaultKind::kSpin,     FaultKind::kDataLoader,  FaultKind::kKill,
                                 FaultKind::kStop,     FaultKind::kStuckInside, FaultKind::kSlowGpu,
                                 FaultKind::kSlowNode, FaultKind::kSlowTensor};

struct Options {
  uint32_t ranks = 64;
  uint64_t seed = 1;
  uint64_t trials = 80;
  bool healthy = false;
  std::string fault;  // empty: all in turn
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
    if (word == "--healthy") {
      options->healthy = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    uint64_t number = 0;
    if (word == "--ranks" && ReadNumber(value, 16, 16384, &number) && (number & (number - 1)) == 0) {
      options->ranks = static_cast<uint32_t>(number);
    } else if (word == "--seed" && ReadNumber(value, 0, UINT64_MAX, &number)) {
      options->seed = number;
    } else if (word == "--trials" && ReadNumber(value, 1, 1'000'000, &number)) {
      options->trials = number;
    } else if (word == "--json") {
      options->json = value;
    } else if (word == "--fault" && std::any_of(std::begin(kFaults), std::end(kFaults), [&](FaultKind kind) {
                 return c4::jobsim::FaultName(kind) == std::string(value);
               })) {
      options->fault = value;
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
  for (const FaultKind kind : kFaults) {
    if (options.fault == c4::jobsim::FaultName(kind)) return kind;
  }
  return kFaults[trial % std::size(kFaults)];
}

int Run(const Options& options) {
  std::map<std::string, Row> rows;
  uint64_t right = 0;
  uint64_t wrong = 0;
  uint64_t faults = 0;
  for (uint64_t i = 0; i < options.trials; ++i) {
    const uint64_t seed = options.seed + i;
    const FaultKind kind = KindOf(options, i);
    c4::jobsim::Shape shape = c4::benchmarks::DrawShape(options.ranks, seed);
    if (options.healthy) {
      shape.checkpoint_steps = 20 + static_cast<uint32_t>(seed % 40);
      shape.checkpoint_ns = static_cast<int64_t>(2 + seed * 7 % 60) * 1'000'000'000;
    }
    const c4::benchmarks::JobTrial trial = c4::benchmarks::RunJobTrial(shape, kind, seed);
    Row& row = rows[c4::jobsim::FaultName(kind)];
    wrong += trial.wrong;
    if (kind != FaultKind::kNone) {
      ++faults;
      ++row.faults;
      right += trial.right ? 1 : 0;
    }
    row.right += trial.right ? 1 : 0;
    row.ambiguous += trial.right && trial.ambiguous ? 1 : 0;
    if (trial.after_s >= 0) row.seconds.push_back(trial.after_s);
    if (!trial.right || trial.wrong != 0) {
      std::printf("seed %llu, %s, %s engine, tensor %u, pipeline %u, data %u:%s%s\n%s",
                  static_cast<unsigned long long>(seed), c4::jobsim::FaultName(kind),
                  shape.engine == c4::jobsim::Engine::kVendor ? "the vendor's" : "the host's", shape.tensor,
                  shape.pipeline, shape.data, trial.right ? "" : " not found",
                  trial.wrong != 0 ? " wrong" : "", trial.told.c_str());
      std::fflush(stdout);
    }
  }
  const auto share = [](uint64_t part, uint64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(all);
  };
  nlohmann::json by_kind = nlohmann::json::object();
  for (auto& [name, row] : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    by_kind[name] = {{"faults", row.faults},
                     {"right", row.right},
                     {"ambiguous", row.ambiguous},
                     {"median_s", row.seconds.empty() ? nlohmann::json()
                                                      : nlohmann::json(row.seconds[row.seconds.size() / 2])},
                     {"most_s", row.seconds.empty() ? nlohmann::json() : nlohmann::json(row.seconds.back())}};
  }
  const nlohmann::json result = {{"trials", options.trials},
                                 {"faults", faults},
                                 {"precision", share(right, right + wrong)},
                                 {"recall", share(right, faults)},
                                 {"by_kind", by_kind}};
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

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Read(argc, argv, &options)) {
    std::fprintf(stderr,
                 "c4d_jobs --ranks N --seed S --trials T [--healthy] [--fault KIND] [--json FILE]\n"
                 "N: a power of two from 16 to 16384. KIND: spin, data-loader, kill, stop, stuck-inside, "
                 "slow-gpu, slow-node, slow-tensor\n");
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
