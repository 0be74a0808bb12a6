// A timeline as plain values: rows with slices, instants and counters, in rows. What `c4 trace` draws, before
// it has a file format.
//
// Times are on the master's monotonic clock, in nanoseconds. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::cli {

struct TraceDetail {
  enum class Kind { kWhole, kReal, kText };
  const char* name = "";  // of static storage
  Kind kind = Kind::kWhole;
  int64_t whole = 0;
  double real = 0;
  std::string text;
};
inline TraceDetail Whole(const char* name, int64_t value) {
  return {name, TraceDetail::Kind::kWhole, value, 0, ""};
}
inline TraceDetail Real(const char* name, double value) {
  return {name, TraceDetail::Kind::kReal, 0, value, ""};
}
inline TraceDetail Text(const char* name, const std::string& value) {
  return {name, TraceDetail::Kind::kText, 0, 0, value};
}

// With `from_ns` equal to `to_ns` it is an instant. Slices of a row may overlap.
struct TraceSlice {
  int64_t from_ns = 0;
  int64_t to_ns = 0;
  std::string name;
  std::vector<TraceDetail> details;
  // Numbers of arrows, unique in the timeline: each leads from one slice to another that does not begin
  // earlier.
  std::vector<uint64_t> arrows_from;
  std::vector<uint64_t> arrows_to;
};

struct TracePoint {
  int64_t at_ns = 0;
  double value = 0;
};

// What stands in a row; kOther: nothing but the rows below it, or a counter.
enum class RowKind { kOther, kVerdicts, kIterations, kHardware, kProcess, kMarks, kOperations };

struct TraceRow {
  std::string name;
  std::string unit;                // of a counter; empty: it is none
  std::vector<TraceSlice> slices;  // in any order
  std::vector<TracePoint> points;  // of a counter, by time
  std::vector<TraceRow> rows;      // below it, in the order in which they are shown
  RowKind kind = RowKind::kOther;
  int32_t rank = -1;  // whose it and what is below it is
};

struct Timeline {
  std::vector<TraceRow> groups;  // the outermost rows
  int64_t at_ns = 0;             // this moment ...
  int64_t unix_ns = 0;           // ... is that one on the wall
  uint64_t left_out = 0;         // events that were more than is kept
};

}  // namespace c4::cli
