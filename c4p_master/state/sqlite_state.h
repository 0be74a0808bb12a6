// The state of a path master in an SQLite file, on one machine (service/store.h). A write is there when the
// process is killed right after it; a power cut may lose the last ones, which agents say again. A full disk
// stops no answer: what cannot be written waits in memory.
#pragma once

#include <memory>
#include <string>

#include "c4p_master/state/state_store.h"
#include "service/store.h"

namespace c4::c4p {

class SqliteState final : public StateStore {
 public:
  // The file is this process's alone from here on. DataLoss, Unavailable, FailedPrecondition: it is damaged,
  // another master's, or a later version's; the sentence says how to go on.
  static absl::StatusOr<std::unique_ptr<SqliteState>> Open(const std::string& path);

  absl::StatusOr<StateRecords> Load() override;
  void Write(std::vector<StateChange> changes, Done done) override;

 private:
  SqliteState(std::string path, std::unique_ptr<service::Store> store)
      : path_(std::move(path)), store_(std::move(store)) {}

  const std::string path_;
  const std::unique_ptr<service::Store> store_;
};

}  // namespace c4::c4p
