// What a batch of what-if analyses is made of: the traces of a folder, the share of them that falls to one
// task of a Slurm array, and what is kept of each trace in the output folder, so that a batch that was
// interrupted goes on where it stood.
//
// FindTraces and SourceMark look at files; the rest is pure. Any thread. Errors are sentences that name the
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/status.h"

namespace c4::cli {

struct BatchTrace {
  std::string name;  // of the file or folder
  std::string path;
  std::string metadata;  // a path; empty: none lies beside it
  std::string mapping;   // a path; empty: it is no folder of profiles
};

// "job.csv" and "job.tsv", also with .gz or .zst behind, and the recording "job.c4rec"; what is before these
// is the stem.
bool IsTraceName(std::string_view name);
std::string TraceStem(std::string_view name);

// By name. Metadata are the first that there is of STEM.yaml, STEM.yml, STEM.json, but a recording has its
// own. Without a mapping: the traces in the folder; folders in it are passed over. With one: the folders in
// it that hold profiles (*.json*), each of them a job.
absl::StatusOr<std::vector<BatchTrace>> FindTraces(const std::string& folder, const std::string& mapping);

// One task of an array takes each count-th trace, beginning with its own index.
struct ArrayShare {
  int index = 0;
  int count = 1;  // 1: all of them

  bool Has(size_t trace) const { return trace % static_cast<size_t>(count) == static_cast<size_t>(index); }
};
// From SLURM_ARRAY_TASK_ID and its like; everything where there is no array.
absl::StatusOr<ArrayShare> ShareOfArray(const std::vector<std::string>& environment);

enum class TraceState {
  kAnalysed,
  kRefused,     // by the reader or the analysis
  kUnreadable,  // a file could not be opened
  kCrashed,
  kTimedOut,
  kNoMemory,
};
const char* TraceStateName(TraceState state);

struct BatchLimits {
  double time_s = 0;       // 0: none
  int64_t memory_mib = 0;  // of one process; 0: none
};

// What came of one trace; STATES/NAME.json.
struct BatchRecord {
  std::string trace;  // its name
  TraceState state = TraceState::kCrashed;
  std::string reason;  // empty when analysed
  std::string mark;    // of what it was made of
  double elapsed_s = 0;
  int64_t peak_mib = 0;
  BatchLimits limits;
};
std::string BatchRecordJson(const BatchRecord& record);
absl::StatusOr<BatchRecord> ParseBatchRecord(const std::string& text);

// Size and time of the trace, its metadata and its mapping, and the options: whatever the report depends on.
absl::StatusOr<std::string> SourceMark(const BatchTrace& trace, const std::vector<std::string>& options);

// Whether the trace need not be analysed again: nothing it depends on has changed, and neither was a file
// missing nor are the limits it failed by any wider now. `retry`: crashes do not count either.
bool StillHolds(const BatchRecord& record, const std::string& mark, const BatchLimits& limits, bool retry);

// Paths in the output folder.
std::string ReportsFolder(const std::string& out);
std::string StatesFolder(const std::string& out);
std::string ReportPath(const std::string& out, const std::string& name);
std::string StatePath(const std::string& out, const std::string& name);

}  // namespace c4::cli
