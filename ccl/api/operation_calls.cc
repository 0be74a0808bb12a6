// The exported functions that move data, and groups of them.
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/last_error.h"
#include "ccl/include/nccl.h"

namespace c4::api {
namespace {

ncclResult_t SubmitAndReport(const char* call, ncclComm_t comm, const Operation& operation) {
  const Result result = Submit(comm, operation);
  NoteInGroup(call, result);
  return Report(call, comm, result);
}

}  // namespace
}  // namespace c4::api

extern "C" ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream) {
  c4::Operation operation;
  operation.function = c4::wire::kAllReduce;
  operation.send_buffer = sendbuff;
  operation.recv_buffer = recvbuff;
  operation.count = count;
  operation.data_type = datatype;
  operation.reduction = op;
  operation.stream = stream;
  return c4::api::SubmitAndReport("ncclAllReduce", comm, operation);
}
C4_WEAK_TWIN(ncclAllReduce);

extern "C" ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  c4::Operation operation;
  operation.function = c4::wire::kSend;
  operation.send_buffer = sendbuff;
  operation.count = count;
  operation.data_type = datatype;
  operation.root = peer;
  operation.stream = stream;
  return c4::api::SubmitAndReport("ncclSend", comm, operation);
}
C4_WEAK_TWIN(ncclSend);

extern "C" ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  c4::Operation operation;
  operation.function = c4::wire::kRecv;
  operation.recv_buffer = recvbuff;
  operation.count = count;
  operation.data_type = datatype;
  operation.root = peer;
  operation.stream = stream;
  return c4::api::SubmitAndReport("ncclRecv", comm, operation);
}
C4_WEAK_TWIN(ncclRecv);

extern "C" ncclResult_t pncclGroupStart() {
  return c4::api::Report("ncclGroupStart", nullptr, c4::api::StartGroup());
}
C4_WEAK_TWIN(ncclGroupStart);

extern "C" ncclResult_t pncclGroupEnd() {
  return c4::api::Report("ncclGroupEnd", nullptr, c4::api::EndGroup());
}
C4_WEAK_TWIN(ncclGroupEnd);
