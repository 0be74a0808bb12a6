#include "c4d_master/alerts/alerts_json.h"

#include <map>

#include <nlohmann/json.hpp>

namespace c4::c4d {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::detail::error_handler_t::replace);
}

Json SecondsOrNull(int64_t unix_ns) {
  if (unix_ns == 0) return nullptr;
  // In two parts: a double holds nanoseconds since 1970 only to some 200 of them.
  const int64_t whole_s = unix_ns / 1'000'000'000;
  return static_cast<double>(whole_s) + static_cast<double>(unix_ns % 1'000'000'000) / 1e9;
}

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

template <typename List>
Json ListOf(const List& list) {
  Json json = Json::array();
  for (const auto& item : list) json.push_back(item);
  return json;
}

Json OfDelivery(bool any, const v1::AlertDelivery& delivery) {
  if (!any) return nullptr;
  return {{"number", delivery.number()},
          {"what", delivery.what()},
          {"target", delivery.target()},
          {"unix_s", SecondsOrNull(delivery.unix_ns())},
          {"delivered", delivery.delivered()},
          {"attempts", delivery.attempts()},
          {"text", delivery.text()}};
}

Json OfAlert(const v1::Alert& alert) {
  const v1::AlertDetail& detail = alert.detail();
  const std::map<std::string, std::string> labels(detail.labels().begin(), detail.labels().end());
  return {{"id", alert.id()},
          {"rule", alert.rule()},
          {"verdict", TextOrNull(alert.verdict())},
          {"text", alert.text()},
          {"condition", alert.condition()},
          {"severity", detail.severity()},
          {"labels", labels},
          {"way", alert.way()},
          {"over", alert.over()},
          {"firing", alert.firing()},
          {"told_firing", alert.told_firing()},
          {"since_unix_s", SecondsOrNull(alert.since_unix_ns())},
          {"fired_unix_s", SecondsOrNull(detail.fired_unix_ns())},
          {"resolved_unix_s", SecondsOrNull(detail.resolved_unix_ns())},
          {"muted_by", TextOrNull(detail.muted_by())},
          {"muted_until_unix_s", SecondsOrNull(alert.silenced_until_unix_ns())},
          {"acknowledged_by", TextOrNull(detail.acknowledged_by())},
          {"acknowledged_unix_s", SecondsOrNull(detail.acknowledged_unix_ns())},
          {"acknowledged_comment", detail.acknowledged_comment()},
          {"last_delivery", OfDelivery(alert.has_last_delivery(), alert.last_delivery())}};
}

Json OfSilence(const v1::Silence& silence) {
  return {{"number", silence.number()},
          {"match", ListOf(silence.matchers())},
          {"begun_unix_s", SecondsOrNull(silence.begun_unix_ns())},
          {"until_unix_s", SecondsOrNull(silence.until_unix_ns())},
          {"by", silence.by()},
          {"comment", silence.comment()}};
}

Json OfTarget(const v1::AlertTargetStatus& target) {
  return {{"name", target.name()},
          {"way", target.way()},
          {"waiting", target.waiting()},
          {"oldest_unix_s", SecondsOrNull(target.oldest_unix_ns())},
          {"next_attempt_unix_s", SecondsOrNull(target.next_attempt_unix_ns())},
          {"trouble", TextOrNull(target.trouble())},
          {"last", OfDelivery(target.has_last(), target.last())},
          {"last_test", OfDelivery(target.has_last_test(), target.last_test())}};
}

}  // namespace

std::string AlertListJson(const v1::ListAlertsReply& reply, int indent) {
  Json alerts = Json::array();
  for (const v1::Alert& alert : reply.alerts()) alerts.push_back(OfAlert(alert));
  Json rules = Json::array();
  for (const v1::AlertRuleStatus& rule : reply.rules()) {
    rules.push_back({{"name", rule.name()},
                     {"condition", rule.condition()},
                     {"severity", rule.severity()},
                     {"to", ListOf(rule.targets())},
                     {"firing", rule.firing()}});
  }
  Json targets = Json::array();
  for (const v1::AlertTargetStatus& target : reply.targets()) targets.push_back(OfTarget(target));
  Json silences = Json::array();
  for (const v1::Silence& silence : reply.silences()) silences.push_back(OfSilence(silence));
  Json windows = Json::array();
  for (const v1::MaintenanceWindow& window : reply.windows()) {
    windows.push_back({{"name", window.name()},
                       {"when", window.text()},
                       {"match", ListOf(window.matchers())},
                       {"open", window.open()},
                       {"until_unix_s", SecondsOrNull(window.until_unix_ns())}});
  }
  return Dump(Json{{"job", reply.job()},
                   {"config_fault", TextOrNull(reply.config_fault())},
                   {"alerts", std::move(alerts)},
                   {"rules", std::move(rules)},
                   {"targets", std::move(targets)},
                   {"silences", std::move(silences)},
                   {"windows", std::move(windows)}},
              indent);
}

std::string AlertsJson(const v1::AcknowledgeAlertReply& reply, int indent) {
  Json alerts = Json::array();
  for (const v1::Alert& alert : reply.alerts()) alerts.push_back(OfAlert(alert));
  return Dump(Json{{"alerts", std::move(alerts)}}, indent);
}

std::string SilenceJson(const v1::Silence& silence, int indent) {
  return Dump(OfSilence(silence), indent);
}

}  // namespace c4::c4d
