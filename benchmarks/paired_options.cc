#include "benchmarks/paired_options.h"

#include <cstdio>
#include <cstdlib>

namespace c4 {

bool ParsePairedOptions(int argc, char** argv, const char* rounds_option, const char* usage,
                        PairedOptions* options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const int value = i + 1 < argc ? atoi(argv[i + 1]) : 0;  // NOLINT(cert-err34-c): checked below
    if (name == "--json" && i + 1 < argc) {
      options->json = argv[i + 1];
    } else if (name == "--ranks" && value > 0) {
      options->ranks = value;
    } else if (name == rounds_option && value > 0) {
      options->rounds = value;
    } else if (name == "--iterations" && value > 0) {
      options->iterations = value;
    } else if (name == "--seed" && value > 0) {
      options->seed = static_cast<unsigned>(value);
    } else {
      fputs(usage, stderr);
      return false;
    }
  }
  return true;
}

}  // namespace c4
