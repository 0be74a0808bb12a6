#include "benchmarks/perf_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace c4::perf {
namespace {

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// 4096, 4K, 128M, 1G.
std::optional<size_t> ParseSize(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    const std::string_view units = "kmgKMG";
    const size_t unit = units.find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit % 3) + 1);
      text.remove_suffix(1);
    }
  }
  const std::optional<size_t> number = ParseNumber<size_t>(text);
  if (!number || *number > (std::numeric_limits<size_t>::max() >> 1 >> shift)) return std::nullopt;
  return *number << shift;
}

// Threads of a process, and ranks of a thread: beyond this it is a mistake.
constexpr int kMostOfAProcess = 256;

template <typename Rows>
std::string Names(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// One option; `take` stores the value and gives what is wrong with it, empty when nothing is.
struct Option {
  const char* short_name;
  const char* long_name;
  const char* value_name;  // nullptr: takes none
  const char* help;
  std::string (*take)(const std::string& value, Options* options);
};

std::string TakeSize(const std::string& value, size_t* place) {
  const std::optional<size_t> size = ParseSize(value);
  if (!size) return "is no size: digits, then K, M, G or nothing";
  *place = *size;
  return {};
}

template <typename Number>
std::string TakeCount(const std::string& value, Number low, Number* place) {
  const std::optional<Number> number = ParseNumber<Number>(value);
  if (!number || *number < low) return "is no whole number of at least " + std::to_string(low);
  *place = *number;
  return {};
}

std::string TakeCount(const std::string& value, int low, int high, int* place) {
  const std::optional<int> number = ParseNumber<int>(value);
  if (!number || *number < low || *number > high) {
    return "is no whole number between " + std::to_string(low) + " and " + std::to_string(high);
  }
  *place = *number;
  return {};
}

std::string TakeFlag(const std::string& value, bool* place) {
  if (value != "0" && value != "1") return "is neither 0 nor 1";
  *place = value == "1";
  return {};
}

const Option kOptions[] = {
    {"-b", "--minbytes", "SIZE", "smallest size, default 32M",
     [](const std::string& value, Options* options) { return TakeSize(value, &options->min_bytes); }},
    {"-e", "--maxbytes", "SIZE", "largest size, default 32M",
     [](const std::string& value, Options* options) { return TakeSize(value, &options->max_bytes); }},
    {"-i", "--stepbytes", "SIZE", "from one size to the next, default 1M",
     [](const std::string& value, Options* options) { return TakeSize(value, &options->step_bytes); }},
    {"-f", "--stepfactor", "N", "multiply sizes by this instead",
     [](const std::string& value, Options* options) {
       return TakeCount<size_t>(value, 2, &options->step_factor);
     }},
    {"-n", "--iters", "N", "timed operations a size, default 20",
     [](const std::string& value, Options* options) { return TakeCount(value, 1, &options->iterations); }},
    {"-w", "--warmup_iters", "N", "operations before the first timed one, default 1",
     [](const std::string& value, Options* options) {
       return TakeCount(value, 0, &options->warmup_iterations);
     }},
    {"-c", "--check", "N", "operations a size whose result is checked, default 1, 0 for none",
     [](const std::string& value, Options* options) {
       return TakeCount(value, 0, &options->check_iterations);
     }},
    {"-N", "--run_cycles", "N", "times that all sizes are run, default 1, 0 for ever",
     [](const std::string& value, Options* options) {
       return TakeCount<int64_t>(value, 0, &options->cycles);
     }},
    {"-o", "--op", "NAME", "reduction: sum, prod, max, min, avg, mulsum or all; default sum",
     [](const std::string& value, Options* options) -> std::string {
       std::vector<Reduction> chosen;
       for (const ReductionInfo& info : AllReductions()) {
         if (value == info.name || value == "all") chosen.push_back(info.reduction);
       }
       if (chosen.empty()) return "is no reduction: " + Names(AllReductions()) + " are, or all";
       options->reductions = std::move(chosen);
       return {};
     }},
    {"-d", "--datatype", "NAME", "data type, or all; default float",
     [](const std::string& value, Options* options) -> std::string {
       std::vector<ncclDataType_t> chosen;
       for (const TypeInfo& info : AllTypes()) {
         if (value == info.name || value == "all") chosen.push_back(info.type);
       }
       if (chosen.empty()) return "is no data type: " + Names(AllTypes()) + " are, or all";
       options->types = std::move(chosen);
       return {};
     }},
    {"-r", "--root", "N", "root, for collectives that have one, -1 for each in turn; default 0",
     [](const std::string& value, Options* options) { return TakeCount(value, -1, &options->root); }},
    {"-z", "--blocking", "0|1", "1: wait for each operation before the next one; default 0",
     [](const std::string& value, Options* options) { return TakeFlag(value, &options->blocking); }},
    {"-t", "--nthreads", "N", "threads of each process, default 1",
     [](const std::string& value, Options* options) {
       return TakeCount(value, 1, kMostOfAProcess, &options->threads);
     }},
    {"-g", "--ngpus", "N", "ranks of each thread, default 1; more than one join as one group",
     [](const std::string& value, Options* options) {
       return TakeCount(value, 1, kMostOfAProcess, &options->ranks_per_thread);
     }},
    {"-m", "--agg_iters", "N", "operations that are enqueued together, as one group; default 1",
     [](const std::string& value, Options* options) { return TakeCount(value, 1, &options->aggregate); }},
    {"-a", "--average", "0|1|2|3", "time of rank 0, mean of all ranks, least, most; default 1",
     [](const std::string& value, Options* options) -> std::string {
       if (value.size() != 1 || value[0] < '0' || value[0] > '3') {
         return "is none of 0 (time of rank 0), 1 (mean of all ranks), 2 (least) and 3 (most)";
       }
       options->average = static_cast<Average>(value[0] - '0');
       return {};
     }},
    {"", "--pause-ms", "MS", "wait this long after each timed operation; it is not counted in the time",
     [](const std::string& value, Options* options) { return TakeCount(value, 0, &options->pause_ms); }},
    {"", "--json", "FILE", "rank 0 writes the results to FILE, anew after each cycle",
     [](const std::string& value, Options* options) -> std::string {
       if (value.empty()) return "is no file";
       options->json_path = value;
       return {};
     }},
    {"-h", "--help", nullptr, "this text",
     [](const std::string&, Options* options) -> std::string {
       options->help = true;
       return {};
     }},
    {"", "--version", nullptr, "of the interface that is measured",
     [](const std::string&, Options* options) -> std::string {
       options->version = true;
       return {};
     }},
};

// The option that `argument` names. A value that hangs on it (-b8, --minbytes=8) comes in `attached`.
const Option* Find(const std::string& argument, std::optional<std::string>* attached) {
  attached->reset();
  for (const Option& option : kOptions) {
    if (argument == option.short_name || argument == option.long_name) return &option;
    const std::string with_equals = std::string(option.long_name) + "=";
    if (argument.starts_with(with_equals)) {
      *attached = argument.substr(with_equals.size());
      return &option;
    }
    const std::string_view short_name = option.short_name;
    if (!short_name.empty() && argument.size() > 2 && argument.starts_with(short_name)) {
      *attached = argument.substr(2);
      return &option;
    }
  }
  return nullptr;
}

std::string WhatIsWrong(const Options& options, bool step_bytes_given) {
  if (options.min_bytes > options.max_bytes) {
    return "-b " + std::to_string(options.min_bytes) + " is more than -e " +
           std::to_string(options.max_bytes);
  }
  if (step_bytes_given && options.step_factor > 1) return "give -i or -f, not both";
  if (options.step_factor > 1 && options.min_bytes == 0) return "-f cannot start from -b 0";
  if (options.step_factor == 1 && options.step_bytes == 0) return "-i 0 would never reach -e";
  if (options.pause_ms > 0 && options.aggregate > 1) return "give --pause-ms or -m, not both";
  return {};
}

}  // namespace

bool ParseOptions(const std::vector<std::string>& arguments, Options* options, std::string* error) {
  bool step_bytes_given = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::optional<std::string> value;
    const Option* const option = Find(arguments[i], &value);
    if (option == nullptr) {
      *error = "unknown option '" + arguments[i] + "'";
      return false;
    }
    if (option->value_name == nullptr && value) {
      *error = std::string(option->long_name) + " takes no value";
      return false;
    }
    if (option->value_name != nullptr && !value) {
      if (i + 1 == arguments.size()) {
        *error = arguments[i] + " needs a value (" + option->value_name + ")";
        return false;
      }
      value = arguments[++i];
    }
    const std::string wrong = option->take(value.value_or(""), options);
    if (!wrong.empty()) {
      *error = std::string(option->long_name) + ": '" + *value + "' " + wrong;
      return false;
    }
    step_bytes_given |= std::string_view(option->short_name) == "-i";
  }
  *error = WhatIsWrong(*options, step_bytes_given);
  return error->empty();
}

std::string VersionText(const char* program) {
  return std::string(program) + ": NCCL interface " + std::to_string(NCCL_MAJOR) + "." +
         std::to_string(NCCL_MINOR) + "." + std::to_string(NCCL_PATCH) + "\n";
}

std::string HelpText(const char* program) {
  std::string text =
      "usage: " + std::string(program) +
      " [options]\n"
      "Measures a collective on host memory. Start its processes, one rank each by default, for instance by\n"
      "  c4 run -n 4 -- " +
      program + " -b 8 -e 16M -f 2\n\n";
  for (const Option& option : kOptions) {
    std::string names = "  ";
    if (*option.short_name != '\0') names += std::string(option.short_name) + ", ";
    names += option.long_name;
    if (option.value_name != nullptr) names += std::string(" ") + option.value_name;
    if (names.size() < 28) names.resize(28, ' ');
    text += names + "  " + option.help + "\n";
  }
  return text;
}

std::vector<size_t> Sizes(const Options& options) {
  std::vector<size_t> sizes;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    sizes.push_back(bytes);
    const size_t room = std::numeric_limits<size_t>::max();
    if (options.step_factor > 1) {
      if (bytes > room / options.step_factor) break;
      bytes *= options.step_factor;
    } else {
      if (bytes > room - options.step_bytes) break;
      bytes += options.step_bytes;
    }
  }
  return sizes;
}

double Combine(const std::vector<double>& by_rank, Average average) {
  switch (average) {
    case Average::kRank0:
      return by_rank.front();
    case Average::kMean:
      return std::accumulate(by_rank.begin(), by_rank.end(), 0.0) / static_cast<double>(by_rank.size());
    case Average::kLeast:
      return *std::min_element(by_rank.begin(), by_rank.end());
    case Average::kMost:
      return *std::max_element(by_rank.begin(), by_rank.end());
  }
  return 0;
}

std::vector<Pass> Passes(const Options& options, Kind kind, int ranks) {
  std::vector<std::optional<Reduction>> reductions = {std::nullopt};
  if (TraitsOf(kind).reduces) reductions.assign(options.reductions.begin(), options.reductions.end());
  int first_root = -1;
  int last_root = -1;
  if (TraitsOf(kind).rooted) {
    first_root = std::max(options.root, 0);
    last_root = options.root < 0 ? ranks - 1 : options.root;
  }
  std::vector<Pass> passes;
  for (const ncclDataType_t type : options.types) {
    for (const std::optional<Reduction>& reduction : reductions) {
      for (int root = first_root; root <= last_root; ++root) passes.push_back({type, reduction, root});
    }
  }
  return passes;
}

std::string WhatIsWrongWithRanks(const Options& options, int ranks) {
  if (options.root < ranks) return {};
  return "--root: there is no rank " + std::to_string(options.root) + " among " + std::to_string(ranks) +
         ": give one from 0 to " + std::to_string(ranks - 1) + ", or -1 for each in turn";
}

bool ReadPlace(const Environment& environment, Place* place, std::string* error) {
  struct Pair {
    const char* rank;
    const char* ranks;
  };
  const Pair pairs[] = {{"RANK", "WORLD_SIZE"},
                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                        {"SLURM_PROCID", "SLURM_NTASKS"},
                        {"PMI_RANK", "PMI_SIZE"}};
  *place = {};
  for (const Pair& pair : pairs) {
    const char* const rank_text = environment(pair.rank);
    const char* const ranks_text = environment(pair.ranks);
    if (rank_text == nullptr || ranks_text == nullptr) continue;
    const std::optional<int> rank = ParseNumber<int>(rank_text);
    const std::optional<int> ranks = ParseNumber<int>(ranks_text);
    if (!rank || !ranks || *ranks < 1 || *rank < 0 || *rank >= *ranks) {
      *error = std::string(pair.rank) + "=" + rank_text + " and " + pair.ranks + "=" + ranks_text +
               " in the environment are no rank and number of ranks";
      return false;
    }
    *place = {*rank, *ranks};
    break;
  }
  const char* const meeting = environment("NCCL_COMM_ID");
  if (place->ranks > 1 && (meeting == nullptr || *meeting == '\0')) {
    *error = "this is process " + std::to_string(place->rank) + " of " + std::to_string(place->ranks) +
             ", but NCCL_COMM_ID does not say where the ranks meet: start the program by `c4 run -n " +
             std::to_string(place->ranks) +
             " -- ...`, or set NCCL_COMM_ID=ADDRESS:PORT on all ranks to an address of rank 0 and a free "
             "port there";
    return false;
  }
  return true;
}

}  // namespace c4::perf
