#include "c4d_master/mitigation/mitigation_store.h"

#include <utility>

#include "c4d_master/message_json.h"

namespace c4::c4d {

absl::StatusOr<std::vector<v1::MitigationDecision>> MitigationStore::Load() const {
  const auto rows = store_->Query(
      {.sql = "SELECT decision FROM mitigation WHERE job = ? ORDER BY number", .parameters = {job_}});
  if (!rows.ok()) return rows.status();
  std::vector<v1::MitigationDecision> decisions;
  for (const service::StoreRow& row : *rows) {
    v1::MitigationDecision decision;
    if (MessageOfJson(service::StoreText(row[0]), &decision)) decisions.push_back(std::move(decision));
  }
  return decisions;
}

absl::Status MitigationStore::Add(const v1::MitigationDecision& decision) {
  const absl::StatusOr<std::string> json = JsonOfMessage(decision);
  if (!json.ok()) return json.status();
  return store_->Write({.sql = "INSERT INTO mitigation (job, unix_ns, verdict, decision) VALUES (?, ?, ?, ?)",
                        .parameters = {job_, decision.unix_ns(), decision.verdict(), *json}});
}

}  // namespace c4::c4d
