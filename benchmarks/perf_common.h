// Frame of the programs that measure collectives (all_reduce_perf and its like): everything but the
// collective itself. A program derives from Collective, and its main calls PerfMain.
//
// One process a rank, one thread. Buffers are host memory; only nccl.h and c4/stream.h are used, so that what
// is measured is what a user gets. Any failure is printed with the rank and ends the process with status 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "benchmarks/perf_options.h"
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
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// How a size in bytes becomes a call, in elements.
struct Shape {
  size_t count = 0;  // the call's argument
  size_t send_elements = 0;
  size_t recv_elements = 0;
  size_t bytes = 0;  // that the table shows and bandwidths are made of
  // In place, both buffers are one: where in it each begins.
  size_t in_place_send_offset = 0;
  size_t in_place_recv_offset = 0;
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual const char* function() const = 0;  // ncclAllReduce
  virtual Shape ShapeOf(size_t bytes, size_t element_bytes, Place place) const = 0;
  virtual ncclResult_t Run(const Call& call) const = 0;
  // What element `index` of this rank's receive buffer has to be after an operation on Value's data.
  virtual float Expected(size_t index, uint32_t round, Place place) const = 0;
  // The bus bandwidth is the algorithm's times this.
  virtual double BusFactor(int ranks) const = 0;
};

int PerfMain(int argc, char** argv, const Collective& collective);

}  // namespace c4::perf
