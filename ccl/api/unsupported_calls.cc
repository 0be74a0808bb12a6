// The exported functions that this version does not offer: each says so in a sentence of its own. Those that
// return no code return what cannot be mistaken for an answer. All of them are for kernels on a GPU, or for
// an estimate of their time.
#include "ccl/api/export.h"
#include "ccl/api/last_error.h"
#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"

namespace c4::api {
namespace {

Result NotOffered(const char* call) {
  return Fail(ncclInvalidUsage,
              "this version of the library does not offer %s; it offers everything of NCCL but the interface "
              "for kernels that communicate themselves, and ncclGroupSimulateEnd",
              call);
}

// `comm` is the communicator that the call was given, or NULL where it was given none.
ncclResult_t Refuse(const char* call, ncclComm_t comm) {
  return Report(call, comm, [call] { return NotOffered(call); });
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
using c4::api::RefuseNumber;
using c4::api::RefuseTeam;

// Groups. The group stays open.

extern "C" ncclResult_t c4_host_ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return Refuse("ncclGroupSimulateEnd", nullptr);
}

// Kernels that communicate themselves.

extern "C" ncclResult_t c4_host_ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t*,
                                                  ncclDevComm_t*) {
  return Refuse("ncclDevCommCreate", comm);
}

extern "C" ncclResult_t c4_host_ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t*) {
  return Refuse("ncclDevCommDestroy", comm);
}

extern "C" ncclResult_t c4_host_ncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                                                ncclDevResourceRequirements_t*) {
  return Refuse("ncclLsaBarrierCreateRequirement", nullptr);
}

extern "C" ncclResult_t c4_host_ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t, int,
                                                                ncclGinBarrierHandle_t*,
                                                                ncclDevResourceRequirements_t*) {
  return Refuse("ncclGinBarrierCreateRequirement", comm);
}

extern "C" ncclResult_t c4_host_ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*,
                                                           ncclDevResourceRequirements_t*) {
  return Refuse("ncclLLA2ACreateRequirement", nullptr);
}

extern "C" ncclTeam_t c4_host_ncclTeamWorld(ncclComm_t comm) {
  return RefuseTeam("ncclTeamWorld", comm);
}

extern "C" ncclTeam_t c4_host_ncclTeamLsa(ncclComm_t comm) {
  return RefuseTeam("ncclTeamLsa", comm);
}

extern "C" ncclTeam_t c4_host_ncclTeamRail(ncclComm_t comm) {
  return RefuseTeam("ncclTeamRail", comm);
}

extern "C" int c4_host_ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t, int) {
  return RefuseNumber("ncclTeamRankToWorld", comm);
}

extern "C" int c4_host_ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t, int) {
  return RefuseNumber("ncclTeamRankToLsa", comm);
}

extern "C" int c4_host_ncclLLA2ACalcSlots(int, int) {
  return RefuseNumber("ncclLLA2ACalcSlots", nullptr);
}
