// Verdicts and their audit in SQLite: what is open survives a restart of the master, and every change of
// every verdict can be read later (docs/verdicts.md shows how). Verdicts are kept as JSON of the protobuf
// message, so that the sqlite3 shell is enough to read them.
//
// A file that fails does not stop the master: service/store.h keeps what is to be written until it works
// again. Any thread; calls may wait for the disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "c4d_master/verdicts.h"
#include "service/store.h"

namespace c4::c4d {

class VerdictStore {
 public:
  // Never fails; see in_memory.
  explicit VerdictStore(const std::string& path);

  // What is known of this job, oldest first: all open ones and the newest kMaxCleared cleared ones.
  // Unavailable while the file cannot be used.
  absl::StatusOr<std::vector<v1::Verdict>> Load(const std::string& job);

  // Of each verdict the audit keeps so many changes that are mere updates, the newest.
  static constexpr int64_t kMaxUpdates = 50;

  // All of the changes, with their moment, or none.
  absl::Status Save(const std::vector<VerdictChange>& changes, int64_t unix_ns);

  struct AuditRow {
    int64_t unix_ns = 0;
    std::string verdict_id;
    std::string change;
    v1::Verdict verdict;
  };
  // Oldest first.
  absl::StatusOr<std::vector<AuditRow>> Audit(const std::string& job);

  bool in_memory() const { return store_->in_memory(); }
  // To be called about once a second while in_memory.
  void CatchUp() { store_->CatchUp(); }

  // The file itself, for what else the master keeps in it.
  service::Store* file() { return store_.get(); }

 private:
  std::unique_ptr<service::Store> store_;
};

}  // namespace c4::c4d
