// The what-if analysis of a job as a person reads it in ten seconds, as JSON, as a heat map and as a timeline
// (docs/whatif.md). Pure but for WriteTimeline; any thread.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "analysis/whatif/causes.h"

namespace c4::cli {

// A --fix or --keep, with its answer.
struct Question {
  bool fix = false;
  std::vector<std::string> words;
  whatif::Answer answer;
};

// Everything that is known of a job, for a report of it.
struct WhatIfReport {
  const whatif::Job& job;
  const whatif::Analysis& analysis;
  const whatif::Causes& causes;
  std::vector<Question> questions;
};

std::string WhatIfText(const WhatIfReport& report);
std::string WhatIfJson(const WhatIfReport& report);

// Workers as cells: data-parallel ranks beside each other, stages below each other, darker where slower.
std::string HeatmapSvg(const whatif::Job& job, const whatif::Analysis& analysis);

// As many of the first steps as make 200,000 events, in the format of Chrome's and Perfetto's viewers: what
// was recorded, and below it the ideal. False: it could not be written.
bool WriteTimeline(const whatif::Job& job, FILE* file);

}  // namespace c4::cli
