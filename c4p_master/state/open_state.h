// Opens what --store names, and waits until this master leads where several share it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "c4p_master/state/etcd_state.h"
#include "c4p_master/state/state_store.h"

namespace c4::c4p {

struct StatePlace {
  std::string store;    // a file, "etcd[s]://...", or "none"
  uint64_t wished = 0;  // epoch: a time in ns
  LeaseTimes times;
  // Of etcd.
  std::string ca_file = {};
  std::string user_file = {};  // "name:password"
  absl::Duration compact_every = absl::Minutes(5);
};

struct OpenedState {
  std::unique_ptr<StateStore> store;  // none: nothing outlives this master
  EtcdState* etcd = nullptr;          // `store`, where it is one
  StateRecords records;
  uint64_t epoch = 0;  // higher than of every master that used the store
};

// Whether several masters may share such a store.
bool IsEtcd(const std::string& store);

// Cancelled: `stop`, asked often, said true before this master led. Other errors are sentences that say how
// to go on. Blocks.
absl::StatusOr<OpenedState> OpenState(const StatePlace& place, const std::function<bool()>& stop);

// DataLoss of a store's content, with its place and the way on; anything else as it is.
absl::Status AsDamaged(const absl::Status& status, const std::string& store);

}  // namespace c4::c4p
