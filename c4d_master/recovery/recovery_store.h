// Recovery's state, its incidents and the audit of its decisions, in the master's SQLite file beside the
// verdicts (verdict_store.h has the schema), messages as JSON. The state and what was decided by it are
// written in one transaction, before anything is asked of a scheduler.
//
// Any thread; calls may wait for the disk.
#pragma once

#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/recovery.pb.h"
#include "service/store.h"

namespace c4::c4d::recovery {

class RecoveryStore {
 public:
  // `store` outlives it.
  RecoveryStore(service::Store* store, std::string job) : store_(store), job_(std::move(job)) {}

  // Empty where there is none.
  absl::StatusOr<v1::RecoveryState> Load();

  struct Note {
    v1::RecoveryNote note;
    const v1::Verdict* evidence = nullptr;  // on which it was decided
  };
  absl::Status Save(const v1::RecoveryState& state, const std::vector<Note>& notes);
  // The newest so many, oldest first.
  absl::StatusOr<std::vector<v1::RecoveryNote>> Notes(uint32_t limit);

 private:
  service::Store* const store_;
  const std::string job_;
};

}  // namespace c4::c4d::recovery
