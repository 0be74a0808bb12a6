// The state of each alert: its condition holds or not, it fires, somebody has acknowledged it, and what its
// receivers have been told; silences; and what has to be told next. Pure: moments are wall-clock, because the
// state survives a restart; sending is somebody else's (outbox.h).
//
// A rule about verdicts makes an alert of each verdict to which it applies: it fires when the rule has
// applied for its duration, and is over when the verdict is cleared or the rule no longer applies. A rule
// about SMon's sessions makes one alert: it fires when sessions in a row, from the first to the last of them
// for at least its duration, were over its threshold, and is over with the first that is not; a session
// without figures, or with doubtful ones, says nothing either way.
//
// What the receivers were told is brought in line with what is: while a silence or a maintenance window mutes
// an alert nothing is told, afterwards what then differs. What is told is handed on for good.
//
// One thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "c4/v1/alerts.pb.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/smon.pb.h"
#include "c4d_master/alerts/labels.h"
#include "c4d_master/alerts/rules.h"

namespace c4::c4d {

// What has to be told, to all targets of the rule.
struct Notification {
  enum class Kind { kFiring, kReminder, kResolved, kTest, kRefresh };

  Kind kind = Kind::kFiring;
  std::string alert;  // id
};
const char* KindWord(Notification::Kind kind);  // "firing"

inline constexpr double kMaxSilenceSeconds = 30.0 * 86'400;

class Alerts {
 public:
  explicit Alerts(std::string job) : job_(std::move(job)) {}

  // From now on these rules and windows hold. Alerts of rules that are no more are forgotten.
  void SetConfig(AlertConfig config);
  const AlertConfig& config() const { return config_; }
  const AlertRule* FindRule(const std::string& name) const;

  // What an earlier master left.
  void Restore(const std::vector<v1::Alert>& alerts, const std::vector<v1::Silence>& silences);
  // Verdicts that are none of these are over, though nobody saw it.
  void Reconcile(const std::set<std::string>& open_verdicts, int64_t unix_ns);

  void Observe(const v1::ProfilingSession& session);
  void Observe(const v1::Verdict& verdict, int64_t unix_ns);

  // What has to be told by now. It counts as told.
  std::vector<Notification> Tick(int64_t unix_ns);
  // An attempt to tell it came to an end, for good or not.
  void Delivered(const std::string& alert, const v1::AlertDelivery& delivery);

  // `id` of an alert, or of a verdict: all of its alerts. NotFound: there is none that is not over.
  absl::StatusOr<std::vector<v1::Alert>> Acknowledge(const v1::AcknowledgeAlertRequest& request,
                                                     int64_t unix_ns);
  absl::StatusOr<v1::Silence> AddSilence(const v1::AddSilenceRequest& request, int64_t unix_ns);
  // It ends now. NotFound: there is none of that number, or it is over.
  absl::StatusOr<v1::Silence> EndSilence(uint64_t number, int64_t unix_ns);

  // By onset, oldest first.
  std::vector<v1::Alert> List(bool include_resolved) const;
  std::vector<v1::Silence> Silences(int64_t unix_ns) const;  // those in force
  std::vector<v1::MaintenanceWindow> Windows(int64_t unix_ns) const;

  // nullptr where there is none.
  const v1::Alert* Find(const std::string& id) const;
  std::shared_ptr<const v1::Verdict> VerdictOf(const std::string& id) const;
  // Those that fire and have been told.
  std::vector<std::string> Told() const;
  size_t CountFiring(const std::string& rule = "") const;
  size_t CountMuted() const;

  // Since the last call: what has to be stored, and what is no more.
  struct Changes {
    std::vector<v1::Alert> alerts;
    std::vector<std::string> forgotten;
    std::vector<v1::Silence> silences;
    std::vector<uint64_t> forgotten_silences;
    bool empty() const {
      return alerts.empty() && forgotten.empty() && silences.empty() && forgotten_silences.empty();
    }
  };
  Changes TakeChanges();

 private:
  struct Entry {
    v1::Alert alert;
    std::shared_ptr<const v1::Verdict> verdict;  // nullptr: about sessions, or not seen by this master
  };

  Entry* Ensure(const AlertRule& rule, const std::string& id);
  void Begin(Entry* entry, int64_t since_unix_ns);
  void End(Entry* entry, int64_t unix_ns);
  void Mute(Entry* entry, int64_t unix_ns);
  void DescribeRule(const AlertRule& rule, v1::Alert* alert) const;
  void ForgetOld(int64_t unix_ns);
  void Forget(const std::string& id);

  std::string job_;
  AlertConfig config_;
  std::map<std::string, Entry> entries_;  // by id
  std::map<uint64_t, v1::Silence> silences_;
  uint64_t next_silence_ = 1;
  std::set<std::string> changed_;
  std::set<std::string> forgotten_;
  std::set<uint64_t> changed_silences_;
  std::set<uint64_t> forgotten_silences_;
};

}  // namespace c4::c4d
