// A what-if analysis as a timeline, for Perfetto (docs/whatif.md).
#pragma once

#include <cstdio>

#include "analysis/whatif/analysis.h"

namespace c4::cli {

// As many of the first steps as make 200,000 events, in the format of Chrome's and Perfetto's viewers: what
// was recorded, and below it the ideal. False: it could not be written.
bool WriteTimeline(const whatif::Job& job, FILE* file);

}  // namespace c4::cli
