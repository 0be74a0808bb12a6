// What the engine and the transport call for every event. Costs nanoseconds: no lock, no system call, no
// allocation. Every recorder points into the process's segment (or into private memory of the same layout),
// so no call here can fail. One thread at a time writes each line; see wire/segment.h for who that is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ccl/base/clock.h"
#include "wire/segment.h"

namespace c4 {

// A plain word of shared memory, read by another process at any time: written whole, never torn.
template <typename T>
inline void Publish(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

class CommunicatorRecorder {
 public:
  CommunicatorRecorder() = default;
  CommunicatorRecorder(wire::CommunicatorSlot* slot, uint32_t index) : slot_(slot), index_(index) {}

  void Called(const wire::OperationInfo& info, uint64_t stream, uint64_t ticks) {
    Describe(slot_->last_called, info);
    Step(slot_->called, stream, ticks);
  }
  // A call that was refused after it had been counted.
  void TakeBackCall(bool p2p) {
    wire::Counter& counter = p2p ? slot_->p2p_called : slot_->called;
    std::atomic_ref<uint64_t>(counter.count).store(counter.count - 1, std::memory_order_release);
  }
  void Enqueued(uint64_t stream, uint64_t ticks) { Step(slot_->enqueued, stream, ticks); }
  void Started(const wire::OperationInfo& info, uint64_t stream, uint64_t ticks) {
    Describe(slot_->last_started, info);
    Step(slot_->started, stream, ticks);
  }
  void Finished(uint64_t stream, uint64_t ticks) { Step(slot_->finished, stream, ticks); }
  // The same for sends and receives.
  void P2pCalled(const wire::OperationInfo& info, uint64_t stream, uint64_t ticks) {
    Describe(slot_->last_p2p_called, info);
    Step(slot_->p2p_called, stream, ticks);
  }
  void P2pEnqueued(uint64_t stream, uint64_t ticks) { Step(slot_->p2p_enqueued, stream, ticks); }
  void P2pStarted(const wire::OperationInfo& info, uint64_t stream, uint64_t ticks) {
    Describe(slot_->last_p2p_started, info);
    Step(slot_->p2p_started, stream, ticks);
  }
  void P2pFinished(uint64_t stream, uint64_t ticks) { Step(slot_->p2p_finished, stream, ticks); }
  void SetPhase(wire::SlotPhase phase) {
    std::atomic_ref<uint32_t>(slot_->phase).store(phase, std::memory_order_release);
  }
  void Ready() {
    Publish(slot_->ready_ticks, NowTicks());
    SetPhase(wire::kPhaseReady);
  }

  // Vendor's engine: what was seen of it first just now (wire::Seen), and how far off kernel times may be.
  void Sees(uint32_t what, uint32_t kernel_error_ns) {
    if ((slot_->seen & what) != what) Publish(slot_->seen, slot_->seen | what);
    if (slot_->kernel_error_ns != kernel_error_ns) Publish(slot_->kernel_error_ns, kernel_error_ns);
  }

  // Its last words, of which the first count: NCCL's result, 0 where the program aborts it; the rank in the
  // communicator that it lost, -1 where it blames nobody.
  void GaveUp(int32_t result, int blamed_rank) {
    if (slot_->gave_up_ticks != 0) return;
    Publish(slot_->gave_up_result, result);
    Publish(slot_->blamed, static_cast<uint32_t>(blamed_rank + 1));
    std::atomic_ref<uint64_t>(slot_->gave_up_ticks).store(NowTicks(), std::memory_order_release);
  }

  uint32_t index() const { return index_; }
  uint32_t generation() const { return slot_->generation; }
  const wire::CommunicatorSlot& slot() const { return *slot_; }

 private:
  // Field by field: an agent may read it in the middle, and then finds the count unchanged.
  static void Describe(wire::OperationInfo& to, const wire::OperationInfo& info) {
    Publish(to.count, info.count);
    Publish(to.root, info.root);
    Publish(to.function, info.function);
    Publish(to.data_type, info.data_type);
    Publish(to.reduction, info.reduction);
    Publish(to.algorithm, info.algorithm);
  }
  // The count comes last, with release order: whoever sees it sees the time and stream that go with it.
  static void Step(wire::Counter& counter, uint64_t stream, uint64_t ticks) {
    Publish(counter.ticks, ticks);
    Publish(counter.stream, stream);
    std::atomic_ref<uint64_t>(counter.count).store(counter.count + 1, std::memory_order_release);
  }

  wire::CommunicatorSlot* slot_ = nullptr;
  uint32_t index_ = 0;
};

class QueuePairRecorder {
 public:
  QueuePairRecorder() = default;
  QueuePairRecorder(wire::QueuePairSlot* slot, uint32_t index) : slot_(slot), index_(index) {}

  // Of the connection as a whole, on its first queue pair.
  void Wanted(uint64_t bytes, uint64_t ticks) {
    Publish(slot_->last_wanted_ticks, ticks);
    Add(slot_->wanted_bytes, bytes);
    Add(slot_->wanted_messages, 1);
  }
  // A receive was posted with more room than its message needs.
  void WantedLess(uint64_t bytes) { Publish(slot_->wanted_bytes, slot_->wanted_bytes - bytes); }
  void Granted(uint64_t messages) { Publish(slot_->granted_messages, messages); }
  void Done(uint64_t bytes, uint64_t ticks) {
    Publish(slot_->last_done_ticks, ticks);
    Add(slot_->done_bytes, bytes);
    Add(slot_->done_messages, 1);
  }
  void FirstWait(uint64_t ticks) {
    Add(slot_->first_wait_sum_ticks, ticks);
    if (ticks > slot_->first_wait_max_ticks) Publish(slot_->first_wait_max_ticks, ticks);
    Add(slot_->first_waits, 1);
  }

  void Posted(uint64_t bytes, uint64_t ticks) {
    Publish(slot_->last_post_ticks, ticks);
    Add(slot_->posted_bytes, bytes);
    Add(slot_->posted_messages, 1);
  }
  // The same call posted, or one completion ended, so many more.
  void PostedMore(uint64_t messages) { Add(slot_->posted_messages, messages); }
  void CompletedMore(uint64_t messages) { Add(slot_->completed_messages, messages); }
  // What ended it, before it is closed.
  void Errno(int error) { Publish(slot_->error, static_cast<uint64_t>(error)); }
  // What was counted elsewhere before it was known whose it is; nothing was recorded here yet.
  void TakeOver(const wire::QueuePairSlot& counted) {
    constexpr size_t kFrom = offsetof(wire::QueuePairSlot, posted_messages);
    memcpy(reinterpret_cast<char*>(slot_) + kFrom, reinterpret_cast<const char*>(&counted) + kFrom,
           sizeof counted - kFrom);
    Publish(slot_->error, counted.error);
  }
  // Chunks that are handed to another queue pair instead.
  void TakenBack(uint64_t chunks, uint64_t bytes) {
    Publish(slot_->posted_bytes, slot_->posted_bytes - bytes);
    Publish(slot_->posted_messages, slot_->posted_messages - chunks);
  }
  // What becomes of its path.
  template <typename State>
  void Path(State state) {
    Publish(slot_->path_state, static_cast<uint32_t>(state));
  }
  void Fenced() { Publish(slot_->fences, slot_->fences + 1); }
  // Word by word: a reader may see an old port with a new address, once.
  void Rerouted(const wire::Endpoint& local, const wire::Endpoint& remote) {
    slot_->local = local;
    slot_->remote = remote;
  }
  // Verbs: it has been joined to that queue pair of the other end.
  void Joined(uint32_t peer_number) { Publish(slot_->peer_number, peer_number); }
  void Heard(uint64_t ticks) { Publish(slot_->last_heard_ticks, ticks); }
  void Moved(uint64_t bytes, uint64_t ticks) {
    Publish(slot_->last_progress_ticks, ticks);
    Add(slot_->moved_bytes, bytes);
  }
  void Completed(uint64_t bytes, uint64_t posted_ticks, uint64_t ticks) {
    const uint64_t latency = ticks - posted_ticks;
    Publish(slot_->last_progress_ticks, ticks);
    Add(slot_->latency_sum_ticks, latency);
    if (latency > slot_->latency_max_ticks) Publish(slot_->latency_max_ticks, latency);
    Add(slot_->completed_bytes, bytes);
    Add(slot_->completed_messages, 1);
  }
  // Grows with every byte that moves and every chunk that completes, and with nothing else.
  uint64_t progress_count() const { return slot_->moved_bytes + slot_->completed_messages; }
  // Sender: into the histogram of what bytes cost on this path, for so many chunks.
  void Latency(uint64_t bytes, uint64_t latency_ns, uint32_t chunks = 1) {
    uint32_t& bucket = slot_->latency_histogram[wire::LatencyBucket(latency_ns, bytes)];
    Publish(bucket, bucket + chunks);
  }
  void Waited(uint64_t ticks) {
    Add(slot_->wait_sum_ticks, ticks);
    if (ticks > slot_->wait_max_ticks) Publish(slot_->wait_max_ticks, ticks);
  }
  // Sender, transport vendor.
  void GpuWaited(uint64_t ticks) {
    Add(slot_->gpu_wait_sum_ticks, ticks);
    if (ticks > slot_->gpu_wait_max_ticks) Publish(slot_->gpu_wait_max_ticks, ticks);
  }
  void CreditWaited(uint64_t ticks) {
    Add(slot_->credit_wait_sum_ticks, ticks);
    if (ticks > slot_->credit_wait_max_ticks) Publish(slot_->credit_wait_max_ticks, ticks);
  }
  void Close(wire::SlotPhase phase, int error) {
    Publish(slot_->error, static_cast<uint64_t>(error));
    std::atomic_ref<uint32_t>(slot_->phase).store(phase, std::memory_order_release);
  }

  uint32_t index() const { return index_; }
  uint32_t generation() const { return slot_->generation; }
  const wire::QueuePairSlot& slot() const { return *slot_; }

 private:
  static void Add(uint64_t& word, uint64_t value) { Publish(word, word + value); }

  wire::QueuePairSlot* slot_ = nullptr;
  uint32_t index_ = 0;
};

// One writing thread's ring. A default-constructed writer drops what it is given.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(wire::RingHeader* header, wire::Record* records, uint32_t capacity, const uint32_t* level)
      : header_(header), records_(records), mask_(capacity - 1), level_(level), head_(header->head) {}

  bool Wants(wire::RecordLevel level) const {
    return header_ != nullptr && __atomic_load_n(level_, __ATOMIC_RELAXED) >= level;
  }

  void Operation(const CommunicatorRecorder& communicator, const wire::OperationRecord& operation) {
    if (!Wants(wire::kLevelCoarse)) return;
    wire::Record& record = Next();
    record.type = wire::kRecordOperation;
    record.flags = 0;
    record.slot = communicator.index();
    record.generation = communicator.generation();
    record.operation = operation;
    Push();
  }

  void Message(const QueuePairRecorder& queue_pair, const wire::MessageRecord& message) {
    if (!Wants(wire::kLevelFine)) return;
    wire::Record& record = Next();
    record.type = wire::kRecordMessage;
    record.flags = 0;
    record.slot = queue_pair.index();
    record.generation = queue_pair.generation();
    record.message = message;
    Push();
  }

  void Mark(const wire::MarkRecord& mark) {
    if (!Wants(wire::kLevelFine)) return;
    wire::Record& record = Next();
    record.type = wire::kRecordMark;
    record.flags = 0;
    record.slot = 0;
    record.generation = 0;
    record.mark = mark;
    Push();
  }

  wire::RingHeader* header() const { return header_; }

 private:
  // The head that was published before must be visible before the record that it allows to be overwritten
  // changes: a reader that sees any of the new bytes then also sees that head, and drops the record.
  wire::Record& Next() {
    std::atomic_thread_fence(std::memory_order_release);
    return records_[head_ & mask_];
  }
  void Push() { std::atomic_ref<uint64_t>(header_->head).store(++head_, std::memory_order_release); }

  wire::RingHeader* header_ = nullptr;
  wire::Record* records_ = nullptr;
  uint64_t mask_ = 0;
  const uint32_t* level_ = nullptr;
  uint64_t head_ = 0;
};

}  // namespace c4
