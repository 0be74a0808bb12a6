#include "cli/trace/job_recordings.h"

#include <filesystem>

#include "c4d_master/recording.h"
#include "cli/launch/job_log.h"
#include "service/text.h"

namespace c4::cli {

std::vector<std::string> RecordingsIn(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> files;
  const std::string newest = service::Concat(directory, "/", kRecordingName);
  for (const std::string& file : {newest + ".before", newest}) {
    if (std::filesystem::exists(file, error)) files.push_back(file);
  }
  return files;
}

absl::StatusOr<RecordedTime> TimeOfRecordings(const std::vector<std::string>& files) {
  RecordedTime time;
  for (const std::string& file : files) {
    const absl::Status end = c4d::ReadRecording(file, [&](const v1::RecordedBatch& recorded) {
      if (time.begin_unix_ns == 0) time.begin_unix_ns = recorded.arrival_unix_ns();
      time.end_unix_ns = recorded.arrival_unix_ns();
    });
    if (!end.ok() && !absl::IsDataLoss(end)) return end;
  }
  return time;
}

}  // namespace c4::cli
