// What the operator's page shows of recordings of `c4 record`: the master's logic is run over each of them
// once, and looked at in between, so that any moment of it can be shown at once. Any thread after Open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "page/fleet_source.h"

namespace c4::cli {

class RecordingFleet final : public page::FleetSource {
 public:
  // As many looks at a recording, at most; and bytes of all of them, beyond which matrices are not kept.
  static constexpr int kMostMoments = 120;
  static constexpr size_t kMostBytes = 256U << 20;

  // Fails at the first file that is no recording.
  static absl::StatusOr<std::unique_ptr<RecordingFleet>> Open(const std::vector<std::string>& files);

  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override;
  bool HasPathMaster() override { return false; }
  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const page::JobAt& job, bool include_cleared) override;
  absl::StatusOr<v1::GetStatusReply> Status(const page::JobAt& job) override;
  absl::StatusOr<v1::GetMatrixReply> Matrix(const page::JobAt& job,
                                            const v1::GetMatrixRequest& request) override;
  absl::StatusOr<v1::GetIterationsReply> Iterations(const page::JobAt& job, uint64_t from) override;
  absl::StatusOr<v1::ListAlertsReply> Alerts(const page::JobAt& job) override;
  absl::StatusOr<v1::GetRecoveryReply> Recovery(const page::JobAt& job) override;
  absl::StatusOr<v1::ListSessionsReply> Sessions(const page::JobAt& job) override;
  absl::StatusOr<v1::GetSessionReply> Session(const page::JobAt& job, uint64_t number) override;
  absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job) override;
  absl::StatusOr<v1::GetTopologyReply> Topology() override;
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection) override;

 private:
  struct Look {
    int64_t unix_ns = 0;
    v1::ListVerdictsReply verdicts;
    v1::GetStatusReply status;
    v1::GetMatrixReply matrix;
  };
  struct Recording {
    v1::PageJob job;
    std::vector<Look> looks;  // by time; never empty
    v1::GetIterationsReply iterations;
    std::string fault;  // how the file ends, where it does not end in order
  };
  static absl::StatusOr<Recording> Read(const std::string& file, size_t* bytes);
  absl::StatusOr<const Recording*> Find(const std::string& id) const;
  absl::StatusOr<const Look*> LookAt(const page::JobAt& job) const;

  std::vector<Recording> recordings_;
};

}  // namespace c4::cli
