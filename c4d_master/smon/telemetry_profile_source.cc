#include "c4d_master/smon/telemetry_profile_source.h"

#include <utility>

#include "c4d_master/smon/profile_join.h"

namespace c4::c4d {

TelemetryProfileSource::~TelemetryProfileSource() {
  if (collector_ != nullptr) End();
}

absl::Status TelemetryProfileSource::Start(Now) {
  if (collector_ != nullptr) {
    return absl::FailedPreconditionError("a profiling session runs already: wait for its end");
  }
  collector_ = std::make_unique<ProfileCollector>();
  former_ = handler_->SetLevel(v1::RECORD_LEVEL_FINE).former();
  recording_ = handler_->Record([this](const v1::TelemetryBatch& batch, Now arrival) {
    collector_->Observe(batch, arrival.monotonic_ns);
  });
  return absl::OkStatus();
}

int TelemetryProfileSource::CompleteSteps() const {
  return collector_ == nullptr ? 0 : collector_->CompleteSteps();
}

void TelemetryProfileSource::End() {
  handler_->StopRecord(recording_);
  // A master that never asked for a level has to ask for the usual one now: agents keep to the last.
  handler_->SetLevel(former_ == v1::RECORD_LEVEL_UNSPECIFIED ? v1::RECORD_LEVEL_COARSE : former_);
  collector_.reset();
}

absl::StatusOr<ProfiledJob> TelemetryProfileSource::Finish(Now) {
  if (collector_ == nullptr) {
    return absl::FailedPreconditionError("no profiling session runs: start one first");
  }
  const std::unique_ptr<ProfileCollector> collected = std::move(collector_);
  End();
  return JoinProfile(collected->profile());
}

}  // namespace c4::c4d
