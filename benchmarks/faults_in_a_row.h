// Seeded faults in one job, one after the other, a fourth of them followed by another while the job is being
// brought back; hosts stay out until somebody comes, as they would. What has to hold: the job runs again
// after each, no host is isolated to which nothing was done, never more than the cap at a time, and every
// loss and the weights at the end are those of a run without faults.
//
// One thread, the main one. Root.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/elastic_range.h"

namespace c4::benchmarks {

struct RowResult {
  int faults = 0;
  int during = 0;  // of these: while the job was being brought back
  int incidents = 0;
  int isolations = 0;
  int most_out = 0;
  int cap = 0;
  std::vector<double> verdict_to_iteration_s;
  size_t compared = 0;  // iterations of which the losses were compared
  std::vector<std::string> wrong;
};

// An error: the job does not run again, or could not begin.
absl::StatusOr<RowResult> FaultsInARow(int count, unsigned seed, const std::string& log_dir,
                                       const ElasticRange::Say& say);

}  // namespace c4::benchmarks
