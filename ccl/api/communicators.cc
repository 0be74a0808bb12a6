#include "ccl/api/communicators.h"

#include <memory>
#include <mutex>
#include <new>

#include "ccl/api/checks.h"
#include "ccl/api/config.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/last_error.h"

namespace c4::api {
namespace {

Result CheckNothingWaits(ncclComm_t comm) {
  const size_t waiting = WaitingInGroup(comm);
  if (waiting == 0) return Ok();
  return Fail(ncclInvalidUsage,
              "%zu operations of the communicator wait for ncclGroupEnd: end the group first", waiting);
}

// Marks the communicator as being finalized by this thread. `active` says whether that is still to be done.
Result BeginFinalize(Entry& entry, bool* active) {
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  if (entry.phase == Phase::kFinalizing) {
    return Fail(ncclInvalidUsage, "another thread is finalizing or destroying the communicator");
  }
  *active = entry.phase == Phase::kActive;
  if (*active) entry.phase = Phase::kFinalizing;
  return Ok();
}

Result FinishFinalize(Entry& entry) {
  Result result = entry.communicator->Finalize();
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  entry.phase = result.ok() ? Phase::kFinalized : Phase::kFailed;
  return result;
}

bool HasFailed(Entry& entry) {
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  return entry.phase == Phase::kFailed;
}

}  // namespace

Result MakeUniqueId(ncclUniqueId* id) {
  C4_RETURN_IF_ERROR(CheckNotNull(id, "uniqueId"));
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(nullptr, &engine));
  return engine->GetUniqueId(id);
}

Result Join(ncclComm_t* comm, int rank_count, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  C4_RETURN_IF_ERROR(CheckNotNull(comm, "comm"));
  *comm = nullptr;
  if (InGroup()) {
    return Fail(ncclInvalidUsage,
                "communicators cannot be made inside a group in this version: call it outside "
                "ncclGroupStart and ncclGroupEnd, one thread or process for each rank");
  }
  if (rank_count < 1)
    return Fail(ncclInvalidArgument, "nranks = %d: a communicator has at least one rank", rank_count);
  if (rank < 0 || rank >= rank_count) {
    return Fail(ncclInvalidArgument, "rank = %d is not between 0 and nranks - 1 = %d", rank, rank_count - 1);
  }
  CommunicatorSettings settings;
  C4_RETURN_IF_ERROR(ReadConfig(config, &settings));

  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(&id, &engine));
  std::unique_ptr<Entry> entry(new (std::nothrow) Entry);
  if (entry == nullptr) return Fail(ncclSystemError, "out of memory");
  C4_RETURN_IF_ERROR(engine->InitRank(rank_count, id, rank, settings.name.c_str(), &entry->communicator));
  Result added = AddEntry(&entry, comm);
  if (!added.ok()) entry->communicator->Abort();
  return added;
}

Result Finalize(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNothingWaits(comm));
  bool active = false;
  C4_RETURN_IF_ERROR(BeginFinalize(*pin, &active));
  if (!active) return Fail(ncclInvalidArgument, "the communicator was finalized before; destroy it");
  return FinishFinalize(*pin);
}

Result Destroy(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNothingWaits(comm));
  bool active = false;
  C4_RETURN_IF_ERROR(BeginFinalize(*pin, &active));
  Result result = active ? FinishFinalize(*pin) : Ok();
  // The communicator goes in any case: what could not end in order is ended at once.
  if (pin.Retire() && HasFailed(*pin)) pin->communicator->Abort();
  return result;
}

Result Abort(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  Pin pin(comm);
  if (!pin) return BadHandle(comm);
  if (pin.Retire()) pin->communicator->Abort();
  return Ok();
}

Result AsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNotNull(error, "asyncError"));
  const Result result = pin->communicator->AsyncError();
  *error = result.code();
  // The call itself succeeds; who asks ncclGetLastError next wants to know about the error that it found.
  if (!result.ok()) KeepSentence("the communicator failed", comm, result);
  return Ok();
}

}  // namespace c4::api
