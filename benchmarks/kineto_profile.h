// A synthetic job's operations of one rank as PyTorch's profiler would have written them: marks on the GPU
// and earlier ones of the same names on the CPU, kernels of collectives, steps, and among them events that
// are no operation. For tests of the reader and for measuring it; examples/kineto-megatron.json is its
// mapping.
//
// Deterministic; any thread.
#pragma once

#include <functional>
#include <string_view>

#include "analysis/whatif/trace.h"

namespace c4::benchmarks {

struct KinetoProfile {
  int rank = 0;          // as the records name it
  int written_rank = 0;  // as the file says
  int world_size = 1;
  int padding = 2;  // events that are no operation, for each that is one
};

// `put` gets the text in pieces.
void WriteKinetoProfile(const whatif::TraceRecords& records, const KinetoProfile& profile,
                        const std::function<void(std::string_view)>& put);

}  // namespace c4::benchmarks
