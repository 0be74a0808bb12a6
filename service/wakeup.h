// A thread's timed sleep, and what ends it early. By the monotonic clock: absl's timed waits go by the wall
// clock, and one that is set back an hour would hold them up for that hour.
//
// Notify is remembered until the next wait takes it. Any thread notifies, one waits; no errors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace c4::service {

class Wakeup {
 public:
  using Clock = std::chrono::steady_clock;

  void Notify();
  // True: notified. A deadline that has passed still takes what was notified before.
  bool WaitUntil(Clock::time_point deadline);
  bool WaitFor(absl::Duration timeout) {
    return WaitUntil(Clock::now() + absl::ToChronoNanoseconds(timeout));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

}  // namespace c4::service
