// Notifications that are not delivered yet, in the order in which they were made, target by target: which are
// to be tried now, when the others, and which are given up. Pure; moments are wall-clock, because what waits
// survives a restart.
//
// Of each target one is under way at a time, the oldest: a receiver hears things in their order. What fails
// is tried again after a pause that doubles, for as long as the target says; what is refused for good is
// given up at once (unless the target says otherwise), so that it does not hold up the others.
//
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/alerts/alerts.h"
#include "service/status.h"

namespace c4::c4d {

struct WaitingNotification {
  uint64_t number = 0;
  std::string target;
  std::string alert;  // id
  Notification::Kind kind = Notification::Kind::kFiring;
  std::string body;
  int64_t made_unix_ns = 0;
  uint32_t attempts = 0;
  int64_t next_unix_ns = 0;  // not before
  std::string trouble;       // why the last attempt failed
};

class Outbox {
 public:
  static constexpr int64_t kFirstPauseNs = kSecondNs;
  static constexpr int64_t kLongestPauseNs = 300 * kSecondNs;
  static constexpr size_t kMaxWaiting = 10'000;  // of a target

  // At the end of its target's; gives back what is given up for it, the oldest that is not under way.
  std::optional<WaitingNotification> Add(WaitingNotification notification);

  // What is to be tried now; under way until Finished.
  std::vector<WaitingNotification> Due(int64_t unix_ns);

  enum class Fate { kDelivered, kAgain, kGivenUp };
  struct Finish {
    Fate fate = Fate::kAgain;
    WaitingNotification notification;
  };
  // nullopt: it is none that is under way.
  std::optional<Finish> Finished(uint64_t number, const AlertTarget& target, const absl::Status& outcome,
                                 int64_t unix_ns);

  // Tries its target again at once (it is another one now).
  void Hurry(const std::string& target);
  // All that waits for a target that is no more.
  std::vector<WaitingNotification> Drop(const std::string& target);

  size_t Waiting(const std::string& target) const;
  const WaitingNotification* Oldest(const std::string& target) const;
  std::vector<std::string> Targets() const;

 private:
  struct Queue {
    std::deque<WaitingNotification> waiting;
    bool under_way = false;  // the first
  };
  std::map<std::string, Queue> queues_;
};

}  // namespace c4::c4d
