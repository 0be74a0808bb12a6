// Writes a series of iteration times and its changes as text, as JSON and as a drawing. Gives strings and
// touches no files. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/failslow/change_detector.h"

namespace c4::failslow {

struct SeriesReport {
  std::string title;
  std::optional<uint32_t> period;  // calls of an iteration, where calls were given
  std::vector<double> times_s;     // NaN: none
  std::vector<Change> changes;
  std::vector<std::string> notes;  // what stands behind the line of each change; empty: nothing
};

// {"period","iterations","median_s","changes":[{"iteration","before_s","after_s","creeping","told_at"}]};
// what is not known is null.
std::string SeriesJson(const SeriesReport& report);

// A drawn series of at most `columns` columns, the changes marked below it, and a line for each.
std::string SeriesText(const SeriesReport& report, int columns);

// The same as SVG. A pause of single iterations is drawn up to the upper edge.
std::string SeriesSvg(const SeriesReport& report);

}  // namespace c4::failslow
