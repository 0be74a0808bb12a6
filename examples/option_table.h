// A command line as a table: names, and where their values go. Prints the usage or a sentence and returns an
// exit code, or -1 to go on.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>

namespace c4::examples {

struct Option {
  const char* name;
  std::variant<int*, size_t*, double*, std::string*> value;
  double low = 0;  // of a number; it is a million at most
};

// A sentence on standard error: the option `name` of this program has a fault. Returns 2.
int OptionFault(const char* name, const char* what);

int ParseOptions(const char* usage, std::span<const Option> known, int argc, char** argv);

}  // namespace c4::examples
