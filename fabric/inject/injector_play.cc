// The injector over time: a schedule played to its end, and the file that says what was done.
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "fabric/inject/injector.h"

namespace c4::fabric {

absl::Status Injector::Play(const std::vector<Injection>& schedule, const Report& report,
                            const Sleep& sleep) {
  for (size_t i = 0; i < schedule.size(); ++i) {
    if (absl::Status fault = Check(schedule[i]); !fault.ok()) {
      return absl::Status(fault.code(), absl::StrCat("entry ", i, " of the schedule: ", fault.message()));
    }
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto now_s = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::multimap<double, Applied> to_heal;
  size_t next = 0;
  while (next < schedule.size() || !to_heal.empty()) {
    const bool heals =
        !to_heal.empty() && (next == schedule.size() || to_heal.begin()->first <= schedule[next].at_s);
    const double at_s = heals ? to_heal.begin()->first : schedule[next].at_s;
    if (!sleep(std::max(0.0, at_s - now_s()))) {
      const absl::Status healed = HealAll();
      return healed.ok() ? absl::CancelledError("interrupted; everything is healed") : healed;
    }
    if (heals) {
      const Applied applied = to_heal.begin()->second;
      to_heal.erase(to_heal.begin());
      if (absl::Status done = Heal(applied.id); !done.ok()) return done;
      report({true, applied, UnixNow()});
      continue;
    }
    absl::StatusOr<Applied> applied = Inject(schedule[next++]);
    if (!applied.ok()) {
      HealAll().IgnoreError();
      return absl::Status(applied.status().code(),
                          absl::StrCat("entry ", next - 1, " of the schedule: ", applied.status().message()));
    }
    report({false, *applied, applied->unix_s});
    if (applied->injection.for_s > 0) to_heal.emplace(now_s() + applied->injection.for_s, *applied);
  }
  return absl::OkStatus();
}

absl::Status Injector::AppendPlan(const std::string& line) const {
  return options_.plan_path.empty() ? absl::OkStatus() : AppendToPlan(options_.plan_path, line);
}

absl::Status AppendToPlan(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot write " + path);
  const std::string text = line + "\n";
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  return written ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot write " + path);
}

}  // namespace c4::fabric
