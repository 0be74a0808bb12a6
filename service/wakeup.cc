#include "service/wakeup.h"

#include <utility>

namespace c4::service {

void Wakeup::Notify() {
  {
    const std::lock_guard lock(mutex_);
    notified_ = true;
  }
  changed_.notify_one();
}

bool Wakeup::WaitUntil(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return notified_; });
  return std::exchange(notified_, false);
}

}  // namespace c4::service
