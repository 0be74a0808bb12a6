// Dumps of PyTorch's Flight Recorder, one file a rank: as PyTorch writes them (pickled, nccl_trace_rank_N) or
// converted to JSON. Versions 2.x; without the table of last operations, which came with 2.5 of the format,
// they are taken from the entries.
//
// Groups are matched by the name that all ranks share: `pg_id` is each rank's own count. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "analysis/dump_waits.h"
#include "traces/byte_source.h"

namespace c4::traces {

// The rank is what the dump says (`rank`), or else its name: the number behind the last "rank" in it, or the
// last number; or else the only rank that is in all groups of the dump. InvalidArgument, DataLoss with a
// sentence.
absl::StatusOr<analysis::RankDump> ParseFlightDump(ByteSource* source, const std::string& path);
absl::StatusOr<analysis::RankDump> ParseFlightDump(std::string_view text, const std::string& path);

}  // namespace c4::traces
