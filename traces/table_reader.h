// Reads a trace of the tabular format (docs/whatif.md): CSV whose first line names the columns, in any order,
// one operation a line.
//
// What damages the file as such (a column that is missing, text where a number belongs) is refused with its
// line; an operation that cannot be used (a negative duration) takes its step out of the analysis; an
// operation of a type that the analysis does not know is left out and counted. Memory: 40 bytes an operation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"
#include "traces/byte_source.h"

namespace c4::traces {

struct TableOptions {
  double seconds_per_unit = 1;                     // of start_ts, end_ts and duration
  std::vector<std::pair<int32_t, int32_t>> steps;  // first and last of each range; none: all
  size_t max_operations = size_t{200} * 1000 * 1000;
};

struct TableContents {
  whatif::TraceRecords records;
  std::vector<std::string> notes;  // sentences about what was left out
};

// InvalidArgument: "line 12: ...". DataLoss where a packed file breaks off.
absl::StatusOr<TableContents> ReadTable(ByteSource* source, const TableOptions& options);

}  // namespace c4::traces
