// Finds where a series left its level, and whether it left in one step. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>

namespace c4::failslow {

struct Departure {
  size_t index = 0;  // the first value that is off the level
  bool creeping = false;
};

// Fits a level and a step, and a level and a slope from some point on; takes what fits better by absolute
// distances. REQUIRES: at least 8 values.
Departure LocateDeparture(std::span<const double> values, double level);

}  // namespace c4::failslow
