// The exported functions that this version does not offer: each says so in a sentence of its own. Those that
// return no code return what cannot be mistaken for an answer. A group in which one was called fails as a
// whole, as with any other call that failed.
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/last_error.h"
#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"

namespace c4::api {
namespace {

Result NotOffered(const char* call) {
  return Fail(ncclInvalidUsage,
              "this version of the library does not offer %s; of the operations it offers ncclAllReduce, "
              "ncclSend and ncclRecv",
              call);
}

// `comm` is the communicator that the call was given, or NULL where it was given none.
ncclResult_t Refuse(const char* call, ncclComm_t comm) {
  return Report(call, comm, NotOffered(call));
}

// The same for calls that a group collects.
ncclResult_t RefuseInGroup(const char* call, ncclComm_t comm) {
  const Result result = NotOffered(call);
  NoteInGroup(call, result);
  return Report(call, comm, result);
}

int RefuseNumber(const char* call, ncclComm_t comm) {
  Refuse(call, comm);
  return -1;
}

ncclTeam_t RefuseTeam(const char* call, ncclComm_t comm) {
  Refuse(call, comm);
  return {0, -1, 0};
}

}  // namespace
}  // namespace c4::api

using c4::api::Refuse;
using c4::api::RefuseInGroup;
using c4::api::RefuseNumber;
using c4::api::RefuseTeam;

// Communicators.

extern "C" ncclResult_t pncclCommInitRankScalable(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*) {
  return RefuseInGroup("ncclCommInitRankScalable", nullptr);
}
C4_WEAK_TWIN(ncclCommInitRankScalable);

extern "C" ncclResult_t pncclCommInitAll(ncclComm_t*, int, const int*) {
  return RefuseInGroup("ncclCommInitAll", nullptr);
}
C4_WEAK_TWIN(ncclCommInitAll);

extern "C" ncclResult_t pncclCommSplit(ncclComm_t comm, int, int, ncclComm_t*, ncclConfig_t*) {
  return RefuseInGroup("ncclCommSplit", comm);
}
C4_WEAK_TWIN(ncclCommSplit);

extern "C" ncclResult_t pncclCommShrink(ncclComm_t comm, int*, int, ncclComm_t*, ncclConfig_t*, int) {
  return RefuseInGroup("ncclCommShrink", comm);
}
C4_WEAK_TWIN(ncclCommShrink);

extern "C" ncclResult_t pncclCommRevoke(ncclComm_t comm, int) {
  return Refuse("ncclCommRevoke", comm);
}
C4_WEAK_TWIN(ncclCommRevoke);

extern "C" ncclResult_t pncclCommRegister(const ncclComm_t comm, void*, size_t, void**) {
  return Refuse("ncclCommRegister", comm);
}
C4_WEAK_TWIN(ncclCommRegister);

extern "C" ncclResult_t pncclCommDeregister(const ncclComm_t comm, void*) {
  return Refuse("ncclCommDeregister", comm);
}
C4_WEAK_TWIN(ncclCommDeregister);

extern "C" ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t*, int) {
  return RefuseInGroup("ncclCommWindowRegister", comm);
}
C4_WEAK_TWIN(ncclCommWindowRegister);

extern "C" ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t) {
  return Refuse("ncclCommWindowDeregister", comm);
}
C4_WEAK_TWIN(ncclCommWindowDeregister);

// Operators of the program's own.

extern "C" ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t,
                                                  ncclComm_t comm) {
  return Refuse("ncclRedOpCreatePreMulSum", comm);
}
C4_WEAK_TWIN(ncclRedOpCreatePreMulSum);

extern "C" ncclResult_t pncclRedOpDestroy(ncclRedOp_t, ncclComm_t comm) {
  return Refuse("ncclRedOpDestroy", comm);
}
C4_WEAK_TWIN(ncclRedOpDestroy);

// Operations.

extern "C" ncclResult_t pncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int,
                                    ncclComm_t comm, cudaStream_t) {
  return RefuseInGroup("ncclReduce", comm);
}
C4_WEAK_TWIN(ncclReduce);

extern "C" ncclResult_t pncclBcast(void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return RefuseInGroup("ncclBcast", comm);
}
C4_WEAK_TWIN(ncclBcast);

extern "C" ncclResult_t pncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                                       cudaStream_t) {
  return RefuseInGroup("ncclBroadcast", comm);
}
C4_WEAK_TWIN(ncclBroadcast);

extern "C" ncclResult_t pncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                           ncclComm_t comm, cudaStream_t) {
  return RefuseInGroup("ncclReduceScatter", comm);
}
C4_WEAK_TWIN(ncclReduceScatter);

extern "C" ncclResult_t pncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm,
                                       cudaStream_t) {
  return RefuseInGroup("ncclAllGather", comm);
}
C4_WEAK_TWIN(ncclAllGather);

extern "C" ncclResult_t pncclAlltoAll(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm,
                                      cudaStream_t) {
  return RefuseInGroup("ncclAlltoAll", comm);
}
C4_WEAK_TWIN(ncclAlltoAll);

extern "C" ncclResult_t pncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                                    cudaStream_t) {
  return RefuseInGroup("ncclGather", comm);
}
C4_WEAK_TWIN(ncclGather);

extern "C" ncclResult_t pncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                                     cudaStream_t) {
  return RefuseInGroup("ncclScatter", comm);
}
C4_WEAK_TWIN(ncclScatter);

// Groups. The group stays open.

extern "C" ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t*) {
  return Refuse("ncclGroupSimulateEnd", nullptr);
}
C4_WEAK_TWIN(ncclGroupSimulateEnd);

// Kernels that communicate themselves.

extern "C" ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t*,
                                           ncclDevComm_t*) {
  return Refuse("ncclDevCommCreate", comm);
}
C4_WEAK_TWIN(ncclDevCommCreate);

extern "C" ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t*) {
  return Refuse("ncclDevCommDestroy", comm);
}
C4_WEAK_TWIN(ncclDevCommDestroy);

extern "C" ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                                         ncclDevResourceRequirements_t*) {
  return Refuse("ncclLsaBarrierCreateRequirement", nullptr);
}
C4_WEAK_TWIN(ncclLsaBarrierCreateRequirement);

extern "C" ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t, int,
                                                         ncclGinBarrierHandle_t*,
                                                         ncclDevResourceRequirements_t*) {
  return Refuse("ncclGinBarrierCreateRequirement", comm);
}
C4_WEAK_TWIN(ncclGinBarrierCreateRequirement);

extern "C" ncclResult_t pncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*,
                                                    ncclDevResourceRequirements_t*) {
  return Refuse("ncclLLA2ACreateRequirement", nullptr);
}
C4_WEAK_TWIN(ncclLLA2ACreateRequirement);

extern "C" ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  return RefuseTeam("ncclTeamWorld", comm);
}
C4_WEAK_TWIN(ncclTeamWorld);

extern "C" ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  return RefuseTeam("ncclTeamLsa", comm);
}
C4_WEAK_TWIN(ncclTeamLsa);

extern "C" ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  return RefuseTeam("ncclTeamRail", comm);
}
C4_WEAK_TWIN(ncclTeamRail);

extern "C" int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t, int) {
  return RefuseNumber("ncclTeamRankToWorld", comm);
}
C4_WEAK_TWIN(ncclTeamRankToWorld);

extern "C" int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t, int) {
  return RefuseNumber("ncclTeamRankToLsa", comm);
}
C4_WEAK_TWIN(ncclTeamRankToLsa);

extern "C" int pncclLLA2ACalcSlots(int, int) {
  return RefuseNumber("ncclLLA2ACalcSlots", nullptr);
}
C4_WEAK_TWIN(ncclLLA2ACalcSlots);
