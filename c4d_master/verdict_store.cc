#include "c4d_master/verdict_store.h"

#include <utility>

#include "c4d_master/message_json.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::StoreStatement;
using service::StoreValue;

constexpr int64_t kMaxStoredCleared = 10'000;
constexpr int64_t kMaxAuditRows = 20'000;

const std::vector<std::string>& Migrations() {
  static const std::vector<std::string> migrations = {
      R"(CREATE TABLE verdict (
           id TEXT PRIMARY KEY,
           job TEXT NOT NULL,
           state INTEGER NOT NULL,
           since_unix_ns INTEGER NOT NULL,
           verdict TEXT NOT NULL);
         CREATE INDEX verdict_by_state ON verdict (job, state, since_unix_ns);
         CREATE TABLE audit (
           number INTEGER PRIMARY KEY AUTOINCREMENT,
           job TEXT NOT NULL,
           unix_ns INTEGER NOT NULL,
           verdict_id TEXT NOT NULL,
           change TEXT NOT NULL,
           verdict TEXT NOT NULL);)",
      // SMon's (smon/smon_store.h).
      R"(CREATE TABLE smon_session (
           job TEXT NOT NULL,
           number INTEGER NOT NULL,
           begun_unix_ns INTEGER NOT NULL,
           session TEXT NOT NULL,
           report TEXT NOT NULL,
           report_text TEXT NOT NULL,
           PRIMARY KEY (job, number));
         CREATE TABLE smon_alert (
           job TEXT NOT NULL,
           rule TEXT NOT NULL,
           alert TEXT NOT NULL,
           PRIMARY KEY (job, rule));)",
      "CREATE INDEX audit_by_verdict ON audit (verdict_id, change, number);",
      // Of all alerts (alerts/alert_store.h).
      R"(CREATE TABLE alert (
           job TEXT NOT NULL,
           id TEXT NOT NULL,
           alert TEXT NOT NULL,
           PRIMARY KEY (job, id));
         INSERT INTO alert SELECT job, rule, alert FROM smon_alert;
         DROP TABLE smon_alert;
         CREATE TABLE alert_silence (
           job TEXT NOT NULL,
           number INTEGER NOT NULL,
           silence TEXT NOT NULL,
           PRIMARY KEY (job, number));
         CREATE TABLE alert_outbox (
           job TEXT NOT NULL,
           number INTEGER NOT NULL,
           target TEXT NOT NULL,
           alert TEXT NOT NULL,
           kind TEXT NOT NULL,
           body TEXT NOT NULL,
           made_unix_ns INTEGER NOT NULL,
           attempts INTEGER NOT NULL,
           next_unix_ns INTEGER NOT NULL,
           trouble TEXT NOT NULL,
           PRIMARY KEY (job, number));)",
      // What is done about verdicts (recovery/recovery_store.h).
      R"(CREATE TABLE recovery_state (job TEXT PRIMARY KEY, state TEXT NOT NULL);
         CREATE TABLE recovery_audit (
           number INTEGER PRIMARY KEY AUTOINCREMENT,
           job TEXT NOT NULL,
           unix_ns INTEGER NOT NULL,
           incident INTEGER NOT NULL,
           node TEXT NOT NULL,
           what TEXT NOT NULL,
           text TEXT NOT NULL,
           evidence TEXT NOT NULL);)",
      // What is decided about fail-slows (mitigation/mitigation_store.h).
      R"(CREATE TABLE mitigation (
           number INTEGER PRIMARY KEY AUTOINCREMENT,
           job TEXT NOT NULL,
           unix_ns INTEGER NOT NULL,
           verdict TEXT NOT NULL,
           decision TEXT NOT NULL);)",
  };
  return migrations;
}

}  // namespace

VerdictStore::VerdictStore(const std::string& path)
    : store_(service::Store::OpenOrMemory(path, Migrations())) {}

absl::StatusOr<std::vector<v1::Verdict>> VerdictStore::Load(const std::string& job) {
  const int64_t cleared = v1::VERDICT_STATE_CLEARED;
  const auto rows = store_->Query(
      {.sql =
           "SELECT verdict FROM (SELECT since_unix_ns, verdict FROM verdict WHERE job = ?1 AND state <> ?2 "
           "UNION ALL SELECT * FROM (SELECT since_unix_ns, verdict FROM verdict WHERE job = ?1 AND state = "
           "?2 "
           "ORDER BY since_unix_ns DESC LIMIT ?3)) ORDER BY since_unix_ns",
       .parameters = {job, cleared, static_cast<int64_t>(kMaxCleared)}});
  if (!rows.ok()) return rows.status();
  std::vector<v1::Verdict> verdicts;
  for (const service::StoreRow& row : *rows) {
    v1::Verdict verdict;
    if (MessageOfJson(service::StoreText(row[0]), &verdict)) verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

absl::Status VerdictStore::Save(const std::vector<VerdictChange>& changes, int64_t unix_ns) {
  std::vector<StoreStatement> statements;
  bool cleared = false;
  for (const VerdictChange& change : changes) {
    const v1::Verdict& verdict = change.verdict;
    const absl::StatusOr<std::string> json = JsonOfMessage(verdict);
    if (!json.ok()) return json.status();
    statements.push_back({.sql = "INSERT OR REPLACE INTO verdict VALUES (?, ?, ?, ?, ?)",
                          .parameters = {verdict.id(), verdict.job(), static_cast<int64_t>(verdict.state()),
                                         static_cast<int64_t>(verdict.since_unix_ns()), *json}});
    statements.push_back(
        {.sql = "INSERT INTO audit (job, unix_ns, verdict_id, change, verdict) VALUES (?, ?, ?, ?, ?)",
         .parameters = {verdict.job(), unix_ns, verdict.id(), std::string(VerdictChangeWord(change.kind)),
                        *json}});
    cleared = cleared || change.kind == VerdictChange::Kind::kCleared;
    // A verdict that lives for days is updated all the time, each time with a copy of all its connections.
    if (change.kind == VerdictChange::Kind::kUpdated) {
      const std::string word(VerdictChangeWord(change.kind));
      statements.push_back({.sql = "DELETE FROM audit WHERE verdict_id = ?1 AND change = ?2 AND number <= "
                                   "(SELECT number FROM audit WHERE verdict_id = ?1 AND change = ?2 "
                                   "ORDER BY number DESC LIMIT 1 OFFSET ?3)",
                            .parameters = {verdict.id(), word, kMaxUpdates}});
    }
  }
  statements.push_back({.sql = "DELETE FROM audit WHERE number <= (SELECT MAX(number) FROM audit) - ?",
                        .parameters = {kMaxAuditRows}});
  if (cleared) {
    statements.push_back(
        {.sql = "DELETE FROM verdict WHERE id IN (SELECT id FROM verdict WHERE state = ? "
                "ORDER BY since_unix_ns DESC LIMIT -1 OFFSET ?)",
         .parameters = {static_cast<int64_t>(v1::VERDICT_STATE_CLEARED), kMaxStoredCleared}});
  }
  return store_->Write(statements);
}

absl::StatusOr<std::vector<VerdictStore::AuditRow>> VerdictStore::Audit(const std::string& job) {
  const auto rows = store_->Query(
      {.sql = "SELECT unix_ns, verdict_id, change, verdict FROM audit WHERE job = ? ORDER BY number",
       .parameters = {job}});
  if (!rows.ok()) return rows.status();
  std::vector<AuditRow> result;
  for (const service::StoreRow& row : *rows) {
    AuditRow item{service::StoreInt(row[0]), service::StoreText(row[1]), service::StoreText(row[2]), {}};
    (void)MessageOfJson(service::StoreText(row[3]), &item.verdict);
    result.push_back(std::move(item));
  }
  return result;
}

}  // namespace c4::c4d
