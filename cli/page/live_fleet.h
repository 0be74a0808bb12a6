// What the operator's page shows of the masters that are published in a run directory, and of `c4 run`'s jobs
// that are over (their directories of logs). Connections to masters are kept. Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cli/clients/master_client.h"
#include "cli/clients/path_client.h"
#include "cli/launch/job_log.h"
#include "cli/page/page_whatif.h"
#include "page/fleet_source.h"

namespace c4::cli {

class LiveFleet final : public page::FleetSource {
 public:
  struct Options {
    MasterOptions master;  // --run-dir and how to show who one is; job and address are not read
    std::string log_dir;
    size_t ended_jobs = 50;  // that are shown, the newest
  };
  explicit LiveFleet(Options options);

  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override;
  bool HasPathMaster() override;
  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const page::JobAt& job, bool include_cleared) override;
  absl::StatusOr<v1::GetStatusReply> Status(const page::JobAt& job) override;
  absl::StatusOr<v1::GetMatrixReply> Matrix(const page::JobAt& job,
                                            const v1::GetMatrixRequest& request) override;
  absl::StatusOr<v1::GetIterationsReply> Iterations(const page::JobAt& job, uint64_t from) override;
  absl::StatusOr<v1::ListAlertsReply> Alerts(const page::JobAt& job) override;
  absl::StatusOr<v1::GetRecoveryReply> Recovery(const page::JobAt& job) override;
  absl::StatusOr<v1::ListSessionsReply> Sessions(const page::JobAt& job) override;
  absl::StatusOr<v1::GetSessionReply> Session(const page::JobAt& job, uint64_t number) override;
  // Of jobs of `c4 run` on this host, from the recording of their last minutes.
  absl::StatusOr<v1::PageTimeline> Timeline(const page::JobAt& job,
                                            const page::TimelineWindow& window) override;
  absl::StatusOr<v1::PageWhatIf> WhatIf(const page::JobAt& job, const std::vector<std::string>& fix) override;
  absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job) override;
  absl::StatusOr<v1::ListPathHistoryReply> PathHistory(const std::string& job) override;
  absl::StatusOr<v1::GetTopologyReply> Topology() override;
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection) override;

  // Files of the job's last minutes, oldest first. FailedPrecondition: there are none, and how to get them.
  absl::StatusOr<std::vector<std::string>> RecordingsOf(const std::string& id);

 private:
  struct Live {
    service::MasterEntry entry;
    std::shared_ptr<const MasterClient> client;  // once somebody asked
  };
  absl::StatusOr<std::shared_ptr<const MasterClient>> ClientOf(const std::string& id);
  absl::StatusOr<std::shared_ptr<const PathClient>> PathMaster();
  absl::StatusOr<JobRecord> EndedOf(const std::string& id);

  const Options options_;
  const std::string masters_;  // the directory
  WhatIfBook what_if_;
  std::mutex timeline_;               // held while one is made: each goes through whole recordings
  std::mutex mutex_;                  // guards what follows
  std::map<std::string, Live> live_;  // by job
  std::map<std::string, JobRecord> ended_;
  int64_t ended_read_ms_ = 0;
  service::MasterEntry path_entry_;  // epoch 0: there is none
  std::shared_ptr<const PathClient> path_client_;
};

}  // namespace c4::cli
