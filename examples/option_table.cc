#include "examples/option_table.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace c4::examples {
namespace {

constexpr double kHighest = 1e6;

bool ParseNumber(const char* text, double low, double* value) {
  char* end = nullptr;
  errno = 0;
  *value = strtod(text, &end);
  return errno == 0 && end != text && *end == '\0' && *value >= low && *value <= kHighest;
}

// -1: it has its value.
int Take(const Option& option, const char* text) {
  if (std::string* const* place = std::get_if<std::string*>(&option.value)) {
    if (text == nullptr) return OptionFault(option.name, "needs a value");
    **place = text;
    return -1;
  }
  double number = 0;
  if (text == nullptr || !ParseNumber(text, option.low, &number)) {
    return OptionFault(option.name, "needs a number up to 1000000 that makes sense there");
  }
  if (double* const* real = std::get_if<double*>(&option.value)) {
    **real = number;
    return -1;
  }
  if (number != static_cast<double>(static_cast<int>(number))) {
    return OptionFault(option.name, "needs a whole number");
  }
  if (int* const* integer = std::get_if<int*>(&option.value)) **integer = static_cast<int>(number);
  if (size_t* const* size = std::get_if<size_t*>(&option.value)) **size = static_cast<size_t>(number);
  return -1;
}

}  // namespace

int OptionFault(const char* name, const char* what) {
  fprintf(stderr, "%s: %s %s; --help lists the options\n", program_invocation_short_name, name, what);
  return 2;
}

int ParseOptions(const char* usage, std::span<const Option> known, int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const char* const name = argv[i];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
      fputs(usage, stdout);
      return 0;
    }
    const auto option = std::find_if(known.begin(), known.end(),
                                     [name](const Option& one) { return strcmp(one.name, name) == 0; });
    if (option == known.end()) return OptionFault(name, "is no option");
    const int fault = Take(*option, i + 1 < argc ? argv[i + 1] : nullptr);
    if (fault >= 0) return fault;
  }
  return -1;
}

}  // namespace c4::examples
