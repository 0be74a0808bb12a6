#include "c4d_master/alerts/alert_store.h"

#include <utility>

#include "c4d_master/message_json.h"

namespace c4::c4d {
namespace {

using service::StoreInt;
using service::StoreStatement;
using service::StoreText;
using Kind = Notification::Kind;

Kind KindOf(const std::string& word) {
  for (const Kind kind : {Kind::kFiring, Kind::kReminder, Kind::kResolved}) {
    if (word == KindWord(kind)) return kind;
  }
  return Kind::kFiring;
}

}  // namespace

absl::StatusOr<AlertStore::Kept> AlertStore::Load() {
  Kept kept;
  const auto alerts =
      store_->Query({.sql = "SELECT alert, id FROM alert WHERE job = ? ORDER BY id", .parameters = {job_}});
  if (!alerts.ok()) return alerts.status();
  for (const service::StoreRow& row : *alerts) {
    v1::Alert alert;
    if (!MessageOfJson(StoreText(row[0]), &alert)) continue;
    alert.set_id(StoreText(row[1]));  // those of before have none
    kept.alerts.push_back(std::move(alert));
  }
  const auto silences = store_->Query(
      {.sql = "SELECT silence FROM alert_silence WHERE job = ? ORDER BY number", .parameters = {job_}});
  if (!silences.ok()) return silences.status();
  for (const service::StoreRow& row : *silences) {
    v1::Silence silence;
    if (MessageOfJson(StoreText(row[0]), &silence)) kept.silences.push_back(std::move(silence));
  }
  const auto waiting = store_->Query(
      {.sql = "SELECT number, target, alert, kind, body, made_unix_ns, attempts, next_unix_ns, trouble "
              "FROM alert_outbox WHERE job = ? ORDER BY number",
       .parameters = {job_}});
  if (!waiting.ok()) return waiting.status();
  for (const service::StoreRow& row : *waiting) {
    kept.waiting.push_back({.number = static_cast<uint64_t>(StoreInt(row[0])),
                            .target = StoreText(row[1]),
                            .alert = StoreText(row[2]),
                            .kind = KindOf(StoreText(row[3])),
                            .body = StoreText(row[4]),
                            .made_unix_ns = StoreInt(row[5]),
                            .attempts = static_cast<uint32_t>(StoreInt(row[6])),
                            .next_unix_ns = StoreInt(row[7]),
                            .trouble = StoreText(row[8])});
  }
  return kept;
}

absl::Status AlertStore::Save(const Change& change) {
  std::vector<StoreStatement> statements;
  for (const v1::Alert& alert : change.alerts.alerts) {
    const absl::StatusOr<std::string> json = JsonOfMessage(alert);
    if (!json.ok()) return json.status();
    statements.push_back(
        {.sql = "INSERT OR REPLACE INTO alert VALUES (?, ?, ?)", .parameters = {job_, alert.id(), *json}});
  }
  for (const std::string& id : change.alerts.forgotten) {
    statements.push_back({.sql = "DELETE FROM alert WHERE job = ? AND id = ?", .parameters = {job_, id}});
  }
  for (const v1::Silence& silence : change.alerts.silences) {
    const absl::StatusOr<std::string> json = JsonOfMessage(silence);
    if (!json.ok()) return json.status();
    statements.push_back({.sql = "INSERT OR REPLACE INTO alert_silence VALUES (?, ?, ?)",
                          .parameters = {job_, static_cast<int64_t>(silence.number()), *json}});
  }
  for (const uint64_t number : change.alerts.forgotten_silences) {
    statements.push_back({.sql = "DELETE FROM alert_silence WHERE job = ? AND number = ?",
                          .parameters = {job_, static_cast<int64_t>(number)}});
  }
  for (const WaitingNotification& waiting : change.waiting) {
    statements.push_back(
        {.sql = "INSERT OR REPLACE INTO alert_outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
         .parameters = {job_, static_cast<int64_t>(waiting.number), waiting.target, waiting.alert,
                        std::string(KindWord(waiting.kind)), waiting.body, waiting.made_unix_ns,
                        static_cast<int64_t>(waiting.attempts), waiting.next_unix_ns, waiting.trouble}});
  }
  for (const uint64_t number : change.done) {
    statements.push_back({.sql = "DELETE FROM alert_outbox WHERE job = ? AND number = ?",
                          .parameters = {job_, static_cast<int64_t>(number)}});
  }
  return statements.empty() ? absl::OkStatus() : store_->Write(statements);
}

}  // namespace c4::c4d
