// The life of a communicator, behind ncclCommInitRank to ncclCommAbort.
//
// Joining and finalizing wait for other ranks and hold no lock while they do; Abort may come from another
// thread at any time and ends both. A communicator whose config says so does not block: the calls that would
// wait give ncclInProgress and go on in the background, and AsyncError tells when they are through.
#pragma once

#include "ccl/engine/engine.h"

namespace c4::api {

Result MakeUniqueId(ncclUniqueId* id);
// Of the host engine, whichever engine is the process's; NCCL_COMM_ID has no say.
Result MakeHostUniqueId(ncclUniqueId* id);

// How a rank was asked to join. The first id is used; `call` is for sentences.
struct JoinCall {
  const char* call = "";
  int rank_count = 0;
  int rank = 0;
  int id_count = 1;
  const ncclUniqueId* ids = nullptr;
  const ncclConfig_t* config = nullptr;  // may be NULL
};

// On failure *comm is NULL. In a group, *comm is a communicator from the group's end on.
Result Join(const JoinCall& call, ncclComm_t* comm);
// All ranks of one communicator; `devices` may be NULL.
Result JoinAll(ncclComm_t* comms, int count, const int* devices);

Result Finalize(ncclComm_t comm);
// NULL is no error for these three, as in NCCL.
Result Destroy(ncclComm_t comm);
Result Abort(ncclComm_t comm);

// Ends the operations under way; the communicator can still be split and shrunk.
Result Revoke(ncclComm_t comm, int flags);

Result AsyncError(ncclComm_t comm, ncclResult_t* error);

}  // namespace c4::api
