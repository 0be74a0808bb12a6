// Alerts, silences and notifications that are not delivered yet, in the master's SQLite file beside the
// verdicts (verdict_store.h has the schema). Messages are kept as JSON, so that the sqlite3 shell is enough
// to read them. What a notification tells and that it has to be told are written in one transaction, so that
// nothing is lost while the file lives.
//
// Any thread; calls may wait for the disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/alerts.pb.h"
#include "c4d_master/alerts/alerts.h"
#include "c4d_master/alerts/outbox.h"
#include "service/store.h"

namespace c4::c4d {

class AlertStore {
 public:
  // `store` outlives it.
  AlertStore(service::Store* store, std::string job) : store_(store), job_(std::move(job)) {}

  struct Kept {
    std::vector<v1::Alert> alerts;
    std::vector<v1::Silence> silences;
    std::vector<WaitingNotification> waiting;  // in the order of their numbers
  };
  absl::StatusOr<Kept> Load();

  // All of it or nothing.
  struct Change {
    Alerts::Changes alerts;
    std::vector<WaitingNotification> waiting;  // new, or tried in vain
    std::vector<uint64_t> done;                // numbers
    bool empty() const { return alerts.empty() && waiting.empty() && done.empty(); }
  };
  absl::Status Save(const Change& change);

 private:
  service::Store* const store_;
  const std::string job_;
};

}  // namespace c4::c4d
