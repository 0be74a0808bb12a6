// Between a path master and its store: it is told records as they are, and writes down those that have
// changed. What is to be said to agents waits until everything that it rests on is written down.
//
// One thread, the state thread. Without a store nothing is written, and nothing waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "c4p_master/state/state_store.h"
#include "google/protobuf/message_lite.h"

namespace c4::c4p {

class StateKeeper {
 public:
  // `store` may be null; it outlives this.
  explicit StateKeeper(StateStore* store) : store_(store) {}

  bool keeps() const { return store_ != nullptr; }
  // That these are written down already.
  void Loaded(const StateRecords& records);

  void Put(const std::string& key, const google::protobuf::MessageLite& message);
  void PutRecord(const std::string& key, std::string record);  // sealed
  void Remove(const std::string& key);
  // Of the keys that begin so, those that are in no record of `kept` go.
  void RemoveAllBut(std::string_view keys, const StateRecords& kept);

  // Writes down what has changed; then `then` runs, after those of earlier calls: at once, or when the store
  // is done. Where it cannot be written down `then` never runs, and failure() says why.
  void Commit(std::function<void()> then);
  const absl::Status& failure() const { return failure_; }

 private:
  StateStore* const store_;
  std::map<std::string, uint64_t> written_;  // a hash of each record
  std::vector<StateChange> changes_;
  size_t under_way_ = 0;
  absl::Status failure_;
};

}  // namespace c4::c4p
