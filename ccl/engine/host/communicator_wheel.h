// Who drives a communicator of the host engine: its own thread, or one that waits for an operation and runs
// the queue meanwhile. One at a time; who finds it taken and had a reason to come is woken by whoever holds
// it.
//
// Part of communicator.cc, apart for its length. Shared by the communicator and the streams that have work of
// its.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <sys/timerfd.h>

#include "ccl/base/socket.h"
#include "ccl/engine/host/communicator.h"

namespace c4::host {

inline void SetTimer(int timer, long ns) {
  itimerspec when{};
  when.it_value.tv_nsec = ns;
  (void)timerfd_settime(timer, 0, &when, nullptr);  // cannot fail for a timer of ours
}

class HostCommunicator::Wheel final : public Driver {
 public:
  explicit Wheel(HostCommunicator* owner) : owner_(owner) {}

  bool TryDrive(const std::function<bool()>& enough) override {
    // Over a network two switches between threads are little, and the time that a rank spends on its own is
    // told apart from that of its operations more sharply where another thread runs them.
    if (!lends_.load()) return false;
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || owner_ == nullptr || owner_->Ended()) return false;
    owner_->RunQueue(&enough);
    const bool left = owner_->waiting_.load() != 0;
    lock.unlock();
    // The timer is the wheel's own: the communicator may be gone by now.
    if (missed_.exchange(false) || left) Call();
    return true;
  }

  // From here on threads that wait may drive.
  void Lend() { lends_.store(true); }
  bool lends() const { return lends_.load(); }
  Fd& timer() { return timer_; }
  // Has the thread come at once. TakeCall, by the thread: whether somebody has called.
  void Call() {
    called_.store(true);
    SetTimer(timer_.get(), 1);
  }
  bool TakeCall() { return called_.exchange(false); }

  void Forget() {
    const std::lock_guard<std::mutex> lock(mutex_);
    owner_ = nullptr;
  }

  std::mutex& mutex() { return mutex_; }
  // For the thread; not locked where somebody drives, who wakes it then.
  std::unique_lock<std::mutex> TryLock() {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) return lock;
    missed_.store(true);
    return std::unique_lock<std::mutex>(mutex_, std::try_to_lock);  // it may have gone before it was told
  }

 private:
  std::mutex mutex_;
  HostCommunicator* owner_;
  Fd timer_;  // of the communicator's thread
  std::atomic<bool> lends_{false};
  std::atomic<bool> missed_{false};  // the thread found somebody driving
  std::atomic<bool> called_{false};
};

}  // namespace c4::host
