#include "service/state_thread.h"

#include <chrono>
#include <memory>
#include <pthread.h>
#include <utility>

#include "service/clock.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int64_t kBusyTooLongNs = 5'000'000'000;

// A call whose waiter may give up: whoever comes first decides whether it runs.
struct Waiter {
  std::mutex mutex;
  std::condition_variable wake;
  enum { kWaiting, kRunning, kDone, kGivenUp } state = kWaiting;
};

}  // namespace

StateThread::StateThread(const char* name, absl::Duration tick_interval, Task tick)
    : tick_interval_(tick_interval), tick_(std::move(tick)), thread_([this, name] {
        pthread_setname_np(pthread_self(), name);
        Run();
      }) {}

StateThread::~StateThread() {
  Stop();
}

bool StateThread::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

absl::Status StateThread::Call(Task task, absl::Duration timeout) {
  const auto waiter = std::make_shared<Waiter>();
  const bool posted = Post([waiter, task = std::move(task)] {
    {
      const std::lock_guard lock(waiter->mutex);
      if (waiter->state == Waiter::kGivenUp) return;
      waiter->state = Waiter::kRunning;
    }
    task();
    {
      const std::lock_guard lock(waiter->mutex);
      waiter->state = Waiter::kDone;
    }
    waiter->wake.notify_one();
  });
  if (!posted) return absl::UnavailableError("the master is about to end");
  std::unique_lock lock(waiter->mutex);
  const auto begun = [&] { return waiter->state != Waiter::kWaiting; };
  if (!waiter->wake.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                             [&] { return waiter->state == Waiter::kDone; }) &&
      !begun()) {
    waiter->state = Waiter::kGivenUp;
    return absl::DeadlineExceededError("the master is too busy to answer");
  }
  waiter->wake.wait(lock, [&] { return waiter->state == Waiter::kDone; });
  return absl::OkStatus();
}

void StateThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

absl::Status StateThread::Health() const {
  const std::lock_guard lock(mutex_);
  const int64_t busy_ns = busy_since_ns_ == 0 ? 0 : SystemClock().MonotonicNs() - busy_since_ns_;
  if (busy_ns < kBusyTooLongNs) return absl::OkStatus();
  return absl::UnavailableError(Concat("the state thread has been busy with one task for ",
                                       busy_ns / 1'000'000'000, " s, ", tasks_.size(), " are waiting"));
}

void StateThread::Run() {
  const auto interval = absl::ToChronoNanoseconds(tick_interval_);
  auto next_tick = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    Task task;
    const bool tick_due = std::chrono::steady_clock::now() >= next_tick;
    if (!tick_due && !tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    } else if (stopping_ && tasks_.empty()) {
      return;
    } else if (!tick_due) {
      wake_.wait_until(lock, next_tick);
      continue;
    }
    busy_since_ns_ = SystemClock().MonotonicNs();
    lock.unlock();
    if (tick_due) {
      tick_();
      next_tick = std::chrono::steady_clock::now() + interval;
    } else {
      task();
    }
    task = nullptr;
    lock.lock();
    busy_since_ns_ = 0;
  }
}

}  // namespace c4::service
