// Holding the program's calls, so that a job stands still while its devices and links are tested
// (docs/failslow.md, "Validation"). The agent orders it (wire/control.h, ControlHoldArm); each rank stops by
// itself, at its first call after the cut: a number of collectives called on one communicator, or of steps
// marked. The caller is held before its operation is entered, and outside of groups: what was called before
// goes on to its end, and nothing is lost.
//
// Fail open: whatever happens to the agent, the masters or other ranks, the calls go on after hold_ms, by the
// clock of the very threads that are held. While nothing is ordered a call costs one relaxed load
// (HoldArmed).
//
// One for the process; it lives as long as that. Order, End, EndAll, Tick and TakeNews: the control client's
// thread. Enter, Abandon, StepMarked: any thread of the program's. In the child of a fork nothing is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/monitor/monitor.h"
#include "wire/control.h"

namespace c4 {

namespace hold_internal {
extern std::atomic<bool> armed;
extern std::atomic<uint64_t> forks;  // of the process that it is armed in
}  // namespace hold_internal

// Whether a call has to ask Holder::Enter.
inline bool HoldArmed() {
  return hold_internal::armed.load(std::memory_order_relaxed);
}

enum class HeldCall {
  kGoesOn,
  kAborted,  // its communicator was aborted while it was held: it must not be entered any more
};

// What a held thread may ask about the work of its stream (vendor's engine); called again and again.
struct HeldStream {
  // The stream records a graph: the call must not be held.
  bool (*captures)(uint64_t stream) = nullptr;
  // All that was enqueued on the stream is done. nullptr: the counters say so.
  bool (*is_idle)(uint64_t stream) = nullptr;
  uint64_t stream = 0;
};

class Holder {
 public:
  static Holder& Get();

  // Held, if the order says so, until that is over. `comm`: whose call it is, as the program knows it;
  // nullptr: of no communicator (the begin of a group).
  HeldCall Enter(const void* comm, const HeldStream& stream = {});
  // `comm` is about to be aborted or revoked: whatever is held goes on.
  void Abandon(const void* comm);
  // The program has marked the end of a step.
  void StepMarked();

  // `monitor`: whose communicators are counted; it outlives the order.
  void Order(Monitor* monitor, const wire::ControlHoldArm& order);
  void End(uint64_t hold);
  void EndAll(wire::ControlHoldReason reason);
  // Looks at the time and at what has finished. In how many ms to be called again; -1: with the next order.
  int Tick();
  // What the agent has to be told, oldest first; false: nothing.
  bool TakeNews(wire::ControlHoldState* state);
  // Becomes readable with news.
  int news_fd() const { return news_fd_.get(); }

 private:
  Holder();
  void EndLocked(wire::ControlHoldReason reason);
  void TellLocked(wire::ControlHoldPhase phase, wire::ControlHoldReason reason);
  void RefuseLocked(const wire::ControlHoldArm& order, wire::ControlHoldReason reason);
  // Of the order under way.
  uint64_t Counted() const;
  bool IsQuiet() const;
  bool IsOverdue(uint64_t now_ns) const;
  uint64_t DeadlineNs() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  Fd news_fd_;
  // What follows is under mutex_.
  Monitor* monitor_ = nullptr;
  bool active_ = false;
  wire::ControlHoldArm order_{};
  uint64_t ordered_ns_ = 0;
  uint64_t first_held_ns_ = 0;  // 0: nothing was held yet
  uint32_t threads_ = 0;        // held now
  uint32_t busy_streams_ = 0;   // of these: their streams are not idle yet
  wire::ControlHoldPhase phase_ = wire::kHoldEnded;
  std::vector<const wire::CommunicatorSlot*> counted_slots_;
  std::vector<const void*> aborted_;  // while the order is under way
  std::deque<wire::ControlHoldState> news_;
  std::atomic<uint64_t> steps_{0};
};

}  // namespace c4
