// The part of a master that acts: hands verdicts and the job's progress to the machine (machine.h), keeps its
// state and the audit of its decisions in the store, and has its commands carried out (executor.h). No
// transport and no clock: gRPC's servicer and main are skins over it; tests call it directly, in simulated
// time.
//
// A verdict that an earlier master left counts as seen again only once this one has heard agents for
// kSettleNs and still holds it. One thread, the state thread. Everything that it is given belongs to the
// caller and outlives it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/recovery/executor.h"
#include "c4d_master/recovery/job_progress.h"
#include "c4d_master/recovery/machine.h"
#include "c4d_master/recovery/recovery_file.h"
#include "c4d_master/recovery/recovery_store.h"
#include "service/metrics.h"

namespace c4::c4d::recovery {

class RecoveryCenter {
 public:
  static constexpr int64_t kSettleNs = 15 * kSecond;

  RecoveryCenter(std::string job, RecoveryFile file, RecoveryWork* work, RecoveryStore* store,
                 service::Metrics* metrics, Now now);

  void SetFile(RecoveryFile file, Now now);
  void RefuseFile(const absl::Status& why);

  // A verdict that it says no to is left alone for now: it is asked again every few seconds.
  void SetPermit(std::function<bool(const v1::Verdict&)> permit) { permit_ = std::move(permit); }
  // Why a verdict would lead to no restart by itself, a sentence; empty: it would.
  std::string WhyNot(const v1::Verdict& verdict) const;
  // What a restart has cost the job (downtime.h), the median over all; nothing: there was none.
  std::optional<double> UsualRestartS() const;
  // The incident of a verdict; nullptr: there is none (any more).
  const Incident* IncidentOf(const std::string& verdict) const;

  // `incarnation` that it is about.
  void OnVerdict(const v1::Verdict& verdict, uint32_t incarnation, Now now);
  // To be called a few times a second, with what the job does now.
  void Tick(const JobProgress& progress, Now now);

  v1::GetRecoveryReply Get(uint32_t notes) const;
  // Errors: NotFound, FailedPrecondition with a sentence what to do instead.
  absl::Status Approve(const v1::DecideRecoveryRequest& request, Now now);
  absl::Status Deny(const v1::DecideRecoveryRequest& request, Now now);
  absl::Status Isolate(const v1::DecideRecoveryRequest& request, Now now);
  absl::Status Release(const v1::DecideRecoveryRequest& request, Now now);

  v1::RecoveryState state() const;

 private:
  void UseDriver();
  void Do(Event event, Now now);
  void TakeResults(Now now);
  void LookAtNodes(const JobProgress& progress, Now now);
  absl::Status CheckIncident(uint64_t id, bool proposed) const;
  void CountEnded();
  void UpdateGauges();
  absl::Duration TimeoutOf(Command::Kind kind) const;

  const std::string job_;
  RecoveryFile file_;
  RecoveryWork* const work_;
  RecoveryStore* const store_;
  std::function<bool(const v1::Verdict&)> permit_;
  State state_;
  struct Known {
    v1::Verdict verdict;
    uint32_t incarnation = 0;
  };
  std::map<std::string, Known> open_;  // confirmed verdicts
  const int64_t began_at_ns_;
  int64_t heard_since_ns_ = kNever;
  int64_t ticked_at_ns_ = kNever;
  int64_t looked_at_ns_ = kNever;
  int64_t retold_at_ns_ = kNever;
  uint64_t answered_ = 0;  // the last command that ended
  bool looking_ = false;
  std::string driver_trouble_;
  std::string config_fault_;
  std::set<uint64_t> counted_;  // incidents that ended

  struct {
    service::MetricCounter ended[4];  // by Phase, from kRecovered on
    service::MetricCounter downtime[4];
    service::MetricGauge out;
    service::MetricGauge held;
    service::MetricGauge under_way;
    service::MetricGauge refused;
    service::MetricCounter store_errors;
  } metrics_;
};

}  // namespace c4::c4d::recovery
