// What all-reduce makes of a shaped fabric, beside what raw flows make of it (docs/benchmarks.md): in each
// round, raw TCP flows between the same neighbours of the ring, four a pair and placed on the spines by the
// kernel's own oracle, and then all_reduce_perf on the same hosts. Prints the goodput of a host's link for
// both and their ratio; exit code 1 when the median ratio of a size is below 0.97, 2 when nothing could be
// measured. A round in which the processors were the limit is void. Needs root.
#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/paired_options.h"
#include "benchmarks/statistics.h"
#include "cli/base/process.h"
#include "cli/base/processors.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/raw_flow.h"

namespace c4 {
namespace {

constexpr char kUsage[] =
    "fabric_goodput [--ranks N] [--rounds N] [--iterations N] [--json FILE]\n"
    "all-reduce of 16, 32 and 64 MiB over an emulated fabric of 200 Mbit/s, one rank a host, beside raw "
    "flows "
    "that are placed by hand; exit code 1 when it makes less than 97 % of them\n";

constexpr double kRateMbps = 200;
constexpr double kTarget = 0.97;
constexpr double kMostBusy = 0.7;  // of the processors; above, they are the limit
constexpr int kFlowsAPair = 4;
// Of which the last flow of a pair finds one on the last spine that is left: 16 missed it once in a hundred.
constexpr int kCandidatesAFlow = 64;
constexpr int kDestinationPort = 5201;
constexpr int kWarmMs = 1000;
constexpr int kMeasuredMs = 4000;

// Flows from each host to the next, as evenly over the spines as they can be.
absl::StatusOr<std::vector<fabric::FiveTuple>> Place(const fabric::FabricSpec& spec) {
  std::vector<fabric::FiveTuple> placed;
  const int hosts = fabric::HostCount(spec);
  for (int host = 0; host < hosts; ++host) {
    std::vector<fabric::FiveTuple> candidates;
    candidates.reserve(kCandidatesAFlow * kFlowsAPair);
    for (int i = 0; i < kCandidatesAFlow * kFlowsAPair; ++i) {
      candidates.push_back({.source = fabric::HostPortAddress(spec, host, 0),
                            .source_port = 20000 + i,
                            .destination = fabric::HostPortAddress(spec, (host + 1) % hosts, 0),
                            .destination_port = kDestinationPort + i % kFlowsAPair});
    }
    const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec, candidates);
    if (!paths.ok()) return paths.status();
    std::map<int, int> on_spine;
    std::vector<bool> taken(kFlowsAPair);  // destination ports
    int flows = 0;
    for (size_t i = 0; i < candidates.size() && flows < kFlowsAPair; ++i) {
      const auto port = static_cast<size_t>(candidates[i].destination_port - kDestinationPort);
      const int spine = (*paths)[i].spine;
      const int most = spine < 0 ? kFlowsAPair : (kFlowsAPair + spec.spines - 1) / spec.spines;
      if (taken[port] || on_spine[spine] >= most) continue;
      taken[port] = true;
      ++on_spine[spine];
      ++flows;
      placed.push_back(candidates[i]);
    }
    if (flows < kFlowsAPair) return absl::NotFoundError("no source ports for an even share of the spines");
  }
  return placed;
}

// Mbit/s of a host's link, the mean of all.
absl::StatusOr<double> MeasureRaw(const fabric::FabricSpec& spec) {
  const absl::StatusOr<std::vector<fabric::FiveTuple>> tuples = Place(spec);
  if (!tuples.ok()) return tuples.status();
  const absl::StatusOr<std::vector<double>> mbps = fabric::GoodputOf(spec, *tuples, kWarmMs, kMeasuredMs);
  if (!mbps.ok()) return mbps.status();
  return std::accumulate(mbps->begin(), mbps->end(), 0.0) / fabric::HostCount(spec);
}

// Mbit/s of a host's link, by size; nothing after an error.
std::map<uint64_t, double> MeasureJob(const fabric::FabricSpec& spec, const PairedOptions& options,
                                      const std::string& folder, const std::string& scratch) {
  const std::string results = scratch + "/results.json";
  cli::SpawnRequest request;
  request.program = folder + "/c4";
  request.arguments = {"run",       "--fabric",
                       spec.name,   "--no-c4p",
                       "-n",        std::to_string(options.ranks),
                       "--run-dir", scratch,
                       "--",        folder + "/all_reduce_perf",
                       "-b",        "16M",
                       "-e",        "64M",
                       "-f",        "2",
                       "-n",        std::to_string(options.iterations),
                       "-w",        "3",
                       "-c",        "0",
                       "--json",    results};
  request.environment = cli::OwnEnvironment();
  request.death_signal = SIGTERM;
  request.stdout_fd = STDERR_FILENO;
  std::map<uint64_t, double> found;
  const absl::StatusOr<pid_t> pid = cli::Spawn(request);
  int status = 0;
  if (!pid.ok() || waitpid(*pid, &status, 0) != *pid || status != 0) {
    fprintf(stderr, "fabric_goodput: %s\n",
            pid.ok() ? cli::DescribeExit(status).c_str() : std::string(pid.status().message()).c_str());
    return found;
  }
  const double n = options.ranks;
  try {
    const nlohmann::json report = nlohmann::json::parse(std::ifstream(results));
    for (const auto& row : report.at("results")) {
      const auto bytes = row.at("bytes").get<uint64_t>();
      const auto us = row.at("out_of_place").at("time_us").get<double>();
      found[bytes] = 2 * (n - 1) / n * static_cast<double>(bytes) * 8 / us;
    }
  } catch (const std::exception& fault) {
    fprintf(stderr, "fabric_goodput: all_reduce_perf wrote something else than results: %s\n", fault.what());
  }
  return found;
}

int Run(const PairedOptions& options) {
  fabric::FabricSpec spec{.name = "gp" + std::to_string(getpid() % 100000), .leaves = 2, .spines = 4};
  spec.hosts_per_leaf = options.ranks / 2;
  spec.rate_mbps = kRateMbps;
  if (options.ranks % 2 != 0) {
    fprintf(stderr, "fabric_goodput: --ranks has to be even: half of the hosts are on each leaf\n");
    return 2;
  }
  const absl::StatusOr<std::string> folder = cli::OwnFolder();
  char scratch[] = "/dev/shm/c4-goodput-XXXXXX";
  if (!folder.ok() || mkdtemp(scratch) == nullptr) return 2;
  const absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  if (!up.ok()) {
    fprintf(stderr, "fabric_goodput: %s\n", std::string(up.status().message()).c_str());
    return 2;
  }
  std::map<uint64_t, std::vector<double>> ratios;
  Processors processors;
  for (int round = 1; round <= options.rounds; ++round) {
    (void)processors.Busy();
    const absl::StatusOr<double> raw = MeasureRaw(spec);
    const double raw_busy = processors.Busy();
    if (!raw.ok()) {
      fprintf(stderr, "fabric_goodput: %s\n", std::string(raw.status().message()).c_str());
      break;
    }
    const std::map<uint64_t, double> job = MeasureJob(spec, options, *folder, scratch);
    const double job_busy = processors.Busy();
    const bool counts = std::max(raw_busy, job_busy) <= kMostBusy;
    printf("round %d: raw flows %.1f Mbit/s a host (%.0f %% of the processors), all-reduce (%.0f %%):", round,
           *raw, 100 * raw_busy, 100 * job_busy);
    for (const auto& [bytes, mbps] : job) {
      printf("  %" PRIu64 " MiB %.1f (%.3f)", bytes >> 20, mbps, mbps / *raw);
      if (counts) ratios[bytes].push_back(mbps / *raw);
    }
    printf("%s\n", counts ? "" : "  void: the processors were the limit");
    fflush(stdout);
  }
  std::error_code ignored;
  std::filesystem::remove_all(std::filesystem::path(scratch), ignored);
  (void)fabric::Fabric::Down(spec.name);
  if (ratios.empty()) return 2;
  bool met = true;
  std::ofstream json;
  if (!options.json.empty()) json.open(options.json);
  for (const auto& [bytes, samples] : ratios) {
    printf("%3" PRIu64 " MiB: %.3f of raw flows, median of %zu\n", bytes >> 20, Median(samples),
           samples.size());
    json << (bytes == ratios.begin()->first ? "{\"" : ", \"") << bytes << "\": " << Median(samples);
    met = met && Median(samples) >= kTarget;
  }
  json << "}\n";
  return met ? 0 : 1;
}

int Main(int argc, char** argv) {
  PairedOptions options{.ranks = 8, .rounds = 3, .iterations = 5, .json = {}};
  if (!ParsePairedOptions(argc, argv, "--rounds", kUsage, &options)) return 2;
  return Run(options);
}

}  // namespace
}  // namespace c4

int main(int argc, char** argv) {
  return c4::Main(argc, argv);
}
