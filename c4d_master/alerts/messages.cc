#include "c4d_master/alerts/messages.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "c4d_master/smon/smon_json.h"
#include "service/hmac.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using Json = nlohmann::ordered_json;
using Kind = Notification::Kind;

constexpr int kMaxListed = 50;

double UnixSeconds(int64_t unix_ns) {
  const int64_t whole_s = unix_ns / 1'000'000'000;
  return static_cast<double>(whole_s) + static_cast<double>(unix_ns % 1'000'000'000) / 1e9;
}

Json SecondsOrNull(int64_t unix_ns) {
  return unix_ns == 0 ? Json(nullptr) : Json(UnixSeconds(unix_ns));
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::detail::error_handler_t::replace);
}

template <typename List>
void Shorten(List* list) {
  if (list->size() > kMaxListed) list->DeleteSubrange(kMaxListed, list->size() - kMaxListed);
}

Json OfVerdict(const v1::Verdict& whole) {
  v1::Verdict verdict = whole;
  Shorten(verdict.mutable_culprit()->mutable_connections());
  if (verdict.waiting_size() > kMaxListed) verdict.mutable_waiting()->Truncate(kMaxListed);
  if (verdict.culprit().candidates_size() > kMaxListed) {
    verdict.mutable_culprit()->mutable_candidates()->Truncate(kMaxListed);
  }
  Shorten(verdict.mutable_evidence());
  Shorten(verdict.mutable_hardware());
  return Json::parse(service::VerdictJson(verdict), nullptr, /*allow_exceptions=*/false);
}

Json OfSession(const v1::ProfilingSession& session) {
  const Json json = Json::parse(SessionJson(session, ""), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json["session"] : Json(nullptr);
}

std::string SessionText(const v1::ProfilingSession* session) {
  if (session == nullptr) return "no session has been analysed yet";
  std::string text = absl::StrFormat("in session %d slow-down %.3f, %.1f %% of the time wasted",
                                     session->number(), session->slowdown(), 100 * session->waste());
  if (session->causes().empty()) return text;
  const v1::SuspectedCause& cause = session->causes(0);
  return Concat(text, absl::StrFormat("; suspected: %s (%.0f %%): %s", cause.cause(), 100 * cause.share(),
                                      cause.evidence()));
}

// What is wrong.
std::string Summary(const NotificationParts& parts) {
  if (parts.alert == nullptr) return "nothing is wrong";
  return parts.alert->verdict().empty() ? SessionText(parts.session) : parts.alert->text();
}

std::string Rfc3339(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

}  // namespace

std::string NotificationText(const NotificationParts& parts) {
  if (parts.kind == Kind::kTest || parts.alert == nullptr) {
    return Concat("This is a test. Job ", parts.job, " can tell of its alerts here");
  }
  const char* how = parts.kind == Kind::kResolved   ? " is resolved: "
                    : parts.kind == Kind::kReminder ? " is still firing: "
                                                    : " is firing: ";
  return Concat("Job ", parts.job, ", alert ", parts.alert->rule(), " (", parts.alert->condition(), ")", how,
                Summary(parts));
}

std::string NotificationJson(const NotificationParts& parts) {
  const bool test = parts.kind == Kind::kTest || parts.alert == nullptr;
  Json labels = Json::object();
  if (!test) {
    // In their order.
    const std::map<std::string, std::string> sorted(parts.alert->detail().labels().begin(),
                                                    parts.alert->detail().labels().end());
    for (const auto& [name, value] : sorted) labels[name] = value;
  }
  return Dump(Json{{"job", parts.job},
                   {"alert", test ? Json(nullptr) : Json(parts.alert->rule())},
                   {"id", test ? Json(nullptr) : Json(parts.alert->id())},
                   {"what", KindWord(parts.kind)},
                   {"test", test},
                   {"number", parts.number},
                   {"unix_s", UnixSeconds(parts.unix_ns)},
                   {"since_unix_s", test ? Json(nullptr) : SecondsOrNull(parts.alert->since_unix_ns())},
                   {"condition", test ? Json(nullptr) : Json(parts.alert->condition())},
                   {"severity", test ? Json(nullptr) : Json(parts.alert->detail().severity())},
                   {"labels", std::move(labels)},
                   {"text", NotificationText(parts)},
                   {"verdict", parts.verdict == nullptr ? Json(nullptr) : OfVerdict(*parts.verdict)},
                   {"session", parts.session == nullptr ? Json(nullptr) : OfSession(*parts.session)}});
}

std::string AlertmanagerJson(const NotificationParts& parts) {
  Json labels = {{"alertname", "c4-test"}, {"job", parts.job}};
  Json annotations = {{"summary", parts.alert == nullptr ? NotificationText(parts) : Summary(parts)}};
  int64_t begin_ns = parts.unix_ns;
  if (parts.alert != nullptr) {
    const std::map<std::string, std::string> sorted(parts.alert->detail().labels().begin(),
                                                    parts.alert->detail().labels().end());
    for (const auto& [name, value] : sorted) {
      if (!value.empty() && name != "rule") labels[name] = value;
    }
    labels["alertname"] = parts.alert->rule();
    annotations["condition"] = parts.alert->condition();
    begin_ns = parts.alert->since_unix_ns();
  }
  if (parts.verdict != nullptr && !parts.verdict->suggested_action().empty()) {
    annotations["action"] = parts.verdict->suggested_action();
  }
  Json alert = {{"labels", std::move(labels)},
                {"annotations", std::move(annotations)},
                {"startsAt", Rfc3339(begin_ns)}};
  // One that fires has no end: Alertmanager's own resolve_timeout counts from what it hears last.
  if (parts.kind == Kind::kResolved) {
    const int64_t end_ns = parts.alert == nullptr ? 0 : parts.alert->detail().resolved_unix_ns();
    alert["endsAt"] = Rfc3339(end_ns == 0 ? parts.unix_ns : end_ns);
  } else if (parts.alert == nullptr) {
    alert["endsAt"] = Rfc3339(parts.unix_ns + 60 * kSecondNs);
  }
  return Dump(Json::array({std::move(alert)}));
}

namespace {

// OpenTelemetry's numbers of severity, the lowest of each word.
enum class Severity { kInfo = 9, kWarning = 13, kError = 17 };

Severity SeverityOf(const NotificationParts& parts) {
  if (parts.alert == nullptr || parts.kind == Kind::kTest || parts.kind == Kind::kResolved)
    return Severity::kInfo;
  const bool suspected = parts.verdict != nullptr && parts.verdict->state() == v1::VERDICT_STATE_SUSPECTED;
  return suspected || parts.alert->verdict().empty() ? Severity::kWarning : Severity::kError;
}

const char* SeverityWord(Severity severity) {
  return severity == Severity::kInfo ? "INFO" : severity == Severity::kWarning ? "WARN" : "ERROR";
}

}  // namespace

std::string OtlpLogJson(const NotificationParts& parts, std::string_view version) {
  const auto attribute = [](const std::string& name, std::string_view value) {
    return Json{{"key", name}, {"value", {{"stringValue", std::string(value)}}}};
  };
  Json attributes = Json::array({attribute("c4.what", KindWord(parts.kind))});
  // Numbers of 64 bits are texts in OTLP's JSON.
  attributes.push_back({{"key", "c4.number"}, {"value", {{"intValue", Concat(parts.number)}}}});
  if (parts.alert != nullptr) {
    const std::map<std::string, std::string> sorted(parts.alert->detail().labels().begin(),
                                                    parts.alert->detail().labels().end());
    for (const auto& [name, value] : sorted) {
      if (!value.empty() && name != "job") attributes.push_back(attribute(Concat("c4.", name), value));
    }
    attributes.push_back(attribute("c4.alert", parts.alert->id()));
    attributes.push_back(attribute("c4.condition", parts.alert->condition()));
  }
  if (parts.verdict != nullptr && !parts.verdict->suggested_action().empty()) {
    attributes.push_back(attribute("c4.action", parts.verdict->suggested_action()));
  }
  const Severity severity = SeverityOf(parts);
  const std::string now = Concat(parts.unix_ns);
  Json record = {{"timeUnixNano", now},
                 {"observedTimeUnixNano", now},
                 {"severityNumber", static_cast<int>(severity)},
                 {"severityText", SeverityWord(severity)},
                 {"body", {{"stringValue", NotificationText(parts)}}},
                 {"attributes", std::move(attributes)}};
  Json resource = {
      {"attributes", Json::array({attribute("service.name", "c4d_master"),
                                  attribute("service.version", version), attribute("c4.job", parts.job)})}};
  Json scope = {{"scope", {{"name", "c4.alerts"}}}, {"logRecords", Json::array({std::move(record)})}};
  return Dump(Json{{"resourceLogs", Json::array({Json{{"resource", std::move(resource)},
                                                      {"scopeLogs", Json::array({std::move(scope)})}}})}});
}

std::map<std::string, std::string> WebhookHeaders(uint64_t number, const std::string& secret,
                                                  const std::string& body, int64_t unix_ns) {
  const std::string moment = Concat(unix_ns / kSecondNs);
  std::map<std::string, std::string> headers = {{"C4-Delivery", Concat(number)}, {"C4-Timestamp", moment}};
  if (!secret.empty()) {
    headers["C4-Signature"] =
        Concat("v1=", absl::BytesToHexString(service::HmacSha256(secret, Concat(moment, ".", body))));
  }
  return headers;
}

}  // namespace c4::c4d
