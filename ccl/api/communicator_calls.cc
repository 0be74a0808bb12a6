// The exported functions that make, end and describe communicators.
#include <mutex>

#include "ccl/api/checks.h"
#include "ccl/api/communicators.h"
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/last_error.h"
#include "ccl/api/split.h"
#include "ccl/include/nccl.h"

namespace c4::api {
namespace {

// Reads one number of a communicator into `*value`.
template <typename Read>
Result Describe(ncclComm_t comm, int* value, const char* name, Read read) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNotNull(value, name));
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  if (pin->communicator == nullptr) return CheckReady(*pin);
  *value = read(*pin->communicator);
  return Ok();
}

// For calls that a group collects.
ncclResult_t ReportInGroup(const char* call, ncclComm_t comm, const Result& result) {
  NoteInGroup(call, result);
  return Report(call, comm, result);
}

}  // namespace
}  // namespace c4::api

using c4::Communicator;
using c4::api::Report;
using c4::api::ReportInGroup;

extern "C" ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return Report("ncclGetUniqueId", nullptr, c4::api::MakeUniqueId(uniqueId));
}
C4_WEAK_TWIN(ncclGetUniqueId);

extern "C" ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  static constexpr char kCall[] = "ncclCommInitRank";
  return ReportInGroup(kCall, nullptr, c4::api::Join({kCall, nranks, rank, 1, &commId, nullptr}, comm));
}
C4_WEAK_TWIN(ncclCommInitRank);

extern "C" ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                                ncclConfig_t* config) {
  static constexpr char kCall[] = "ncclCommInitRankConfig";
  return ReportInGroup(kCall, nullptr, c4::api::Join({kCall, nranks, rank, 1, &commId, config}, comm));
}
C4_WEAK_TWIN(ncclCommInitRankConfig);

extern "C" ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                                  ncclUniqueId* commIds, ncclConfig_t* config) {
  static constexpr char kCall[] = "ncclCommInitRankScalable";
  return ReportInGroup(kCall, nullptr, c4::api::Join({kCall, nranks, myrank, nId, commIds, config}, newcomm));
}
C4_WEAK_TWIN(ncclCommInitRankScalable);

extern "C" ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return ReportInGroup("ncclCommInitAll", nullptr, c4::api::JoinAll(comm, ndev, devlist));
}
C4_WEAK_TWIN(ncclCommInitAll);

extern "C" ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                       ncclConfig_t* config) {
  return ReportInGroup("ncclCommSplit", comm, c4::api::Split(comm, color, key, newcomm, config));
}
C4_WEAK_TWIN(ncclCommSplit);

extern "C" ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                        ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return ReportInGroup(
      "ncclCommShrink", comm,
      c4::api::Shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}
C4_WEAK_TWIN(ncclCommShrink);

extern "C" ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return Report("ncclCommRevoke", comm, c4::api::Revoke(comm, revokeFlags));
}
C4_WEAK_TWIN(ncclCommRevoke);

extern "C" ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return Report("ncclCommFinalize", comm, c4::api::Finalize(comm));
}
C4_WEAK_TWIN(ncclCommFinalize);

extern "C" ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return Report("ncclCommDestroy", comm, c4::api::Destroy(comm));
}
C4_WEAK_TWIN(ncclCommDestroy);

extern "C" ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return Report("ncclCommAbort", comm, c4::api::Abort(comm));
}
C4_WEAK_TWIN(ncclCommAbort);

extern "C" ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return Report("ncclCommGetAsyncError", comm, c4::api::AsyncError(comm, asyncError));
}
C4_WEAK_TWIN(ncclCommGetAsyncError);

extern "C" ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  const auto read = [](const Communicator& communicator) { return communicator.rank_count(); };
  return Report("ncclCommCount", comm, c4::api::Describe(comm, count, "count", read));
}
C4_WEAK_TWIN(ncclCommCount);

extern "C" ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  const auto read = [](const Communicator& communicator) { return communicator.rank(); };
  return Report("ncclCommUserRank", comm, c4::api::Describe(comm, rank, "rank", read));
}
C4_WEAK_TWIN(ncclCommUserRank);

// Communicators on host memory belong to no device.
extern "C" ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  const auto read = [](const Communicator&) { return -1; };
  return Report("ncclCommCuDevice", comm, c4::api::Describe(comm, device, "device", read));
}
C4_WEAK_TWIN(ncclCommCuDevice);
