// Command line of the programs that measure collectives: the options of nccl-tests that make sense on host
// memory, and a few of our own. Pure, apart from the environment that it is handed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/perf_shapes.h"
#include "benchmarks/perf_types.h"
#include "ccl/include/nccl.h"

namespace c4::perf {

// Which of the ranks' times is told. The numbers are those of nccl-tests' -a.
enum class Average { kRank0 = 0, kMean = 1, kLeast = 2, kMost = 3 };

struct Options {
  size_t min_bytes = size_t{32} << 20;
  size_t max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20;
  size_t step_factor = 1;  // above 1: sizes are multiplied, and step_bytes is not used
  int iterations = 20;
  int warmup_iterations = 1;
  int check_iterations = 1;
  int64_t cycles = 1;  // times that all sizes are run; 0 is for ever
  int pause_ms = 0;
  std::vector<ncclDataType_t> types = {ncclFloat};
  std::vector<Reduction> reductions = {Reduction::kSum};
  int root = 0;  // -1: each in turn
  bool blocking = false;
  int threads = 1;           // of a process
  int ranks_per_thread = 1;  // above 1: joined, and called, as groups
  int aggregate = 1;         // operations of one group; each counts as one
  Average average = Average::kMean;
  std::string json_path;
  bool help = false;
  bool version = false;
};

// Fills in `options`; on failure gives false and in `error` a sentence that names the option.
bool ParseOptions(const std::vector<std::string>& arguments, Options* options, std::string* error);

std::string HelpText(const char* program);
std::string VersionText(const char* program);

// The sizes of one cycle, in bytes.
std::vector<size_t> Sizes(const Options& options);

// The time that is told, of every rank's.
double Combine(const std::vector<double>& by_rank, Average average);

// What is measured in one go over all sizes.
struct Pass {
  ncclDataType_t type = ncclFloat;
  std::optional<Reduction> reduction;  // of collectives that reduce
  int root = -1;                       // of collectives that have one
};
// In the order of the table.
std::vector<Pass> Passes(const Options& options, Kind kind, int ranks);

// What cannot be with so many ranks; empty when nothing is.
std::string WhatIsWrongWithRanks(const Options& options, int ranks);

// Which process this is and how many there are, as its launcher says in the environment; alone when nothing
// says so. `environment` gives a variable's value, or nullptr.
using Environment = std::function<const char*(const char*)>;
bool ReadPlace(const Environment& environment, Place* place, std::string* error);

}  // namespace c4::perf
