#include "c4p_master/state/open_state.h"

#include <random>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c4p_master/state/records.h"
#include "c4p_master/state/sqlite_state.h"
#include "service/address.h"
#include "service/log.h"
#include "service/status.h"
#include "service/text.h"
#include "service/token.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr char kNoStore[] = "none";
constexpr size_t kMostUserBytes = 4096;

// Of this process: the machine's name, its number there, and a number that no other has.
std::string Self() {
  std::random_device random;
  return Concat(service::HostName(), " pid ", getpid(), " ", absl::Hex(random(), absl::kZeroPad8));
}

absl::Status ReadUser(const std::string& path, EtcdPlace* etcd) {
  const absl::StatusOr<std::string> text = service::ReadSecretFile(path, kMostUserBytes);
  if (!text.ok()) return text.status();
  std::string line = text->substr(0, text->find('\n'));
  if (line.ends_with('\r')) line.pop_back();
  const size_t colon = line.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == line.size()) {
    return absl::InvalidArgumentError(
        Concat("--store-user-file ", path, " holds no line NAME:PASSWORD of a user of etcd"));
  }
  etcd->user = line.substr(0, colon);
  etcd->password = line.substr(colon + 1);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StateStore>> Open(const StatePlace& place, const std::function<bool()>& stop,
                                                 OpenedState* opened) {
  if (!IsEtcd(place.store)) {
    absl::StatusOr<std::unique_ptr<SqliteState>> file = SqliteState::Open(place.store);
    if (!file.ok()) return file.status();
    return *std::move(file);
  }
  absl::StatusOr<EtcdPlace> etcd = ParseEtcdPlace(place.store);
  if (!etcd.ok()) return etcd.status();
  etcd->ca_file = place.ca_file;
  if (!place.user_file.empty()) C4_RETURN_IF_NOT_OK(ReadUser(place.user_file, &*etcd));
  auto state = std::make_unique<EtcdState>(
      EtcdState::Options{*std::move(etcd), Self(), place.wished, place.times, place.compact_every});
  C4_RETURN_IF_NOT_OK(state->AwaitLeadership(stop));
  service::LogInfo("leading, with epoch ", state->epoch());
  opened->etcd = state.get();
  opened->epoch = state->epoch();
  return std::unique_ptr<StateStore>(std::move(state));
}

}  // namespace

bool IsEtcd(const std::string& store) {
  return store.starts_with("etcd://") || store.starts_with("etcds://");
}

absl::Status AsDamaged(const absl::Status& status, const std::string& store) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(
      Concat("store ", store, " is damaged: ", status.message(), ". ", HowToGoOn(store)));
}

absl::StatusOr<OpenedState> OpenState(const StatePlace& place, const std::function<bool()>& stop) {
  OpenedState opened;
  opened.epoch = place.wished;
  if (place.store == kNoStore) return opened;
  absl::StatusOr<std::unique_ptr<StateStore>> store = Open(place, stop, &opened);
  if (!store.ok()) return store.status();
  opened.store = *std::move(store);
  absl::StatusOr<StateRecords> records = opened.store->Load();
  if (!records.ok()) return records.status();
  opened.records = *std::move(records);
  if (opened.etcd != nullptr) return opened;
  const absl::StatusOr<uint64_t> epoch = NextEpoch(opened.records, place.wished);
  if (!epoch.ok()) return AsDamaged(epoch.status(), place.store);
  opened.epoch = *epoch;
  return opened;
}

}  // namespace c4::c4p
