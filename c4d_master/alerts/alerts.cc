#include "c4d_master/alerts/alerts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using About = AlertRule::About;
using Kind = Notification::Kind;

constexpr size_t kMaxResolved = 200;  // that are remembered
constexpr size_t kMaxSilences = 1000;
constexpr size_t kMaxCommentBytes = 1000;
constexpr int64_t kSilenceKeptNs = 86'400 * kSecondNs;  // after its end

bool IsOver(const AlertRule& rule, const v1::ProfilingSession& session) {
  if (rule.about == About::kSlowdown) return session.slowdown() >= rule.slowdown;
  return std::any_of(session.causes().begin(), session.causes().end(),
                     [&rule](const v1::SuspectedCause& cause) {
                       return cause.cause() == rule.cause && cause.share() >= rule.share;
                     });
}

std::string WayOf(const AlertConfig& config, const AlertRule& rule) {
  std::vector<std::string> ways;
  for (const AlertTarget& target : config.targets) {
    if (std::find(rule.to.begin(), rule.to.end(), target.name) != rule.to.end()) {
      ways.push_back(WayText(target));
    }
  }
  return absl::StrJoin(ways, ", ");
}

bool IsDone(const v1::Alert& alert) {
  return !alert.over() && !alert.told_firing();
}

std::string Cut(const std::string& text) {
  return service::ToUtf8(text.substr(0, kMaxCommentBytes));
}

}  // namespace

const char* KindWord(Kind kind) {
  switch (kind) {
    case Kind::kFiring:
      return "firing";
    case Kind::kReminder:
      return "reminder";
    case Kind::kResolved:
      return "resolved";
    case Kind::kTest:
      return "test";
    case Kind::kRefresh:
      return "refresh";
  }
  return "unknown";
}

const AlertRule* Alerts::FindRule(const std::string& name) const {
  const auto found = std::find_if(config_.rules.begin(), config_.rules.end(),
                                  [&name](const AlertRule& rule) { return rule.name == name; });
  return found == config_.rules.end() ? nullptr : &*found;
}

void Alerts::SetConfig(AlertConfig config) {
  config_ = std::move(config);
  std::vector<std::string> gone;
  for (auto& [id, entry] : entries_) {
    const AlertRule* rule = FindRule(entry.alert.rule());
    if (rule == nullptr || (rule->about == About::kVerdict) != !entry.alert.verdict().empty()) {
      gone.push_back(id);
    } else {
      DescribeRule(*rule, &entry.alert);
    }
  }
  for (const std::string& id : gone) Forget(id);
}

void Alerts::DescribeRule(const AlertRule& rule, v1::Alert* alert) const {
  alert->set_rule(rule.name);
  alert->set_condition(ConditionText(rule));
  alert->set_way(WayOf(config_, rule));
  alert->mutable_detail()->set_severity(rule.severity);
  auto& labels = *alert->mutable_detail()->mutable_labels();
  labels["rule"] = rule.name;
  labels["severity"] = rule.severity;
  labels["job"] = service::ToUtf8(job_);
}

void Alerts::Restore(const std::vector<v1::Alert>& alerts, const std::vector<v1::Silence>& silences) {
  for (const v1::Alert& stored : alerts) {
    const AlertRule* rule = FindRule(stored.rule());
    if (rule == nullptr || (rule->about == About::kVerdict) != !stored.verdict().empty()) {
      forgotten_.insert(stored.id());
      continue;
    }
    Entry& entry = entries_[stored.id()];
    entry.alert = stored;
    DescribeRule(*rule, &entry.alert);  // as the rule is today
  }
  for (const v1::Silence& silence : silences) {
    silences_[silence.number()] = silence;
    next_silence_ = std::max(next_silence_, silence.number() + 1);
  }
}

Alerts::Entry* Alerts::Ensure(const AlertRule& rule, const std::string& id) {
  Entry& entry = entries_[id];
  if (entry.alert.id().empty()) {
    entry.alert.set_id(id);
    DescribeRule(rule, &entry.alert);
    forgotten_.erase(id);
  }
  changed_.insert(id);
  return &entry;
}

// The condition holds, from then on unless it has before.
void Alerts::Begin(Entry* entry, int64_t since_unix_ns) {
  v1::Alert& alert = entry->alert;
  v1::AlertDetail& detail = *alert.mutable_detail();
  if (!alert.over()) {
    detail.clear_acknowledged_by();
    detail.clear_acknowledged_unix_ns();
    detail.clear_acknowledged_comment();
    detail.clear_fired_unix_ns();
    detail.clear_resolved_unix_ns();
  }
  // A wall clock that was set back must not make the rule fire early.
  if (!alert.over() || alert.since_unix_ns() > since_unix_ns) alert.set_since_unix_ns(since_unix_ns);
  alert.set_over(true);
}

void Alerts::End(Entry* entry, int64_t unix_ns) {
  v1::Alert& alert = entry->alert;
  if (!alert.over()) return;
  alert.set_over(false);
  alert.set_firing(false);
  alert.mutable_detail()->set_resolved_unix_ns(unix_ns);
  changed_.insert(alert.id());
}

void Alerts::Observe(const v1::ProfilingSession& session) {
  if (session.state() != v1::SESSION_STATE_ANALYSED || session.doubtful()) return;
  for (const AlertRule& rule : config_.rules) {
    if (rule.about == About::kVerdict) continue;
    const auto found = entries_.find(rule.name);
    if (!IsOver(rule, session)) {
      if (found != entries_.end()) End(&found->second, session.ended_unix_ns());
      continue;
    }
    Entry* entry = Ensure(rule, rule.name);
    Begin(entry, session.ended_unix_ns());
    v1::Alert& alert = entry->alert;
    if (alert.firing() || session.ended_unix_ns() - alert.since_unix_ns() < rule.for_ns) continue;
    alert.set_firing(true);
    alert.mutable_detail()->set_fired_unix_ns(session.ended_unix_ns());
  }
}

void Alerts::Observe(const v1::Verdict& verdict, int64_t unix_ns) {
  std::shared_ptr<const v1::Verdict> kept;
  for (const AlertRule& rule : config_.rules) {
    if (rule.about != About::kVerdict) continue;
    const std::string id = Concat(rule.name, "/", verdict.id());
    const bool applies = Applies(rule.verdict, verdict);
    if (!applies && !entries_.contains(id)) continue;
    Entry* entry = Ensure(rule, id);
    if (kept == nullptr) kept = std::make_shared<const v1::Verdict>(verdict);
    entry->verdict = kept;
    v1::Alert& alert = entry->alert;
    alert.set_verdict(verdict.id());
    alert.set_text(service::VerdictHead(verdict));
    auto& labels = *alert.mutable_detail()->mutable_labels();
    for (const auto& [name, value] : LabelsOf(verdict)) labels[name] = service::ToUtf8(value);
    if (applies) {
      Begin(entry, unix_ns);
    } else {
      End(entry, unix_ns);
    }
  }
}

void Alerts::Reconcile(const std::set<std::string>& open_verdicts, int64_t unix_ns) {
  for (auto& [id, entry] : entries_) {
    const std::string& verdict = entry.alert.verdict();
    if (!verdict.empty() && !open_verdicts.contains(verdict)) End(&entry, unix_ns);
  }
}

void Alerts::Mute(Entry* entry, int64_t unix_ns) {
  v1::AlertDetail& detail = *entry->alert.mutable_detail();
  const Labels labels(detail.labels().begin(), detail.labels().end());
  std::string by;
  int64_t until_ns = 0;
  for (const auto& [number, silence] : silences_) {
    if (unix_ns < silence.begun_unix_ns() || unix_ns >= silence.until_unix_ns()) continue;
    const auto matchers =
        ParseMatchers(std::vector<std::string>(silence.matchers().begin(), silence.matchers().end()));
    if (!matchers.ok() || !Matches(*matchers, labels) || silence.until_unix_ns() <= until_ns) continue;
    by = Concat("silence ", number);
    until_ns = silence.until_unix_ns();
  }
  for (const TimeWindow& window : config_.windows) {
    const std::optional<int64_t> until = window.OpenUntil(unix_ns);
    if (!until.has_value() || *until <= until_ns || !Matches(window.matchers, labels)) continue;
    by = Concat("maintenance window ", window.name);
    until_ns = *until;
  }
  if (detail.muted_by() == by && entry->alert.silenced_until_unix_ns() == until_ns) return;
  detail.set_muted_by(by);
  entry->alert.set_silenced_until_unix_ns(until_ns);
  changed_.insert(entry->alert.id());
}

std::vector<Notification> Alerts::Tick(int64_t unix_ns) {
  std::vector<Notification> due;
  for (auto& [id, entry] : entries_) {
    v1::Alert& alert = entry.alert;
    v1::AlertDetail& detail = *alert.mutable_detail();
    const AlertRule* rule = FindRule(alert.rule());
    if (rule == nullptr || IsDone(alert)) continue;
    if (rule->about == About::kVerdict && alert.over() && !alert.firing()) {
      if (alert.since_unix_ns() > unix_ns) alert.set_since_unix_ns(unix_ns);  // the clock was set back
      if (unix_ns - alert.since_unix_ns() >= rule->for_ns) {
        alert.set_firing(true);
        detail.set_fired_unix_ns(unix_ns);
        changed_.insert(id);
      }
    }
    Mute(&entry, unix_ns);
    if (!detail.muted_by().empty()) continue;
    const bool news = alert.firing() != alert.told_firing();
    const bool reminder = alert.firing() && rule->repeat_ns > 0 && detail.acknowledged_by().empty() &&
                          unix_ns - detail.told_unix_ns() >= rule->repeat_ns;
    if (!news && !reminder) continue;
    due.push_back({!alert.firing() ? Kind::kResolved : news ? Kind::kFiring : Kind::kReminder, id});
    alert.set_told_firing(alert.firing());
    detail.set_told_unix_ns(unix_ns);
    changed_.insert(id);
  }
  ForgetOld(unix_ns);
  return due;
}

void Alerts::ForgetOld(int64_t unix_ns) {
  for (auto silence = silences_.begin(); silence != silences_.end();) {
    if (unix_ns < silence->second.until_unix_ns() + kSilenceKeptNs) {
      ++silence;
      continue;
    }
    forgotten_silences_.insert(silence->first);
    silence = silences_.erase(silence);
  }
  const auto done = static_cast<size_t>(std::count_if(
      entries_.begin(), entries_.end(), [](const auto& item) { return IsDone(item.second.alert); }));
  if (done <= kMaxResolved) return;
  std::vector<std::pair<int64_t, std::string>> by_age;
  for (const auto& [id, entry] : entries_) {
    if (IsDone(entry.alert)) by_age.emplace_back(entry.alert.detail().resolved_unix_ns(), id);
  }
  std::sort(by_age.begin(), by_age.end());
  for (size_t i = 0; i < done - kMaxResolved; ++i) Forget(by_age[i].second);
}

void Alerts::Forget(const std::string& id) {
  const std::string gone = id;  // `id` may be of what goes
  entries_.erase(gone);
  changed_.erase(gone);
  forgotten_.insert(gone);
}

void Alerts::Delivered(const std::string& alert, const v1::AlertDelivery& delivery) {
  const auto found = entries_.find(alert);
  if (found == entries_.end()) return;
  *found->second.alert.mutable_last_delivery() = delivery;
  changed_.insert(alert);
}

absl::StatusOr<std::vector<v1::Alert>> Alerts::Acknowledge(const v1::AcknowledgeAlertRequest& request,
                                                           int64_t unix_ns) {
  std::vector<v1::Alert> alerts;
  std::vector<std::string> names;
  for (auto& [id, entry] : entries_) {
    v1::Alert& alert = entry.alert;
    if (!alert.over()) continue;
    names.push_back(id);
    if (id != request.id() && (alert.verdict().empty() || alert.verdict() != request.id())) continue;
    v1::AlertDetail& detail = *alert.mutable_detail();
    const std::string by = request.by().empty() ? "somebody" : Cut(request.by());
    detail.set_acknowledged_by(request.undo() ? "" : by);
    detail.set_acknowledged_unix_ns(request.undo() ? 0 : unix_ns);
    detail.set_acknowledged_comment(request.undo() ? "" : Cut(request.comment()));
    changed_.insert(id);
    alerts.push_back(alert);
  }
  if (!alerts.empty()) return alerts;
  return absl::NotFoundError(Concat("no alert ", service::ToUtf8(request.id()), " is under way",
                                    names.empty() ? "" : "; there are ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<v1::Silence> Alerts::AddSilence(const v1::AddSilenceRequest& request, int64_t unix_ns) {
  const auto matchers =
      ParseMatchers(std::vector<std::string>(request.matchers().begin(), request.matchers().end()));
  if (!matchers.ok()) return matchers.status();
  if (!(request.seconds() > 0) || request.seconds() > kMaxSilenceSeconds) {
    return absl::InvalidArgumentError(Concat("a silence lasts up to ", kMaxSilenceSeconds, " seconds, not ",
                                             request.seconds(), "; give its length in seconds"));
  }
  if (silences_.size() >= kMaxSilences) {
    return absl::ResourceExhaustedError(
        Concat("there are ", kMaxSilences, " silences already; end some of them"));
  }
  v1::Silence& silence = silences_[next_silence_];
  silence.set_number(next_silence_);
  for (const std::string& matcher : request.matchers()) silence.add_matchers(service::ToUtf8(matcher));
  silence.set_begun_unix_ns(unix_ns);
  silence.set_until_unix_ns(unix_ns + static_cast<int64_t>(request.seconds() * 1e9));
  silence.set_by(Cut(request.by()));
  silence.set_comment(Cut(request.comment()));
  changed_silences_.insert(next_silence_++);
  return silence;
}

absl::StatusOr<v1::Silence> Alerts::EndSilence(uint64_t number, int64_t unix_ns) {
  const auto found = silences_.find(number);
  if (found == silences_.end() || found->second.until_unix_ns() <= unix_ns) {
    std::vector<std::string> numbers;
    for (const v1::Silence& silence : Silences(unix_ns)) numbers.push_back(Concat(silence.number()));
    return absl::NotFoundError(Concat("no silence ", number, " is in force",
                                      numbers.empty() ? "" : "; there are ", absl::StrJoin(numbers, ", ")));
  }
  found->second.set_until_unix_ns(unix_ns);
  changed_silences_.insert(number);
  return found->second;
}

std::vector<v1::Alert> Alerts::List(bool include_resolved) const {
  std::vector<v1::Alert> alerts;
  for (const auto& [id, entry] : entries_) {
    if (include_resolved || !IsDone(entry.alert)) alerts.push_back(entry.alert);
  }
  std::stable_sort(alerts.begin(), alerts.end(), [](const v1::Alert& a, const v1::Alert& b) {
    return a.since_unix_ns() < b.since_unix_ns();
  });
  return alerts;
}

std::vector<v1::Silence> Alerts::Silences(int64_t unix_ns) const {
  std::vector<v1::Silence> silences;
  for (const auto& [number, silence] : silences_) {
    if (unix_ns < silence.until_unix_ns()) silences.push_back(silence);
  }
  return silences;
}

std::vector<v1::MaintenanceWindow> Alerts::Windows(int64_t unix_ns) const {
  std::vector<v1::MaintenanceWindow> windows;
  for (const TimeWindow& window : config_.windows) {
    v1::MaintenanceWindow& item = windows.emplace_back();
    item.set_name(window.name);
    item.set_text(window.Text());
    for (const Matcher& matcher : window.matchers) item.add_matchers(MatchersText({matcher}));
    const std::optional<int64_t> until = window.OpenUntil(unix_ns);
    item.set_open(until.has_value());
    item.set_until_unix_ns(until.value_or(0));
  }
  return windows;
}

const v1::Alert* Alerts::Find(const std::string& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second.alert;
}

std::shared_ptr<const v1::Verdict> Alerts::VerdictOf(const std::string& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.verdict;
}

std::vector<std::string> Alerts::Told() const {
  std::vector<std::string> ids;
  for (const auto& [id, entry] : entries_) {
    if (entry.alert.firing() && entry.alert.told_firing()) ids.push_back(id);
  }
  return ids;
}

size_t Alerts::CountFiring(const std::string& rule) const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [&rule](const auto& item) {
    return item.second.alert.firing() && (rule.empty() || item.second.alert.rule() == rule);
  }));
}

size_t Alerts::CountMuted() const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& item) {
    return item.second.alert.firing() && !item.second.alert.detail().muted_by().empty();
  }));
}

Alerts::Changes Alerts::TakeChanges() {
  Changes changes;
  for (const std::string& id : changed_) {
    if (const v1::Alert* alert = Find(id); alert != nullptr) changes.alerts.push_back(*alert);
  }
  changes.forgotten.assign(forgotten_.begin(), forgotten_.end());
  for (const uint64_t number : changed_silences_) {
    if (silences_.contains(number)) changes.silences.push_back(silences_.at(number));
  }
  changes.forgotten_silences.assign(forgotten_silences_.begin(), forgotten_silences_.end());
  changed_.clear();
  forgotten_.clear();
  changed_silences_.clear();
  forgotten_silences_.clear();
  return changes;
}

}  // namespace c4::c4d
