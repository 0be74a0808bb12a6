// What notifications say (docs/alerts.md): the JSON that webhooks and commands get, Alertmanager's API v2,
// OTLP's logs, and the signature of a webhook. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "c4/v1/alerts.pb.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/smon.pb.h"
#include "c4d_master/alerts/alerts.h"

namespace c4::c4d {

struct NotificationParts {
  std::string job;
  Notification::Kind kind = Notification::Kind::kTest;
  uint64_t number = 0;
  int64_t unix_ns = 0;
  const v1::Alert* alert = nullptr;               // nullptr: a test
  const v1::Verdict* verdict = nullptr;           // nullptr: it is about sessions, or not known any more
  const v1::ProfilingSession* session = nullptr;  // the newest with figures; nullptr: there is none
};

// For webhooks and commands. Of long lists of connections and ranks the first ones.
std::string NotificationJson(const NotificationParts& parts);
// For Alertmanager: a list of one alert.
std::string AlertmanagerJson(const NotificationParts& parts);
// For a receiver of OTLP: a request to export one log record. `version`: of this program.
std::string OtlpLogJson(const NotificationParts& parts, std::string_view version);

// "Job j, alert down is firing: CONFIRMED crash: ...".
std::string NotificationText(const NotificationParts& parts);

// The headers of a webhook: number, moment, and where there is a secret the signature of "MOMENT.BODY".
std::map<std::string, std::string> WebhookHeaders(uint64_t number, const std::string& secret,
                                                  const std::string& body, int64_t unix_ns);

}  // namespace c4::c4d
