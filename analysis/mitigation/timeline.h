// A run with fail-slows in it, with mitigation and without, as a drawing: what an iteration took, when
// something was slow, when something was done about it (docs/mitigation.md#figures has the format of the file
// that benchmarks/mitigation_trace.py writes). Strings, no files. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace c4::mitigation {

struct TimelinePoint {
  double at_s = 0;  // the iteration's end, since the run's begin
  double ms = 0;    // that it took
};

struct TimelineEvent {
  double from_s = 0;
  double until_s = 0;
  std::string what;
};

struct TimelineAction {
  double at_s = 0;
  std::string strategy;  // S2, S3, S4
  std::string kind;      // act, step-back
  std::string why;
};

struct TimelineRun {
  std::string name;
  bool mitigated = false;
  std::vector<TimelinePoint> iterations;
  std::vector<TimelineEvent> events;
  std::vector<TimelineAction> actions;
};

struct Timeline {
  std::string title;
  std::vector<TimelineRun> runs;
};

// InvalidArgument with a sentence: what is no such file, a run without iterations, a time that is none.
absl::StatusOr<Timeline> ParseTimeline(std::string_view json);

// One panel a run, one below the other, on the same axes. The line is the median of the iterations that share
// a column of the picture; above the upper end of the axis, which leaves out the longest hundredth, it is
// cut.
std::string TimelineSvg(const Timeline& timeline);

}  // namespace c4::mitigation
