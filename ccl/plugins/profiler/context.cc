#include "ccl/plugins/profiler/context.h"

#include <algorithm>

#include "ccl/base/data_type.h"
#include "ccl/plugins/profiler/composite.h"

namespace c4::profiler {
namespace {

// Of two times of a timer that may wrap.
bool Earlier(uint64_t a, uint64_t b) {
  return static_cast<int64_t>(a - b) < 0;
}

}  // namespace

Context::Context(uint16_t its_place, uint64_t ticks_per_second)
    : place(its_place),
      steps(ticks_per_second),
      ticks_per_second_(ticks_per_second),
      operations_(std::make_unique<std::array<Operation, kOperations>>()),
      captured_(std::make_unique<std::array<ObservedCall, kCaptured>>()),
      clock_(ticks_per_second) {}

void Context::Open(const ContextIdentity& its_identity) {
  identity = its_identity;
  communicator.store(nullptr, std::memory_order_relaxed);
  misses = 0;
  groups = 0;
  counts = {};
  clock_ = GpuClock(ticks_per_second_);
  kernels_seen_ = false;
  told_error_ns_ = UINT32_MAX;
  composites_ = {};
  captured_count_ = 0;
  ++serial;
  live = true;
}

void Context::Close() {
  live = false;
  communicator.store(nullptr, std::memory_order_relaxed);
  for (; oldest_ != next_; ++oldest_) (*operations_)[oldest_ % kOperations].open = false;
}

Context::Operation* Context::Find(uint32_t wanted) {
  Operation& operation = (*operations_)[wanted % kOperations];
  return operation.serial == wanted && operation.open ? &operation : nullptr;
}

void Context::Bind(ObservedCommunicator* bound) {
  misses = 0;
  ++counts.operations;
  if (communicator.load(std::memory_order_relaxed) == bound) return;
  communicator.store(bound, std::memory_order_relaxed);
  bound->Sees(wire::kSeesEvents, told_error_ns_);
}

Context::Operation* Context::Add(const OperationEvent& event, uint32_t group, const Matched& matched) {
  Operation& operation = (*operations_)[next_ % kOperations];
  if (operation.open) ++counts.overtaken;
  if (next_ - oldest_ >= kOperations) oldest_ = next_ - kOperations + 1;
  operation = {};
  operation.open = true;
  operation.serial = next_++;
  operation.group = group;
  operation.number = matched.number;
  operation.called_ticks = matched.called_ticks;
  operation.function = matched.call.info.function;
  operation.channels = event.channels;
  operation.arrivals_tell = event.arrivals_tell;
  operation.replay = matched.replay;
  Forget();
  if (matched.composite) {
    const int rank = RankOf(event);
    operation.parts_missing = PartsOf(matched.call, rank, identity.rank_count);
    if (event.call.info.root != rank && operation.parts_missing > 0) --operation.parts_missing;
    composites_[next_composite_++ % kOpenComposites] = {matched.call, operation.serial};
  }
  return &operation;
}

// What is before it is over.
void Context::Forget() {
  while (oldest_ != next_ && !(*operations_)[oldest_ % kOperations].open) ++oldest_;
}

int Context::RankOf(const OperationEvent& event) const {
  return identity.rank >= 0 ? identity.rank : event.rank;
}

Context::Operation* Context::Join(const OperationEvent& event, uint32_t group, bool complete) {
  if (!IsP2p(event.call.info.function) || next_composite_ == 0) return nullptr;
  for (int kind = 0; kind < kComposites; ++kind) {
    ObservedCall whole;
    if (!CompositeOf(kind, event.call, RankOf(event), &whole)) continue;
    for (Composite& composite : composites_) {
      if (composite.serial == 0 || !SameComposite(composite.call, whole)) continue;
      Operation* const operation = Find(composite.serial);
      if (operation == nullptr) continue;
      if (complete ? operation->group != group : operation->parts_missing == 0) continue;
      if (composite.call.send_buffer == nullptr) composite.call.send_buffer = whole.send_buffer;
      if (composite.call.recv_buffer == nullptr) composite.call.recv_buffer = whole.recv_buffer;
      operation->channels += event.channels;
      operation->group = group;
      if (event.call.info.root != RankOf(event) && operation->parts_missing > 0) --operation->parts_missing;
      return operation;
    }
  }
  return nullptr;
}

void Context::KeepCaptured(const ObservedCall& call) {
  if (Captured(call) != nullptr) return;
  if (captured_count_ == kCaptured) {
    ++counts.dropped;
    return;
  }
  (*captured_)[captured_count_++] = call;
}

// NCCL counts some in elements and some in bytes.
const ObservedCall* Context::Captured(const ObservedCall& call) const {
  const uint64_t bytes = call.info.count * ElementBytes(call.info.data_type);
  for (uint32_t i = 0; i < captured_count_; ++i) {
    const ObservedCall& kept = (*captured_)[i];
    if (kept.info.function == call.info.function && kept.info.root == call.info.root &&
        kept.info.count * ElementBytes(kept.info.data_type) == bytes) {
      return &kept;
    }
  }
  return nullptr;
}

uint64_t Context::Ticks(uint64_t gpu_ns, uint64_t heard) const {
  if (!identity.gpu_times || gpu_ns == 0 || !clock_.ready()) return heard;
  return std::min(clock_.At(gpu_ns).ticks, heard);
}

void Context::Began(Operation* operation, uint64_t gpu_ns, uint64_t ticks) {
  const bool first = operation->starts++ == 0;
  if (!first && (gpu_ns == 0 || !Earlier(gpu_ns, operation->first_gpu_ns))) return;
  operation->first_gpu_ns = gpu_ns;
  if (!first) return;  // what it began earlier is told at its end
  if (identity.gpu_times && gpu_ns != 0) {
    clock_.Heard(gpu_ns, ticks);
    if (!operation->replay) clock_.Asked(gpu_ns, operation->called_ticks);
  }
  FinishUnpromised(*operation, ticks);
  operation->started_ticks = std::max(Ticks(gpu_ns, ticks), operation->called_ticks);
  ObservedCommunicator* const told = communicator.load(std::memory_order_relaxed);
  if (told == nullptr) return;
  if (!kernels_seen_) told->Sees(wire::kSeesKernels, told_error_ns_);
  kernels_seen_ = true;
  told->Started(operation->function, operation->number, operation->started_ticks);
}

void Context::Ended(Operation* operation, uint64_t gpu_ns, uint64_t ticks) {
  ++operation->stops;
  operation->last_ticks = ticks;
  if (gpu_ns != 0 && (operation->last_gpu_ns == 0 || Earlier(operation->last_gpu_ns, gpu_ns))) {
    operation->last_gpu_ns = gpu_ns;
  }
  if (Complete(*operation)) Finish(operation, ticks);
}

bool Context::Complete(const Operation& operation) const {
  return operation.channels != 0 && operation.stops >= operation.channels && operation.parts_missing == 0;
}

void Context::Enqueued(Operation* operation, uint64_t ticks) {
  operation->enqueued = true;
  if (Complete(*operation)) Finish(operation, ticks);
}

void Context::Finish(Operation* operation, uint64_t ticks) {
  operation->open = false;
  if (identity.gpu_times && operation->last_gpu_ns != 0) clock_.Heard(operation->last_gpu_ns, ticks);
  ObservedCommunicator* const told = communicator.load(std::memory_order_relaxed);
  if (told == nullptr) return;
  uint32_t error_ns = UINT32_MAX;
  if (identity.gpu_times && operation->first_gpu_ns != 0 && clock_.ready()) {
    const GpuClock::Time start = clock_.At(operation->first_gpu_ns);
    const uint64_t started = std::max(std::min(start.ticks, ticks), operation->called_ticks);
    if (started < operation->started_ticks) told->Started(operation->function, operation->number, started);
    if (start.error_ticks != GpuClock::kUnknown) {
      const double ns = static_cast<double>(start.error_ticks) * 1e9 / static_cast<double>(ticks_per_second_);
      error_ns = static_cast<uint32_t>(std::min(ns, 4e9));
    }
  }
  const uint64_t heard = operation->last_ticks != 0 ? operation->last_ticks : ticks;
  const uint64_t ended = Ticks(operation->last_gpu_ns, heard);
  told->Finished(operation->function, operation->number, std::max(ended, operation->started_ticks));
  // Seldom: it is a line that the agent reads, and close is close enough.
  if (error_ns < told_error_ns_ / 2 || error_ns / 2 > told_error_ns_) {
    told_error_ns_ = error_ns;
    told->Sees(wire::kSeesKernels, error_ns);
  }
  FinishEarlierGroups(*operation, operation->started_ticks);
  Forget();
}

void Context::FinishEarlierGroups(const Operation& than, uint64_t ticks) {
  if (than.group == 0) return;
  for (uint32_t i = oldest_; i != than.serial; ++i) {
    Operation& operation = (*operations_)[i % kOperations];
    if (!operation.open || operation.group == 0 || operation.group >= than.group) continue;
    operation.open = false;
    ++counts.overtaken;
    ObservedCommunicator* const told = communicator.load(std::memory_order_relaxed);
    if (told == nullptr) continue;
    const uint64_t ended = operation.last_gpu_ns != 0 ? Ticks(operation.last_gpu_ns, ticks) : ticks;
    told->Finished(operation.function, operation.number, std::max(ended, operation.started_ticks));
  }
}

// Nobody said how many channels they have: they are over when all that began have ended and the next has
// begun.
void Context::FinishUnpromised(const Operation& behind, uint64_t ticks) {
  for (uint32_t i = oldest_; i != behind.serial; ++i) {
    Operation& operation = (*operations_)[i % kOperations];
    if (!operation.open || operation.channels != 0 || operation.parts_missing != 0) continue;
    if (operation.starts == 0 || operation.starts != operation.stops || operation.group == behind.group)
      continue;
    Finish(&operation, ticks);
  }
}

void Context::Asleep(uint64_t ticks) {
  for (uint32_t i = oldest_; i != next_; ++i) {
    Operation& operation = (*operations_)[i % kOperations];
    if (!operation.open || !operation.enqueued || operation.starts == 0) continue;
    if (operation.channels != 0) ++counts.overtaken;
    Finish(&operation, ticks);
  }
}

Steps::KernelStart Context::KernelOf(uint32_t wanted) {
  const Operation& operation = (*operations_)[wanted % kOperations];
  if (!kernels_seen_ || operation.serial != wanted || !operation.arrivals_tell) return {};
  return {true, operation.started_ticks};
}

}  // namespace c4::profiler
