// Runs a driver on a thread of its own: one command or look at a time. A command that is no longer wanted,
// because another one has been asked for, is cut off. Results are taken when the state thread looks for them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "c4d_master/recovery/driver.h"
#include "service/state_thread.h"

namespace c4::c4d::recovery {

struct DriverResult {
  bool look = false;
  uint64_t command = 0;  // or, of a look, the last one before it
  DriverReply reply;
  absl::StatusOr<Inventory> inventory = absl::UnknownError("");
};

// Called by one thread, the state thread.
class RecoveryWork {
 public:
  virtual ~RecoveryWork() = default;
  // nullptr: there is none, and nothing may be asked for.
  virtual void SetDriver(std::shared_ptr<Driver> driver) = 0;
  virtual void Run(const Command& command, absl::Duration timeout) = 0;
  virtual void Look(uint64_t as_of_command, absl::Duration timeout) = 0;
  virtual std::vector<DriverResult> Take() = 0;
};

class Executor final : public RecoveryWork {
 public:
  Executor();
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Cuts off what runs and joins; the next master runs it again.
  void Stop();

  void SetDriver(std::shared_ptr<Driver> driver) override { driver_ = std::move(driver); }
  void Run(const Command& command, absl::Duration timeout) override;
  void Look(uint64_t as_of_command, absl::Duration timeout) override;
  std::vector<DriverResult> Take() override;

 private:
  void Put(DriverResult result);

  std::shared_ptr<Driver> driver_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> wanted_ = 0;  // counts commands that were asked for
  std::mutex mutex_;
  std::vector<DriverResult> results_;
  service::StateThread thread_;
};

}  // namespace c4::c4d::recovery
