// The life of a communicator, behind ncclCommInitRank to ncclCommAbort.
//
// Joining and finalizing wait for other ranks and hold no lock while they do; Abort may come from another
// thread at any time and ends both.
#pragma once

#include "ccl/engine/engine.h"

namespace c4::api {

Result MakeUniqueId(ncclUniqueId* id);

// `config` may be NULL. On failure *comm is NULL.
Result Join(ncclComm_t* comm, int rank_count, const ncclUniqueId& id, int rank, const ncclConfig_t* config);

Result Finalize(ncclComm_t comm);
// NULL is no error for these three, as in NCCL.
Result Destroy(ncclComm_t comm);
Result Abort(ncclComm_t comm);

Result AsyncError(ncclComm_t comm, ncclResult_t* error);

}  // namespace c4::api
