// Command line of the programs that measure collectives: the options of nccl-tests that make sense for one
// process a rank on host memory, and a few of our own. Pure, apart from the environment that it is handed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"

namespace c4::perf {

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
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t reduction = ncclSum;
  std::string json_path;
  bool help = false;
};

// Fills in `options`; on failure gives false and in `error` a sentence that names the option.
bool ParseOptions(const std::vector<std::string>& arguments, Options* options, std::string* error);

std::string HelpText(const char* program);

// The sizes of one cycle, in bytes.
std::vector<size_t> Sizes(const Options& options);

const char* TypeName(ncclDataType_t type);
const char* ReductionName(ncclRedOp_t reduction);
size_t ElementBytes(ncclDataType_t type);

// Which rank this process is, as its launcher says in the environment; alone when nothing says so.
struct Place {
  int rank = 0;
  int ranks = 1;
};
// `environment` gives a variable's value, or nullptr.
using Environment = std::function<const char*(const char*)>;
bool ReadPlace(const Environment& environment, Place* place, std::string* error);

}  // namespace c4::perf
