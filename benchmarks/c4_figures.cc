// The C4 paper's figures 9a and 11 on the emulated fabric (docs/benchmarks.md): jobs of two ranks whose
// traffic all goes over the spines, with ECMP and with C4P's paths, beside raw flows that are placed by hand
// with the kernel's own oracle, all in one run. 9a: eight jobs, as much uplink as NICs. 11: an uplink dies in
// silence under load. Exit code 1 when a target is missed, 2 when nothing could be measured, 3 when the
// processors were the limit. Needs root.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/statistics.h"
#include "cli/base/process.h"
#include "cli/base/processors.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/raw_flow.h"

namespace c4 {
namespace {

constexpr char kUsage[] =
    "c4-figures 9a|11 [--json FILE] [--seconds N] [--rate MBPS]\n"
    "the C4 paper's figures on an emulated fabric of 4 leaves, 4 spines and 16 hosts\n";

constexpr int kJobs = 8;
constexpr double kRateMbps = 110;       // of each link: two processors carry that
constexpr double kSecondsARound = 0.7;  // about, of an all-reduce
// Four queue pairs of a host have no more in flight than the queue of a port takes.
constexpr char kChunkBytes[] = "C4_CHUNK_BYTES=32768";
constexpr char kWindowBytes[] = "C4_WINDOW_BYTES=65536";
constexpr double kMostBusy = 0.7;  // of the processors; above, they are the limit
constexpr double kSettleS = 8;     // until paths are learnt and taken, and windows have opened
constexpr int kRawWarmMs = 1500;
constexpr int kRawMs = 6000;
constexpr int kFirstPort = 20000;
constexpr int kRawPort = 5201;
constexpr int kRootPort = 31000;
constexpr char kCutLink[] = "leaf0-spine1";
constexpr int kCutLeaf = 0;
constexpr int kCutSpine = 1;
constexpr double kNineWorst = 0.97;
constexpr double kNineSpread = 0.02;
constexpr double kElevenLeast = 0.96;

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Job j's ranks are on hosts j and j + 8: never under one leaf.
int HostOf(int job, int rank) {
  return job + rank * kJobs;
}

// `flows` from one host to another, each over a spine of `spines`, in turn.
absl::Status Place(const fabric::FabricSpec& spec, int from, int to, const std::vector<int>& spines,
                   std::vector<fabric::FiveTuple>* placed) {
  std::vector<fabric::FiveTuple> candidates;
  candidates.reserve(64 * spines.size());
  for (int i = 0; i < 64 * static_cast<int>(spines.size()); ++i) {
    candidates.push_back({.source = fabric::HostPortAddress(spec, from, 0),
                          .source_port = kFirstPort + i,
                          .destination = fabric::HostPortAddress(spec, to, 0),
                          .destination_port = kRawPort + i % static_cast<int>(spines.size())});
  }
  const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec, candidates);
  if (!paths.ok()) return paths.status();
  for (size_t flow = 0; flow < spines.size(); ++flow) {
    const int port = kRawPort + static_cast<int>(flow);
    size_t i = 0;
    while (i < candidates.size() &&
           ((*paths)[i].spine != spines[flow] || candidates[i].destination_port != port)) {
      ++i;
    }
    if (i == candidates.size())
      return absl::NotFoundError("no source port leads over the spine that is wanted");
    placed->push_back(candidates[i]);
  }
  return absl::OkStatus();
}

bool IsConcerned(const fabric::FabricSpec& spec, int job) {
  return fabric::LeafOfHost(spec, HostOf(job, 0), 0) == kCutLeaf ||
         fabric::LeafOfHost(spec, HostOf(job, 1), 0) == kCutLeaf;
}

// What a job could get on average: Mbit/s of the slower direction of raw flows of all jobs at a time over all
// spines; or, `without_cut`, of the jobs under the leaf of the link that is cut, without that link. Shares of
// single flows differ for seconds, their sum does not.
absl::StatusOr<double> MeasureIdeal(const fabric::FabricSpec& spec, bool without_cut) {
  std::vector<fabric::FiveTuple> placed;
  std::vector<std::pair<int, int>> whose;  // job, direction
  for (int job = 0; job < kJobs; ++job) {
    for (int rank = 0; rank < 2; ++rank) {
      const int from = HostOf(job, rank);
      const int to = HostOf(job, 1 - rank);
      std::vector<int> spines;
      for (int spine = 0; spine < spec.spines; ++spine) {
        if (!(without_cut && IsConcerned(spec, job) && spine == kCutSpine)) spines.push_back(spine);
      }
      if (absl::Status fault = Place(spec, from, to, spines, &placed); !fault.ok()) return fault;
      whose.resize(placed.size(), {job, rank});
    }
  }
  const absl::StatusOr<std::vector<double>> mbps = fabric::GoodputOf(spec, placed, kRawWarmMs, kRawMs);
  if (!mbps.ok()) return mbps.status();
  double directions[2] = {};
  std::set<int> counted;
  for (size_t i = 0; i < placed.size(); ++i) {
    const auto [job, direction] = whose[i];
    if (without_cut && !IsConcerned(spec, job)) continue;
    directions[direction] += (*mbps)[i];
    counted.insert(job);
  }
  return std::min(directions[0], directions[1]) / static_cast<double>(counted.size());
}

// Times and bytes of a job, as its first rank wrote them.
using Progress = std::vector<std::pair<int64_t, double>>;

Progress ReadProgress(const std::string& scratch, int job) {
  Progress progress;
  std::ifstream file(scratch + "/job-" + std::to_string(job) + ".txt");
  int64_t ns = 0;
  double bytes = 0;
  while (file >> ns >> bytes) progress.emplace_back(ns, bytes);
  return progress;
}

// Mbit/s between two moments: bytes of an all-reduce of two ranks cross each direction once.
double Mbps(const Progress& progress, int64_t from_ns, int64_t to_ns) {
  const auto at = [&](int64_t ns) {
    const auto after = std::lower_bound(progress.begin(), progress.end(), std::pair(ns, 0.0));
    if (after == progress.begin()) return 0.0;
    if (after == progress.end()) return progress.back().second;
    const auto before = after - 1;
    const double share =
        static_cast<double>(ns - before->first) / static_cast<double>(after->first - before->first);
    return before->second + share * (after->second - before->second);
  };
  return (at(to_ns) - at(from_ns)) * 8e3 / static_cast<double>(to_ns - from_ns);
}

struct Trial {
  std::vector<Progress> jobs;
  int64_t begin_ns = 0;  // of what counts
  int64_t end_ns = 0;
  int64_t cut_ns = 0;
  double busy = 0;
};

class Figures {
 public:
  Figures(std::string folder, std::string scratch, double seconds, double rate_mbps)
      : folder_(std::move(folder)),
        scratch_(std::move(scratch)),
        seconds_(seconds),
        bytes_(static_cast<uint64_t>(rate_mbps * 1e6 / 8 * kSecondsARound) / 4096 * 4096) {
    spec_.name = "fg" + std::to_string(getpid() % 100000);
    spec_.leaves = spec_.spines = spec_.hosts_per_leaf = 4;
    spec_.rate_mbps = rate_mbps;
  }

  absl::Status Start() {
    absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec_);
    if (!up.ok()) return up.status();
    fabric_.emplace(*std::move(up));
    return absl::OkStatus();
  }
  ~Figures() {
    if (fabric_) fabric::Fabric::Down(spec_.name).IgnoreError();
  }

  const fabric::FabricSpec& spec() const { return spec_; }
  fabric::Fabric& fabric() { return *fabric_; }

  // All jobs for kSettleS and `seconds`; with `cut`, the link dies when the first half of these is over.
  absl::StatusOr<Trial> Play(bool with_c4p, bool cut) {
    std::string roots;
    for (int job = 0; job < kJobs; ++job) {
      roots += (job > 0 ? "," : "") + fabric::HostPortAddress(spec_, HostOf(job, 0), 0) + ":" +
               std::to_string(kRootPort + job);
      std::filesystem::remove(scratch_ + "/job-" + std::to_string(job) + ".txt");
    }
    cli::SpawnRequest request;
    request.program = folder_ + "/c4";
    request.arguments = {"run", "--fabric",  spec_.name, "-n", std::to_string(2 * kJobs), "--ranks-per-host",
                         "1",   "--run-dir", scratch_};
    request.arguments.emplace_back(with_c4p ? "--c4p" : "--no-c4p");
    for (const std::string& word :
         {std::string("--"), folder_ + "/figure_rank", roots, std::to_string(bytes_),
          std::to_string(kSettleS + seconds_ + 2), scratch_}) {
      request.arguments.push_back(word);
    }
    request.environment = cli::OwnEnvironment();
    request.environment.insert(request.environment.end(), {kChunkBytes, kWindowBytes});
    request.death_signal = SIGTERM;
    request.stdout_fd = STDERR_FILENO;
    const absl::StatusOr<pid_t> pid = cli::Spawn(request);
    if (!pid.ok()) return pid.status();
    Trial trial;
    if (absl::Status fault = AwaitStart(*pid); !fault.ok()) return fault;
    SleepS(kSettleS);
    Processors processors;
    (void)processors.Busy();
    trial.begin_ns = NowNs();
    if (cut) {
      SleepS(seconds_ / 2);
      if (absl::Status fault = fabric_->Cut(kCutLink); !fault.ok()) return fault;
      trial.cut_ns = NowNs();
      SleepS(seconds_ / 2);
    } else {
      SleepS(seconds_);
    }
    trial.end_ns = NowNs();
    trial.busy = processors.Busy();
    int status = 0;
    if (waitpid(*pid, &status, 0) != *pid || status != 0) {
      return absl::InternalError("a job failed: " + cli::DescribeExit(status));
    }
    if (cut) {
      if (absl::Status fault = fabric_->Heal(kCutLink); !fault.ok()) return fault;
    }
    for (int job = 0; job < kJobs; ++job) trial.jobs.push_back(ReadProgress(scratch_, job));
    return trial;
  }

 private:
  static void SleepS(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  absl::Status AwaitStart(pid_t pid) const {
    for (int i = 0; i < 600; ++i) {
      bool all = true;
      for (int job = 0; job < kJobs; ++job) all = all && !ReadProgress(scratch_, job).empty();
      if (all) return absl::OkStatus();
      if (waitpid(pid, nullptr, WNOHANG) == pid)
        return absl::InternalError("the jobs ended as soon as they began");
      SleepS(0.1);
    }
    kill(pid, SIGTERM);
    waitpid(pid, nullptr, 0);
    return absl::DeadlineExceededError("the jobs did not begin within a minute");
  }

  const std::string folder_;
  const std::string scratch_;
  const double seconds_;
  const uint64_t bytes_;  // of an all-reduce
  fabric::FabricSpec spec_;
  std::optional<fabric::Fabric> fabric_;
};

std::vector<double> JobRates(const Trial& trial, int64_t from_ns, int64_t to_ns) {
  std::vector<double> rates;
  for (const Progress& job : trial.jobs) rates.push_back(Mbps(job, from_ns, to_ns));
  return rates;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// (most - least) / mean.
double Spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return (*most - *least) / (Sum(values) / static_cast<double>(values.size()));
}

void Print(const char* name, const std::vector<double>& rates) {
  printf("%-6s", name);
  for (const double rate : rates) printf(" %6.1f", rate);
  printf("   worst %6.1f, mean %6.1f, spread %4.1f %%\n", *std::min_element(rates.begin(), rates.end()),
         Sum(rates) / static_cast<double>(rates.size()), 100 * Spread(rates));
}

int RunNine(Figures* figures, nlohmann::json* report) {
  const absl::StatusOr<double> ideal = MeasureIdeal(figures->spec(), false);
  if (!ideal.ok()) {
    fprintf(stderr, "c4-figures: %s\n", std::string(ideal.status().message()).c_str());
    return 2;
  }
  std::vector<double> rates[2];
  double busy = 0;
  for (const bool with_c4p : {false, true}) {
    const absl::StatusOr<Trial> trial = figures->Play(with_c4p, false);
    if (!trial.ok()) {
      fprintf(stderr, "c4-figures: %s\n", std::string(trial.status().message()).c_str());
      return 2;
    }
    rates[with_c4p ? 1 : 0] = JobRates(*trial, trial->begin_ns, trial->end_ns);
    busy = std::max(busy, trial->busy);
  }
  const double ideal_mbps = *ideal;
  printf(
      "figure 9a: %d jobs, goodput in Mbit/s of each; raw flows placed by hand make %.1f; processors %.0f %% "
      "busy\n",
      kJobs, ideal_mbps, 100 * busy);
  Print("ECMP", rates[0]);
  Print("C4P", rates[1]);
  const double worst = *std::min_element(rates[1].begin(), rates[1].end()) / ideal_mbps;
  const double spread = Spread(rates[1]);
  printf("worst job with C4P: %.3f of the ideal (target %.2f); spread %.3f (target %.2f)\n", worst,
         kNineWorst, spread, kNineSpread);
  *report = {{"figure", "9a"},
             {"ideal_mbps", ideal_mbps},
             {"ecmp_mbps", rates[0]},
             {"c4p_mbps", rates[1]},
             {"cpu", busy}};
  if (busy > kMostBusy) {
    printf("void: the processors were the limit\n");
    return 3;
  }
  return worst >= kNineWorst && spread <= kNineSpread ? 0 : 1;
}

// The jobs with a rank under the leaf that loses an uplink.
std::vector<double> Concerned(const fabric::FabricSpec& spec, const std::vector<double>& jobs) {
  std::vector<double> result;
  for (int job = 0; job < kJobs; ++job) {
    if (IsConcerned(spec, job)) result.push_back(jobs[static_cast<size_t>(job)]);
  }
  return result;
}

int RunEleven(Figures* figures, nlohmann::json* report) {
  const absl::StatusOr<double> ideal = MeasureIdeal(figures->spec(), true);
  if (!ideal.ok()) {
    fprintf(stderr, "c4-figures: %s\n", std::string(ideal.status().message()).c_str());
    return 2;
  }
  std::vector<double> after[2];
  std::vector<double> before[2];
  double busy = 0;
  for (const bool with_c4p : {false, true}) {
    const absl::StatusOr<Trial> trial = figures->Play(with_c4p, true);
    if (!trial.ok()) {
      fprintf(stderr, "c4-figures: %s\n", std::string(trial.status().message()).c_str());
      return 2;
    }
    constexpr int64_t kSecond = 1000000000;
    before[with_c4p ? 1 : 0] = Concerned(figures->spec(), JobRates(*trial, trial->begin_ns, trial->cut_ns));
    after[with_c4p ? 1 : 0] =
        Concerned(figures->spec(), JobRates(*trial, trial->cut_ns + kSecond, trial->end_ns));
    printf("%s, second by second after the cut:", with_c4p ? "C4P" : "ECMP");
    for (int64_t from = trial->cut_ns;
         from + kSecond / 2 <= trial->end_ns && from < trial->cut_ns + 8 * kSecond; from += kSecond / 2) {
      printf(" %.0f", Sum(Concerned(figures->spec(), JobRates(*trial, from, from + kSecond / 2))));
    }
    printf("\n");
    busy = std::max(busy, trial->busy);
  }
  const double ideal_mbps = *ideal;
  printf(
      "figure 11: %s cut in silence; Mbit/s of the %zu jobs under its leaf from one second after; raw flows "
      "placed "
      "by hand on what remains make %.1f; processors %.0f %% busy\n",
      kCutLink, after[1].size(), ideal_mbps, 100 * busy);
  Print("before", before[1]);
  Print("ECMP", after[0]);
  Print("C4P", after[1]);
  const double share = Sum(after[1]) / static_cast<double>(after[1].size()) / ideal_mbps;
  printf("with C4P: %.3f of what remains (target %.2f); every byte was checked, no collective failed\n",
         share, kElevenLeast);
  *report = {{"figure", "11"},
             {"ideal_mbps", ideal_mbps},
             {"ecmp_mbps", after[0]},
             {"c4p_mbps", after[1]},
             {"cpu", busy}};
  if (busy > kMostBusy) {
    printf("void: the processors were the limit\n");
    return 3;
  }
  return share >= kElevenLeast ? 0 : 1;
}

int Run(const std::string& figure, const std::string& json_path, double seconds, double rate_mbps) {
  const absl::StatusOr<std::string> folder = cli::OwnFolder();
  char scratch[] = "/dev/shm/c4-figures-XXXXXX";
  if (!folder.ok() || mkdtemp(scratch) == nullptr) return 2;
  int exit_code = 2;
  {
    Figures figures(*folder, scratch, seconds, rate_mbps);
    const absl::Status up = figures.Start();
    if (!up.ok()) {
      fprintf(stderr, "c4-figures: %s\n", std::string(up.message()).c_str());
    } else {
      nlohmann::json report;
      exit_code = figure == "9a" ? RunNine(&figures, &report) : RunEleven(&figures, &report);
      if (!json_path.empty() && !report.is_null()) std::ofstream(json_path) << report.dump(2) << "\n";
    }
  }
  std::filesystem::remove_all(scratch);
  return exit_code;
}

int Main(int argc, char** argv) {
  std::string figure;
  std::string json_path;
  double seconds = 30;
  double rate_mbps = kRateMbps;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (word == "--seconds" && i + 1 < argc && atof(argv[i + 1]) >= 4) {
      seconds = atof(argv[++i]);
    } else if (word == "--rate" && i + 1 < argc && atof(argv[i + 1]) >= 40) {
      rate_mbps = atof(argv[++i]);
    } else if ((word == "9a" || word == "11") && figure.empty()) {
      figure = word;
    } else {
      fputs(kUsage, stderr);
      return 2;
    }
  }
  if (figure.empty()) {
    fputs(kUsage, stderr);
    return 2;
  }
  return Run(figure, json_path, seconds, rate_mbps);
}

}  // namespace
}  // namespace c4

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): out of memory ends it
  return c4::Main(argc, argv);
}
