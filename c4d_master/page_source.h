// What the operator's page shows of a job when its own master serves it (docs/page.md): that job, and nothing
// of others or of the network. Any thread but the state thread.
#pragma once

#include <string>
#include <vector>

#include "c4d_master/alerts/alert_center.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/recovery/recovery_center.h"
#include "c4d_master/smon/smon.h"
#include "page/fleet_source.h"
#include "service/clock.h"
#include "service/state_thread.h"

namespace c4::c4d {

class JobPageSource final : public page::FleetSource {
 public:
  // All of them outlive it, and belong to the state thread.
  struct Parts {
    C4dHandler* handler;
    Smon* smon;
    AlertCenter* alerts;
    recovery::RecoveryCenter* recovery;
    service::StateThread* state_thread;
    const service::Clock* clock;
  };
  JobPageSource(std::string job, uint64_t epoch, Parts parts);

  v1::PageServer Server() override { return v1::PAGE_SERVER_JOB_MASTER; }
  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override;
  bool HasPathMaster() override { return false; }
  absl::Status NotKnown() const override;

  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const page::JobAt& job, bool include_cleared) override;
  absl::StatusOr<v1::GetStatusReply> Status(const page::JobAt& job) override;
  absl::StatusOr<v1::GetMatrixReply> Matrix(const page::JobAt& job,
                                            const v1::GetMatrixRequest& request) override;
  absl::StatusOr<v1::GetIterationsReply> Iterations(const page::JobAt& job, uint64_t from) override;
  absl::StatusOr<v1::PageTimeline> Timeline(const page::JobAt& job,
                                            const page::TimelineWindow& window) override;
  absl::StatusOr<v1::ListAlertsReply> Alerts(const page::JobAt& job) override;
  absl::StatusOr<v1::GetRecoveryReply> Recovery(const page::JobAt& job) override;
  absl::StatusOr<v1::ListSessionsReply> Sessions(const page::JobAt& job) override;
  absl::StatusOr<v1::GetSessionReply> Session(const page::JobAt& job, uint64_t number) override;

 private:
  const v1::PageJob job_;
  const Parts parts_;
};

}  // namespace c4::c4d
