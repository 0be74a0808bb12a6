#include "c4d_master/smon/alerts.h"

#include <algorithm>

#include "service/text.h"

namespace c4::c4d {
namespace {

bool IsOver(const AlertRule& rule, const v1::ProfilingSession& session) {
  if (rule.cause.empty()) return session.slowdown() >= rule.slowdown;
  return std::any_of(session.causes().begin(), session.causes().end(),
                     [&rule](const v1::SuspectedCause& cause) {
                       return cause.cause() == rule.cause && cause.share() >= rule.share;
                     });
}

}  // namespace

const char* KindWord(Notification::Kind kind) {
  switch (kind) {
    case Notification::Kind::kFiring:
      return "firing";
    case Notification::Kind::kResolved:
      return "resolved";
    case Notification::Kind::kTest:
      return "test";
  }
  return "unknown";
}

Alerts::Alerts(std::vector<AlertRule> rules) {
  for (AlertRule& rule : rules) {
    Entry entry;
    entry.alert.set_rule(rule.name);
    entry.alert.set_condition(ConditionText(rule));
    entry.alert.set_way(WayText(rule));
    entry.rule = std::move(rule);
    entries_.push_back(std::move(entry));
  }
}

void Alerts::Restore(const std::vector<v1::Alert>& alerts) {
  for (const v1::Alert& stored : alerts) {
    next_number_ =
        std::max({next_number_, stored.last_delivery().number() + 1, stored.last_test().number() + 1});
    const absl::StatusOr<size_t> index = Find(stored.rule());
    if (!index.ok()) continue;
    v1::Alert& alert = entries_[*index].alert;
    const std::string condition = alert.condition();
    const std::string way = alert.way();
    alert = stored;
    alert.set_condition(condition);  // as the rule is today
    alert.set_way(way);
  }
}

bool Alerts::Observe(const v1::ProfilingSession& session) {
  if (session.state() != v1::SESSION_STATE_ANALYSED || session.doubtful()) return false;
  for (Entry& entry : entries_) {
    v1::Alert& alert = entry.alert;
    entry.gave_up = false;
    if (!IsOver(entry.rule, session)) {
      alert.set_over(false);
      alert.set_firing(false);
      alert.set_since_unix_ns(0);
      continue;
    }
    // A wall clock that was set back must not make the rule fire early.
    if (!alert.over() || alert.since_unix_ns() > session.ended_unix_ns()) {
      alert.set_since_unix_ns(session.ended_unix_ns());
    }
    alert.set_over(true);
    if (session.ended_unix_ns() - alert.since_unix_ns() >= entry.rule.for_ns) alert.set_firing(true);
  }
  return true;
}

std::vector<Notification> Alerts::Due(int64_t unix_ns) {
  std::vector<Notification> due;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const v1::Alert& alert = entry.alert;
    if (entry.sending || entry.gave_up || alert.firing() == alert.told_firing()) continue;
    if (unix_ns < alert.silenced_until_unix_ns()) continue;
    entry.sending = true;
    due.push_back(
        {alert.firing() ? Notification::Kind::kFiring : Notification::Kind::kResolved, next_number_++, i});
  }
  return due;
}

absl::StatusOr<Notification> Alerts::Test(const std::string& rule) {
  const absl::StatusOr<size_t> index = Find(rule);
  if (!index.ok()) return index.status();
  Entry& entry = entries_[*index];
  if (entry.testing) {
    return absl::FailedPreconditionError(
        service::Concat("a test of alert rule ", rule, " is on its way already; wait for its end"));
  }
  entry.testing = true;
  return Notification{Notification::Kind::kTest, next_number_++, *index};
}

void Alerts::Delivered(const Notification& notification, int64_t unix_ns, const absl::Status& outcome) {
  Entry& entry = entries_[notification.rule];
  const bool test = notification.kind == Notification::Kind::kTest;
  v1::AlertDelivery& last = test ? *entry.alert.mutable_last_test() : *entry.alert.mutable_last_delivery();
  last.set_number(notification.number);
  last.set_what(KindWord(notification.kind));
  last.set_unix_ns(unix_ns);
  last.set_delivered(outcome.ok());
  last.set_text(service::ToUtf8(std::string(outcome.message())));
  if (test) {
    entry.testing = false;
    return;
  }
  entry.sending = false;
  entry.gave_up = !outcome.ok();
  if (outcome.ok()) entry.alert.set_told_firing(notification.kind == Notification::Kind::kFiring);
}

absl::StatusOr<size_t> Alerts::Silence(const std::string& rule, int64_t until_unix_ns) {
  absl::StatusOr<size_t> index = Find(rule);
  if (index.ok()) entries_[*index].alert.set_silenced_until_unix_ns(until_unix_ns);
  return index;
}

size_t Alerts::CountFiring() const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [](const Entry& entry) { return entry.alert.firing(); }));
}

absl::StatusOr<size_t> Alerts::Find(const std::string& rule) const {
  std::string names;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].rule.name == rule) return i;
    names += (i == 0 ? "" : ", ") + entries_[i].rule.name;
  }
  return absl::NotFoundError(service::Concat(
      "there is no alert rule ", service::ToUtf8(rule),
      names.empty() ? "; this master has none (--smon-alerts FILE gives it some)" : "; there are " + names));
}

}  // namespace c4::c4d
