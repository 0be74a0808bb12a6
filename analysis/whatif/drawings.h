// Drawings of what-if analyses, as SVG: workers as a heat map, steps as bars, a job's life as a line. From
// plain values, so that they can be made of a report that was kept as well (report_reader.h). On a dark page
// they are dark, titles are shown whole, times are UTC. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/whatif/analysis.h"

namespace c4::whatif {

// One entry a worker, [stage * dp_size + dp].
struct WorkerMap {
  std::string title;
  int dp_size = 0;
  int pp_size = 0;
  std::vector<int32_t> ranks;
  std::vector<double> slowdown;
  std::vector<double> alone;                // only this worker as recorded; empty: not said
  std::map<int32_t, int32_t> standing_for;  // of ranks of tensor and context groups: the one in `ranks`
};

WorkerMap MapOf(const Job& job, const Analysis& analysis);

// Data-parallel ranks beside each other, stages below each other, redder where slower, with the number where
// there is room; below them the scale.
std::string HeatmapSvg(const WorkerMap& map);

struct StepSlowdown {
  int32_t step = 0;
  double slowdown = 1;
};
// One bar a step, from 1 upwards.
std::string StepsSvg(const std::string& title, const std::vector<StepSlowdown>& steps);

// The slow-down at a moment of a job's life.
struct LifePoint {
  int64_t unix_ns = 0;
  double slowdown = 1;
  bool doubtful = false;
};
// In order of time. A line with a dot a session, hollow where it is doubtful; the line that marks a
// straggling job beside it.
std::string LifeSvg(const std::string& title, const std::vector<LifePoint>& points);

}  // namespace c4::whatif
