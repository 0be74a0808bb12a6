// Dumps of PyTorch's Flight Recorder, one file a rank, as JSON (its own files are pickled; `torchfrtrace` and
// the authors of recordings convert them). Versions 2.x; without the table of last operations, which came
// with 2.5 of the format, they are taken from the entries.
//
// Groups are matched by the name that all ranks share: `pg_id` is each rank's own count. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "analysis/dump_waits.h"

namespace c4::traces {

// `file_name` tells the rank (the last number in it), as the dump does not. InvalidArgument with a sentence.
absl::StatusOr<analysis::RankDump> ParseFlightDump(std::string_view text, const std::string& file_name);

}  // namespace c4::traces
