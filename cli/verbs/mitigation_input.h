// What `c4 mitigate` is given, read from words of the command line and from files. Any thread; every error is
// a sentence, which names the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/mitigation/iteration_model.h"

namespace c4::cli {

// "1.0,1.3,0.9": times in seconds; or a file of them, one a line, or a table whose only column they are.
// NotFound and the like when it is neither; InvalidArgument when it is refused.
absl::StatusOr<std::vector<double>> ReadGroupTimes(const std::string& text);

// What `c4 mitigate s3` is told of a job; units as on the command line.
struct PlacementWords {
  std::string layout;              // "dp=4,pp=4,per-node=1"; per-node may be missing
  std::vector<std::string> links;  // "2:3=0.1": nodes, and the share of the speed that is left
  std::vector<std::string> nics;   // "2=0.1": a node
  std::vector<std::string> slow;   // "5=1.8": a place, and how many times as long it computes
  std::string order = "dp";        // what stands side by side in a node: the groups of a stage (dp), or pp
  int micro_batches = 8;           // of each group
  double forward_ms = 4;
  double backward_ms = 8;
  double outer = 1;  // what the first and the last stage compute besides: 1.1: a tenth
  double gradient_mb = 800;
  double activation_mb = 20;
  double state_mb = 6000;
  double node_gbit_s = 400;
  double inner_gbit_s = 3600;
  double latency_us = 5;
};

absl::StatusOr<mitigation::PlacedJob> ReadPlacedJob(const PlacementWords& words);
// As the job is placed now.
absl::StatusOr<mitigation::Placement> ReadPlacement(const PlacementWords& words,
                                                    const mitigation::PlacedJob& job);

}  // namespace c4::cli
