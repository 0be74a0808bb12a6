#include "c4d_master/smon/smon_store.h"

#include <google/protobuf/util/json_util.h>
#include <utility>

#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::StoreStatement;
using service::StoreText;

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  if (status.ok()) return json;
  return absl::InternalError(
      service::Concat("a ", message.GetTypeName(), " cannot be written as JSON: ", status.ToString()));
}

// A newer master may have written fields that this one does not know.
bool FromJson(const std::string& json, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (google::protobuf::util::JsonStringToMessage(json, message, options).ok()) return true;
  service::LogWarning("what SMon stored cannot be read and is left out: ", json.substr(0, 200));
  return false;
}

}  // namespace

absl::StatusOr<std::vector<SmonStore::Kept>> SmonStore::LoadSessions() {
  const auto rows = store_->Query(
      {.sql = "SELECT session, report, report_text FROM smon_session WHERE job = ? ORDER BY number",
       .parameters = {job_}});
  if (!rows.ok()) return rows.status();
  std::vector<Kept> sessions;
  for (const service::StoreRow& row : *rows) {
    Kept kept;
    if (!FromJson(StoreText(row[0]), &kept.session)) continue;
    kept.report = StoreText(row[1]);
    kept.text = StoreText(row[2]);
    sessions.push_back(std::move(kept));
  }
  return sessions;
}

absl::StatusOr<std::vector<v1::Alert>> SmonStore::LoadAlerts() {
  const auto rows = store_->Query(
      {.sql = "SELECT alert FROM smon_alert WHERE job = ? ORDER BY rule", .parameters = {job_}});
  if (!rows.ok()) return rows.status();
  std::vector<v1::Alert> alerts;
  for (const service::StoreRow& row : *rows) {
    v1::Alert alert;
    if (FromJson(StoreText(row[0]), &alert)) alerts.push_back(std::move(alert));
  }
  return alerts;
}

absl::Status SmonStore::SaveSession(const v1::ProfilingSession& session, const std::string& report,
                                    const std::string& text) {
  const absl::StatusOr<std::string> json = ToJson(session);
  if (!json.ok()) return json.status();
  return store_->Write({.sql = "INSERT OR REPLACE INTO smon_session VALUES (?, ?, ?, ?, ?, ?)",
                        .parameters = {job_, static_cast<int64_t>(session.number()), session.begun_unix_ns(),
                                       *json, report, text}});
}

absl::Status SmonStore::Remove(const std::vector<uint64_t>& sessions) {
  std::vector<StoreStatement> statements;
  statements.reserve(sessions.size());
  for (const uint64_t number : sessions) {
    statements.push_back({.sql = "DELETE FROM smon_session WHERE job = ? AND number = ?",
                          .parameters = {job_, static_cast<int64_t>(number)}});
  }
  return statements.empty() ? absl::OkStatus() : store_->Write(statements);
}

absl::Status SmonStore::SaveAlerts(const std::vector<v1::Alert>& alerts) {
  std::vector<StoreStatement> statements;
  for (const v1::Alert& alert : alerts) {
    const absl::StatusOr<std::string> json = ToJson(alert);
    if (!json.ok()) return json.status();
    statements.push_back({.sql = "INSERT OR REPLACE INTO smon_alert VALUES (?, ?, ?)",
                          .parameters = {job_, alert.rule(), *json}});
  }
  return statements.empty() ? absl::OkStatus() : store_->Write(statements);
}

}  // namespace c4::c4d
