#include "c4d_master/recovery/recovery_store.h"

#include <algorithm>

#include "c4d_master/message_json.h"

namespace c4::c4d::recovery {
namespace {

using service::StoreInt;
using service::StoreStatement;
using service::StoreText;

constexpr int64_t kMaxNotes = 20'000;
constexpr uint32_t kMostAsked = 10'000;

}  // namespace

absl::StatusOr<v1::RecoveryState> RecoveryStore::Load() {
  const auto rows =
      store_->Query({.sql = "SELECT state FROM recovery_state WHERE job = ?", .parameters = {job_}});
  if (!rows.ok()) return rows.status();
  v1::RecoveryState state;
  if (!rows->empty() && !MessageOfJson(StoreText(rows->front()[0]), &state)) {
    return absl::DataLossError("the stored state of recovery cannot be read");
  }
  return state;
}

absl::Status RecoveryStore::Save(const v1::RecoveryState& state, const std::vector<Note>& notes) {
  const absl::StatusOr<std::string> json = JsonOfMessage(state);
  if (!json.ok()) return json.status();
  std::vector<StoreStatement> statements = {
      {.sql = "INSERT OR REPLACE INTO recovery_state VALUES (?, ?)", .parameters = {job_, *json}}};
  for (const Note& note : notes) {
    std::string evidence;
    if (note.evidence != nullptr) {
      const absl::StatusOr<std::string> verdict = JsonOfMessage(*note.evidence);
      if (verdict.ok()) evidence = *verdict;
    }
    statements.push_back(
        {.sql = "INSERT INTO recovery_audit (job, unix_ns, incident, node, what, text, evidence) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
         .parameters = {job_, note.note.unix_ns(), static_cast<int64_t>(note.note.incident()),
                        note.note.node(), note.note.what(), note.note.text(), evidence}});
  }
  if (!notes.empty()) {
    statements.push_back(
        {.sql = "DELETE FROM recovery_audit WHERE number <= (SELECT MAX(number) FROM recovery_audit) - ?",
         .parameters = {kMaxNotes}});
  }
  return store_->Write(statements);
}

absl::StatusOr<std::vector<v1::RecoveryNote>> RecoveryStore::Notes(uint32_t limit) {
  const auto rows =
      store_->Query({.sql = "SELECT unix_ns, incident, node, what, text FROM recovery_audit WHERE job = ? "
                            "ORDER BY number DESC LIMIT ?",
                     .parameters = {job_, static_cast<int64_t>(std::min(limit, kMostAsked))}});
  if (!rows.ok()) return rows.status();
  std::vector<v1::RecoveryNote> notes;
  for (const service::StoreRow& row : *rows) {
    v1::RecoveryNote note;
    note.set_unix_ns(StoreInt(row[0]));
    note.set_incident(static_cast<uint64_t>(StoreInt(row[1])));
    note.set_node(StoreText(row[2]));
    note.set_what(StoreText(row[3]));
    note.set_text(StoreText(row[4]));
    notes.push_back(std::move(note));
  }
  std::reverse(notes.begin(), notes.end());
  return notes;
}

}  // namespace c4::c4d::recovery
