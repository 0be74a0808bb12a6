#include "c4p_master/page_source.h"

#include "page/state_answer.h"

namespace c4::c4p {

using page::AskState;

absl::StatusOr<v1::ListPathsReply> NetworkPageSource::Paths(const std::string& job) {
  v1::ListPathsRequest request;
  request.set_job(job);
  return AskState(state_thread_, [&] { return handler_->ListPaths(request, clock_->MonotonicNs()); });
}

absl::StatusOr<v1::ListPathHistoryReply> NetworkPageSource::PathHistory(const std::string& job) {
  v1::ListPathHistoryRequest request;
  request.set_job(job);
  request.set_most(page::kMostPathEvents);
  return AskState(state_thread_, [&] { return handler_->ListPathHistory(request, clock_->MonotonicNs()); });
}

absl::StatusOr<v1::GetTopologyReply> NetworkPageSource::Topology() {
  return AskState(state_thread_, [&] { return handler_->GetTopology(clock_->MonotonicNs()); });
}

absl::StatusOr<v1::ExplainReply> NetworkPageSource::Explain(const std::string& connection) {
  return AskState(state_thread_, [&] { return handler_->Explain(connection, clock_->MonotonicNs()); });
}

}  // namespace c4::c4p
