#include "ccl/plugins/profiler/events.h"

#include <algorithm>
#include <unistd.h>

#include "ccl/base/fork.h"
#include "ccl/plugins/profiler/composite.h"
#include "ccl/plugins/profiler/context.h"
#include "ccl/tap/verbs_calls.h"

namespace c4::profiler {
namespace {

constexpr uint32_t kMissesBeforeDoubt = 16;  // operations in a row that a bound communicator has no call for
constexpr uint32_t kMissesBeforeRest = 256;  // then only every so many are looked up among all communicators

bool MatchIn(ObservedCommunicator* communicator, const ObservedCall& call, int rank, uint32_t group,
             Matched* matched) {
  matched->call = call;
  matched->number = communicator->Match(call, &matched->called_ticks, group);
  if (matched->number != 0) return true;
  if (!IsP2p(call.info.function)) return false;
  for (int kind = 0; kind < kComposites; ++kind) {
    if (!CompositeOf(kind, call, rank, &matched->call)) continue;
    matched->number = communicator->Match(matched->call, &matched->called_ticks, group);
    matched->composite = matched->number != 0;
    if (matched->composite) return true;
  }
  return false;
}

ObservedCommunicator* OwnerOf(ObservedCommunicators* all, int rank, int rank_count,
                              const ObservedCall& call) {
  ObservedCommunicator* owner = all->Owner(rank, rank_count, call);
  for (int kind = 0; owner == nullptr && IsP2p(call.info.function) && kind < kComposites; ++kind) {
    ObservedCall whole;
    if (CompositeOf(kind, call, rank, &whole)) owner = all->Owner(rank, rank_count, whole);
  }
  return owner;
}

uint32_t Salt() {
  const auto pid = static_cast<uint32_t>(getpid());
  return (pid * 0x9E3779B1u) >> 16;
}

}  // namespace

Events::Events(ObservedCommunicators* all, uint64_t ticks_per_second)
    : all_(all), ticks_per_second_(ticks_per_second), salt_(Salt()), forks_(Forks()), pid_(getpid()) {}

Events::~Events() {
  for (std::atomic<Context*>& context : contexts_) delete context.load(std::memory_order_relaxed);
}

bool Events::Elsewhere() const {
  return Forks() != forks_;
}

void* Events::Encode(Kind kind, const Context& context, uint32_t serial, uint16_t detail) const {
  return Handle::Encode({kind, context.place, serial, detail}, salt_);
}

// The context with its lock held; nullptr when it is none of this process's.
Context* Events::Locked(const Handle& handle) {
  if (handle.kind == Kind::kNone || Elsewhere()) return nullptr;
  Context* const context = contexts_[handle.context].load(std::memory_order_acquire);
  if (context == nullptr) return nullptr;
  context->lock.lock();
  const bool whole = handle.kind == Kind::kContext || handle.kind == Kind::kProgress;
  if (context->live && (!whole || context->serial == handle.serial)) return context;
  ++context->counts.late;
  context->lock.unlock();
  return nullptr;
}

void* Events::Open(const ContextIdentity& identity) {
  if (Elsewhere()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  Context* context = nullptr;
  if (!free_.empty()) {
    context = free_.front();  // the one that was closed longest ago
    free_.erase(free_.begin());
  } else if (made_ < Handle::kContexts) {
    context = new Context(static_cast<uint16_t>(made_), ticks_per_second_);
    contexts_[made_++].store(context, std::memory_order_release);
  } else {
    return nullptr;
  }
  const std::lock_guard<BriefLock> brief(context->lock);
  context->Open(identity);
  return Encode(Kind::kContext, *context, context->serial, 0);
}

Counts Events::Close(void* handle) {
  const Handle decoded = Decode(handle);
  if (decoded.kind != Kind::kContext) return {};
  Context* const context = Locked(decoded);
  if (context == nullptr) return {};
  ObservedCommunicator* const communicator = context->communicator.load(std::memory_order_relaxed);
  context->Close();
  const Counts counts = context->counts;
  context->lock.unlock();
  // Nobody finds them now: the context is not live.
  context->steps.TakeConnections([&](QueuePairRecorder* connection) {
    if (communicator != nullptr) communicator->CloseConnection(connection);
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(context);
  return counts;
}

Counts Events::counts(void* handle) {
  const Handle decoded = Decode(handle);
  Context* const context = Locked(decoded);
  if (context == nullptr) return {};
  const Counts counts = context->counts;
  context->lock.unlock();
  return counts;
}

void* Events::Group(void* context_handle) {
  const Handle handle = Decode(context_handle);
  Context* const context = handle.kind == Kind::kContext ? Locked(handle) : nullptr;
  if (context == nullptr) return nullptr;
  void* const group = Encode(Kind::kGroup, *context, ++context->groups, 0);
  context->lock.unlock();
  return group;
}

void* Events::Operation(void* context_handle, const OperationEvent& event, uint64_t ticks) {
  const Handle handle = Decode(context_handle);
  if (handle.kind != Kind::kContext) return nullptr;
  const Handle group = Decode(event.group);
  const uint32_t group_serial =
      group.kind == Kind::kGroup && group.context == handle.context ? group.serial : 0;
  Context* context = Locked(handle);
  if (context == nullptr) return nullptr;
  const Context::Operation* part = context->Join(event, group_serial, false);
  void* const joined = part == nullptr ? nullptr : Encode(Kind::kOperation, *context, part->serial, 0);
  const Place place{context->identity.rank >= 0 ? context->identity.rank : event.rank,
                    context->identity.rank_count, context->misses, group_serial, handle.context};
  ObservedCommunicator* communicator = context->communicator.load(std::memory_order_relaxed);
  const ObservedCall* const captured = context->Captured(event.call);
  const ObservedCall replayed = captured == nullptr ? ObservedCall{} : *captured;
  context->lock.unlock();
  if (joined != nullptr) return joined;

  Matched matched;
  bool found = Match(event.call, place, &communicator, &matched);  // takes other locks than ours
  const bool replay = !found && captured != nullptr && communicator != nullptr;
  if (replay) found = Replay(event, place, replayed, communicator, ticks, &matched);
  context = Locked(handle);
  if (context == nullptr) return nullptr;
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  if (!found) {
    part = context->Join(event, group_serial, true);
    if (part != nullptr) return Encode(Kind::kOperation, *context, part->serial, 0);
    ++context->misses;
    ++context->counts.unmatched;
    return nullptr;
  }
  context->Bind(communicator);
  if (replay) ++context->counts.replayed;
  const Context::Operation* const operation = context->Add(event, group_serial, matched);
  return Encode(Kind::kOperation, *context, operation->serial, 0);
}

// The launch of a graph is a call of its own.
bool Events::Replay(const OperationEvent& event, const Place& place, const ObservedCall& captured,
                    ObservedCommunicator* communicator, uint64_t ticks, Matched* matched) {
  ObservedCall call = event.call;
  call.stream = captured.stream;
  matched->replay = true;
  communicator->Called(call, ticks);
  communicator->Enqueued(call.info.function, call.stream, ticks);
  return MatchIn(communicator, call, place.rank, place.group, matched);
}

void Events::Captured(void* context_handle, const ObservedCall& call, uint64_t ticks) {
  const Handle handle = Decode(context_handle);
  Context* context = handle.kind == Kind::kContext ? Locked(handle) : nullptr;
  if (context == nullptr) return;
  context->KeepCaptured(call);
  const Place place{context->identity.rank, context->identity.rank_count, context->misses, 0, handle.context};
  ObservedCommunicator* communicator = context->communicator.load(std::memory_order_relaxed);
  context->lock.unlock();
  Matched matched;
  if (!Match(call, place, &communicator, &matched)) return;
  communicator->Finished(call.info.function, matched.number, ticks);
  context = Locked(handle);
  if (context == nullptr) return;
  context->Bind(communicator);
  context->lock.unlock();
}

// Its communicator's oldest such call; while that is not known, or is in doubt, anybody's.
bool Events::Match(const ObservedCall& call, const Place& place, ObservedCommunicator** communicator,
                   Matched* matched) const {
  if (*communicator != nullptr && MatchIn(*communicator, call, place.rank, place.group, matched)) return true;
  if (*communicator != nullptr && place.misses < kMissesBeforeDoubt) return false;
  if (place.misses >= kMissesBeforeRest && place.misses % kMissesBeforeRest != 0) return false;
  ObservedCommunicator* const owner = OwnerOf(all_, place.rank, place.rank_count, call);
  if (owner == nullptr || BoundElsewhere(owner, place.context)) return false;
  *communicator = owner;
  return MatchIn(owner, call, place.rank, place.group, matched);
}

// Two of NCCL's communicators are never one of ours.
bool Events::BoundElsewhere(const ObservedCommunicator* communicator, uint16_t place) const {
  for (uint32_t i = 0; i < Handle::kContexts; ++i) {
    const Context* const context = contexts_[i].load(std::memory_order_acquire);
    if (context == nullptr) return false;
    if (i != place && context->communicator.load(std::memory_order_relaxed) == communicator) return true;
  }
  return false;
}

void* Events::Kernel(void* parent, int channel, uint64_t gpu_ns, uint64_t ticks) {
  const Handle handle = Decode(parent);
  if (handle.kind != Kind::kOperation) return nullptr;
  Context* const context = Locked(handle);
  if (context == nullptr) return nullptr;
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  Context::Operation* const operation = context->Find(handle.serial);
  if (operation == nullptr) {
    ++context->counts.late;
    return nullptr;
  }
  context->Began(operation, gpu_ns, ticks);
  return Encode(Kind::kKernel, *context, handle.serial, static_cast<uint16_t>(channel & 0xff));
}

void Events::KernelEnded(void* kernel, uint64_t gpu_ns, uint64_t ticks) {
  const Handle handle = Decode(kernel);
  if (handle.kind != Kind::kKernel) return;
  Context* const context = Locked(handle);
  if (context == nullptr) return;
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  Context::Operation* const operation = context->Find(handle.serial);
  if (operation == nullptr) {
    ++context->counts.late;
  } else {
    context->Ended(operation, gpu_ns, ticks);
  }
}

void* Events::ProxyOp(void* parent, const ProxyOpEvent& event) {
  if (event.pid != pid_) return nullptr;  // neither context nor parent are of this process
  const Handle handle = Decode(parent);
  if (handle.kind != Kind::kOperation) return nullptr;
  Context* context = Locked(handle);
  if (context == nullptr) return nullptr;
  const auto direction = event.send ? wire::kDirectionSend : wire::kDirectionReceive;
  ObservedCommunicator* const communicator = context->communicator.load(std::memory_order_relaxed);
  QueuePairRecorder* connection = context->steps.Connection(direction, event.peer);
  if (connection == nullptr && communicator != nullptr && !context->steps.full()) {
    context->lock.unlock();
    QueuePairRecorder opened = communicator->OpenConnection(
        {.direction = direction, .peer = event.peer, .transport = wire::kTransportVendor});
    context = Locked(handle);
    if (context == nullptr) {
      communicator->CloseConnection(&opened);
      return nullptr;
    }
    connection = context->steps.Connection(direction, event.peer);
    if (connection == nullptr && !context->steps.full()) {
      connection = context->steps.Keep(direction, event.peer, opened);
      communicator->Sees(wire::kSeesSteps, context->told_error_ns());
    } else {
      context->lock.unlock();
      communicator->CloseConnection(&opened);
      return nullptr;
    }
  }
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  const uint32_t place =
      connection == nullptr ? UINT32_MAX : context->steps.Open(handle.serial, event.send, connection);
  if (place == UINT32_MAX) {
    ++context->counts.dropped;
    return nullptr;
  }
  return Encode(Kind::kProxyOp, *context, context->steps.at(place).generation, static_cast<uint16_t>(place));
}

void* Events::Step(void* parent, int step) {
  const Handle handle = Decode(parent);
  if (handle.kind != Kind::kProxyOp) return nullptr;
  Handle made = handle;
  made.kind = Kind::kStep;
  made.serial = handle.serial << 3 | (static_cast<uint32_t>(step) % Steps::kStepsInFlight);
  return Handle::Encode(made, salt_);
}

void Events::StepState(void* step, StepChange change, uint64_t bytes, uint64_t ticks) {
  const Handle handle = Decode(step);
  if (handle.kind != Kind::kStep) return;
  Context* const context = Locked(handle);
  if (context == nullptr) return;
  ObservedCommunicator* communicator = nullptr;
  int peer = -1;
  {
    const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
    Steps::ProxyOp* const op = context->steps.Find(handle.detail, handle.serial >> 3);
    if (op == nullptr) {
      ++context->counts.late;
      return;
    }
    const Steps::KernelStart kernel =
        change == StepChange::kArrived ? context->KernelOf(op->operation) : Steps::KernelStart{};
    Steps::Change(op, handle.serial & 7, change, bytes, kernel, ticks);
    // NCCL says so right after its network has sent, or posted a receive, on this thread.
    if (change != (op->send ? StepChange::kTaken : StepChange::kPosted)) return;
    communicator = context->communicator.load(std::memory_order_relaxed);
    peer = op->connection->slot().peer;
  }
  if (communicator != nullptr) tap::AttributePosted(communicator, peer);
}

void* Events::Progress(void* context_handle) {
  Handle handle = Decode(context_handle);
  if (handle.kind != Kind::kContext) return nullptr;
  handle.kind = Kind::kProgress;
  return Handle::Encode(handle, salt_);
}

void Events::Asleep(void* progress, uint64_t ticks) {
  const Handle handle = Decode(progress);
  if (handle.kind != Kind::kProgress) return;
  Context* const context = Locked(handle);
  if (context == nullptr) return;
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  context->Asleep(ticks);
}

void Events::Stop(void* stopped, uint64_t ticks) {
  if (!StopTells(stopped)) return;
  const Handle handle = Decode(stopped);
  Context* const context = Locked(handle);
  if (context == nullptr) return;
  const std::lock_guard<BriefLock> lock(context->lock, std::adopt_lock);
  if (handle.kind == Kind::kOperation) {
    Context::Operation* const operation = context->Find(handle.serial);
    if (operation != nullptr) context->Enqueued(operation, ticks);
    return;
  }
  const bool step = handle.kind == Kind::kStep;
  Steps::ProxyOp* const op = context->steps.Find(handle.detail, step ? handle.serial >> 3 : handle.serial);
  if (op == nullptr) {
    ++context->counts.late;
  } else if (step) {
    context->steps.Stop(op, handle.serial & 7, ticks);
  } else {
    context->steps.Close(op);
  }
}

}  // namespace c4::profiler
