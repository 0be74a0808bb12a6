#include "ccl/monitor/marks.h"

#include <sched.h>

namespace c4 {
namespace {

// Writing takes nanoseconds: so many tries mean that this thread is within another's mark (a signal handler),
// or that the other one does not get a processor.
constexpr int kTries = 4096;

}  // namespace

MarkWriter& MarkWriter::Get() {
  static auto* const writer = new MarkWriter(&Monitor::Get());
  return *writer;
}

MarkWriter::MarkWriter(Monitor* monitor) : monitor_(monitor), ring_(monitor->LeaseRing()) {}

void MarkWriter::Declare(const wire::WorkerPlace& place) {
  if (forks_ == Forks()) monitor_->SetWorker(place);
}

bool MarkWriter::Lock() {
  for (int tries = 1; !lock_.try_lock(); ++tries) {
    if (tries == kTries) return false;
    if (tries % 64 == 0) sched_yield();
  }
  return true;
}

void MarkWriter::Write(wire::MarkRecord mark, uint64_t began_ticks) {
  if (began_ticks == 0 || forks_ != Forks() || !ring_.Wants(wire::kLevelFine)) return;
  mark.began_ticks = began_ticks;
  mark.ended_ticks = NowTicks();
  if (!Lock()) {
    lost_.fetch_add(1, std::memory_order_relaxed);  // no line in the log: this may be a signal handler
    return;
  }
  ring_.Mark(mark);
  lock_.unlock();
}

}  // namespace c4
