// The exported functions that move data, and groups of them.
#include <algorithm>

#include "ccl/api/checks.h"
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/last_error.h"
#include "ccl/engine/vendor/calls.h"
#include "ccl/include/nccl.h"

namespace c4::api {
namespace {

ncclResult_t SubmitAndReport(const char* call, ncclComm_t comm, const Operation& operation) {
  return ReportInGroup(call, comm, [&] { return Submit(comm, operation); });
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

// A reduction that the program made has another number on each rank: all of them count as one.
uint8_t ReductionNumber(ncclRedOp_t reduction) {
  return static_cast<uint8_t>(std::min(NumberOf(reduction), static_cast<int>(ncclNumOps)));
}

}  // namespace
}  // namespace c4::api

using c4::ObservedCall;
using c4::Operation;
using c4::api::Make;
using c4::api::ReductionNumber;
using c4::api::SubmitAndReport;
namespace vendor = c4::vendor;
namespace wire = c4::wire;

extern "C" ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kAllReduce, sendbuff, recvbuff, count, datatype, stream);
    call.info.reduction = ReductionNumber(op);
    return vendor::Operate("ncclAllReduce", api->AllReduce, comm, call, sendbuff, recvbuff, count, datatype,
                           op, comm, stream);
  }
  Operation operation = Make(wire::kAllReduce, sendbuff, recvbuff, count, datatype, stream);
  operation.reduction = op;
  return SubmitAndReport("ncclAllReduce", comm, operation);
}
C4_WEAK_TWIN(ncclAllReduce);

extern "C" ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kReduce, sendbuff, recvbuff, count, datatype, stream);
    call.info.reduction = ReductionNumber(op);
    call.info.root = root;
    return vendor::Operate("ncclReduce", api->Reduce, comm, call, sendbuff, recvbuff, count, datatype, op,
                           root, comm, stream);
  }
  Operation operation = Make(wire::kReduce, sendbuff, recvbuff, count, datatype, stream);
  operation.reduction = op;
  operation.root = root;
  return SubmitAndReport("ncclReduce", comm, operation);
}
C4_WEAK_TWIN(ncclReduce);

// A broadcast in place.
extern "C" ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kBroadcast, buff, buff, count, datatype, stream);
    call.info.root = root;
    return vendor::Operate("ncclBcast", api->Bcast, comm, call, buff, count, datatype, root, comm, stream);
  }
  Operation operation = Make(wire::kBroadcast, buff, buff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclBcast", comm, operation);
}
C4_WEAK_TWIN(ncclBcast);

extern "C" ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kBroadcast, sendbuff, recvbuff, count, datatype, stream);
    call.info.root = root;
    return vendor::Operate("ncclBroadcast", api->Broadcast, comm, call, sendbuff, recvbuff, count, datatype,
                           root, comm, stream);
  }
  Operation operation = Make(wire::kBroadcast, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclBroadcast", comm, operation);
}
C4_WEAK_TWIN(ncclBroadcast);

extern "C" ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call =
        vendor::Describe(wire::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, stream);
    call.info.reduction = ReductionNumber(op);
    return vendor::Operate("ncclReduceScatter", api->ReduceScatter, comm, call, sendbuff, recvbuff, recvcount,
                           datatype, op, comm, stream);
  }
  Operation operation = Make(wire::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, stream);
  operation.reduction = op;
  return SubmitAndReport("ncclReduceScatter", comm, operation);
}
C4_WEAK_TWIN(ncclReduceScatter);

extern "C" ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kAllGather, sendbuff, recvbuff, sendcount, datatype, stream);
    return vendor::Operate("ncclAllGather", api->AllGather, comm, call, sendbuff, recvbuff, sendcount,
                           datatype, comm, stream);
  }
  return SubmitAndReport("ncclAllGather", comm,
                         Make(wire::kAllGather, sendbuff, recvbuff, sendcount, datatype, stream));
}
C4_WEAK_TWIN(ncclAllGather);

extern "C" ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kAlltoAll, sendbuff, recvbuff, count, datatype, stream);
    return vendor::Operate("ncclAlltoAll", api->AlltoAll, comm, call, sendbuff, recvbuff, count, datatype,
                           comm, stream);
  }
  return SubmitAndReport("ncclAlltoAll", comm,
                         Make(wire::kAlltoAll, sendbuff, recvbuff, count, datatype, stream));
}
C4_WEAK_TWIN(ncclAlltoAll);

extern "C" ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kGather, sendbuff, recvbuff, count, datatype, stream);
    call.info.root = root;
    return vendor::Operate("ncclGather", api->Gather, comm, call, sendbuff, recvbuff, count, datatype, root,
                           comm, stream);
  }
  Operation operation = Make(wire::kGather, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclGather", comm, operation);
}
C4_WEAK_TWIN(ncclGather);

extern "C" ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kScatter, sendbuff, recvbuff, count, datatype, stream);
    call.info.root = root;
    return vendor::Operate("ncclScatter", api->Scatter, comm, call, sendbuff, recvbuff, count, datatype, root,
                           comm, stream);
  }
  Operation operation = Make(wire::kScatter, sendbuff, recvbuff, count, datatype, stream);
  operation.root = root;
  return SubmitAndReport("ncclScatter", comm, operation);
}
C4_WEAK_TWIN(ncclScatter);

extern "C" ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kSend, sendbuff, nullptr, count, datatype, stream);
    call.info.root = peer;
    return vendor::Operate("ncclSend", api->Send, comm, call, sendbuff, count, datatype, peer, comm, stream);
  }
  Operation operation = Make(wire::kSend, sendbuff, nullptr, count, datatype, stream);
  operation.root = peer;
  return SubmitAndReport("ncclSend", comm, operation);
}
C4_WEAK_TWIN(ncclSend);

extern "C" ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    ObservedCall call = vendor::Describe(wire::kRecv, nullptr, recvbuff, count, datatype, stream);
    call.info.root = peer;
    return vendor::Operate("ncclRecv", api->Recv, comm, call, recvbuff, count, datatype, peer, comm, stream);
  }
  Operation operation = Make(wire::kRecv, nullptr, recvbuff, count, datatype, stream);
  operation.root = peer;
  return SubmitAndReport("ncclRecv", comm, operation);
}
C4_WEAK_TWIN(ncclRecv);

// Since 2.32, with settings for one call, which concern the GPU's side of it.

C4_LATER ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  ObservedCall call = vendor::Describe(wire::kAllReduce, sendbuff, recvbuff, count, datatype, stream);
  call.info.reduction = ReductionNumber(op);
  return vendor::Operate("ncclAllReduceConfig", api->AllReduceConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, op, comm, stream, config);
}
C4_WEAK_TWIN(ncclAllReduceConfig);

C4_LATER ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
                                        ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                                        cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
  ObservedCall call = vendor::Describe(wire::kReduce, sendbuff, recvbuff, count, datatype, stream);
  call.info.reduction = ReductionNumber(op);
  call.info.root = root;
  return vendor::Operate("ncclReduceConfig", api->ReduceConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, op, root, comm, stream, config);
}
C4_WEAK_TWIN(ncclReduceConfig);

C4_LATER ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count,
                                           ncclDataType_t datatype, int root, ncclComm_t comm,
                                           cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
  ObservedCall call = vendor::Describe(wire::kBroadcast, sendbuff, recvbuff, count, datatype, stream);
  call.info.root = root;
  return vendor::Operate("ncclBroadcastConfig", api->BroadcastConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, root, comm, stream, config);
}
C4_WEAK_TWIN(ncclBroadcastConfig);

C4_LATER ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
  ObservedCall call = vendor::Describe(wire::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, stream);
  call.info.reduction = ReductionNumber(op);
  return vendor::Operate("ncclReduceScatterConfig", api->ReduceScatterConfig, comm, call, sendbuff, recvbuff,
                         recvcount, datatype, op, comm, stream, config);
}
C4_WEAK_TWIN(ncclReduceScatterConfig);

C4_LATER ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                           const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
  const ObservedCall call =
      vendor::Describe(wire::kAllGather, sendbuff, recvbuff, sendcount, datatype, stream);
  return vendor::Operate("ncclAllGatherConfig", api->AllGatherConfig, comm, call, sendbuff, recvbuff,
                         sendcount, datatype, comm, stream, config);
}
C4_WEAK_TWIN(ncclAllGatherConfig);

C4_LATER ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count,
                                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                          const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
  const ObservedCall call = vendor::Describe(wire::kAlltoAll, sendbuff, recvbuff, count, datatype, stream);
  return vendor::Operate("ncclAlltoAllConfig", api->AlltoAllConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, comm, stream, config);
}
C4_WEAK_TWIN(ncclAlltoAllConfig);

C4_LATER ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count,
                                        ncclDataType_t datatype, int root, ncclComm_t comm,
                                        cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
  ObservedCall call = vendor::Describe(wire::kGather, sendbuff, recvbuff, count, datatype, stream);
  call.info.root = root;
  return vendor::Operate("ncclGatherConfig", api->GatherConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, root, comm, stream, config);
}
C4_WEAK_TWIN(ncclGatherConfig);

C4_LATER ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count,
                                         ncclDataType_t datatype, int root, ncclComm_t comm,
                                         cudaStream_t stream, const void* config) {
  const vendor::Api* const api = vendor::ApiOf(comm);
  if (api == nullptr) return pncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
  ObservedCall call = vendor::Describe(wire::kScatter, sendbuff, recvbuff, count, datatype, stream);
  call.info.root = root;
  return vendor::Operate("ncclScatterConfig", api->ScatterConfig, comm, call, sendbuff, recvbuff, count,
                         datatype, root, comm, stream, config);
}
C4_WEAK_TWIN(ncclScatterConfig);

// A group may hold operations of both engines.

extern "C" ncclResult_t pncclGroupStart() {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) {
    const ncclResult_t result = vendor::GroupStart(*api);
    if (result != ncclSuccess || !c4::api::InGroup()) return result;
  }
  return c4::api::Report("ncclGroupStart", nullptr, [&] { return c4::api::StartGroup(); });
}
C4_WEAK_TWIN(ncclGroupStart);

extern "C" ncclResult_t pncclGroupEnd() {
  ncclResult_t theirs = ncclSuccess;
  if (const vendor::Api* const api = vendor::ApiOfProcess()) {
    theirs = vendor::GroupEnd(*api);
    if (!c4::api::InGroup()) return theirs;
  }
  const ncclResult_t ours = c4::api::Report("ncclGroupEnd", nullptr, [&] { return c4::api::EndGroup(); });
  return ours == ncclSuccess ? theirs : ours;
}
C4_WEAK_TWIN(ncclGroupEnd);
