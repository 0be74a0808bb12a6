// Calls to the vendor's library that we look at: operations, groups, and the lives of communicators. Each
// goes on to the vendor's function with the arguments that it came with, and gives back what that gave;
// beside, it is written down in ObservedCommunicators (ccl/monitor/observed.h).
//
// A call that the vendor's library makes itself comes back to us where it was loaded before us, or without
// RTLD_DEEPBIND: it is then only handed on, so that nothing counts twice. In the child of a fork all calls
// are only handed on. Any thread.
#pragma once

#include <atomic>

#include "ccl/base/fork.h"
#include "ccl/control/hold.h"
#include "ccl/engine/vendor/library.h"
#include "ccl/engine/vendor/stamping.h"
#include "ccl/monitor/observed.h"

namespace c4::vendor {

// What a call says when the vendor's release has no such function; keeps the sentence for ncclGetLastError.
ncclResult_t Lacking(const char* call);

struct PendingGroup;

// Of the calling thread; read by every call, hence without a wrapper (initial-exec: two words of the space
// that the loader keeps for libraries that come late).
struct CallState {
  int inside = 0;  // calls of the vendor's under way
  int group = 0;   // depth
  PendingGroup* pending = nullptr;
};
extern thread_local constinit CallState call_state;

namespace internal {
// What calls are written down in, and in which process; set before the first communicator is made.
extern std::atomic<ObservedCommunicators*> observed;
extern std::atomic<uint64_t> forks;
ObservedCommunicator* FindUnnamed(ncclComm_t comm);
}  // namespace internal

// Whether this thread's calls are written down now.
inline bool Looking() {
  return call_state.inside == 0 && internal::observed.load(std::memory_order_relaxed) != nullptr &&
         Forks() == internal::forks.load(std::memory_order_relaxed);
}

// The communicator that a call on `comm` is written down for; nullptr: for none.
inline ObservedCommunicator* Observed(ncclComm_t comm) {
  if (!Looking()) return nullptr;
  ObservedCommunicator* const found = internal::observed.load(std::memory_order_acquire)->Find(comm);
  return found != nullptr ? found : internal::FindUnnamed(comm);
}

// For a validation of the job (ccl/control/hold.h): the call is held, if it has to be. False: its
// communicator was aborted meanwhile, and the vendor must not see the call. `stream`: nullptr at the begin of
// a group.
bool HoldCall(ncclComm_t comm, const uint64_t* stream);

// The vendor has taken an operation in a group.
void AfterGrouped(ObservedCommunicator* observed, ncclComm_t comm, const StampedCall& call);

// One operation: `function` with `arguments`.
template <typename Function, typename... Arguments>
ncclResult_t Operate(const char* name, Function function, ncclComm_t comm, const ObservedCall& call,
                     Arguments... arguments) {
  if (function == nullptr) return Lacking(name);
  if (HoldArmed() && call_state.inside == 0 && call_state.group == 0) [[unlikely]] {
    if (!HoldCall(comm, &call.stream)) return ncclInvalidUsage;
  }
  ObservedCommunicator* const observed = Observed(comm);
  if (observed == nullptr) return function(arguments...);
  const uint64_t ticks = NowTicks();
  const uint64_t number = observed->Called(call, ticks);
  Stamps* const stamps = StampsOf(*observed);
  StampedBatch batch;
  if (stamps != nullptr && call_state.group == 0) [[unlikely]] {
    batch = StampBefore(stamps, comm, {call, number, ticks});
  }
  ++call_state.inside;
  const ncclResult_t result = function(arguments...);
  --call_state.inside;
  if (result != ncclSuccess && result != ncclInProgress) {
    observed->TakeBack(call.info.function, number);
  } else if (call_state.group > 0) {
    AfterGrouped(observed, comm, {call, number, ticks});
  } else {
    observed->Enqueued(call.info.function, call.stream, NowTicks());
  }
  if (batch.stamps != nullptr) [[unlikely]]
    StampAfter(batch, result);
  return result;
}

inline ObservedCall Describe(wire::Function function, const void* send_buffer, const void* recv_buffer,
                             size_t count, ncclDataType_t data_type, cudaStream_t stream) {
  ObservedCall call;
  call.info.function = function;
  call.info.count = count;
  call.info.data_type = static_cast<uint8_t>(data_type);
  call.info.root = -1;
  call.send_buffer = send_buffer;
  call.recv_buffer = recv_buffer;
  call.stream = reinterpret_cast<uint64_t>(stream);
  return call;
}

// `prepare` is called before the vendor makes the first communicator, where our net plugin is asked for, and
// `start` in any case: the process's connection to its agent. Said once, when we are loaded (ccl/plugins/net:
// which plugin stands behind the tables).
void BeforeFirstCommunicator(void (*prepare)(), void (*start)());

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
