// Sessions in the master's SQLite file, beside the verdicts (verdict_store.h has the schema). As
// there, messages are kept as JSON, so that the sqlite3 shell is enough to read them, and a file that fails
// does not stop the master.
//
// Any thread; calls may wait for the disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/smon.pb.h"
#include "service/store.h"

namespace c4::c4d {

class SmonStore {
 public:
  // `store` outlives it.
  SmonStore(service::Store* store, std::string job) : store_(store), job_(std::move(job)) {}

  struct Kept {
    v1::ProfilingSession session;
    std::string report;  // empty: none
    std::string text;
  };
  // In the order in which they began.
  absl::StatusOr<std::vector<Kept>> LoadSessions();

  absl::Status SaveSession(const v1::ProfilingSession& session, const std::string& report,
                           const std::string& text);
  absl::Status Remove(const std::vector<uint64_t>& sessions);

 private:
  service::Store* const store_;
  const std::string job_;
};

}  // namespace c4::c4d
