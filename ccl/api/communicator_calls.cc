// The exported functions that make, end and describe communicators.
#include <cstring>
#include <mutex>

#include "ccl/api/checks.h"
#include "ccl/api/communicators.h"
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/last_error.h"
#include "ccl/api/split.h"
#include "ccl/bootstrap/protocol.h"
#include "ccl/engine/vendor/calls.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "ccl/ras/server.h"

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

// Who an id belongs to, it says itself; only ids of the host engine are known by a mark. nullptr: ours.
const vendor::Api* ApiOfId(const ncclUniqueId* id) {
  const vendor::Api* const api = vendor::ApiOfProcess();
  uint64_t magic = 0;
  if (api != nullptr && id != nullptr) memcpy(&magic, id, sizeof magic);
  if (magic == bootstrap::kIdMagic || api == nullptr) return nullptr;
  ras::LeavePortToVendor();
  return api;
}

}  // namespace
}  // namespace c4::api

using c4::Communicator;
using c4::api::ApiOfId;
using c4::api::Report;
using c4::api::ReportInGroup;
namespace vendor = c4::vendor;

extern "C" ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) return api->GetUniqueId(uniqueId);
  return Report("ncclGetUniqueId", nullptr, [&] { return c4::api::MakeUniqueId(uniqueId); });
}
C4_WEAK_TWIN(ncclGetUniqueId);

ncclResult_t c4HostUniqueId(ncclUniqueId* id) {
  return Report("c4HostUniqueId", nullptr, [&] { return c4::api::MakeHostUniqueId(id); });
}

extern "C" ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  if (const vendor::Api* const api = ApiOfId(&commId)) {
    return vendor::CommInitRank(*api, comm, nranks, commId, rank);
  }
  static constexpr char kCall[] = "ncclCommInitRank";
  return ReportInGroup(kCall, nullptr, [&] {
    return c4::api::Join({kCall, nranks, rank, 1, &commId, nullptr}, comm);
  });
}
C4_WEAK_TWIN(ncclCommInitRank);

extern "C" ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                                ncclConfig_t* config) {
  if (const vendor::Api* const api = ApiOfId(&commId)) {
    return vendor::CommInitRankConfig(*api, comm, nranks, commId, rank, config);
  }
  static constexpr char kCall[] = "ncclCommInitRankConfig";
  return ReportInGroup(kCall, nullptr, [&] {
    return c4::api::Join({kCall, nranks, rank, 1, &commId, config}, comm);
  });
}
C4_WEAK_TWIN(ncclCommInitRankConfig);

extern "C" ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                                  ncclUniqueId* commIds, ncclConfig_t* config) {
  if (const vendor::Api* const api = ApiOfId(nId > 0 ? commIds : nullptr)) {
    return vendor::CommInitRankScalable(*api, newcomm, nranks, myrank, nId, commIds, config);
  }
  static constexpr char kCall[] = "ncclCommInitRankScalable";
  return ReportInGroup(kCall, nullptr, [&] {
    return c4::api::Join({kCall, nranks, myrank, nId, commIds, config}, newcomm);
  });
}
C4_WEAK_TWIN(ncclCommInitRankScalable);

extern "C" ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  if (const vendor::Api* const api = ApiOfId(nullptr)) {
    return vendor::CommInitAll(*api, comm, ndev, devlist);
  }
  return ReportInGroup("ncclCommInitAll", nullptr, [&] { return c4::api::JoinAll(comm, ndev, devlist); });
}
C4_WEAK_TWIN(ncclCommInitAll);

extern "C" ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                       ncclConfig_t* config) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    return vendor::CommSplit(*api, comm, color, key, newcomm, config);
  }
  return ReportInGroup("ncclCommSplit", comm,
                       [&] { return c4::api::Split(comm, color, key, newcomm, config); });
}
C4_WEAK_TWIN(ncclCommSplit);

extern "C" ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                        ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    return vendor::CommShrink(*api, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  }
  return ReportInGroup("ncclCommShrink", comm, [&] {
    return c4::api::Shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}
C4_WEAK_TWIN(ncclCommShrink);

extern "C" ncclResult_t c4_host_ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return Report("ncclCommRevoke", comm, [&] { return c4::api::Revoke(comm, revokeFlags); });
}

extern "C" ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) return vendor::CommFinalize(*api, comm);
  return Report("ncclCommFinalize", comm, [&] { return c4::api::Finalize(comm); });
}
C4_WEAK_TWIN(ncclCommFinalize);

extern "C" ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) return vendor::CommDestroy(*api, comm);
  return Report("ncclCommDestroy", comm, [&] { return c4::api::Destroy(comm); });
}
C4_WEAK_TWIN(ncclCommDestroy);

extern "C" ncclResult_t pncclCommAbort(ncclComm_t comm) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) return vendor::CommAbort(*api, comm);
  return Report("ncclCommAbort", comm, [&] { return c4::api::Abort(comm); });
}
C4_WEAK_TWIN(ncclCommAbort);

extern "C" ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (const vendor::Api* const api = vendor::ApiOf(comm)) {
    return vendor::CommGetAsyncError(*api, comm, asyncError);
  }
  return Report("ncclCommGetAsyncError", comm, [&] { return c4::api::AsyncError(comm, asyncError); });
}
C4_WEAK_TWIN(ncclCommGetAsyncError);

extern "C" ncclResult_t c4_host_ncclCommCount(const ncclComm_t comm, int* count) {
  const auto read = [](const Communicator& communicator) { return communicator.rank_count(); };
  return Report("ncclCommCount", comm, [&] { return c4::api::Describe(comm, count, "count", read); });
}

extern "C" ncclResult_t c4_host_ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const auto read = [](const Communicator& communicator) { return communicator.rank(); };
  return Report("ncclCommUserRank", comm, [&] { return c4::api::Describe(comm, rank, "rank", read); });
}

// Communicators on host memory belong to no device.
extern "C" ncclResult_t c4_host_ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const auto read = [](const Communicator&) { return -1; };
  return Report("ncclCommCuDevice", comm, [&] { return c4::api::Describe(comm, device, "device", read); });
}
