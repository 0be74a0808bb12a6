#include "c4d_master/recovery/executor.h"

#include <chrono>
#include <thread>
#include <utility>

namespace c4::c4d::recovery {
namespace {

constexpr absl::Duration kSeldom = absl::Hours(24);
constexpr std::chrono::milliseconds kNap{50};
constexpr std::chrono::seconds kPause{1};  // before another attempt, for each that there was
void Nothing() {}

}  // namespace

Executor::Executor() : thread_("c4d-recovery", kSeldom, Nothing) {}

Executor::~Executor() {
  Stop();
}

void Executor::Stop() {
  stopping_ = true;
  thread_.Stop();
}

void Executor::Put(DriverResult result) {
  if (stopping_) return;
  const std::lock_guard lock(mutex_);
  results_.push_back(std::move(result));
}

void Executor::Run(const Command& command, absl::Duration timeout) {
  const uint64_t ticket = ++wanted_;
  thread_.Post([this, ticket, command, timeout, driver = driver_] {
    const auto stop = [this, ticket] { return stopping_ || wanted_ != ticket; };
    const auto begin_at = std::chrono::steady_clock::now() + kPause * (command.attempt - 1);
    while (!stop() && std::chrono::steady_clock::now() < begin_at) std::this_thread::sleep_for(kNap);
    if (stop()) return;
    Put({.look = false, .command = command.id, .reply = driver->Run(command, timeout, stop)});
  });
}

void Executor::Look(uint64_t as_of_command, absl::Duration timeout) {
  const uint64_t ticket = wanted_;
  thread_.Post([this, ticket, as_of_command, timeout, driver = driver_] {
    const auto stop = [this, ticket] { return stopping_ || wanted_ != ticket; };
    if (stop()) {
      Put({.look = true,
           .command = as_of_command,
           .reply = {},
           .inventory = absl::CancelledError("cut off")});
      return;
    }
    Put({.look = true, .command = as_of_command, .reply = {}, .inventory = driver->Look(timeout, stop)});
  });
}

std::vector<DriverResult> Executor::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

}  // namespace c4::c4d::recovery
