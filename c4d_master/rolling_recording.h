// The last minutes of a job's telemetry, always on: recordings (recording.h) that take turns. FILE is the one
// that is written; once it is old or large enough it becomes FILE.before, in the place of the one that had
// that name, and FILE begins anew. Together they hold between one and two spans. What is written is on the
// file system within kFlushNs, so that the death of the master loses no more.
//
// One thread. A file that cannot be written costs one warning in the log, and is tried again after kRetryNs:
// the job and its verdicts do not depend on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/recording.h"

namespace c4::c4d {

struct RollingOptions {
  std::string path;  // empty: nothing is recorded
  std::string job;
  int64_t span_ns = 300 * kSecondNs;
  uint64_t max_bytes = 32U << 20;  // of one file; telemetry before it is compressed
};

class RollingRecording {
 public:
  static constexpr int64_t kFlushNs = 2 * kSecondNs;
  static constexpr int64_t kRetryNs = 60 * kSecondNs;

  explicit RollingRecording(RollingOptions options) : options_(std::move(options)) {}

  void Take(const v1::TelemetryBatch& batch, Now arrival, const std::string& policy_version);
  // Everything to the file. To be called once, at the end.
  void Close();

 private:
  absl::Status Write(const v1::TelemetryBatch& batch, Now arrival, const std::string& policy_version);

  const RollingOptions options_;
  std::unique_ptr<RecordingWriter> writer_;  // null before the first batch, and while the file fails
  int64_t began_ns_ = 0;
  int64_t flushed_ns_ = 0;
  uint64_t bytes_ = 0;
  int64_t failed_ns_ = kNever;
  bool warned_ = false;
};

}  // namespace c4::c4d
