// The thread `c4-stamps`, one a process, which polls the rings of all stamps: often while stamps are awaited,
// seldom while graphs may be launched that we do not see launched, else hardly at all. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "ccl/base/result.h"

namespace c4::vendor {

class Stamps;

class StampReader {
 public:
  static StampReader& Get();  // never destroyed, and neither does its thread end

  // From now on `stamps` is polled; it stays.
  Result Add(Stamps* stamps);
  // Stamps are awaited.
  void Wake() {
    if (idle_.load(std::memory_order_relaxed)) wanted_.notify_one();
  }

 private:
  [[noreturn]] void Run();

  std::mutex mutex_;  // all that follows
  std::condition_variable wanted_;
  std::vector<Stamps*> all_;
  bool running_ = false;
  std::atomic<bool> idle_{false};
};

}  // namespace c4::vendor
