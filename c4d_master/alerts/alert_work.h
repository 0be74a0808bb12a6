// One attempt at a notification, made elsewhere because it takes long. Results are taken when the state
// thread looks for them, a few times a second, so that nobody waits for anybody.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4d_master/alerts/targets.h"

namespace c4::c4d {

struct AlertAttempt {
  uint64_t number = 0;
  bool test = false;
  AlertTarget target;
  std::string body;
};

struct AlertAttempted {
  uint64_t number = 0;
  bool test = false;
  std::string target;
  absl::Status outcome;
};

// Called by one thread, the state thread.
class AlertWork {
 public:
  virtual ~AlertWork() = default;

  // Ends, sooner or later, among what is taken, but for what the end of the master cut off.
  virtual void Try(AlertAttempt attempt) = 0;
  virtual std::vector<AlertAttempted> Take() = 0;
};

}  // namespace c4::c4d
