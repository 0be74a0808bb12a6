// The what-if analysis of a job as a person reads it in ten seconds, and as JSON (docs/whatif.md). The
// command line and SMon both take them from here, so that they never differ. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"
#include "analysis/whatif/causes.h"

namespace c4::whatif {

// A --fix or --keep, with its answer.
struct Question {
  bool fix = false;
  std::vector<std::string> words;
  Answer answer;
};

// Everything that is known of a job, for a report of it.
struct Report {
  const Job& job;
  const Analysis& analysis;
  const Causes& causes;
  std::vector<Question> questions;
  bool why_not = false;  // the text also says why the other causes are not named
};

std::string ReportText(const Report& report);
// `indent`: spaces a level; -1: all on one line.
std::string ReportJson(const Report& report, int indent = 2);

}  // namespace c4::whatif
