#include "page/fleet_source.h"

namespace c4::page {

absl::Status FleetSource::NotKnown() const {
  return absl::FailedPreconditionError("that is not known here");
}

absl::StatusOr<v1::ListVerdictsReply> FleetSource::Verdicts(const JobAt&, bool) {
  return NotKnown();
}
absl::StatusOr<v1::GetStatusReply> FleetSource::Status(const JobAt&) {
  return NotKnown();
}
absl::StatusOr<v1::GetMatrixReply> FleetSource::Matrix(const JobAt&, const v1::GetMatrixRequest&) {
  return NotKnown();
}
absl::StatusOr<v1::GetIterationsReply> FleetSource::Iterations(const JobAt&, uint64_t) {
  return NotKnown();
}
absl::StatusOr<v1::ListAlertsReply> FleetSource::Alerts(const JobAt&) {
  return NotKnown();
}
absl::StatusOr<v1::GetRecoveryReply> FleetSource::Recovery(const JobAt&) {
  return NotKnown();
}
absl::StatusOr<v1::ListSessionsReply> FleetSource::Sessions(const JobAt&) {
  return NotKnown();
}
absl::StatusOr<v1::GetSessionReply> FleetSource::Session(const JobAt&, uint64_t) {
  return NotKnown();
}
absl::StatusOr<v1::PageTimeline> FleetSource::Timeline(const JobAt&, const TimelineWindow&) {
  return NotKnown();
}

absl::StatusOr<v1::PageWhatIf> FleetSource::WhatIf(const JobAt&, const std::vector<std::string>&) {
  return NotKnown();
}

absl::StatusOr<v1::ListPathsReply> FleetSource::Paths(const std::string&) {
  return NotKnown();
}
absl::StatusOr<v1::ListPathHistoryReply> FleetSource::PathHistory(const std::string&) {
  return NotKnown();
}
absl::StatusOr<v1::GetTopologyReply> FleetSource::Topology() {
  return NotKnown();
}
absl::StatusOr<v1::ExplainReply> FleetSource::Explain(const std::string&) {
  return NotKnown();
}

}  // namespace c4::page
