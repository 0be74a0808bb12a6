// Profiles from the telemetry that the handler takes in: during a session the job's processes record at the
// fine level, and what the agents send of it is collected.
//
// One thread, the handler's. The handler outlives it; a session that runs is ended with it.
#pragma once

#include <cstdint>
#include <memory>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/smon/profile_collector.h"
#include "c4d_master/smon/profile_source.h"

namespace c4::c4d {

class TelemetryProfileSource final : public ProfileSource {
 public:
  explicit TelemetryProfileSource(C4dHandler* handler) : handler_(handler) {}
  ~TelemetryProfileSource() override;
  TelemetryProfileSource(const TelemetryProfileSource&) = delete;
  TelemetryProfileSource& operator=(const TelemetryProfileSource&) = delete;

  absl::Status Start(Now now) override;
  int CompleteSteps() const override;
  absl::StatusOr<ProfiledJob> Finish(Now now) override;

 private:
  void End();

  C4dHandler* const handler_;
  uint64_t recording_ = 0;
  v1::RecordLevel former_ = v1::RECORD_LEVEL_UNSPECIFIED;
  std::unique_ptr<ProfileCollector> collector_;  // while a session runs
};

}  // namespace c4::c4d
