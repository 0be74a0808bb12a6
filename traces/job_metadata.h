// The metadata beside a trace: the degrees of parallelism, as YAML ("dp_size: 2", one a line) or as a JSON
// object. Keys that the analysis does not need are passed over.
//
// Pure; any thread.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"

namespace c4::traces {

// InvalidArgument: "line 3: ...".
absl::StatusOr<whatif::JobShape> ParseJobMetadata(std::string_view text);

}  // namespace c4::traces
