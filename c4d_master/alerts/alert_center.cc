#include "c4d_master/alerts/alert_center.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "c4d_master/alerts/messages.h"
#include "service/log.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::c4d {
namespace {

using service::Concat;
using Kind = Notification::Kind;

// What time alone changes can wait for so long.
constexpr int64_t kIntervalNs = kSecondNs;
constexpr char kWaitingHelp[] = "Notifications that are not delivered yet";
constexpr char kWaitingName[] = "c4d_alert_notifications_waiting";

}  // namespace

AlertCenter::AlertCenter(std::string job, AlertConfig config, AlertWork* work, AlertStore* store,
                         service::Metrics* metrics, Now now)
    : job_(std::move(job)), work_(work), store_(store), all_metrics_(metrics), alerts_(job_) {
  const auto notifications = [metrics](const char* result) {
    return metrics->Counter("c4d_alert_notifications_total",
                            "Notifications of alerts; failed: attempts that are made again",
                            {{"result", result}});
  };
  metrics_.delivered = notifications("delivered");
  metrics_.failed = notifications("failed");
  metrics_.given_up = notifications("given up");
  metrics_.firing = metrics->Gauge("c4d_alerts_firing", "Alerts that fire, told or not");
  metrics_.muted = metrics->Gauge("c4d_alerts_muted",
                                  "Alerts that fire and are muted by a silence or a maintenance window");
  metrics_.config_refused = metrics->Gauge(
      "c4d_alerts_refused", "1 while the file of alerts says something that cannot be in force");
  metrics_.store_errors =
      metrics->Counter("c4d_alert_store_errors_total", "Changes of alerts that could not be stored");
  alerts_.SetConfig(std::move(config));
  // Numbers of this master are above those of all before, also where the store was lost.
  next_number_ = static_cast<uint64_t>(std::max<int64_t>(now.unix_ns / 1'000'000, 1));
  absl::StatusOr<AlertStore::Kept> kept = store_->Load();
  if (!kept.ok()) {
    service::LogWarning("the stored alerts cannot be read: ", kept.status().message(), "; beginning without");
    kept = AlertStore::Kept();
  }
  alerts_.Restore(kept->alerts, kept->silences);
  for (WaitingNotification& waiting : kept->waiting) {
    next_number_ = std::max(next_number_, waiting.number + 1);
    if (FindTarget(waiting.target) == nullptr) {
      GiveUp(waiting, "its target is no longer there", now);
    } else if (const auto dropped = outbox_.Add(std::move(waiting)); dropped.has_value()) {
      GiveUp(*dropped, "too many wait for its target", now);
    }
  }
  if (!kept->waiting.empty()) {
    service::LogInfo("an earlier master left ", kept->waiting.size(), " notifications to deliver");
  }
  Save();
  UpdateGauges();
}

const AlertTarget* AlertCenter::FindTarget(const std::string& name) const {
  const std::vector<AlertTarget>& targets = alerts_.config().targets;
  const auto found = std::find_if(targets.begin(), targets.end(),
                                  [&name](const AlertTarget& target) { return target.name == name; });
  return found == targets.end() ? nullptr : &*found;
}

void AlertCenter::SetConfig(AlertConfig config, Now now) {
  config_fault_.clear();
  const std::vector<AlertTarget> before = alerts_.config().targets;
  alerts_.SetConfig(std::move(config));
  for (const std::string& name : outbox_.Targets()) {
    const AlertTarget* target = FindTarget(name);
    if (target == nullptr) {
      for (const WaitingNotification& waiting : outbox_.Drop(name)) {
        GiveUp(waiting, "its target is no longer there", now);
      }
    } else if (std::find(before.begin(), before.end(), *target) == before.end()) {
      outbox_.Hurry(name);
    }
  }
  ticked_at_ns_ = kNever;
  service::LogInfo("alerts go by ", alerts_.config().rules.size(), " rules and ",
                   alerts_.config().targets.size(), " targets");
  Save();
  UpdateGauges();
}

void AlertCenter::RefuseConfig(const absl::Status& why) {
  config_fault_ = service::ToUtf8(std::string(why.message()));
  service::LogWarning(why.message(), "; alerts go by the rules of before");
  UpdateGauges();
}

void AlertCenter::OnVerdict(const v1::Verdict& verdict, Now now) {
  alerts_.Observe(verdict, now.unix_ns);
  ticked_at_ns_ = kNever;
}

void AlertCenter::OnAllOpen(const std::set<std::string>& verdicts, Now now) {
  alerts_.Reconcile(verdicts, now.unix_ns);
}

void AlertCenter::OnSession(const v1::ProfilingSession& session, Now /*now*/) {
  alerts_.Observe(session);
  ticked_at_ns_ = kNever;
}

void AlertCenter::Tick(Now now) {
  TakeResults(now);
  if (ticked_at_ns_ == kNever || now.monotonic_ns - ticked_at_ns_ >= kIntervalNs) {
    ticked_at_ns_ = now.monotonic_ns;
    for (const Notification& notification : alerts_.Tick(now.unix_ns)) {
      const v1::Alert* alert = alerts_.Find(notification.alert);
      const AlertRule* rule = alert == nullptr ? nullptr : alerts_.FindRule(alert->rule());
      if (rule == nullptr) continue;
      service::LogInfo("alert ", notification.alert, " is ",
                       notification.kind == Kind::kReminder ? "still firing" : KindWord(notification.kind));
      HandOn(notification, rule->to, now);
    }
    Refresh(now);
    UpdateGauges();
  }
  // Before anything of it is sent: who is told something that is then forgotten is told it twice.
  Save();
  for (WaitingNotification& waiting : outbox_.Due(now.unix_ns)) {
    const AlertTarget* target = FindTarget(waiting.target);
    if (target != nullptr) work_->Try({waiting.number, false, *target, std::move(waiting.body)});
  }
}

std::string AlertCenter::BodyFor(const AlertTarget& target, const Notification& notification, uint64_t number,
                                 Now now) const {
  const std::shared_ptr<const v1::Verdict> verdict = alerts_.VerdictOf(notification.alert);
  NotificationParts parts;
  parts.job = service::ToUtf8(job_);
  parts.kind = notification.kind;
  parts.number = number;
  parts.unix_ns = now.unix_ns;
  parts.alert = alerts_.Find(notification.alert);
  parts.verdict = verdict.get();
  const bool of_sessions = parts.alert == nullptr || parts.alert->verdict().empty();
  parts.session = of_sessions && newest_session_ ? newest_session_() : nullptr;
  switch (target.kind) {
    case AlertTarget::Kind::kAlertmanager:
      return AlertmanagerJson(parts);
    case AlertTarget::Kind::kOtlp:
      return OtlpLogJson(parts, service::Version());
    case AlertTarget::Kind::kWebhook:
    case AlertTarget::Kind::kCommand:
      break;
  }
  return NotificationJson(parts);
}

void AlertCenter::HandOn(const Notification& notification, const std::vector<std::string>& targets, Now now) {
  for (const std::string& name : targets) {
    const AlertTarget* target = FindTarget(name);
    if (target == nullptr) continue;
    // Alertmanager reminds by itself.
    if (notification.kind == Kind::kReminder && target->kind == AlertTarget::Kind::kAlertmanager) continue;
    WaitingNotification waiting;
    waiting.number = next_number_++;
    waiting.target = name;
    waiting.alert = notification.alert;
    waiting.kind = notification.kind;
    waiting.body = BodyFor(*target, notification, waiting.number, now);
    waiting.made_unix_ns = now.unix_ns;
    if (notification.kind != Kind::kRefresh) unsaved_.waiting.push_back(waiting);
    if (const auto dropped = outbox_.Add(std::move(waiting)); dropped.has_value()) {
      GiveUp(*dropped, "too many wait for its target", now);
    }
  }
}

void AlertCenter::Refresh(Now now) {
  for (const AlertTarget& target : alerts_.config().targets) {
    if (target.kind != AlertTarget::Kind::kAlertmanager || outbox_.Waiting(target.name) > 0) continue;
    int64_t& refreshed = targets_[target.name].refreshed_unix_ns;
    if (refreshed == 0) refreshed = now.unix_ns;
    if (now.unix_ns - refreshed < target.refresh_ns && now.unix_ns >= refreshed) continue;
    refreshed = now.unix_ns;
    for (const std::string& id : alerts_.Told()) {
      const AlertRule* rule = alerts_.FindRule(alerts_.Find(id)->rule());
      if (rule == nullptr || std::find(rule->to.begin(), rule->to.end(), target.name) == rule->to.end())
        continue;
      HandOn({Kind::kRefresh, id}, {target.name}, now);
    }
  }
}

void AlertCenter::TakeResults(Now now) {
  for (const AlertAttempted& result : work_->Take()) TakeResult(result, now);
}

void AlertCenter::TakeResult(const AlertAttempted& result, Now now) {
  TargetState& state = targets_[result.target];
  if (result.test) {
    v1::AlertDelivery& last = state.last_test;
    last.set_number(result.number);
    last.set_what(KindWord(Kind::kTest));
    last.set_unix_ns(now.unix_ns);
    last.set_delivered(result.outcome.ok());
    last.set_text(service::ToUtf8(std::string(result.outcome.message())));
    last.set_target(result.target);
    last.set_attempts(1);
    return;
  }
  const AlertTarget* target = FindTarget(result.target);
  if (target == nullptr) return;  // given up already
  const auto finish = outbox_.Finished(result.number, *target, result.outcome, now.unix_ns);
  if (!finish.has_value()) return;
  const std::string trouble = service::ToUtf8(std::string(result.outcome.message()));
  if (state.trouble.empty() && !result.outcome.ok()) {
    service::LogWarning("alert target ", result.target, ": a notification could not be delivered: ", trouble);
  } else if (!state.trouble.empty() && result.outcome.ok()) {
    service::LogInfo("alert target ", result.target, " takes notifications again");
  }
  state.trouble = trouble;
  if (result.outcome.ok()) metrics_.delivered.Add();
  const bool refresh = finish->notification.kind == Kind::kRefresh;
  switch (finish->fate) {
    case Outbox::Fate::kAgain:
      metrics_.failed.Add();
      if (!refresh) unsaved_.waiting.push_back(finish->notification);
      break;
    case Outbox::Fate::kDelivered:
      if (!refresh) RememberEnd(finish->notification, true, "", now);
      break;
    case Outbox::Fate::kGivenUp:
      if (!refresh) GiveUp(finish->notification, trouble, now);
      break;
  }
}

void AlertCenter::GiveUp(const WaitingNotification& notification, const std::string& why, Now now) {
  metrics_.given_up.Add();
  service::LogError("alert ", notification.alert, ": the notification (", KindWord(notification.kind),
                    ") for ", notification.target, " is given up after ", notification.attempts,
                    " attempts: ", why);
  RememberEnd(notification, false, why, now);
}

void AlertCenter::RememberEnd(const WaitingNotification& notification, bool delivered,
                              const std::string& text, Now now) {
  v1::AlertDelivery& last = targets_[notification.target].last;
  last.set_number(notification.number);
  last.set_what(KindWord(notification.kind));
  last.set_unix_ns(now.unix_ns);
  last.set_delivered(delivered);
  last.set_text(text);
  last.set_target(notification.target);
  last.set_attempts(notification.attempts);
  alerts_.Delivered(notification.alert, last);
  unsaved_.done.push_back(notification.number);
}

void AlertCenter::Save() {
  unsaved_.alerts = alerts_.TakeChanges();
  if (unsaved_.empty()) return;
  if (const absl::Status saved = store_->Save(unsaved_); !saved.ok()) {
    metrics_.store_errors.Add();
    service::LogError("alerts cannot be stored: ", saved.message());
  }
  unsaved_ = {};
}

void AlertCenter::UpdateGauges() {
  metrics_.firing.Set(static_cast<double>(alerts_.CountFiring()));
  metrics_.muted.Set(static_cast<double>(alerts_.CountMuted()));
  metrics_.config_refused.Set(config_fault_.empty() ? 0 : 1);
  for (const std::string& name : gauged_) {
    if (FindTarget(name) == nullptr) all_metrics_->Remove(kWaitingName, {{"target", name}});
  }
  gauged_.clear();
  for (const AlertTarget& target : alerts_.config().targets) {
    gauged_.insert(target.name);
    all_metrics_->Gauge(kWaitingName, kWaitingHelp, {{"target", target.name}})
        .Set(static_cast<double>(outbox_.Waiting(target.name)));
  }
}

v1::ListAlertsReply AlertCenter::List(bool include_resolved, Now now) const {
  v1::ListAlertsReply reply;
  reply.set_job(service::ToUtf8(job_));
  reply.set_config_fault(config_fault_);
  for (v1::Alert& alert : alerts_.List(include_resolved)) *reply.add_alerts() = std::move(alert);
  for (v1::Silence& silence : alerts_.Silences(now.unix_ns)) *reply.add_silences() = std::move(silence);
  for (v1::MaintenanceWindow& window : alerts_.Windows(now.unix_ns)) *reply.add_windows() = std::move(window);
  for (const AlertRule& rule : alerts_.config().rules) {
    v1::AlertRuleStatus* item = reply.add_rules();
    item->set_name(rule.name);
    item->set_condition(ConditionText(rule));
    item->set_severity(rule.severity);
    for (const std::string& target : rule.to) item->add_targets(target);
    item->set_firing(static_cast<uint32_t>(alerts_.CountFiring(rule.name)));
  }
  for (const AlertTarget& target : alerts_.config().targets) {
    v1::AlertTargetStatus* item = reply.add_targets();
    item->set_name(target.name);
    item->set_way(WayText(target));
    item->set_waiting(outbox_.Waiting(target.name));
    if (const WaitingNotification* oldest = outbox_.Oldest(target.name); oldest != nullptr) {
      item->set_oldest_unix_ns(oldest->made_unix_ns);
      item->set_next_attempt_unix_ns(oldest->next_unix_ns);
    }
    const auto state = targets_.find(target.name);
    if (state == targets_.end()) continue;
    item->set_trouble(state->second.trouble);
    if (state->second.last.number() != 0) *item->mutable_last() = state->second.last;
    if (state->second.last_test.number() != 0) *item->mutable_last_test() = state->second.last_test;
  }
  return reply;
}

absl::StatusOr<v1::AcknowledgeAlertReply> AlertCenter::Acknowledge(const v1::AcknowledgeAlertRequest& request,
                                                                   Now now) {
  const absl::StatusOr<std::vector<v1::Alert>> alerts = alerts_.Acknowledge(request, now.unix_ns);
  if (!alerts.ok()) return alerts.status();
  v1::AcknowledgeAlertReply reply;
  for (const v1::Alert& alert : *alerts) *reply.add_alerts() = alert;
  Save();
  return reply;
}

absl::StatusOr<v1::AddSilenceReply> AlertCenter::AddSilence(const v1::AddSilenceRequest& request, Now now) {
  absl::StatusOr<v1::Silence> silence = alerts_.AddSilence(request, now.unix_ns);
  if (!silence.ok()) return silence.status();
  v1::AddSilenceReply reply;
  *reply.mutable_silence() = *std::move(silence);
  ticked_at_ns_ = kNever;
  Save();
  return reply;
}

absl::StatusOr<v1::EndSilenceReply> AlertCenter::EndSilence(uint64_t number, Now now) {
  absl::StatusOr<v1::Silence> silence = alerts_.EndSilence(number, now.unix_ns);
  if (!silence.ok()) return silence.status();
  v1::EndSilenceReply reply;
  *reply.mutable_silence() = *std::move(silence);
  ticked_at_ns_ = kNever;
  Save();
  return reply;
}

absl::StatusOr<v1::TestAlertReply> AlertCenter::Test(const std::string& target, Now now) {
  std::vector<std::string> names;
  if (FindTarget(target) != nullptr) {
    names = {target};
  } else if (const AlertRule* rule = alerts_.FindRule(target); rule != nullptr) {
    names = rule->to;
  }
  if (names.empty()) {
    std::vector<std::string> known;
    for (const AlertRule& rule : alerts_.config().rules) known.push_back(rule.name);
    for (const AlertTarget& other : alerts_.config().targets) {
      if (alerts_.FindRule(other.name) == nullptr) known.push_back(other.name);
    }
    return absl::NotFoundError(Concat("there is no alert rule or target ", service::ToUtf8(target),
                                      known.empty() ? "; this master has none (--alerts FILE gives it some)"
                                                    : Concat("; there are ", absl::StrJoin(known, ", "))));
  }
  v1::TestAlertReply reply;
  const uint64_t number = next_number_++;
  reply.set_delivery(number);
  for (const std::string& name : names) {
    const AlertTarget* one = FindTarget(name);
    if (one == nullptr) continue;
    reply.add_targets(name);
    work_->Try({number, true, *one, BodyFor(*one, {Kind::kTest, ""}, number, now)});
  }
  return reply;
}

}  // namespace c4::c4d
