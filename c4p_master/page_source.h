// What the operator's page shows when the path master serves it (docs/page.md): the network, and no job. Any
// thread but the state thread.
#pragma once

#include <string>
#include <vector>

#include "c4p_master/c4p_handler.h"
#include "page/fleet_source.h"
#include "service/clock.h"
#include "service/state_thread.h"

namespace c4::c4p {

class NetworkPageSource final : public page::FleetSource {
 public:
  // All outlive it; the handler belongs to the state thread.
  NetworkPageSource(const C4pHandler* handler, service::StateThread* state_thread,
                    const service::Clock* clock)
      : handler_(handler), state_thread_(state_thread), clock_(clock) {}

  v1::PageServer Server() override { return v1::PAGE_SERVER_PATH_MASTER; }
  std::vector<v1::PageJob> Jobs(std::vector<std::string>*) override { return {}; }
  bool HasPathMaster() override { return true; }

  absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job) override;
  absl::StatusOr<v1::ListPathHistoryReply> PathHistory(const std::string& job) override;
  absl::StatusOr<v1::GetTopologyReply> Topology() override;
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection) override;

 private:
  const C4pHandler* const handler_;
  service::StateThread* const state_thread_;
  const service::Clock* const clock_;
};

}  // namespace c4::c4p
