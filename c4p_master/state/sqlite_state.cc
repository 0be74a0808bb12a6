#include "c4p_master/state/sqlite_state.h"

#include <utility>

#include "c4p_master/state/records.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

const std::vector<std::string>& Migrations() {
  static const std::vector<std::string> migrations = {
      "CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
      "CREATE TABLE owner (number INTEGER PRIMARY KEY, opened INTEGER NOT NULL);"
      "INSERT INTO owner VALUES (1, 0);",
  };
  return migrations;
}

// Of SQLite's and the store's sentences.
constexpr char kDamagedText[] = "move the file away";
constexpr char kLockedText[] = "locked";

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(Concat("store ", path, " is damaged: ", what, ". ", HowToGoOn(path)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteState>> SqliteState::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<service::Store>> store = service::Store::Open(path, Migrations());
  if (!store.ok()) {
    // Store's sentence says what is wrong with the file; that little is lost with it only we know.
    const std::string why(store.status().message());
    if (why.find(kDamagedText) != std::string::npos) return Damaged(path, why);
    if (why.find(kLockedText) == std::string::npos) return store.status();
    return absl::UnavailableError(Concat(why, ". Another c4p_master may have it: one file is one master's"));
  }
  // The lock that the next write takes is kept until the process ends, however it ends.
  const absl::StatusOr<std::vector<service::StoreRow>> mode =
      (*store)->Query({.sql = "PRAGMA locking_mode=EXCLUSIVE"});
  if (!mode.ok()) return mode.status();
  C4_RETURN_IF_NOT_OK((*store)->Write({.sql = "UPDATE owner SET opened = opened + 1"}));
  if ((*store)->in_memory()) {
    return absl::UnavailableError(Concat((*store)->file_status().message(),
                                         ". Another c4p_master may have it: one file is one master's"));
  }
  return std::unique_ptr<SqliteState>(new SqliteState(path, *std::move(store)));
}

absl::StatusOr<StateRecords> SqliteState::Load() {
  const absl::StatusOr<std::vector<service::StoreRow>> check =
      store_->Query({.sql = "PRAGMA quick_check(1)"});
  if (!check.ok()) return Damaged(path_, std::string(check.status().message()));
  if (check->empty() || service::StoreText(check->front().front()) != "ok") {
    return Damaged(path_,
                   check->empty() ? "it cannot be checked" : service::StoreText(check->front().front()));
  }
  const absl::StatusOr<std::vector<service::StoreRow>> rows =
      store_->Query({.sql = "SELECT key, value FROM state"});
  if (!rows.ok()) return Damaged(path_, std::string(rows.status().message()));
  StateRecords records;
  for (const service::StoreRow& row : *rows) {
    records.emplace(service::StoreText(row[0]), service::StoreText(row[1]));
  }
  return records;
}

void SqliteState::Write(std::vector<StateChange> changes, Done done) {
  if (changes.empty()) return done(absl::OkStatus());
  (void)store_->CatchUp();
  std::vector<service::StoreStatement> statements;
  statements.reserve(changes.size());
  for (StateChange& change : changes) {
    if (change.value) {
      statements.push_back(
          {.sql = "INSERT INTO state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
           .parameters = {std::move(change.key), *std::move(change.value)}});
    } else {
      statements.push_back({.sql = "DELETE FROM state WHERE key = ?", .parameters = {std::move(change.key)}});
    }
  }
  done(store_->Write(statements));
}

}  // namespace c4::c4p
