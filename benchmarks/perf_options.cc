#include "benchmarks/perf_options.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace c4::perf {
namespace {

struct TypeRow {
  const char* name;
  ncclDataType_t type;
  size_t bytes;
};
constexpr TypeRow kTypes[] = {
    {"int8", ncclInt8, 1},         {"uint8", ncclUint8, 1},       {"int32", ncclInt32, 4},
    {"uint32", ncclUint32, 4},     {"int64", ncclInt64, 8},       {"uint64", ncclUint64, 8},
    {"half", ncclFloat16, 2},      {"float", ncclFloat32, 4},     {"double", ncclFloat64, 8},
    {"bfloat16", ncclBfloat16, 2}, {"f8e4m3", ncclFloat8e4m3, 1}, {"f8e5m2", ncclFloat8e5m2, 1},
};

struct ReductionRow {
  const char* name;
  ncclRedOp_t reduction;
};
constexpr ReductionRow kReductions[] = {
    {"sum", ncclSum}, {"prod", ncclProd}, {"max", ncclMax}, {"min", ncclMin}, {"avg", ncclAvg}};

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

// Options that nccl-tests has for several GPUs or threads a process: scripts pass them, with 1 here.
std::string TakeOne(const std::string& value, Options*) {
  return value == "1" ? "" : "is not possible: one process serves one rank, start more processes instead";
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
    {"-o", "--op", "NAME", "reduction: sum, prod, max, min, avg; default sum",
     [](const std::string& value, Options* options) -> std::string {
       for (const ReductionRow& row : kReductions) {
         if (value != row.name) continue;
         options->reduction = row.reduction;
         return {};
       }
       return "is no reduction: " + Names(kReductions) + " are";
     }},
    {"-d", "--datatype", "NAME", "data type, default float",
     [](const std::string& value, Options* options) -> std::string {
       for (const TypeRow& row : kTypes) {
         if (value != row.name) continue;
         options->type = row.type;
         return {};
       }
       return "is no data type: " + Names(kTypes) + " are";
     }},
    {"-t", "--nthreads", "1", "for scripts of nccl-tests; only 1", TakeOne},
    {"-g", "--ngpus", "1", "for scripts of nccl-tests; only 1", TakeOne},
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

std::string HelpText(const char* program) {
  std::string text = "usage: " + std::string(program) +
                     " [options]\n"
                     "Measures a collective on host memory. Start it once a rank, for instance by\n"
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

const char* TypeName(ncclDataType_t type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return "?";
}

size_t ElementBytes(ncclDataType_t type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.bytes;
  }
  return 1;
}

const char* ReductionName(ncclRedOp_t reduction) {
  for (const ReductionRow& row : kReductions) {
    if (row.reduction == reduction) return row.name;
  }
  return "?";
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
    *error = "this is rank " + std::to_string(place->rank) + " of " + std::to_string(place->ranks) +
             ", but NCCL_COMM_ID does not say where the ranks meet: start the program by `c4 run -n " +
             std::to_string(place->ranks) +
             " -- ...`, or set NCCL_COMM_ID=ADDRESS:PORT on all ranks to an address of rank 0 and a free "
             "port there";
    return false;
  }
  return true;
}

}  // namespace c4::perf
