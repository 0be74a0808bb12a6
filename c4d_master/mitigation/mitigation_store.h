// Decisions about fail-slows in the master's SQLite file, beside the verdicts (verdict_store.h has the
// schema): each as JSON, so that the sqlite3 shell is enough to read them.
//
// Any thread; calls may wait for the disk.
#pragma once

#include <string>
#include <vector>

#include "c4/v1/mitigation.pb.h"
#include "service/store.h"

namespace c4::c4d {

class MitigationStore {
 public:
  // `store` outlives it.
  MitigationStore(service::Store* store, std::string job) : store_(store), job_(std::move(job)) {}

  // Oldest first.
  absl::StatusOr<std::vector<v1::MitigationDecision>> Load() const;
  absl::Status Add(const v1::MitigationDecision& decision);

 private:
  service::Store* const store_;
  const std::string job_;
};

}  // namespace c4::c4d
