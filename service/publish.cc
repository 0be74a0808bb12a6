#include "service/publish.h"

#include <optional>

#include "absl/time/time.h"
#include "service/log.h"
#include "service/signals.h"

namespace c4::service {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(5);

void Keep(const MasterDirectory& directory, const MasterEntry& entry, bool* replaced) {
  const absl::StatusOr<MasterEntry> found = directory.LookUp(entry.job);
  if (found.ok()) {
    if (found->epoch != entry.epoch && !*replaced) {
      LogWarning("another master of ", entry.job, " (pid ", found->pid, " on ", found->host,
                 ") has taken this one's place in ", directory.path(), "; agents will go there");
    }
    *replaced = found->epoch != entry.epoch;
    return;
  }
  const absl::Status status = directory.Publish(entry);
  if (status.ok()) LogWarning("the entry in ", directory.path(), " was gone; it is back");
}

}  // namespace

void ServePublished(const MasterDirectory& directory, const MasterEntry& entry) {
  bool replaced = false;
  for (;;) {
    if (const std::optional<int> signal = WaitForSignal(kInterval)) {
      LogInfo("signal ", *signal, ": ending");
      return;
    }
    Keep(directory, entry, &replaced);
  }
}

}  // namespace c4::service
