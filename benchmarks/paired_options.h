// Options of the benchmarks that run the reference trainer in pairs. Pure but for what it prints.
#pragma once

#include <string>

namespace c4 {

struct PairedOptions {
  int ranks = 8;
  int rounds = 0;
  int iterations = 0;
  unsigned seed = 1;
  std::string json;
};

// `defaults` with what the command line says: --ranks, --iterations, --seed, --json, and `rounds_option`
// ("--pairs") for the rounds. False after a word that is none of these or no positive number, when `usage`
// has been printed.
bool ParsePairedOptions(int argc, char** argv, const char* rounds_option, const char* usage,
                        PairedOptions* options);

}  // namespace c4
