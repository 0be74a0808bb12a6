// Reads files of iteration times and of calls for `c4 iterations` (docs/failslow.md): one value a line, or
// tables whose first line names the columns. Also packed (byte_source.h).
//
// What damages the file as such (text where a time belongs, a column that is missing) is refused with its
// line; a time that is none (NaN, infinite, zero, negative) keeps its place and is counted. 8 bytes of memory
// a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/byte_source.h"

namespace c4::traces {

struct IterationTimes {
  std::vector<double> times_s;  // NaN: none
  size_t unusable = 0;
  uint32_t first_unusable_line = 0;
};

struct TimesOptions {
  std::string column;  // empty: the only one
  double seconds_per_unit = 1;
  size_t most = 50'000'000;
};

// InvalidArgument: "line 12: ...".
absl::StatusOr<IterationTimes> ReadIterationTimes(ByteSource* source, const TimesOptions& options);

struct CallColumn {
  std::string name;              // empty: the file does not say
  std::vector<uint64_t> values;  // a hash of each text
};

struct CallTable {
  std::vector<CallColumn> columns;  // what may make up the token of a call
  std::vector<double> times_s;      // of each call; NaN: none. Empty: there is no such column
  size_t calls = 0;
};

struct CallsOptions {
  std::vector<std::string> columns;  // that make up the token; none: those that may
  std::string time_column;  // empty: one that is called time, timestamp or ts (also time_s, start_ts)
  double seconds_per_unit = 1;
  size_t most_values = 50'000'000;
};

// Without a choice, columns that take another value in more than half of the lines (counters, times,
// durations) are left out: they cannot repeat. A file of one column, or without a header and with one line a
// call, has one token a line.
absl::StatusOr<CallTable> ReadCalls(ByteSource* source, const CallsOptions& options);

}  // namespace c4::traces
