// Runs the what-if analysis of many traces, each in a process of its own: one that is refused, crashes, takes
// too long or too much memory is written down with its reason, and the others go on. Report and record of a
// trace are put in place as soon as it has ended, so a batch that is killed has lost only what ran just then;
// its processes end with it.
//
// RunBatch blocks, on one thread, which has SIGINT and SIGTERM for itself meanwhile. Several batches may
// share an output folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/whatif/whatif_batch.h"

namespace c4::cli {

struct BatchPlan {
  std::string program;               // the `c4` to start
  std::vector<std::string> options;  // of `c4 whatif`, for every trace alike
  std::vector<BatchTrace> traces;
  std::string out;
  int processes = 1;
  BatchLimits limits;
  bool again = false;  // also what is finished
  bool retry = false;  // also what crashed or failed by its limits
};

struct BatchResult {
  size_t kept = 0;  // finished before, and not done again; counted below as well
  size_t analysed = 0;
  size_t refused = 0;  // or unreadable
  size_t failed = 0;   // crashed, out of time or of memory
  int signal = 0;      // that ended the batch
};

// `progress` hears of each record as it is made. An error: the output folder cannot be written.
absl::StatusOr<BatchResult> RunBatch(const BatchPlan& plan,
                                     const std::function<void(const BatchRecord&)>& progress);

}  // namespace c4::cli
