// Back from a report's JSON (report.h) to what drawings are made of: a report is kept as its JSON only.
// Pure; any thread. DataLoss: the text is no such report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/drawings.h"

namespace c4::whatif {

// `step`: of that step alone, the lesser of its data-parallel rank's and its stage's slow-down; NotFound
// where the report lacks it.
absl::StatusOr<WorkerMap> ReadWorkerMap(const std::string& report, std::optional<int32_t> step);

absl::StatusOr<std::vector<StepSlowdown>> ReadSteps(const std::string& report);

}  // namespace c4::whatif
