// What `c4 whatif` is given: the trace and its metadata, and the words of --fix, --keep and --steps.
//
// Any thread. Every error is a sentence; the file's name stands in front of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/analysis.h"
#include "analysis/whatif/remedies.h"

namespace c4::cli {

struct WhatIfInput {
  std::string trace;
  std::vector<std::string> kineto;                 // with a mapping these are read instead of `trace`
  std::string mapping;                             // empty: none
  std::string metadata;                            // empty: none
  std::string time_unit = "s";                     // s, ms, us, ns
  std::vector<std::pair<int32_t, int32_t>> steps;  // none: all
  size_t max_operations = 0;                       // 0: the reader's default, or what free memory holds
};

// A table of operations, or a recording of `c4 record` (told by its first bytes).
// NotFound and the like when a file cannot be opened; InvalidArgument and others when it is refused.
absl::StatusOr<whatif::Job> ReadJob(const WhatIfInput& input);

// "12,20-23".
absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> ParseSteps(const std::string& text);

// "type=forward-compute,stage=3": what is of all these; several values of one key: any of them, as
// "stage=2+3". Keys: type, worker (a rank), dp, stage, step (also "20-23").
absl::StatusOr<whatif::Selection> ParseSelection(const std::string& text, const whatif::Trace& trace);

// Words of --fix: selections, and "cause=pauses", also several of them, "cause=pauses+worker".
absl::StatusOr<whatif::Fix> ParseFix(const std::vector<std::string>& words, const whatif::Trace& trace);

}  // namespace c4::cli
