// A timeline as a file of Perfetto's (ui.perfetto.dev opens it). Any thread; no errors but those of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "cli/trace/trace_row.h"

namespace c4::cli {

struct PerfettoCounts {
  uint64_t rows = 0;
  uint64_t events = 0;  // slices, instants, counters' values
  bool written = false;
};

// `write` is handed the file piece by piece; false: it cannot be written, and nothing more is.
PerfettoCounts WritePerfetto(const Timeline& timeline, const std::function<bool(std::string_view)>& write);

}  // namespace c4::cli
