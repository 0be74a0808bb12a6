// all_reduce_perf: time and bandwidth of ncclAllReduce by size, in the manner of nccl-tests.
#include "benchmarks/perf_common.h"
#include "benchmarks/perf_data.h"

namespace c4::perf {
namespace {

class AllReduce : public Collective {
 public:
  const char* function() const override { return "ncclAllReduce"; }

  Shape ShapeOf(size_t bytes, size_t element_bytes, Place) const override {
    Shape shape;
    shape.count = bytes / element_bytes;
    shape.send_elements = shape.count;
    shape.recv_elements = shape.count;
    shape.bytes = shape.count * element_bytes;
    return shape;
  }

  ncclResult_t Run(const Call& call) const override {
    return ncclAllReduce(call.send, call.recv, call.count, call.type, call.reduction, call.comm, call.stream);
  }

  float Expected(size_t index, uint32_t round, Place place) const override {
    static const ExpectedSum sum(place.ranks);
    return sum.At(index, round);
  }

  // Each rank sends and receives all data twice, less its own part.
  double BusFactor(int ranks) const override { return 2.0 * (ranks - 1) / ranks; }
};

}  // namespace
}  // namespace c4::perf

int main(int argc, char** argv) {
  return c4::perf::PerfMain(argc, argv, c4::perf::AllReduce());
}
