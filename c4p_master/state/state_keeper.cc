#include "c4p_master/state/state_keeper.h"

#include <utility>

#include "c4p_master/state/records.h"

namespace c4::c4p {

void StateKeeper::Loaded(const StateRecords& records) {
  if (store_ == nullptr) return;
  for (const auto& [key, record] : records) written_[key] = std::hash<std::string>()(record);
}

void StateKeeper::Put(const std::string& key, const google::protobuf::MessageLite& message) {
  if (store_ != nullptr) PutRecord(key, Seal(key, message));
}

void StateKeeper::PutRecord(const std::string& key, std::string record) {
  if (store_ == nullptr) return;
  const uint64_t hash = std::hash<std::string>()(record);
  const auto [at, added] = written_.try_emplace(key, hash);
  if (!added && std::exchange(at->second, hash) == hash) return;
  changes_.push_back({key, std::move(record)});
}

void StateKeeper::Remove(const std::string& key) {
  if (written_.erase(key) > 0) changes_.push_back({key, std::nullopt});
}

void StateKeeper::RemoveAllBut(std::string_view keys, const StateRecords& kept) {
  for (auto at = written_.lower_bound(std::string(keys));
       at != written_.end() && at->first.starts_with(keys);) {
    const std::string key = (at++)->first;
    if (!kept.contains(key)) Remove(key);
  }
}

void StateKeeper::Commit(std::function<void()> then) {
  if (!failure_.ok()) return;
  if (changes_.empty() && under_way_ == 0) return then();
  ++under_way_;
  store_->Write(std::exchange(changes_, {}), [this, then = std::move(then)](const absl::Status& status) {
    --under_way_;
    if (failure_.ok()) failure_ = status;
    if (failure_.ok()) then();
  });
}

}  // namespace c4::c4p
