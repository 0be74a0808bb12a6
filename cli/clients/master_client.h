// How the command line reaches the master of a job: found through the masters' directory, asked by gRPC.
//
// FindMaster is a look-up, done again at every (re)connect, because a restarted master may sit on another
// port. A MasterClient talks to one address; its calls block up to their deadline and may come from any
// thread. Errors are sentences for the user that say what to do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "c4/v1/alerts.pb.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/mitigation.pb.h"
#include "c4/v1/recovery.pb.h"
#include "c4/v1/smon.pb.h"
#include "c4/v1/validation.pb.h"
#include "cli/options.h"
#include "service/config.h"
#include "service/directory.h"
#include "service/status.h"

namespace c4::cli {

// The options that every verb that asks a master has.
struct MasterOptions {
  std::string job;       // empty: the only one that there is
  std::string address;   // host:port; empty: by the directory
  std::string base_dir;  // empty: C4_RUN_DIR, else /dev/shm/c4
  service::SecurityOptions security;

  // --job, --master, --run-dir, and those of DeclareSecurity
  void Declare(Options* options);
};

// --tls-ca, --tls-cert, --tls-key, --token-file, --key-file, --token-in-clear
void DeclareSecurity(service::SecurityOptions* security, Options* options);

struct FoundMaster {
  std::string job;  // empty when only the address is known
  service::MasterAddress master;
  uint64_t epoch = 0;  // 0 when only the address is known
};

// Pure: of several entries of one job those that are believed; root's come first.
std::vector<service::MasterEntry> PreferBelieved(std::vector<service::MasterEntry> published,
                                                 const service::Believed& believed);

// Pure: the entry meant by `job` (empty: the only one). NotFound when there is none, InvalidArgument when
// there are several and the user has to choose.
absl::StatusOr<FoundMaster> ChooseMaster(const std::vector<service::MasterEntry>& published,
                                         const std::string& job, const std::string& directory);
absl::StatusOr<FoundMaster> FindMaster(const MasterOptions& options);

class MasterClient {
 public:
  // Loads certificates, token and key; connects on the first call.
  static absl::StatusOr<std::unique_ptr<MasterClient>> Open(const service::MasterAddress& master,
                                                            const MasterOptions& options);
  ~MasterClient();
  MasterClient(const MasterClient&) = delete;
  MasterClient& operator=(const MasterClient&) = delete;

  absl::StatusOr<v1::ListVerdictsReply> ListVerdicts(bool include_cleared, absl::Duration timeout) const;
  absl::StatusOr<v1::GetStatusReply> GetStatus(absl::Duration timeout) const;
  absl::StatusOr<v1::GetMatrixReply> GetMatrix(absl::Duration timeout,
                                               const v1::GetMatrixRequest& request = {}) const;
  absl::StatusOr<v1::GetIterationsReply> GetIterations(uint64_t from, absl::Duration timeout) const;
  absl::StatusOr<v1::SetLevelReply> SetLevel(v1::RecordLevel level, absl::Duration timeout) const;
  // SMon's.
  absl::StatusOr<v1::RunSessionReply> RunSession(const v1::RunSessionRequest& request,
                                                 absl::Duration timeout) const;
  absl::StatusOr<v1::ListSessionsReply> ListSessions(uint32_t limit, absl::Duration timeout) const;
  absl::StatusOr<v1::GetSessionReply> GetSession(uint64_t number, absl::Duration timeout) const;
  // Of alerts.
  absl::StatusOr<v1::ListAlertsReply> ListAlerts(bool include_resolved, absl::Duration timeout) const;
  absl::StatusOr<v1::AcknowledgeAlertReply> AcknowledgeAlert(const v1::AcknowledgeAlertRequest& request,
                                                             absl::Duration timeout) const;
  absl::StatusOr<v1::AddSilenceReply> AddSilence(const v1::AddSilenceRequest& request,
                                                 absl::Duration timeout) const;
  absl::StatusOr<v1::EndSilenceReply> EndSilence(uint64_t number, absl::Duration timeout) const;
  absl::StatusOr<v1::TestAlertReply> TestAlert(const std::string& target, absl::Duration timeout) const;
  // Validations.
  absl::StatusOr<v1::RunValidationReply> RunValidation(const v1::RunValidationRequest& request,
                                                       absl::Duration timeout) const;
  absl::StatusOr<v1::GetValidationReply> GetValidation(uint64_t number, absl::Duration timeout) const;
  // What was decided about fail-slows.
  absl::StatusOr<v1::ListDecisionsReply> ListDecisions(absl::Duration timeout) const;
  // Of recovery.
  absl::StatusOr<v1::GetRecoveryReply> GetRecovery(uint32_t notes, absl::Duration timeout) const;
  absl::StatusOr<v1::DecideRecoveryReply> ApproveRecovery(const v1::DecideRecoveryRequest& request,
                                                          absl::Duration timeout) const;
  absl::StatusOr<v1::DecideRecoveryReply> DenyRecovery(const v1::DecideRecoveryRequest& request,
                                                       absl::Duration timeout) const;
  absl::StatusOr<v1::DecideRecoveryReply> IsolateNode(const v1::DecideRecoveryRequest& request,
                                                      absl::Duration timeout) const;
  absl::StatusOr<v1::DecideRecoveryReply> ReleaseNode(const v1::DecideRecoveryRequest& request,
                                                      absl::Duration timeout) const;
  // Telemetry as the master takes it in, like WatchVerdicts; Cancelled or DeadlineExceeded after `limit`.
  absl::Status Record(absl::Duration limit,
                      const std::function<bool(const v1::RecordedBatch&)>& on_batch) const;
  // Hands every verdict and every change of one to `on_verdict`, on this thread, until that returns false
  // (then OK) or the stream ends (then Unavailable, or what the master said).
  absl::Status WatchVerdicts(const std::function<bool(const v1::Verdict&)>& on_verdict) const;
  // Ends WatchVerdicts or Record, with Cancelled, whether it runs on another thread or is yet to be called.
  void StopWatching() const;

 private:
  struct Parts;
  explicit MasterClient(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// FindMaster and Open.
absl::StatusOr<std::unique_ptr<MasterClient>> ConnectToMaster(const MasterOptions& options);

// Looks the master up and calls `ask`; while that gives Unavailable, does both again until `patience` is
// over: a master that is being restarted comes back within a second or two. The last status, with a hint
// what to do when no master answered.
absl::Status AskMaster(const MasterOptions& options, absl::Duration patience,
                       const std::function<absl::Status(const MasterClient&)>& ask);

}  // namespace c4::cli
