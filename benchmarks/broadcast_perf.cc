// broadcast_perf: time and bandwidth of ncclBroadcast by size, in the manner of nccl-tests.
#include "benchmarks/perf_common.h"

namespace {

ncclResult_t MakeCall(const c4::perf::Call& call) {
  return ncclBroadcast(call.send, call.recv, call.count, call.type, call.root, call.comm, call.stream);
}

}  // namespace

int main(int argc, char** argv) {
  return c4::perf::PerfMain(argc, argv, c4::perf::Kind::kBroadcast, MakeCall);
}
