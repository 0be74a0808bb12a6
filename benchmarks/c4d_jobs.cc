// c4d_jobs --ranks N[,N..|..N] --seed S --trials T [--healthy [--busy] [--seconds D] [--whole]] [--fault
// KIND]
// [--jobs J] [--verbose] [--json FILE]: precision and recall of the master's verdicts over simulated
// hybrid-parallel jobs with one fault each, in simulated time.
// --healthy: jobs without a fault, with all that their life brings, D simulated seconds each (86400: a day).
// --busy: something happens every some minutes. --whole: nothing of quiet time is skipped. --jobs: threads.
// What was not right is printed with all that was said, and how to see it again. docs/jobsim.md has the kinds
// and what counts as right. Exit status: 0 it ran, 2 it was called wrongly. The numbers are to be judged by
// who asks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "benchmarks/job_trial.h"
#include "fabric/jobsim/dice.h"
#include "nlohmann/json.hpp"

namespace {

using c4::jobsim::FaultKind;

constexpr auto kKinds = static_cast<uint64_t>(FaultKind::kCount) - 1;  // without "none"
constexpr uint64_t kLeastRanks = 8;
constexpr uint64_t kMostRanks = 16384;

struct Options {
  std::vector<uint32_t> ranks = {64};  // all kinds with one of them, then with the next
  bool range = false;                  // anything between the two
  uint64_t seed = 1;
  uint64_t trials = 4 * kKinds;
  uint64_t jobs = 1;
  bool healthy = false;
  bool verbose = false;
  c4::benchmarks::HealthyOptions life;
  FaultKind fault = FaultKind::kNone;  // all in turn
  std::string json;
  std::string at_fault;  // what is not understood
};

bool ReadNumber(const std::string& text, uint64_t least, uint64_t most, uint64_t* value) {
  char* end = nullptr;
  *value = std::strtoull(text.c_str(), &end, 10);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && *end == '\0' && *value >= least && *value <= most;
}

bool ReadRanks(const std::string& text, Options* options) {
  const size_t dots = text.find("..");
  options->range = dots != std::string::npos;
  options->ranks.clear();
  for (size_t from = 0; from <= text.size();) {
    const size_t to =
        options->range ? (from == 0 ? dots : text.size()) : std::min(text.find(',', from), text.size());
    uint64_t number = 0;
    if (!ReadNumber(text.substr(from, to - from), kLeastRanks, kMostRanks, &number)) return false;
    options->ranks.push_back(static_cast<uint32_t>(number));
    from = to + (options->range && from == 0 ? 2 : 1);
  }
  return !options->range || (options->ranks.size() == 2 && options->ranks[0] <= options->ranks[1]);
}

bool ReadFlag(const std::string& word, Options* options) {
  if (word == "--healthy") return options->healthy = true;
  if (word == "--verbose") return options->verbose = true;
  if (word == "--busy") return options->life.busy = true;
  if (word == "--whole") return !(options->life.skip = false);
  return false;
}

bool Read(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (ReadFlag(word, options)) continue;
    options->at_fault = word + (i + 1 == argc ? "" : " " + std::string(argv[i + 1]));
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    uint64_t number = 0;
    if (word == "--ranks" && ReadRanks(value, options)) {
      continue;
    } else if (word == "--seed" && ReadNumber(value, 0, UINT64_MAX, &number)) {
      options->seed = number;
    } else if (word == "--trials" && ReadNumber(value, 1, 1'000'000, &number)) {
      options->trials = number;
    } else if (word == "--seconds" && ReadNumber(value, 60, 10'000'000, &number)) {
      options->life.lasts_s = static_cast<double>(number);
    } else if (word == "--jobs" && ReadNumber(value, 1, 256, &number)) {
      options->jobs = number;
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

FaultKind KindOf(const Options& options, uint64_t trial) {
  if (options.healthy) return FaultKind::kNone;
  if (options.fault != FaultKind::kNone) return options.fault;
  return static_cast<FaultKind>(1 + trial % kKinds);
}

uint32_t RanksOf(const Options& options, uint64_t trial) {
  if (options.range) {
    const uint64_t chance = c4::jobsim::Mix({options.seed + trial, 0x5a4c5});
    return static_cast<uint32_t>(c4::jobsim::LogBetween(chance, options.ranks[0], options.ranks[1] + 0.99));
  }
  const bool all_kinds = !options.healthy && options.fault == FaultKind::kNone;
  return options.ranks[(all_kinds ? trial / kKinds : trial) % options.ranks.size()];
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

struct Row {
  uint64_t faults = 0;
  uint64_t right = 0;
  uint64_t ambiguous = 0;
  uint64_t wrong = 0;
  std::vector<double> seconds;
};

using Rows = std::map<std::string, Row>;  // by kind

nlohmann::json ToJson(Rows* rows) {
  nlohmann::json by_kind = nlohmann::json::object();
  for (auto& [name, row] : *rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    const bool none = row.seconds.empty();
    by_kind[name] = {
        {"faults", row.faults},
        {"right", row.right},
        {"ambiguous", row.ambiguous},
        {"wrong", row.wrong},
        {"median_s", none ? nlohmann::json() : nlohmann::json(row.seconds[row.seconds.size() / 2])},
        {"most_s", none ? nlohmann::json() : nlohmann::json(row.seconds.back())}};
  }
  return by_kind;
}

class Sums {
 public:
  explicit Sums(const Options& options) : options_(options) {}

  void Run(uint64_t number) {
    const FaultKind kind = KindOf(options_, number);
    const uint32_t ranks = RanksOf(options_, number);
    const uint64_t seed = options_.seed + number;
    c4::jobsim::Shape shape;
    c4::jobsim::Fault fault;
    c4::benchmarks::JobTrial trial;
    if (options_.healthy) {
      trial = c4::benchmarks::RunHealthyTrial(ranks, seed, options_.life);
    } else {
      c4::benchmarks::DrawTrial(ranks, kind, seed, &shape, &fault);
      trial = c4::benchmarks::RunJobTrial(shape, fault, seed);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Add(kind, shape.engine, trial);
    if (!options_.verbose && trial.right && trial.wrong == 0) return;
    const std::string name(c4::jobsim::FaultName(kind));
    std::printf(
        "--ranks %u --seed %llu --trials 1 %s%s:%s%s; %s\n%s", ranks, static_cast<unsigned long long>(seed),
        options_.healthy ? "--healthy" : ("--fault " + name).c_str(), options_.life.busy ? " --busy" : "",
        trial.right ? "" : " not right", trial.wrong != 0 ? " wrong" : "",
        options_.healthy ? "nothing is wrong with it" : Describe(shape, fault).c_str(), trial.told.c_str());
    std::fflush(stdout);
  }

  nlohmann::json Result(double wall_s);

 private:
  void Add(FaultKind kind, c4::jobsim::Engine engine, const c4::benchmarks::JobTrial& trial) {
    const std::string name(c4::jobsim::FaultName(kind));
    const char* const of = engine == c4::jobsim::Engine::kVendor ? "vendor" : "host";
    Add(kind, trial, &rows_[name]);
    if (!options_.healthy) Add(kind, trial, &engines_[of][name]);
    ++trials_;
    wrong_ += trial.wrong;
    simulated_s_ += trial.simulated_s;
    judged_s_ += trial.judged_s;
    if (c4::jobsim::IsHarmless(kind)) return;
    ++faults_;
    right_ += trial.right ? 1 : 0;
  }

  static void Add(FaultKind kind, const c4::benchmarks::JobTrial& trial, Row* row) {
    row->faults += c4::jobsim::IsHarmless(kind) ? 0 : 1;
    row->right += trial.right ? 1 : 0;
    row->ambiguous += trial.right && trial.ambiguous ? 1 : 0;
    row->wrong += trial.wrong;
    if (trial.after_s >= 0) row->seconds.push_back(trial.after_s);
  }

  const Options& options_;
  std::mutex mutex_;
  Rows rows_;
  std::map<std::string, Rows> engines_;
  uint64_t trials_ = 0;
  uint64_t right_ = 0;
  uint64_t wrong_ = 0;
  uint64_t faults_ = 0;
  double simulated_s_ = 0;
  double judged_s_ = 0;
};

nlohmann::json Sums::Result(double wall_s) {
  const auto share = [](uint64_t part, uint64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(all);
  };
  nlohmann::json engines = nlohmann::json::object();
  for (auto& [engine, rows] : engines_) engines[engine] = ToJson(&rows);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {{"trials", trials_},
          {"faults", faults_},
          {"precision", share(right_, right_ + wrong_)},
          {"recall", share(right_, faults_)},
          {"wrong", wrong_},
          {"by_kind", ToJson(&rows_)},
          {"by_engine", engines},
          {"simulated_s", simulated_s_},
          {"judged_s", judged_s_},
          {"wall_s", wall_s},
          {"peak_mib", usage.ru_maxrss / 1024}};
}

// Nothing where no file is named. False, with a sentence, where it cannot be.
bool Write(const nlohmann::json& result, const std::string& name, const char* mode) {
  if (name.empty()) return true;
  FILE* file = std::fopen(name.c_str(), mode);
  const std::string text = result.is_null() ? "" : result.dump(2) + "\n";
  const bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if (file != nullptr && std::fclose(file) == 0 && written) return true;
  std::printf("cannot write %s: name a file in a folder that can be written\n", name.c_str());
  return false;
}

int Run(const Options& options) {
  if (!Write(nlohmann::json(), options.json, "a")) return 2;  // told before hours are spent
  const auto begin = std::chrono::steady_clock::now();
  Sums sums(options);
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    for (uint64_t i = next++; i < options.trials; i = next++) sums.Run(i);
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < options.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const nlohmann::json result = sums.Result(wall.count());
  std::printf("%s\n", result.dump(2).c_str());
  return Write(result, options.json, "w") ? 0 : 2;
}

void Explain(const std::string& at_fault) {
  std::fprintf(stderr, "\"%s\" is not understood: call it as follows\n", at_fault.c_str());
  std::fprintf(
      stderr,
      "c4d_jobs --ranks N|N,N..|N..N --seed S --trials T [--healthy [--busy] [--seconds D] [--whole]]\n"
      "  [--fault KIND] [--jobs J] [--verbose] [--json FILE]\nN: from 8 to 16384. KIND:");
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
    Explain(options.at_fault);
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
