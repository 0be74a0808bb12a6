// Calls to the vendor's library that we look at: operations, groups, and the lives of communicators. Each
// goes on to the vendor's function with the arguments that it came with, and gives back what that gave;
// beside, it is written down in ObservedCommunicators (ccl/monitor/observed.h).
//
// A call that the vendor's library makes itself comes back to us where it was loaded before us, or without
// RTLD_DEEPBIND: it is then only handed on, so that nothing counts twice. In the child of a fork all calls
// are only handed on. Any thread.
#pragma once

#include "ccl/engine/vendor/library.h"
#include "ccl/monitor/observed.h"

namespace c4::vendor {

// What a call says when the vendor's release has no such function; keeps the sentence for ncclGetLastError.
ncclResult_t Lacking(const char* call);

// Of the calling thread.
struct CallState {
  int inside = 0;  // calls of the vendor's under way
  int group = 0;   // depth
};
CallState& State();

// The communicator that a call on `comm` is written down for; nullptr: for none.
ObservedCommunicator* Observed(ncclComm_t comm);

// `result` of an operation that was called as number `number`.
void AfterOperation(ObservedCommunicator* observed, const ObservedCall& call, uint64_t number,
                    ncclResult_t result);

// One operation: `function` with `arguments`.
template <typename Function, typename... Arguments>
ncclResult_t Operate(const char* name, Function function, ncclComm_t comm, const ObservedCall& call,
                     Arguments... arguments) {
  if (function == nullptr) return Lacking(name);
  CallState& state = State();
  ObservedCommunicator* const observed = state.inside > 0 ? nullptr : Observed(comm);
  if (observed == nullptr) return function(arguments...);
  const uint64_t number = observed->Called(call, NowTicks());
  ++state.inside;
  const ncclResult_t result = function(arguments...);
  --state.inside;
  AfterOperation(observed, call, number, result);
  return result;
}

ObservedCall Describe(wire::Function function, const void* send_buffer, const void* recv_buffer, size_t count,
                      ncclDataType_t data_type, cudaStream_t stream);

ncclResult_t GroupStart(const Api& api);
ncclResult_t GroupEnd(const Api& api);

ncclResult_t CommInitRank(const Api& api, ncclComm_t* comm, int rank_count, ncclUniqueId id, int rank);
ncclResult_t CommInitRankConfig(const Api& api, ncclComm_t* comm, int rank_count, ncclUniqueId id, int rank,
                                ncclConfig_t* config);
ncclResult_t CommInitRankScalable(const Api& api, ncclComm_t* comm, int rank_count, int rank, int id_count,
                                  ncclUniqueId* ids, ncclConfig_t* config);
ncclResult_t CommInitAll(const Api& api, ncclComm_t* comms, int count, const int* devices);
ncclResult_t CommSplit(const Api& api, ncclComm_t comm, int colour, int key, ncclComm_t* made,
                       ncclConfig_t* config);
ncclResult_t CommShrink(const Api& api, ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                        ncclConfig_t* config, int flags);
ncclResult_t CommFinalize(const Api& api, ncclComm_t comm);
ncclResult_t CommDestroy(const Api& api, ncclComm_t comm);
ncclResult_t CommAbort(const Api& api, ncclComm_t comm);
ncclResult_t CommGetAsyncError(const Api& api, ncclComm_t comm, ncclResult_t* error);

}  // namespace c4::vendor
