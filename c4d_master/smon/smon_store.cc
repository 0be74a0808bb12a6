#include "c4d_master/smon/smon_store.h"

#include <utility>

#include "c4d_master/message_json.h"

namespace c4::c4d {
namespace {

using service::StoreStatement;
using service::StoreText;

}  // namespace

absl::StatusOr<std::vector<SmonStore::Kept>> SmonStore::LoadSessions() {
  const auto rows = store_->Query(
      {.sql = "SELECT session, report, report_text FROM smon_session WHERE job = ? ORDER BY number",
       .parameters = {job_}});
  if (!rows.ok()) return rows.status();
  std::vector<Kept> sessions;
  for (const service::StoreRow& row : *rows) {
    Kept kept;
    if (!MessageOfJson(StoreText(row[0]), &kept.session)) continue;
    kept.report = StoreText(row[1]);
    kept.text = StoreText(row[2]);
    sessions.push_back(std::move(kept));
  }
  return sessions;
}

absl::Status SmonStore::SaveSession(const v1::ProfilingSession& session, const std::string& report,
                                    const std::string& text) {
  const absl::StatusOr<std::string> json = JsonOfMessage(session);
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

}  // namespace c4::c4d
