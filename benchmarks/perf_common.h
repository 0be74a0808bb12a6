// Frame of the programs that measure collectives (all_reduce_perf and its like): everything but the call
// itself. A program's main hands PerfMain its kind and a function that makes the call.
//
// A process has -t threads of -g ranks each; a thread drives its ranks alone, and only threads of one process
// share anything, which is the ticket to join by. Buffers are host memory; only nccl.h and c4/stream.h are
// used, so that what is measured is what a user gets. Any failure is printed with the rank and ends the
// process with status 1, as do wrong results.
#pragma once

#include <cstddef>

#include "benchmarks/perf_shapes.h"
#include "ccl/include/nccl.h"

namespace c4::perf {

// What one call of a collective works on.
struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t reduction = ncclSum;
  int root = -1;
  Place place;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
using MakeCall = ncclResult_t (*)(const Call& call);

int PerfMain(int argc, char** argv, Kind kind, MakeCall make_call);

}  // namespace c4::perf
