#include "ccl/control/hold.h"

#include <algorithm>
#include <chrono>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ccl/base/caught.h"
#include "ccl/base/fork.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4 {

namespace hold_internal {
std::atomic<bool> armed{false};
std::atomic<uint64_t> forks{0};
}  // namespace hold_internal

namespace {

// In the child of a fork the mutex may be locked for ever.
bool IsForeign() {
  return hold_internal::forks.load(std::memory_order_relaxed) != Forks();
}

constexpr uint64_t kMsToNs = 1000000;
constexpr int kLookMs = 1;        // at what was called before, while calls are held
constexpr size_t kMostNews = 64;  // an agent that does not read is told the last ones

std::chrono::steady_clock::time_point At(uint64_t monotonic_ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic_ns));
}

uint64_t Count(const wire::Counter& counter) {
  return __atomic_load_n(&counter.count, __ATOMIC_ACQUIRE);
}

bool IsReady(const wire::CommunicatorSlot& slot) {
  return __atomic_load_n(&slot.phase, __ATOMIC_ACQUIRE) == wire::kPhaseReady;
}

// Everything that was called has finished. Of what the vendor's engine does this is known only where its
// kernels are seen; elsewhere the held threads ask their streams.
bool HasFinished(const wire::CommunicatorSlot& slot) {
  if (slot.engine == wire::kEngineVendor && (slot.seen & wire::kSeesKernels) == 0) return true;
  return Count(slot.finished) >= Count(slot.called) && Count(slot.p2p_finished) >= Count(slot.p2p_called);
}

}  // namespace

Holder& Holder::Get() {
  static auto* const holder = new Holder;
  return *holder;
}

Holder::Holder() : news_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

uint64_t Holder::Counted() const {
  if (order_.count == wire::kHoldCountSteps) return steps_.load(std::memory_order_acquire);
  uint64_t least = UINT64_MAX;
  for (const wire::CommunicatorSlot* slot : counted_slots_) least = std::min(least, Count(slot->called));
  return least == UINT64_MAX ? 0 : least;
}

bool Holder::IsQuiet() const {
  if (busy_streams_ > 0) return false;
  const wire::SegmentHeader& header = monitor_->segment().header();
  const uint32_t used = __atomic_load_n(&header.communicators_used, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < used; ++i) {
    const wire::CommunicatorSlot& slot = monitor_->segment().communicator(i);
    if (IsReady(slot) && !HasFinished(slot)) return false;
  }
  return true;
}

uint64_t Holder::DeadlineNs() const {
  return first_held_ns_ != 0 ? first_held_ns_ + order_.hold_ms * kMsToNs
                             : ordered_ns_ + order_.arrive_ms * kMsToNs;
}

bool Holder::IsOverdue(uint64_t now_ns) const {
  return now_ns >= DeadlineNs();
}

void Holder::TellLocked(wire::ControlHoldPhase phase, wire::ControlHoldReason reason) {
  wire::ControlHoldState state{};
  state.hold = order_.hold;
  state.calls = order_.calls;
  state.counted = Counted();
  state.held_ns = first_held_ns_ == 0 ? 0 : MonotonicNs() - first_held_ns_;
  state.phase = phase_ = phase;
  state.reason = reason;
  state.threads = threads_;
  // Without memory the agent goes by the clock, as everybody does here.
  (void)Caught([&] {
    if (news_.size() >= kMostNews) news_.pop_front();
    news_.push_back(state);
    return Ok();
  });
  const uint64_t one = 1;
  const ssize_t ignored = write(news_fd_.get(), &one, sizeof one);
  (void)ignored;
}

void Holder::RefuseLocked(const wire::ControlHoldArm& order, wire::ControlHoldReason reason) {
  wire::ControlHoldState state{};
  state.hold = order.hold;
  state.calls = order.calls;
  state.phase = wire::kHoldRefused;
  state.reason = reason;
  (void)Caught([&] {
    news_.push_back(state);
    return Ok();
  });
  const uint64_t one = 1;
  const ssize_t ignored = write(news_fd_.get(), &one, sizeof one);
  (void)ignored;
}

void Holder::EndLocked(wire::ControlHoldReason reason) {
  if (!active_) return;
  hold_internal::armed.store(false, std::memory_order_relaxed);
  TellLocked(wire::kHoldEnded, reason);
  active_ = false;
  if (first_held_ns_ != 0) {
    C4_INFO("calls were held for %.0f ms for a validation of the job (reason %u of docs/formats/control.md)",
            static_cast<double>(MonotonicNs() - first_held_ns_) / 1e6, static_cast<unsigned>(reason));
  }
  changed_.notify_all();
}

void Holder::Order(Monitor* monitor, const wire::ControlHoldArm& given) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto most_ms = static_cast<uint32_t>(KnobNumber(Knob::C4_HOLD_MS));
  wire::ControlHoldArm order = given;
  order.hold_ms = std::min(order.hold_ms, most_ms);
  order.arrive_ms = std::min(order.arrive_ms, 600000u);
  if (most_ms == 0) return RefuseLocked(order, wire::kHoldNotAllowed);
  if (active_ && IsOverdue(MonotonicNs())) EndLocked(wire::kHoldTimeUp);
  if (active_ && order_.hold != order.hold) return RefuseLocked(order, wire::kHoldBusy);
  if (active_) {  // its cut moves; the time that was held so far counts
    order_.calls = order.calls;
    changed_.notify_all();
    if (threads_ == 0) TellLocked(wire::kHoldArmed, wire::kHoldNoReason);
    if (threads_ > 0 && Counted() >= order_.calls) TellLocked(wire::kHoldHeld, wire::kHoldNoReason);
    return;
  }
  std::vector<const wire::CommunicatorSlot*> slots;
  if (order.count == wire::kHoldCountCollectives) {
    const wire::SegmentHeader& header = monitor->segment().header();
    for (uint32_t i = 0; i < header.communicators_used; ++i) {
      const wire::CommunicatorSlot& slot = monitor->segment().communicator(i);
      if (slot.communicator_id == order.communicator_id && IsReady(slot)) slots.push_back(&slot);
    }
    if (slots.empty()) return RefuseLocked(order, wire::kHoldUnknown);
    if (slots.size() > 1) return RefuseLocked(order, wire::kHoldSeveralRanks);
  } else if (order.count != wire::kHoldCountSteps || steps_.load(std::memory_order_acquire) == 0) {
    return RefuseLocked(order, wire::kHoldUnknown);
  }
  monitor_ = monitor;
  counted_slots_ = std::move(slots);
  aborted_.clear();
  order_ = order;
  hold_internal::forks.store(Forks(), std::memory_order_relaxed);
  ordered_ns_ = MonotonicNs();
  first_held_ns_ = 0;
  busy_streams_ = 0;
  active_ = true;
  hold_internal::armed.store(true, std::memory_order_relaxed);
  TellLocked(wire::kHoldArmed, wire::kHoldNoReason);
}

HeldCall Holder::Enter(const void* comm, const HeldStream& stream) {
  if (IsForeign()) return HeldCall::kGoesOn;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto stays = [this] { return active_ && Counted() >= order_.calls; };
  if (!stays()) return HeldCall::kGoesOn;
  if (IsOverdue(MonotonicNs())) {
    EndLocked(first_held_ns_ == 0 ? wire::kHoldNotReached : wire::kHoldTimeUp);
    return HeldCall::kGoesOn;
  }
  if (stream.captures != nullptr && stream.captures(stream.stream)) {
    EndLocked(wire::kHoldCapture);
    return HeldCall::kGoesOn;
  }
  const uint64_t hold = order_.hold;
  bool busy = stream.is_idle != nullptr && !stream.is_idle(stream.stream);
  if (busy) ++busy_streams_;
  ++threads_;
  if (first_held_ns_ == 0) first_held_ns_ = MonotonicNs();
  if (phase_ == wire::kHoldArmed) TellLocked(wire::kHoldHeld, wire::kHoldNoReason);
  while (stays() && order_.hold == hold) {
    const uint64_t now_ns = MonotonicNs();
    if (IsOverdue(now_ns)) {
      EndLocked(wire::kHoldTimeUp);
      break;
    }
    // Its stream can be asked by this thread alone, which has the program's context.
    const uint64_t look_ns = busy ? now_ns + kLookMs * kMsToNs : DeadlineNs();
    changed_.wait_until(lock, At(std::min(look_ns, DeadlineNs())));
    if (busy && stream.is_idle(stream.stream)) {
      busy = false;
      --busy_streams_;
    }
  }
  --threads_;
  if (busy && active_ && order_.hold == hold) --busy_streams_;
  if (threads_ == 0 && active_ && order_.hold == hold) TellLocked(wire::kHoldArmed, wire::kHoldNoReason);
  const bool aborted = comm != nullptr && std::find(aborted_.begin(), aborted_.end(), comm) != aborted_.end();
  return aborted ? HeldCall::kAborted : HeldCall::kGoesOn;
}

void Holder::Abandon(const void* comm) {
  if (!HoldArmed() || IsForeign()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!active_) return;
  if (threads_ > 0) {
    (void)Caught([&] {
      aborted_.push_back(comm);
      return Ok();
    });
  }
  EndLocked(wire::kHoldAborted);
}

void Holder::StepMarked() {
  steps_.fetch_add(1, std::memory_order_acq_rel);
  if (HoldArmed()) [[unlikely]]
    (void)Enter(nullptr);
}

void Holder::End(uint64_t hold) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (order_.hold == hold) EndLocked(wire::kHoldToldTo);
}

void Holder::EndAll(wire::ControlHoldReason reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  EndLocked(reason);
  news_.clear();  // of a connection that is no more
}

int Holder::Tick() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!active_) return -1;
  const uint64_t now_ns = MonotonicNs();
  if (IsOverdue(now_ns)) {
    EndLocked(first_held_ns_ == 0 ? wire::kHoldNotReached : wire::kHoldTimeUp);
    return -1;
  }
  if (phase_ == wire::kHoldHeld && IsQuiet()) TellLocked(wire::kHoldQuiet, wire::kHoldNoReason);
  if (phase_ == wire::kHoldHeld) return kLookMs;
  return static_cast<int>((DeadlineNs() - now_ns) / kMsToNs) + 1;
}

bool Holder::TakeNews(wire::ControlHoldState* state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (news_.empty()) {
    uint64_t ignored = 0;
    const ssize_t bytes = read(news_fd_.get(), &ignored, sizeof ignored);
    (void)bytes;
    return false;
  }
  *state = news_.front();
  news_.pop_front();
  return true;
}

}  // namespace c4
