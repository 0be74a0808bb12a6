#include "ccl/engine/vendor/calls.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/base/cuda_driver.h"
#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/settings.h"

namespace c4::vendor {

thread_local constinit CallState call_state;

namespace internal {
std::atomic<ObservedCommunicators*> observed{nullptr};
std::atomic<uint64_t> forks{0};
}  // namespace internal

namespace {

// A communicator that the vendor is making: where its handle will be, and what it is to us.
struct Making {
  ncclComm_t* place = nullptr;
  ncclComm_t handle = nullptr;               // known
  ObservedCommunicator* observed = nullptr;  // opened already
  CommunicatorIdentity identity;             // else: all but rank and number of ranks
};

}  // namespace

// What waits for the end of the thread's group.
struct PendingGroup {
  std::vector<GroupedCall> operations;
  std::vector<Making> makings;
};

namespace {

PendingGroup& Pending() {
  if (call_state.pending == nullptr) {
    thread_local PendingGroup pending;
    call_state.pending = &pending;
  }
  return *call_state.pending;
}

// Communicators whose rank cannot be asked yet, because they do not block; asked again when somebody uses
// them.
struct Unnamed {
  std::mutex mutex;
  std::vector<Making> makings;   // with their handles
  std::atomic<size_t> count{0};  // of them, to look without the mutex
};

Unnamed& ProcessUnnamed() {
  static auto* const unnamed = new Unnamed;
  return *unnamed;
}

class Inside {
 public:
  Inside() { ++call_state.inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { --call_state.inside; }
};

using Prepare = void (*)();
constinit Prepare prepare_plugins = nullptr;
constinit Prepare start_control = nullptr;

// From the first communicator on, in the process that makes it.
void StartLooking() {
  static const bool started = [] {
    if (prepare_plugins != nullptr && CurrentPlugins().net.ours) prepare_plugins();
    if (start_control != nullptr) start_control();
    internal::forks.store(Forks());
    internal::observed.store(&ObservedCommunicators::Get(), std::memory_order_release);
    return true;
  }();
  (void)started;
}

bool Accepted(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

std::string NameOf(const ncclConfig_t* config) {
  constexpr unsigned int kConfigMagic = 0xcafebeef;
  if (config == nullptr || config->magic != kConfigMagic || config->version < NCCL_VERSION(2, 27, 0) ||
      config->size < offsetof(ncclConfig_t, commName) + sizeof config->commName ||
      config->commName == nullptr) {
    return "";
  }
  return config->commName;
}

CommunicatorIdentity Identity(uint64_t id, int rank, int rank_count, const ncclConfig_t* config) {
  CommunicatorIdentity identity;
  identity.id = id;
  identity.rank = rank;
  identity.rank_count = rank_count;
  identity.engine = wire::kEngineVendor;
  identity.name = NameOf(config);
  return identity;
}

void BecomeReady(const Api& api, ncclComm_t comm, ObservedCommunicator* observed) {
  observed->Ready();
  AttachStamps(api, comm, observed);
}

// Asks the vendor who we are in it, and opens it. False: it does not say yet.
bool OpenMade(const Api& api, Making* making) {
  if (api.CommUserRank == nullptr || api.CommCount == nullptr) return false;
  const Inside inside;
  if (api.CommUserRank(making->handle, &making->identity.rank) != ncclSuccess ||
      api.CommCount(making->handle, &making->identity.rank_count) != ncclSuccess) {
    return false;
  }
  ObservedCommunicators& all = ObservedCommunicators::Get();
  making->observed = all.Open(making->identity);
  all.Bind(making->handle, making->observed);
  BecomeReady(api, making->handle, making->observed);
  return true;
}

// The vendor has given back `result` for a communicator that is being made.
void AfterMaking(const Api& api, Making making, ncclResult_t result) {
  ObservedCommunicators& all = ObservedCommunicators::Get();
  making.handle = making.place == nullptr ? making.handle : *making.place;
  if (!Accepted(result) || making.handle == nullptr) {
    if (making.observed == nullptr) return;
    if (!Accepted(result)) making.observed->Failed(result);
    all.Drop(making.observed, wire::kPhaseFailed);
    return;
  }
  if (making.observed != nullptr) {
    all.Bind(making.handle, making.observed);
    if (result == ncclSuccess) BecomeReady(api, making.handle, making.observed);
    return;
  }
  if (result == ncclSuccess && OpenMade(api, &making)) return;
  Unnamed& unnamed = ProcessUnnamed();
  const std::lock_guard<std::mutex> lock(unnamed.mutex);
  making.place = nullptr;
  unnamed.makings.push_back(std::move(making));
  unnamed.count.store(unnamed.makings.size());
}

// Takes `comm` out of those whose rank is not known yet.
bool TakeUnnamed(ncclComm_t comm, Making* making) {
  Unnamed& unnamed = ProcessUnnamed();
  if (unnamed.count.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard<std::mutex> lock(unnamed.mutex);
  for (auto it = unnamed.makings.begin(); it != unnamed.makings.end(); ++it) {
    if (it->handle != comm) continue;
    *making = std::move(*it);
    unnamed.makings.erase(it);
    unnamed.count.store(unnamed.makings.size());
    return true;
  }
  return false;
}

// Now or at the end of the thread's group.
ncclResult_t Made(const Api& api, Making making, ncclResult_t result) {
  if (call_state.group > 0 && Accepted(result)) {
    Pending().makings.push_back(std::move(making));
  } else {
    AfterMaking(api, std::move(making), result);
  }
  return result;
}

ObservedCommunicator* OpenJoining(const ncclUniqueId* ids, int id_count, int rank, int rank_count,
                                  const ncclConfig_t* config) {
  if (ids == nullptr || id_count < 1 || rank < 0 || rank >= rank_count) return nullptr;  // it will refuse
  const uint64_t id = HashBytes(ids, sizeof *ids * static_cast<size_t>(id_count));
  return ObservedCommunicators::Get().Open(Identity(id, rank, rank_count, config));
}

template <typename Call>
ncclResult_t Join(const Api& api, ncclComm_t* comm, ObservedCommunicator* observed, Call call) {
  ncclResult_t result;
  {
    const Inside inside;
    result = call();
  }
  if (observed == nullptr) return result;
  Making making;
  making.place = comm;
  making.observed = observed;
  return Made(api, std::move(making), result);
}

// Splitting and shrinking: the child's rank is asked for when there is one.
template <typename Call>
ncclResult_t MakeChild(const Api& api, ncclComm_t parent, int colour, ncclComm_t* made,
                       const ncclConfig_t* config, Call call) {
  ObservedCommunicator* const observed = Looking() ? Observed(parent) : nullptr;
  if (observed == nullptr) return call();
  const CommunicatorIdentity family = observed->identity();
  const uint64_t number = observed->NextChild();
  Making making;
  making.place = made;
  making.identity = Identity(ChildCommunicatorId(family.id, number, colour), 0, 0, config);
  making.identity.parent_id = family.id;
  ncclResult_t result;
  {
    const Inside inside;
    result = call();
  }
  if (made == nullptr || colour == NCCL_SPLIT_NOCOLOR) return result;
  return Made(api, std::move(making), result);
}

void Forget(ncclComm_t comm, wire::SlotPhase phase) {
  Making ignored;
  (void)TakeUnnamed(comm, &ignored);
  DetachStamps(ObservedCommunicators::Get().Find(comm));
  ObservedCommunicators::Get().Remove(comm, phase);
}

}  // namespace

ncclResult_t Lacking(const char* call) {
  const Library* const library = Get();
  C4_WARN("%s: %s has no such function", call, library == nullptr ? "?" : library->path.c_str());
  return ncclInvalidUsage;
}

void BeforeFirstCommunicator(void (*prepare)(), void (*start)()) {
  prepare_plugins = prepare;
  start_control = start;
}

ObservedCommunicator* internal::FindUnnamed(ncclComm_t comm) {
  Making making;
  const Api* const vendors = ApiOf(comm);
  if (vendors == nullptr || !TakeUnnamed(comm, &making)) return nullptr;
  AfterMaking(*vendors, std::move(making), ncclSuccess);
  return ObservedCommunicators::Get().Find(comm);
}

namespace {

// nullptr where the process has loaded none; looked for once, when a call is held for the first time.
const CudaDriver* HoldingDriver() {
  static const CudaDriver* const driver = []() -> const CudaDriver* {
    auto* const found = new (std::nothrow) CudaDriver;
    if (found == nullptr || !FindCudaDriver(found).ok()) return nullptr;
    return found;
  }();
  return driver;
}

bool CapturesOn(uint64_t stream) {
  int status = kCudaCaptureNone;
  const CudaDriver& driver = *HoldingDriver();
  const OutsideCaptures outside(driver);
  return driver.is_capturing(reinterpret_cast<CudaStream>(stream), &status) != 0 ||
         status != kCudaCaptureNone;
}

// A stream that cannot be asked is waited for no longer.
bool IsIdle(uint64_t stream) {
  const CudaDriver& driver = *HoldingDriver();
  const OutsideCaptures outside(driver);
  return driver.query_stream(reinterpret_cast<CudaStream>(stream)) != kCudaNotReady;
}

}  // namespace

bool HoldCall(ncclComm_t comm, const uint64_t* stream) {
  HeldStream held;
  if (stream != nullptr && HoldingDriver() != nullptr) held = {CapturesOn, IsIdle, *stream};
  if (Holder::Get().Enter(comm, held) == HeldCall::kGoesOn) return true;
  C4_WARN("a call was held for a validation while its communicator was aborted: it fails");
  return false;
}

void AfterGrouped(ObservedCommunicator* observed, ncclComm_t comm, const StampedCall& call) {
  Pending().operations.push_back({observed, comm, call});
}

ncclResult_t GroupStart(const Api& api) {
  if (HoldArmed() && call_state.inside == 0 && call_state.group == 0) [[unlikely]]
    (void)HoldCall(nullptr, nullptr);
  const ncclResult_t result = api.GroupStart();
  if (result == ncclSuccess && call_state.inside == 0) ++call_state.group;
  return result;
}

ncclResult_t GroupEnd(const Api& api) {
  if (call_state.inside > 0) return api.GroupEnd();
  std::vector<StampedBatch> batches;
  if (call_state.group == 1 && call_state.pending != nullptr)
    batches = StampGroup(call_state.pending->operations);
  ncclResult_t result;
  {
    const Inside inside;
    result = api.GroupEnd();
  }
  for (const StampedBatch& batch : batches) StampAfter(batch, result);
  if (call_state.group > 0) --call_state.group;
  PendingGroup* const pending = call_state.pending;
  if (call_state.group > 0 || pending == nullptr) return result;
  if (!pending->operations.empty()) {
    const uint64_t ticks = NowTicks();
    for (const GroupedCall& waiting : pending->operations) {
      const ObservedCall& call = waiting.call.call;
      if (Accepted(result)) waiting.observed->Enqueued(call.info.function, call.stream, ticks);
    }
    pending->operations.clear();
  }
  if (!pending->makings.empty()) {
    for (Making& making : std::exchange(pending->makings, {})) AfterMaking(api, std::move(making), result);
  }
  return result;
}

ncclResult_t CommInitRank(const Api& api, ncclComm_t* comm, int rank_count, ncclUniqueId id, int rank) {
  StartLooking();
  if (!Looking()) return api.CommInitRank(comm, rank_count, id, rank);
  return Join(api, comm, OpenJoining(&id, 1, rank, rank_count, nullptr),
              [&] { return api.CommInitRank(comm, rank_count, id, rank); });
}

ncclResult_t CommInitRankConfig(const Api& api, ncclComm_t* comm, int rank_count, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  StartLooking();
  if (!Looking()) return api.CommInitRankConfig(comm, rank_count, id, rank, config);
  return Join(api, comm, OpenJoining(&id, 1, rank, rank_count, config),
              [&] { return api.CommInitRankConfig(comm, rank_count, id, rank, config); });
}

ncclResult_t CommInitRankScalable(const Api& api, ncclComm_t* comm, int rank_count, int rank, int id_count,
                                  ncclUniqueId* ids, ncclConfig_t* config) {
  if (api.CommInitRankScalable == nullptr) return Lacking("ncclCommInitRankScalable");
  StartLooking();
  if (!Looking()) return api.CommInitRankScalable(comm, rank_count, rank, id_count, ids, config);
  return Join(api, comm, OpenJoining(ids, id_count, rank, rank_count, config),
              [&] { return api.CommInitRankScalable(comm, rank_count, rank, id_count, ids, config); });
}

ncclResult_t CommInitAll(const Api& api, ncclComm_t* comms, int count, const int* devices) {
  StartLooking();
  if (!Looking()) return api.CommInitAll(comms, count, devices);
  ncclResult_t result;
  {
    const Inside inside;
    result = api.CommInitAll(comms, count, devices);
  }
  if (comms == nullptr || result != ncclSuccess) return result;
  // All its ranks are here, so that its id need only differ from all others.
  static std::atomic<uint64_t> made{0};
  const wire::ProcessIdentity process = CurrentProcess();
  const uint64_t id = HashBytes(&process, sizeof process, made.fetch_add(1) + 1);
  for (int rank = 0; rank < count; ++rank) {
    Making making;
    making.handle = comms[rank];
    making.observed = ObservedCommunicators::Get().Open(Identity(id, rank, count, nullptr));
    AfterMaking(api, std::move(making), result);
  }
  return result;
}

ncclResult_t CommSplit(const Api& api, ncclComm_t comm, int colour, int key, ncclComm_t* made,
                       ncclConfig_t* config) {
  if (api.CommSplit == nullptr) return Lacking("ncclCommSplit");
  return MakeChild(api, comm, colour, made, config,
                   [&] { return api.CommSplit(comm, colour, key, made, config); });
}

ncclResult_t CommShrink(const Api& api, ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                        ncclConfig_t* config, int flags) {
  if (api.CommShrink == nullptr) return Lacking("ncclCommShrink");
  // As the host engine names it: by its first rank (ccl/api/split.cc).
  int first = 0;
  for (int i = 0; excluded != nullptr && i < excluded_count; ++i) {
    if (excluded[i] != first) continue;
    ++first;
    i = -1;
  }
  return MakeChild(api, comm, -2 - first, made, config,
                   [&] { return api.CommShrink(comm, excluded, excluded_count, made, config, flags); });
}

ncclResult_t CommFinalize(const Api& api, ncclComm_t comm) {
  ObservedCommunicator* const observed = Observed(comm);
  const Inside inside;
  const ncclResult_t result = api.CommFinalize(comm);
  if (observed != nullptr && Accepted(result)) observed->Finalized();
  return result;
}

ncclResult_t CommDestroy(const Api& api, ncclComm_t comm) {
  Holder::Get().Abandon(comm);
  // Before the vendor frees it: another thread may be given the same pointer at once.
  if (Looking() && comm != nullptr) Forget(comm, wire::kPhaseDestroyed);
  const Inside inside;
  return api.CommDestroy(comm);
}

ncclResult_t CommAbort(const Api& api, ncclComm_t comm) {
  // What is held on it must not reach the vendor any more.
  Holder::Get().Abandon(comm);
  if (Looking() && comm != nullptr) Forget(comm, wire::kPhaseAborted);
  const Inside inside;
  return api.CommAbort(comm);
}

ncclResult_t CommGetAsyncError(const Api& api, ncclComm_t comm, ncclResult_t* error) {
  const ncclResult_t result = api.CommGetAsyncError(comm, error);
  if (result != ncclSuccess || error == nullptr || *error == ncclInProgress || !Looking()) return result;
  if (ObservedCommunicator* const observed = Observed(comm)) {
    if (*error != ncclSuccess) {
      observed->Failed(*error);
      return result;
    }
    // It may have come to be since it was asked for.
    BecomeReady(api, comm, observed);
    StampsLaunched(*observed);
  }
  return result;
}

}  // namespace c4::vendor
