#include "c4d_master/rolling_recording.h"

#include <cstdio>

#include "service/log.h"

namespace c4::c4d {

void RollingRecording::Take(const v1::TelemetryBatch& batch, Now arrival, const std::string& policy_version) {
  if (options_.path.empty()) return;
  if (failed_ns_ != kNever && arrival.monotonic_ns - failed_ns_ < kRetryNs) return;
  const absl::Status written = Write(batch, arrival, policy_version);
  if (written.ok()) {
    failed_ns_ = kNever;
    return;
  }
  failed_ns_ = arrival.monotonic_ns;
  writer_.reset();
  if (!warned_) {
    service::LogWarning("the last minutes of the job are not recorded: ", written.message(),
                        "; tried again once a minute");
  }
  warned_ = true;
}

absl::Status RollingRecording::Write(const v1::TelemetryBatch& batch, Now arrival,
                                     const std::string& policy_version) {
  const bool full = arrival.monotonic_ns - began_ns_ >= options_.span_ns || bytes_ >= options_.max_bytes;
  if (writer_ != nullptr && full) {
    absl::Status closed = writer_->Close();
    writer_.reset();
    if (!closed.ok()) return closed;
  }
  v1::RecordedBatch recorded;
  if (writer_ == nullptr) {
    // What a former master of this job, or we before a failure, left is the one before. The first has none.
    (void)std::rename(options_.path.c_str(), (options_.path + ".before").c_str());
    absl::StatusOr<std::unique_ptr<RecordingWriter>> writer = RecordingWriter::Create(options_.path);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
    began_ns_ = flushed_ns_ = arrival.monotonic_ns;
    bytes_ = 0;
    recorded.set_job(options_.job);
  }
  recorded.set_arrival_monotonic_ns(arrival.monotonic_ns);
  recorded.set_arrival_unix_ns(arrival.unix_ns);
  recorded.set_policy_version(policy_version);
  *recorded.mutable_batch() = batch;
  bytes_ += recorded.ByteSizeLong();
  if (absl::Status written = writer_->Write(recorded); !written.ok()) return written;
  if (arrival.monotonic_ns - flushed_ns_ < kFlushNs) return absl::OkStatus();
  flushed_ns_ = arrival.monotonic_ns;
  return writer_->Flush();
}

void RollingRecording::Close() {
  if (writer_ == nullptr) return;
  if (const absl::Status closed = writer_->Close(); !closed.ok()) service::LogWarning(closed.message());
  writer_.reset();
}

}  // namespace c4::c4d
