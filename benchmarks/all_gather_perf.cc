// all_gather_perf: time and bandwidth of ncclAllGather by size, in the manner of nccl-tests.
#include "benchmarks/perf_common.h"

namespace {

ncclResult_t MakeCall(const c4::perf::Call& call) {
  return ncclAllGather(call.send, call.recv, call.count, call.type, call.comm, call.stream);
}

}  // namespace

int main(int argc, char** argv) {
  return c4::perf::PerfMain(argc, argv, c4::perf::Kind::kAllGather, MakeCall);
}
