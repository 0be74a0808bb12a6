// court --out DIR [--ranks N] [--seed S] [--incidents N] [--jobs J]: incidents of simulated jobs
// (fabric/jobsim) with their truth, for several diagnosers to judge (benchmarks/court.py). For each one line
// of JSON to DIR/incidents.jsonl: what was wrong, who may be named, and what C4D says of it by its agents'
// telemetry, by NCCL's RAS alone and by its Inspector alone. For each that stands still, what PyTorch's
// Flight Recorder would hold of the ranks that live, to DIR/ID/rank-R.json, as the watchdog of ten minutes
// has it written. Exit status: 0 it ran, 2 it was called wrongly or cannot write.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/court_records.h"
#include "benchmarks/job_trial.h"
#include "nlohmann/json.hpp"

namespace {

using c4::benchmarks::CourtSource;
using c4::benchmarks::RunSourceTrial;
using c4::jobsim::FaultKind;

struct Options {
  std::string out;
  uint32_t ranks = 64;
  uint64_t seed = 1;
  uint64_t incidents = 312;
  uint64_t jobs = 1;
};

bool Parse(const std::vector<std::string>& words, Options* options) {
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const uint64_t number = std::strtoull(words[i + 1].c_str(), nullptr, 10);
    if (words[i] == "--out") {
      options->out = words[i + 1];
    } else if (words[i] == "--ranks" && number >= 8 && number <= 1024) {
      options->ranks = static_cast<uint32_t>(number);
    } else if (words[i] == "--seed") {
      options->seed = number;
    } else if (words[i] == "--incidents" && number > 0 && number <= 100'000) {
      options->incidents = number;
    } else if (words[i] == "--jobs" && number > 0 && number <= 64) {
      options->jobs = number;
    } else {
      return false;
    }
  }
  return words.size() % 2 == 0 && !options->out.empty();
}

nlohmann::json ToJson(const c4::benchmarks::JobTrial& trial) {
  return {{"right", trial.right && !trial.ambiguous},
          {"ambiguous", trial.right && trial.ambiguous},
          {"wrong", trial.wrong},
          {"after_s",
           trial.right && trial.after_s >= 0 ? nlohmann::json(trial.after_s) : nlohmann::json(nullptr)}};
}

nlohmann::json Try(const Options& options, uint64_t number) {
  constexpr auto kKinds = static_cast<uint64_t>(FaultKind::kCount) - 1;
  const auto kind = static_cast<FaultKind>(1 + number % kKinds);
  const uint64_t seed = options.seed + number;
  c4::jobsim::Shape shape;
  c4::jobsim::Fault fault;
  c4::benchmarks::DrawTrial(options.ranks, kind, seed, &shape, &fault);
  const c4::benchmarks::CourtRecords records(shape, fault, seed);
  nlohmann::json incident = {
      {"id", number},
      {"seed", seed},
      {"kind", c4::jobsim::FaultName(kind)},
      {"engine", shape.engine == c4::jobsim::Engine::kHost ? "host" : "vendor"},
      {"ranks", shape.ranks()},
      {"harmless", c4::jobsim::IsHarmless(kind)},
      {"stands_still", records.stands_still()},
      {"accepted", records.accepted()},
      {"c4d", ToJson(c4::benchmarks::RunJobTrial(shape, fault, seed))},
      {"c4d_ras", ToJson(RunSourceTrial(shape, fault, seed, CourtSource::kRas))},
      {"c4d_inspector", ToJson(RunSourceTrial(shape, fault, seed, CourtSource::kInspector))}};
  if (records.stands_still()) {
    const std::filesystem::path folder = std::filesystem::path(options.out) / std::to_string(number);
    std::filesystem::create_directories(folder);
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      const nlohmann::json dump = records.FlightRecorder(rank);
      if (!dump.is_null()) std::ofstream(folder / ("rank-" + std::to_string(rank) + ".json")) << dump;
    }
  }
  return incident;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(std::vector<std::string>(argv + 1, argv + argc), &options)) {
    std::fputs("usage: court --out DIR [--ranks N] [--seed S] [--incidents N] [--jobs J]\n", stderr);
    return 2;
  }
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  std::ofstream file(std::filesystem::path(options.out) / "incidents.jsonl");
  if (!file) {
    std::fprintf(stderr, "court: cannot write into %s\n", options.out.c_str());
    return 2;
  }
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  std::vector<std::string> lines(options.incidents);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < options.jobs; ++i) {
    threads.emplace_back([&] {
      for (uint64_t number = next++; number < options.incidents; number = next++) {
        std::string line = Try(options, number).dump();
        const std::lock_guard<std::mutex> lock(mutex);
        lines[number] = std::move(line);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& line : lines) file << line << "\n";
  file.close();
  return file ? 0 : 2;
}
