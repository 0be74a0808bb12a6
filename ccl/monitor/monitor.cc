#include "ccl/monitor/monitor.h"

#include <cstring>
#include <new>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4 {
namespace {

constexpr uint32_t kSpare = UINT32_MAX;

SegmentGeometry KnobGeometry() {
  SegmentGeometry geometry;
  geometry.communicators = static_cast<uint32_t>(KnobNumber(Knob::C4_MAX_COMMUNICATORS));
  geometry.queue_pairs = static_cast<uint32_t>(KnobNumber(Knob::C4_MAX_QUEUE_PAIRS));
  geometry.rings = static_cast<uint32_t>(KnobNumber(Knob::C4_MAX_RINGS));
  geometry.ring_records = static_cast<uint32_t>(KnobNumber(Knob::C4_RING_RECORDS));
  if ((geometry.ring_records & (geometry.ring_records - 1)) != 0) {
    uint32_t power = 16;
    while (power * 2 <= geometry.ring_records) power *= 2;
    C4_WARN("C4_RING_RECORDS=%u is not a power of two: taking %u", geometry.ring_records, power);
    geometry.ring_records = power;
  }
  return geometry;
}

wire::RecordLevel LevelOf(const std::string& word) {
  if (word == "off") return wire::kLevelOff;
  return word == "fine" ? wire::kLevelFine : wire::kLevelCoarse;
}

std::atomic<Monitor*> process_monitor{nullptr};

void InForkedChild() {
  Monitor* monitor = process_monitor.load(std::memory_order_acquire);
  if (monitor != nullptr) monitor->segment().BecomePrivate();
}

// A slot that was freed, else the next one that was never used; kSpare when the table is full.
uint32_t TakeSlot(std::vector<uint32_t>* free_slots, uint32_t& used, uint32_t count) {
  if (!free_slots->empty()) {
    const uint32_t slot = free_slots->back();
    free_slots->pop_back();
    return slot;
  }
  if (used >= count) return kSpare;
  const uint32_t slot = used;
  // Room for its return, while a failure harms nobody: slots come back from destructors.
  if (free_slots->capacity() <= slot) free_slots->reserve(2 * (size_t{slot} + 1));
  std::atomic_ref<uint32_t>(used).store(used + 1, std::memory_order_release);
  return slot;
}

}  // namespace

Monitor& Monitor::Get() {
  static Monitor* const monitor = [] {
    const bool on = KnobNumber(Knob::C4_MONITOR) != 0;
    auto* made = new Monitor(on ? KnobText(Knob::C4_RUN_DIR) : "", KnobGeometry(), ReadJobIdentity());
    made->SetLevel(LevelOf(KnobText(Knob::C4_RECORD_LEVEL)));
    process_monitor.store(made, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, InForkedChild);
    return made;
  }();
  return *monitor;
}

Monitor::Monitor(const std::string& directory, const SegmentGeometry& geometry, const JobIdentity& job)
    : directory_(directory), job_(job) {
  const ClockBase clock = MeasureClock();
  if (!directory.empty()) {
    const Result made = segment_.Create(directory, geometry, clock, job);
    if (made.ok()) return;
    C4_WARN(
        "nothing of this process is recorded: %s; set C4_RUN_DIR to a directory on a tmpfs that it can write "
        "to",
        made.message().c_str());
    directory_.clear();
  }
  const Result made = segment_.CreatePrivate(geometry, clock, job);
  if (!made.ok()) {
    // Not even a few megabytes of address space: the smallest layout keeps the recorders valid.
    C4_WARN("%s", made.message().c_str());
    (void)segment_.CreatePrivate({1, 1, 1, 16}, clock, job);
  }
}

CommunicatorRecorder Monitor::OpenCommunicator(const CommunicatorIdentity& identity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::SegmentHeader& header = segment_.header();
  // Communicators tell their peers who this is by the header: not the process that this one was forked from,
  // or siblings would all be taken for one process.
  if (std::exchange(forks_, Forks()) != Forks()) header.header.writer = CurrentProcess();
  const uint32_t index =
      TakeSlot(&free_communicators_, header.communicators_used, header.communicators.count);
  if (index == kSpare) Publish(header.communicators_refused, header.communicators_refused + 1);
  wire::CommunicatorSlot* slot = index == kSpare ? &spare_communicator_ : &segment_.communicator(index);
  const uint32_t generation = slot->generation + 1;
  std::atomic_ref<uint32_t>(slot->phase).store(wire::kPhaseFree, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  wire::CommunicatorSlot fresh{};
  fresh.generation = generation;
  fresh.communicator_id = identity.id;
  fresh.parent_id = identity.parent_id;
  fresh.rank = identity.rank;
  fresh.rank_count = static_cast<uint32_t>(identity.rank_count);
  fresh.created_ticks = NowTicks();
  fresh.engine = identity.engine;
  CopyText(fresh.name, sizeof fresh.name, identity.name);
  *slot = fresh;
  if (job_.source == wire::kJobUnknown) {
    job_.name = ProvisionalJobName(identity.id);
    job_.source = wire::kJobProvisional;
    CopyText(header.job, sizeof header.job, job_.name);
    std::atomic_ref<uint32_t>(header.job_source).store(job_.source, std::memory_order_release);
  }
  ++live_communicators_;
  Publish(header.ended, 0u);
  CommunicatorRecorder recorder(slot, index);
  recorder.SetPhase(wire::kPhaseInit);
  return recorder;
}

void Monitor::CloseCommunicator(CommunicatorRecorder* recorder, wire::SlotPhase phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase == wire::kPhaseAborted) recorder->GaveUp(0, -1);
  recorder->SetPhase(phase);
  if (recorder->index() != kSpare) free_communicators_.push_back(recorder->index());
  // Only an orderly end is an end: a process whose communicators failed or were aborted has not "left".
  if (--live_communicators_ == 0 && phase == wire::kPhaseDestroyed) Publish(segment_.header().ended, 1u);
  *recorder = CommunicatorRecorder(&spare_communicator_, kSpare);
}

QueuePairRecorder Monitor::OpenQueuePair(const CommunicatorRecorder& communicator,
                                         const QueuePairIdentity& identity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::SegmentHeader& header = segment_.header();
  const uint32_t index = TakeSlot(&free_queue_pairs_, header.queue_pairs_used, header.queue_pairs.count);
  if (index == kSpare) Publish(header.queue_pairs_refused, header.queue_pairs_refused + 1);
  wire::QueuePairSlot* slot = index == kSpare ? &spare_queue_pair_ : &segment_.queue_pair(index);
  const uint32_t generation = slot->generation + 1;
  std::atomic_ref<uint32_t>(slot->phase).store(wire::kPhaseFree, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  wire::QueuePairSlot fresh{};
  fresh.generation = generation;
  fresh.communicator_slot = communicator.index();
  fresh.communicator_generation = communicator.generation();
  fresh.direction = identity.direction;
  fresh.peer = identity.peer;
  fresh.channel = identity.channel;
  fresh.index = identity.index;
  fresh.queue_pair_number = identity.number;
  fresh.transport = identity.transport;
  fresh.created_ticks = NowTicks();
  fresh.local = identity.local;
  fresh.remote = identity.remote;
  fresh.peer_number = identity.peer_number;
  *slot = fresh;
  std::atomic_ref<uint32_t>(slot->phase).store(wire::kPhaseReady, std::memory_order_release);
  return {slot, index};
}

void Monitor::CloseQueuePair(QueuePairRecorder* recorder, wire::SlotPhase phase, int error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  recorder->Close(phase, error);
  if (recorder->index() != kSpare) free_queue_pairs_.push_back(recorder->index());
  *recorder = QueuePairRecorder(&spare_queue_pair_, kSpare);
}

RingWriter Monitor::LeaseRing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::SegmentHeader& header = segment_.header();
  const uint32_t index = TakeSlot(&free_rings_, header.rings_used, header.rings.count);
  if (index == kSpare) {
    Publish(header.rings_refused, header.rings_refused + 1);
    return {};
  }
  wire::RingHeader& ring = segment_.ring(index);
  Publish(ring.lease_count, ring.lease_count + 1);
  Publish(ring.thread_id, static_cast<uint32_t>(syscall(SYS_gettid)));
  return {&ring, segment_.ring_records(index), header.ring_capacity, &header.level};
}

void Monitor::ReturnRing(RingWriter* ring) {
  if (ring->header() == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Publish(ring->header()->thread_id, 0u);
  const wire::SegmentHeader& header = segment_.header();
  const auto distance =
      reinterpret_cast<const char*>(ring->header()) - reinterpret_cast<const char*>(&segment_.ring(0));
  free_rings_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(distance) / header.rings.stride_bytes));
  *ring = RingWriter();
}

// The count comes last, with release order. A reader that sees two places mixed sees another one at its next
// look: it reads until two reads in a row agree.
void Monitor::SetWorker(const wire::WorkerPlace& place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wire::WorkerPlace& worker = segment_.header().worker;
  const uint16_t declared = worker.declared;
  wire::WorkerPlace next = place;
  next.declared = declared;
  next.reserved = 0;
  worker = next;
  const auto count = static_cast<uint16_t>(declared == UINT16_MAX ? 1 : declared + 1);
  std::atomic_ref<uint16_t>(worker.declared).store(count, std::memory_order_release);
}

wire::WorkerPlace Monitor::worker() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return segment_.header().worker;
}

void Monitor::SetLevel(wire::RecordLevel level) {
  std::atomic_ref<uint32_t>(segment_.header().level).store(level, std::memory_order_relaxed);
}

wire::RecordLevel Monitor::level() {
  return static_cast<wire::RecordLevel>(
      std::atomic_ref<uint32_t>(segment_.header().level).load(std::memory_order_relaxed));
}

}  // namespace c4
