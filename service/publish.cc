#include "service/publish.h"

#include <cerrno>
#include <optional>
#include <signal.h>

#include "absl/time/time.h"
#include "service/address.h"
#include "service/log.h"
#include "service/signals.h"

namespace c4::service {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(2);

// Of another host nobody here can tell.
bool HasDied(const MasterEntry& entry) {
  return entry.host == HostName() && entry.pid > 0 && kill(static_cast<pid_t>(entry.pid), 0) != 0 &&
         errno == ESRCH;
}

}  // namespace

Standing KeepPublished(const MasterDirectory& directory, const MasterEntry& entry) {
  const absl::StatusOr<MasterEntry> found = directory.LookUp(entry.job);
  if (found.ok() && found->epoch == entry.epoch) return Standing::kServes;
  if (found.ok() && found->epoch > entry.epoch && !HasDied(*found)) {
    LogWarning("a later master of ", entry.job, " (pid ", found->pid, " on ", found->host,
               ") has taken this one's place in ", directory.path(), "; stepping down");
    return Standing::kReplaced;
  }
  if (directory.Publish(entry).ok()) {
    LogWarning("the entry in ", directory.path(),
               found.ok() ? " was that of an earlier or dead master" : " was gone", "; it is back");
  }
  return Standing::kServes;
}

void ServePublished(const MasterDirectory& directory, const MasterEntry& entry) {
  for (;;) {
    if (const std::optional<int> signal = WaitForSignal(kInterval)) {
      LogInfo("signal ", *signal, ": ending");
      return;
    }
    if (KeepPublished(directory, entry) == Standing::kReplaced) return;
  }
}

}  // namespace c4::service
