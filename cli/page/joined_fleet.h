// Masters and recordings on one page: a recording that is dropped onto the page of live jobs stands beside
// them. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/page/recording_fleet.h"

namespace c4::cli {

class JoinedFleet final : public page::FleetSource {
 public:
  // Both outlive it.
  JoinedFleet(page::FleetSource* masters, RecordingFleet* recordings)
      : masters_(masters), recordings_(recordings) {}

  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override;
  bool HasPathMaster() override { return masters_->HasPathMaster(); }
  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const page::JobAt& job, bool include_cleared) override {
    return Of(job)->Verdicts(job, include_cleared);
  }
  absl::StatusOr<v1::GetStatusReply> Status(const page::JobAt& job) override { return Of(job)->Status(job); }
  absl::StatusOr<v1::GetMatrixReply> Matrix(const page::JobAt& job,
                                            const v1::GetMatrixRequest& request) override {
    return Of(job)->Matrix(job, request);
  }
  absl::StatusOr<v1::PageTimeline> Timeline(const page::JobAt& job,
                                            const page::TimelineWindow& window) override {
    return Of(job)->Timeline(job, window);
  }
  absl::StatusOr<v1::PageWhatIf> WhatIf(const page::JobAt& job,
                                        const std::vector<std::string>& fix) override {
    return Of(job)->WhatIf(job, fix);
  }
  absl::StatusOr<v1::GetIterationsReply> Iterations(const page::JobAt& job, uint64_t from) override {
    return Of(job)->Iterations(job, from);
  }
  absl::StatusOr<v1::ListAlertsReply> Alerts(const page::JobAt& job) override { return Of(job)->Alerts(job); }
  absl::StatusOr<v1::GetRecoveryReply> Recovery(const page::JobAt& job) override {
    return Of(job)->Recovery(job);
  }
  absl::StatusOr<v1::ListSessionsReply> Sessions(const page::JobAt& job) override {
    return Of(job)->Sessions(job);
  }
  absl::StatusOr<v1::GetSessionReply> Session(const page::JobAt& job, uint64_t number) override {
    return Of(job)->Session(job, number);
  }
  absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job) override { return masters_->Paths(job); }
  absl::StatusOr<v1::ListPathHistoryReply> PathHistory(const std::string& job) override {
    return masters_->PathHistory(job);
  }
  absl::StatusOr<v1::GetTopologyReply> Topology() override { return masters_->Topology(); }
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection) override {
    return masters_->Explain(connection);
  }

 private:
  page::FleetSource* Of(const page::JobAt& job) const {
    return recordings_->Has(job.id) ? static_cast<page::FleetSource*>(recordings_) : masters_;
  }

  page::FleetSource* const masters_;
  RecordingFleet* const recordings_;
};

}  // namespace c4::cli
