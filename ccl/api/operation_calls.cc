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

Operation Make(wire::Function function, const void* send_buffer, void* recv_buffer, size_t count,
               ncclDataType_t data_type, cudaStream_t stream) {
  Operation operation;
  operation.function = function;
  operation.send_buffer = send_buffer;
  operation.recv_buffer = recv_buffer;
  operation.count = count;
  operation.data_type = data_type;
  operation.stream = stream;
  return operation;
}

}  // namespace
}  // namespace c4::api

using c4::Operation;
using c4::api::Make;
using c4::api::SubmitAndReport;
namespace wire = c4::wire;

extern "C" ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream) {
  Operation operation = Make(wire::kAllReduce, sendbuff, recvbuff, count, datatype, stream);
  operation.reduction = op;
  return SubmitAndReport("ncclAllReduce", comm, operation);
}
C4_WEAK_TWIN(ncclAllReduce);

extern "C" ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  Operation operation = Make(wire::kReduce, sendbuff, recvbuff, count, datatype, stream);
  operation.reduction = op;
  operation.root = root;
  return SubmitAndReport("ncclReduce", comm, operation);
}
C4_WEAK_TWIN(ncclReduce);

// A broadcast in place.
extern "C" ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  Operation operation = Make(wire::kBroadcast, buff, buff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclBcast", comm, operation);
}
C4_WEAK_TWIN(ncclBcast);

extern "C" ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  Operation operation = Make(wire::kBroadcast, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclBroadcast", comm, operation);
}
C4_WEAK_TWIN(ncclBroadcast);

extern "C" ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  Operation operation = Make(wire::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, stream);
  operation.reduction = op;
  return SubmitAndReport("ncclReduceScatter", comm, operation);
}
C4_WEAK_TWIN(ncclReduceScatter);

extern "C" ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return SubmitAndReport("ncclAllGather", comm,
                         Make(wire::kAllGather, sendbuff, recvbuff, sendcount, datatype, stream));
}
C4_WEAK_TWIN(ncclAllGather);

extern "C" ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return SubmitAndReport("ncclAlltoAll", comm,
                         Make(wire::kAlltoAll, sendbuff, recvbuff, count, datatype, stream));
}
C4_WEAK_TWIN(ncclAlltoAll);

extern "C" ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  Operation operation = Make(wire::kGather, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclGather", comm, operation);
}
C4_WEAK_TWIN(ncclGather);

extern "C" ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream) {
  Operation operation = Make(wire::kScatter, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclScatter", comm, operation);
}
C4_WEAK_TWIN(ncclScatter);

extern "C" ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  Operation operation = Make(wire::kSend, sendbuff, nullptr, count, datatype, stream);
  operation.root = peer;
  return SubmitAndReport("ncclSend", comm, operation);
}
C4_WEAK_TWIN(ncclSend);

extern "C" ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  Operation operation = Make(wire::kRecv, nullptr, recvbuff, count, datatype, stream);
  operation.root = peer;
  return SubmitAndReport("ncclRecv", comm, operation);
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
