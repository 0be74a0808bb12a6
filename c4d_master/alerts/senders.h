// The threads that send notifications: one for each target that has had anything to tell, so that a receiver
// that does not answer holds up nobody else's.
//
// Stop cuts attempts off (the next master makes them) and joins all. The destructor stops.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "c4d_master/alerts/alert_work.h"
#include "service/state_thread.h"

namespace c4::c4d {

// Blocks. `stop` as for RunCommand.
absl::Status Send(const AlertAttempt& attempt, const std::function<bool()>& stop);

class AlertSenders final : public AlertWork {
 public:
  AlertSenders() = default;
  ~AlertSenders() override;
  AlertSenders(const AlertSenders&) = delete;
  AlertSenders& operator=(const AlertSenders&) = delete;

  void Stop();

  void Try(AlertAttempt attempt) override;
  std::vector<AlertAttempted> Take() override;

 private:
  void TryNow(const AlertAttempt& attempt);

  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // of the results
  std::vector<AlertAttempted> results_;
  std::mutex threads_mutex_;
  std::map<std::string, std::unique_ptr<service::StateThread>> threads_;  // by target
};

}  // namespace c4::c4d
