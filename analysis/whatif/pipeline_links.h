// The sends and receives of one pipeline: which computation each belongs to, which are two ends of a
// transfer, and which the profiler recorded though nothing was sent.
//
// Part of BuildGraph. Pure; any thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

struct PipelineLinks {
  // (send or receive, its computation), by stage and type.
  std::vector<std::pair<uint32_t, uint32_t>> computations;
  std::vector<std::pair<uint32_t, uint32_t>> transfers;  // (send, receive)
};

absl::StatusOr<PipelineLinks> LinkPipeline(const Trace& trace);

// By start, then sequence, then type: the order in which a stream runs them.
void SortByStart(const Trace& trace, std::vector<uint32_t>* operations);

}  // namespace c4::whatif
