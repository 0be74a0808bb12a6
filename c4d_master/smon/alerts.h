// The state of each alert rule: over its threshold or not, firing, silenced, and what its receiver has been
// told. Pure: moments are wall-clock, because the state survives a restart; sending is somebody else's.
//
// A rule fires when sessions in a row, from the first to the last of them for at least its duration, were
// over its threshold, and is resolved by the first that is not. A session without figures, or with doubtful
// ones, says nothing either way. What the receiver was told is brought in line with what is: while a rule is
// silenced nothing is sent, afterwards what then differs. A notification that could not be delivered is
// tried again after the next session.
//
// One thread.
#pragma once

#include <string>
#include <vector>

#include "c4/v1/smon.pb.h"
#include "c4d_master/smon/alert_rules.h"

namespace c4::c4d {

// What has to be sent.
struct Notification {
  enum class Kind { kFiring, kResolved, kTest };

  Kind kind = Kind::kFiring;
  uint64_t number = 0;
  size_t rule = 0;  // index
};
const char* KindWord(Notification::Kind kind);  // "firing"

class Alerts {
 public:
  explicit Alerts(std::vector<AlertRule> rules);

  // The states that an earlier master left; those of rules that are no more are passed over.
  void Restore(const std::vector<v1::Alert>& alerts);

  // Takes a session that is over into account. True: a state may have changed.
  bool Observe(const v1::ProfilingSession& session);

  // What is to be sent at this moment, one for each rule until Delivered.
  std::vector<Notification> Due(int64_t unix_ns);
  // NotFound: no such rule. FailedPrecondition: a test of it is on its way.
  absl::StatusOr<Notification> Test(const std::string& rule);
  void Delivered(const Notification& notification, int64_t unix_ns, const absl::Status& outcome);

  // Until then nothing of this rule is sent but tests; 0: again at once.
  absl::StatusOr<size_t> Silence(const std::string& rule, int64_t until_unix_ns);

  size_t size() const { return entries_.size(); }
  const AlertRule& rule(size_t i) const { return entries_[i].rule; }
  const v1::Alert& alert(size_t i) const { return entries_[i].alert; }
  size_t CountFiring() const;

 private:
  struct Entry {
    AlertRule rule;
    v1::Alert alert;
    bool sending = false;
    bool testing = false;
    bool gave_up = false;  // until the next session
  };

  absl::StatusOr<size_t> Find(const std::string& rule) const;

  std::vector<Entry> entries_;
  uint64_t next_number_ = 1;
};

}  // namespace c4::c4d
