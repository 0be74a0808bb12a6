// One line of a log of NCCL's Inspector (docs/sources.md): a collective that has finished, as one rank of its
// communicator saw it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "service/status.h"

namespace c4::c4d {

inline constexpr size_t kMostInspectorLineBytes = size_t{1} << 20;  // longer ones are refused

struct InspectorRecord {
  uint64_t communicator_id = 0;  // NCCL's hash, which RAS tells as well
  uint32_t rank = 0;             // in the communicator
  uint32_t rank_count = 0;
  std::string host;
  uint32_t pid = 0;
  std::string function;   // NCCL's name of it: "AllReduce"
  uint64_t sequence = 0;  // among the communicator's collectives of this function
  uint64_t bytes = 0;
  int64_t dumped_unix_ns = 0;  // when the line was written, by the host's clock
  // From the start of its kernel on the GPU to its end; where the log does not say when that was (it is not
  // verbose), the operation is taken to have ended when the line was written.
  int64_t began_unix_ns = 0;
  int64_t ended_unix_ns = 0;
};

// InvalidArgument, with what is wrong: it is cut off, or no record of Inspector's. Nothing of format versions
// is asked: what is read has the same names since the first one.
absl::StatusOr<InspectorRecord> ParseInspectorLine(std::string_view line);

}  // namespace c4::c4d
