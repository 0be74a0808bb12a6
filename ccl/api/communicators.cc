#include "ccl/api/communicators.h"

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "ccl/api/checks.h"
#include "ccl/api/config.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/last_error.h"
#include "ccl/api/tasks.h"
#include "ccl/base/caught.h"
#include "ccl/base/thread.h"
#include "ccl/control/hold.h"

namespace c4::api {
namespace {

Result CheckNothingWaits(ncclComm_t comm) {
  const size_t waiting = WaitingInGroup(comm);
  if (waiting == 0) return Ok();
  return Fail(ncclInvalidUsage,
              "%zu operations of the communicator wait for ncclGroupEnd: end the group first", waiting);
}

// REQUIRES: entry.call_mutex is held.
Result CheckEndable(const Entry& entry) {
  if (entry.phase == Phase::kFinalizing) {
    return entry.blocking
               ? Fail(ncclInvalidUsage, "another thread is finalizing or destroying the communicator")
               : CheckReady(entry);
  }
  return entry.phase == Phase::kFailed ? Ok() : CheckReady(entry);
}

Result FinishFinalize(Entry& entry) {
  Result result = Caught([&entry] { return entry.communicator->Finalize(); });
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  entry.phase = result.ok() ? Phase::kFinalized : Phase::kFailed;
  entry.failure = result;
  entry.changed.notify_all();
  return result;
}

Result FinalizeInBackground(const SharedPin& pin) {
  Thread thread;
  Result started = thread.Start("c4-finalize", [pin] {
    const Result ignored = FinishFinalize(**pin);
    (void)ignored;  // the communicator keeps it
  });
  if (!started.ok()) {
    const std::lock_guard<std::mutex> lock((*pin)->call_mutex);
    (*pin)->phase = Phase::kActive;
    return started;
  }
  thread.Detach();
  return {ncclInProgress, "the call goes on in the background"};
}

Result CheckRanks(const JoinCall& call) {
  if (call.rank_count < 1) {
    return Fail(ncclInvalidArgument, "nranks = %d: a communicator has at least one rank", call.rank_count);
  }
  if (call.rank < 0 || call.rank >= call.rank_count) {
    return Fail(ncclInvalidArgument, "rank = %d is not between 0 and nranks - 1 = %d", call.rank,
                call.rank_count - 1);
  }
  return Ok();
}

// All ids have to be of one engine, which serves the communicator.
Result ChooseEngineOf(const JoinCall& call, Engine** engine) {
  if (call.id_count < 1 || call.id_count > call.rank_count) {
    return Fail(ncclInvalidArgument, "nId = %d: there are between 1 and nranks = %d unique ids",
                call.id_count, call.rank_count);
  }
  C4_RETURN_IF_ERROR(CheckNotNull(call.ids, "commIds"));
  for (int i = 0; i < call.id_count; ++i) {
    Engine* chosen = nullptr;
    C4_RETURN_IF_ERROR(ChooseEngine(&call.ids[i], &chosen));
    if (i > 0 && chosen != *engine) {
      return Fail(ncclInvalidArgument, "unique ids 0 and %d were made by different engines", i);
    }
    *engine = chosen;
  }
  return Ok();
}

Result CheckDevices(int count, const int* devices) {
  if (count < 0) return Fail(ncclInvalidArgument, "ndev = %d: there is no negative number of devices", count);
  std::set<int> seen;
  for (int i = 0; devices != nullptr && i < count; ++i) {
    if (devices[i] < 0) return Fail(ncclInvalidArgument, "devlist[%d] = %d is no device", i, devices[i]);
    if (!seen.insert(devices[i]).second) {
      return Fail(ncclInvalidUsage, "device %d is listed twice: each rank has one of its own", devices[i]);
    }
  }
  return Ok();
}

}  // namespace

Result MakeUniqueId(ncclUniqueId* id) {
  C4_RETURN_IF_ERROR(CheckNotNull(id, "uniqueId"));
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(nullptr, &engine));
  return engine->GetUniqueId(id);
}

Result MakeHostUniqueId(ncclUniqueId* id) {
  C4_RETURN_IF_ERROR(CheckNotNull(id, "id"));
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(nullptr, &engine));  // what comes this way is never the vendor's
  return engine->GetPrivateId(id);
}

Result Join(const JoinCall& call, ncclComm_t* comm) {
  C4_RETURN_IF_ERROR(CheckNotNull(comm, "comm"));
  *comm = nullptr;
  C4_RETURN_IF_ERROR(CheckRanks(call));
  CommunicatorSettings settings;
  C4_RETURN_IF_ERROR(ReadConfig(call.config, &settings));
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngineOf(call, &engine));

  InitRequest request;
  request.rank_count = call.rank_count;
  request.rank = call.rank;
  request.id = call.ids[0];
  request.name = settings.name;
  // The first rank frees what waits at the other ids.
  std::vector<ncclUniqueId> unused;
  if (call.rank == 0) unused.assign(call.ids + 1, call.ids + call.id_count);

  Task task;
  task.call = call.call;
  task.place = comm;
  task.body = [engine, request, unused](const std::atomic<bool>* cancelled,
                                        std::unique_ptr<Communicator>* communicator) {
    InitRequest now = request;
    now.cancelled = cancelled;
    Result result = engine->InitRank(now, communicator);
    for (const ncclUniqueId& id : unused) engine->ForgetId(id);
    return result;
  };
  const bool blocking = settings.blocking.value_or(true);
  C4_RETURN_IF_ERROR(Reserve(engine, blocking, &task));
  return Launch(std::move(task), blocking);
}

Result JoinAll(ncclComm_t* comms, int count, const int* devices) {
  C4_RETURN_IF_ERROR(CheckNotNull(comms, "comm"));
  C4_RETURN_IF_ERROR(CheckDevices(count, devices));
  if (count == 0) return Ok();
  for (int i = 0; i < count; ++i) comms[i] = nullptr;
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(nullptr, &engine));
  ncclUniqueId id;
  C4_RETURN_IF_ERROR(engine->GetPrivateId(&id));
  C4_RETURN_IF_ERROR(StartGroup());
  Result result;
  for (int rank = 0; rank < count && result.ok(); ++rank) {
    result = Caught([&] { return Join({"ncclCommInitAll", count, rank, 1, &id, nullptr}, &comms[rank]); });
    NoteInGroup("ncclCommInitAll", result);
  }
  const Result ended = Caught(EndGroup);
  if (result.ok()) result = ended;
  if (!result.ok()) engine->ForgetId(id);
  return result;
}

Result Finalize(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  const auto pin = std::make_shared<Pin>(comm);
  if (!*pin) return BadHandle(comm);
  Entry& entry = **pin;
  C4_RETURN_IF_ERROR(CheckNothingWaits(comm));
  {
    const std::lock_guard<std::mutex> lock(entry.call_mutex);
    C4_RETURN_IF_ERROR(CheckEndable(entry));
    if (entry.phase == Phase::kFinalized || entry.phase == Phase::kFailed) {
      return Fail(ncclInvalidArgument, entry.phase == Phase::kFailed
                                           ? "the communicator failed before; destroy or abort it"
                                           : "the communicator was finalized before; destroy it");
    }
    if (entry.revoked) {
      return Fail(ncclInvalidUsage, "the communicator was revoked: it is destroyed without being finalized");
    }
    entry.phase = Phase::kFinalizing;
  }
  return entry.blocking ? FinishFinalize(entry) : FinalizeInBackground(pin);
}

Result Destroy(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  Pin pin(comm);
  if (pin.inherited()) return Ok();  // the parent's goes on
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNothingWaits(comm));
  bool finalize = false;
  {
    const std::lock_guard<std::mutex> lock(pin->call_mutex);
    C4_RETURN_IF_ERROR(CheckEndable(*pin));
    finalize = pin->phase == Phase::kActive && !pin->revoked;
    if (finalize) pin->phase = Phase::kFinalizing;
  }
  Result result = finalize ? FinishFinalize(*pin) : Ok();
  // The communicator goes in any case: what could not end in order is ended at once.
  if (!pin.Retire()) return result;
  bool end = false;
  {
    const std::lock_guard<std::mutex> lock(pin->call_mutex);
    end = pin->phase != Phase::kFinalized && pin->communicator != nullptr;
  }
  if (end) pin->communicator->Abort();
  return result;
}

Result Abort(ncclComm_t comm) {
  if (comm == nullptr) return Ok();
  Pin pin(comm);
  if (pin.inherited()) return Ok();
  if (!pin) return BadHandle(comm);
  if (!pin.Retire()) return Ok();
  Holder::Get().Abandon(comm);
  pin->cancelled->store(true);
  Communicator* communicator = nullptr;
  {
    const std::lock_guard<std::mutex> lock(pin->call_mutex);
    communicator = pin->communicator.get();
  }
  if (communicator != nullptr) communicator->Abort();
  AwaitEnd(*pin);
  return Ok();
}

Result Revoke(ncclComm_t comm, int flags) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  if (flags != NCCL_REVOKE_DEFAULT) {
    return Fail(ncclInvalidArgument, "revokeFlags = %d: only NCCL_REVOKE_DEFAULT is known", flags);
  }
  {
    const std::lock_guard<std::mutex> lock(pin->call_mutex);
    C4_RETURN_IF_ERROR(CheckReady(*pin));
    if (pin->phase != Phase::kActive) {
      return Fail(ncclInvalidUsage,
                  "the communicator was finalized or failed for good: there is nothing to revoke");
    }
    pin->revoked = true;
  }
  Holder::Get().Abandon(comm);
  pin->communicator->Revoke();
  return Ok();
}

Result AsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNotNull(error, "asyncError"));
  Result result;
  {
    const std::lock_guard<std::mutex> lock(pin->call_mutex);
    const bool waits = pin->phase == Phase::kPlanned || pin->phase == Phase::kJoining || pin->busy > 0 ||
                       (pin->phase == Phase::kFinalizing && !pin->blocking);
    if (waits) {
      result = {ncclInProgress, ""};
    } else if (!pin->failure.ok()) {
      result = pin->failure;
    } else if (!pin->revoked) {
      result = pin->communicator->AsyncError();
    }
  }
  *error = result.code();
  // The call itself succeeds; who asks ncclGetLastError next wants to know about the error that it found.
  if (!result.ok() && result.code() != ncclInProgress) KeepSentence("the communicator failed", comm, result);
  return Ok();
}

}  // namespace c4::api
