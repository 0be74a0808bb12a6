// Where a path master writes down what another one needs to go on in its place: records by key, changed
// together. What they say is records.h's business.
//
// A store is a log with snapshots in itself: SQLite's write-ahead log and tables, etcd's log of its members.
// Calls by one thread, the master's state thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::c4p {

using StateRecords = std::map<std::string, std::string>;

struct StateChange {
  std::string key;
  std::optional<std::string> value;  // none: the record goes
};

class StateStore {
 public:
  using Done = std::function<void(const absl::Status&)>;

  virtual ~StateStore() = default;
  // Everything that is written down. Errors say what is wrong and how to go on.
  virtual absl::StatusOr<StateRecords> Load() = 0;
  // All changes or none, after those of earlier calls. `done` is told when they are written down, or why they
  // never will be: before this returns or later, on the calling thread, in the order of the calls.
  virtual void Write(std::vector<StateChange> changes, Done done) = 0;
};

}  // namespace c4::c4p
