#include "ccl/monitor/observed.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/data_type.h"

namespace c4 {
namespace {

constexpr int kGenerationBits = 40;  // calls of one communicator before a number would meet the next one's
constexpr uint64_t kNumberMask = (uint64_t{1} << kGenerationBits) - 1;

bool SameBuffer(const void* called, const void* seen) {
  return called == seen || called == nullptr || seen == nullptr;
}

bool HasRoot(uint8_t function) {
  return function == wire::kReduce || function == wire::kBroadcast || function == wire::kGather ||
         function == wire::kScatter || IsP2p(function);
}

// NCCL counts the elements of some functions in bytes, and gives a root to functions that have none.
bool SameCall(const ObservedCall& called, const ObservedCall& seen) {
  return called.info.function == seen.info.function &&
         called.info.count * ElementBytes(called.info.data_type) ==
             seen.info.count * ElementBytes(seen.info.data_type) &&
         (!HasRoot(called.info.function) || called.info.root == seen.info.root) &&
         SameBuffer(called.send_buffer, seen.send_buffer) && SameBuffer(called.recv_buffer, seen.recv_buffer);
}

}  // namespace

void BriefLock::lock() {
  for (int tries = 1; taken_.test_and_set(std::memory_order_acquire); ++tries) {
    if (tries % 64 == 0) {
      sched_yield();
      continue;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

CommunicatorIdentity ObservedCommunicator::identity() {
  const std::lock_guard<BriefLock> lock(lock_);
  return identity_;
}

void ObservedCommunicator::Open(Monitor* monitor, ObservedRing* ring, const CommunicatorIdentity& identity) {
  CommunicatorRecorder recorder = monitor->OpenCommunicator(identity);
  std::vector<Kept> collectives(kKept);
  std::vector<Kept> p2p(kKept);
  const std::lock_guard<BriefLock> lock(lock_);
  monitor_ = monitor;
  ring_ = ring;
  identity_ = identity;
  recorder_ = recorder;
  ++generation_;
  kinds_[0] = {};
  kinds_[1] = {};
  kinds_[0].kept = std::move(collectives);
  kinds_[1].kept = std::move(p2p);
  children_.store(0, std::memory_order_relaxed);
  ready_.store(false, std::memory_order_relaxed);
  extra_.store(nullptr, std::memory_order_relaxed);
  open_ = true;
}

void ObservedCommunicator::Close(wire::SlotPhase phase) {
  CommunicatorRecorder recorder;
  Monitor* monitor = nullptr;
  {
    const std::lock_guard<BriefLock> lock(lock_);
    if (!open_) return;
    open_ = false;
    recorder = recorder_;
    monitor = monitor_;
  }
  monitor->CloseCommunicator(&recorder, phase);
}

// NCCL drops empty collectives, and copies within a communicator of one rank: no event tells of either.
bool ObservedCommunicator::LeavesNoEvents(const ObservedCall& call) const {
  return !IsP2p(call.info.function) && (call.info.count == 0 || identity_.rank_count == 1);
}

uint64_t ObservedCommunicator::Called(const ObservedCall& call, uint64_t ticks) {
  Ready();
  const std::lock_guard<BriefLock> lock(lock_);
  if (!open_) return 0;
  const bool p2p = IsP2p(call.info.function);
  Kind& kind = kinds_[p2p ? 1 : 0];
  Kept& kept = kind.at(kind.called++);
  kept.call = call;
  kept.called_ticks = ticks;
  kept.started_ticks = 0;
  kept.matched = kept.started = kept.finished = kept.recorded = false;
  kept.group = 0;
  if (p2p) {
    recorder_.P2pCalled(call.info, call.stream, ticks);
  } else {
    recorder_.Called(call.info, call.stream, ticks);
  }
  if (LeavesNoEvents(call)) {
    kept.matched = kept.started = kept.finished = kept.recorded = true;
    Advance(call.info.function, ticks);
  }
  return (generation_ << kGenerationBits) | kind.called;
}

void ObservedCommunicator::TakeBack(uint8_t function, uint64_t number) {
  const std::lock_guard<BriefLock> lock(lock_);
  uint64_t i = 0;
  const Kept* const kept = Of(function, number, &i);
  Kind& kind = KindOf(function);
  if (kept == nullptr || kept->matched || i + 1 != kind.called) return;
  --kind.called;
  recorder_.TakeBackCall(IsP2p(function));
}

void ObservedCommunicator::Enqueued(uint8_t function, uint64_t stream, uint64_t ticks) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (!open_) return;
  if (IsP2p(function)) {
    recorder_.P2pEnqueued(stream, ticks);
  } else {
    recorder_.Enqueued(stream, ticks);
  }
}

void ObservedCommunicator::BecomeReady() {
  const std::lock_guard<BriefLock> lock(lock_);
  if (open_ && recorder_.slot().phase == wire::kPhaseInit) recorder_.Ready();
  ready_.store(true, std::memory_order_relaxed);
}

void ObservedCommunicator::Finalized() {
  const std::lock_guard<BriefLock> lock(lock_);
  if (open_) recorder_.SetPhase(wire::kPhaseFinalized);
}

void ObservedCommunicator::Failed(int32_t result) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (!open_) return;
  recorder_.GaveUp(result, -1);  // the vendor does not say whom it lost
  recorder_.SetPhase(wire::kPhaseFailed);
}

bool ObservedCommunicator::Find(const ObservedCall& call, uint64_t* i) {
  Kind& kind = KindOf(call.info.function);
  if (kind.matched < kind.oldest()) kind.matched = kind.oldest();
  while (kind.matched < kind.called && kind.at(kind.matched).matched) ++kind.matched;
  for (*i = kind.matched; *i < kind.called; ++*i) {
    const Kept& kept = kind.at(*i);
    if (!kept.matched && SameCall(kept.call, call)) return true;
  }
  return false;
}

uint64_t ObservedCommunicator::Match(const ObservedCall& call, uint64_t* called_ticks, uint32_t group) {
  const std::lock_guard<BriefLock> lock(lock_);
  uint64_t i = 0;
  if (!open_ || !Find(call, &i)) return 0;
  Kept& kept = KindOf(call.info.function).at(i);
  kept.matched = true;
  kept.group = group;
  if (called_ticks != nullptr) *called_ticks = kept.called_ticks;
  return (generation_ << kGenerationBits) | (i + 1);
}

ObservedCommunicator::Kept* ObservedCommunicator::Of(uint8_t function, uint64_t number, uint64_t* i) {
  Kind& kind = KindOf(function);
  *i = (number & kNumberMask) - 1;
  if (!open_ || number == 0 || number >> kGenerationBits != generation_) return nullptr;
  if (*i >= kind.called || *i < kind.oldest()) return nullptr;
  return &kind.at(*i);
}

void ObservedCommunicator::EndBefore(Kind* kind, uint64_t i) {
  const Kept& kept = kind->at(i);
  for (uint64_t before = std::max(kind->oldest(), kind->finished); before < i; ++before) {
    Kept& other = kind->at(before);
    if (other.call.stream != kept.call.stream) continue;
    if (other.matched && other.group == kept.group && kept.group != 0) continue;
    other.started = other.finished = true;
  }
}

void ObservedCommunicator::Started(uint8_t function, uint64_t number, uint64_t ticks) {
  const std::lock_guard<BriefLock> lock(lock_);
  uint64_t i = 0;
  Kept* const kept = Of(function, number, &i);
  if (kept == nullptr) return;
  if (kept->started) {
    if (kept->started_ticks == 0 || ticks < kept->started_ticks) kept->started_ticks = ticks;
    return;
  }
  kept->started = true;
  kept->started_ticks = ticks;
  EndBefore(&KindOf(function), i);
  Advance(function, ticks);
}

void ObservedCommunicator::Finished(uint8_t function, uint64_t number, uint64_t ticks) {
  const std::lock_guard<BriefLock> lock(lock_);
  uint64_t i = 0;
  Kept* const kept = Of(function, number, &i);
  // What was counted as over already, by what came behind it, still has its own end.
  if (kept == nullptr || kept->recorded) return;
  kept->started = kept->finished = kept->recorded = true;
  EndBefore(&KindOf(function), i);
  Advance(function, ticks);
  if (kept->started_ticks == 0) return;  // its beginning was not seen: no duration to tell
  wire::OperationRecord record{};
  record.sequence = i;
  record.called_ticks = kept->called_ticks;
  record.started_ticks = kept->started_ticks;
  record.finished_ticks = ticks;
  record.info = kept->call.info;
  const std::lock_guard<BriefLock> ring_lock(ring_->lock);
  ring_->writer.Operation(recorder_, record);
}

void ObservedCommunicator::Sees(uint32_t what, uint32_t kernel_error_ns) {
  const std::lock_guard<BriefLock> lock(lock_);
  if (!open_) return;
  // Who sees events may know nothing of kernel times that somebody else sees.
  const wire::CommunicatorSlot& slot = recorder_.slot();
  if (kernel_error_ns == UINT32_MAX && (slot.seen & wire::kSeesKernels) != 0)
    kernel_error_ns = slot.kernel_error_ns;
  recorder_.Sees(what, kernel_error_ns);
}

QueuePairRecorder ObservedCommunicator::OpenConnection(const QueuePairIdentity& identity) {
  Monitor* monitor = nullptr;
  CommunicatorRecorder recorder;
  {
    const std::lock_guard<BriefLock> lock(lock_);
    monitor = monitor_;
    recorder = recorder_;
  }
  return monitor->OpenQueuePair(recorder, identity);
}

void ObservedCommunicator::CloseConnection(QueuePairRecorder* connection) {
  Monitor* monitor = nullptr;
  {
    const std::lock_guard<BriefLock> lock(lock_);
    monitor = monitor_;
  }
  monitor->CloseQueuePair(connection, wire::kPhaseDestroyed, static_cast<int>(connection->slot().error));
}

void ObservedCommunicator::Advance(uint8_t function, uint64_t ticks) {
  const bool p2p = IsP2p(function);
  Kind& kind = kinds_[p2p ? 1 : 0];
  // What is kept no more has left its place to calls far behind it.
  for (; kind.started < kind.called; ++kind.started) {
    const bool gone = kind.started < kind.oldest();
    if (!gone && !kind.at(kind.started).started) break;
    const ObservedCall& call = kind.at(kind.started).call;
    if (p2p) {
      recorder_.P2pStarted(call.info, call.stream, ticks);
    } else {
      recorder_.Started(call.info, call.stream, ticks);
    }
  }
  for (; kind.finished < kind.called; ++kind.finished) {
    const bool gone = kind.finished < kind.oldest();
    if (!gone && !kind.at(kind.finished).finished) break;
    const uint64_t stream = kind.at(kind.finished).call.stream;
    if (p2p) {
      recorder_.P2pFinished(stream, ticks);
    } else {
      recorder_.Finished(stream, ticks);
    }
  }
}

ObservedCommunicators& ObservedCommunicators::Get() {
  static auto* const all = new ObservedCommunicators(&Monitor::Get());
  return *all;
}

ObservedCommunicators::~ObservedCommunicators() {
  for (ObservedCommunicator* communicator : all_) delete communicator;
  for (std::atomic<Node*>& bucket : buckets_) {
    Node* node = bucket.load(std::memory_order_relaxed);
    while (node != nullptr) delete std::exchange(node, node->next);
  }
}

ObservedCommunicator* ObservedCommunicators::Open(const CommunicatorIdentity& identity) {
  ObservedCommunicator* communicator = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_ring_) ring_.writer = monitor_->LeaseRing();
    has_ring_ = true;
    if (free_.empty()) {
      communicator = new ObservedCommunicator();
      all_.push_back(communicator);
    } else {
      communicator = free_.front();  // the one that was closed longest ago
      free_.erase(free_.begin());
    }
    const std::lock_guard<BriefLock> brief(communicator->lock_);
    communicator->opened_ = opened_++;
  }
  communicator->Open(monitor_, &ring_, identity);
  return communicator;
}

void ObservedCommunicators::Drop(ObservedCommunicator* communicator, wire::SlotPhase phase) {
  communicator->Close(phase);
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(communicator);
}

void ObservedCommunicators::Bind(const void* handle, ObservedCommunicator* communicator) {
  if (handle == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::atomic<Node*>& bucket = BucketOf(handle);
  Node* place = nullptr;
  for (Node* node = bucket.load(std::memory_order_relaxed); node != nullptr; node = node->next) {
    const void* const held = node->handle.load(std::memory_order_relaxed);
    if (held == handle) {
      place = node;
      break;
    }
    if (held == nullptr) place = node;
  }
  if (place == nullptr) {
    place = new Node();
    place->next = bucket.load(std::memory_order_relaxed);
    place->communicator.store(communicator, std::memory_order_relaxed);
    place->handle.store(handle, std::memory_order_relaxed);
    bucket.store(place, std::memory_order_release);
    return;
  }
  place->communicator.store(communicator, std::memory_order_relaxed);
  place->handle.store(handle, std::memory_order_release);
}

void ObservedCommunicators::Remove(const void* handle, wire::SlotPhase phase) {
  ObservedCommunicator* communicator = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Node* node = handle == nullptr ? nullptr : BucketOf(handle).load(std::memory_order_relaxed);
         node != nullptr; node = node->next) {
      if (node->handle.load(std::memory_order_relaxed) != handle) continue;
      communicator = node->communicator.load(std::memory_order_relaxed);
      node->handle.store(nullptr, std::memory_order_release);
      break;
    }
  }
  if (communicator != nullptr) Drop(communicator, phase);
}

bool ObservedCommunicators::First(CommunicatorIdentity* identity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t first = UINT64_MAX;
  for (ObservedCommunicator* communicator : all_) {
    const std::lock_guard<BriefLock> brief(communicator->lock_);
    if (!communicator->open_ || communicator->opened_ >= first) continue;
    first = communicator->opened_;
    *identity = communicator->identity_;
  }
  return first != UINT64_MAX;
}

ObservedCommunicator* ObservedCommunicators::Owner(int rank, int rank_count, const ObservedCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ObservedCommunicator* owner = nullptr;
  uint64_t oldest_ticks = UINT64_MAX;
  for (ObservedCommunicator* communicator : all_) {
    const std::lock_guard<BriefLock> brief(communicator->lock_);
    uint64_t i = 0;
    if (!communicator->open_ || communicator->identity_.rank != rank) continue;
    if (rank_count != 0 && communicator->identity_.rank_count != rank_count) continue;
    if (!communicator->Find(call, &i)) continue;
    const uint64_t ticks = communicator->KindOf(call.info.function).at(i).called_ticks;
    if (ticks >= oldest_ticks) continue;
    oldest_ticks = ticks;
    owner = communicator;
  }
  return owner;
}

}  // namespace c4
