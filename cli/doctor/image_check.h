// What `c4 doctor --image` and `c4-install doctor` look at, and `c4 doctor` first of all: the library that
// jobs here get, what it works with, and the settings. Starts child processes: call it while this process has
// one thread.
#pragma once

#include "cli/doctor/finding.h"
#include "cli/doctor/library_facts.h"
#include "cli/options.h"
#include "cli/text/env_table.h"

namespace c4::cli {

class ImageCheck {
 public:
  // --json, --library and --python.
  void Declare(Options* options);
  Findings Run(KnobTables tables, const std::vector<std::string>& environment);
  // Prints them to stdout as --json asks, and returns the exit code.
  int Show(const Findings& findings) const;

 private:
  LibraryQuestion question_;
  bool json_ = false;
};

// What `c4 env` would show as wrong, in one line each. Pure.
Findings JudgeKnobs(KnobTables tables, const std::vector<std::string>& environment);

}  // namespace c4::cli
