#include "c4d_master/smon/recorded_profile.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c4d_master/recording.h"
#include "c4d_master/smon/profile_collector.h"
#include "c4d_master/smon/profile_join.h"
#include "c4d_master/telemetry_decode.h"

namespace c4::c4d {
namespace {

constexpr int64_t kMaxClockNs = int64_t{1} << 62;  // later moments are damage

bool HasProfiles(const Profile& profile) {
  return std::any_of(profile.processes.begin(), profile.processes.end(), [](const auto& entry) {
    return !entry.second.operations.empty() || !entry.second.marks.empty();
  });
}

}  // namespace

absl::StatusOr<ProfiledJob> ReadRecordedProfile(const std::string& path) {
  ProfileCollector collector;
  uint64_t refused = 0;
  uint64_t dropped = 0;
  const absl::Status end = ReadRecording(path, [&](const v1::RecordedBatch& recorded) {
    const int64_t arrival_ns = recorded.arrival_monotonic_ns();
    dropped = std::max(dropped, recorded.dropped());
    if (arrival_ns < 0 || arrival_ns > kMaxClockNs || !CheckBatch(recorded.batch()).ok()) {
      ++refused;
      return;
    }
    collector.Observe(recorded.batch(), arrival_ns);
  });
  if (!end.ok() && !absl::IsDataLoss(end)) return end;
  if (!HasProfiles(collector.profile())) {
    return absl::NotFoundError(
        absl::StrCat(path, " holds no operation of its own: record with `c4 record --fine`"));
  }
  absl::StatusOr<ProfiledJob> job = JoinProfile(collector.profile());
  if (!job.ok()) return job;
  if (!end.ok()) job->not_seen.emplace_back(end.message());
  if (refused > 0) {
    job->not_seen.push_back(absl::StrCat(refused, " batches of ", path, " cannot be and are left out"));
  }
  if (dropped > 0) {
    job->not_seen.push_back(absl::StrCat(dropped, " batches were lost while ", path,
                                         " was recorded: steps that lack operations are left out"));
  }
  return job;
}

}  // namespace c4::c4d
