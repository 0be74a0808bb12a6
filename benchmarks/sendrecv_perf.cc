// sendrecv_perf: time and bandwidth of ncclSend to the next rank together with ncclRecv from the previous
// one, by size, in the manner of nccl-tests.
#include "benchmarks/perf_common.h"

namespace {

ncclResult_t MakeCall(const c4::perf::Call& call) {
  const int ranks = call.place.ranks;
  const int next = (call.place.rank + 1) % ranks;
  const int previous = (call.place.rank + ranks - 1) % ranks;
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  result = ncclSend(call.send, call.count, call.type, next, call.comm, call.stream);
  if (result == ncclSuccess)
    result = ncclRecv(call.recv, call.count, call.type, previous, call.comm, call.stream);
  const ncclResult_t end = ncclGroupEnd();  // says again what has failed
  return result == ncclSuccess ? end : result;
}

}  // namespace

int main(int argc, char** argv) {
  return c4::perf::PerfMain(argc, argv, c4::perf::Kind::kSendRecv, MakeCall);
}
