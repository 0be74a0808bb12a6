// The master of one job without any transport: telemetry in, verdicts out. gRPC's servicer and the HTTP
// pages are skins over it; tests call it directly, in simulated time.
//
// Owned and called by one thread (state_thread.h). `store` and `metrics` belong to the caller and outlive
// it. Errors of single batches are given to their sender; a store that fails is logged and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/failslow/fail_slow.h"
#include "c4d_master/hardware_log.h"
#include "c4d_master/hearing.h"
#include "c4d_master/intervention/interventions.h"
#include "c4d_master/job_view.h"
#include "c4d_master/limit_log.h"
#include "c4d_master/path_source.h"
#include "c4d_master/policy.h"
#include "c4d_master/sources/dump_findings.h"
#include "c4d_master/verdict_store.h"
#include "c4d_master/verdicts.h"
#include "c4d_master/windows.h"
#include "service/metrics.h"
#include "service/status.h"

namespace c4::c4d {

struct HandlerOptions {
  std::string job;
  uint64_t master_epoch = 0;
  int64_t owner_uid = -1;  // whose processes are the job's; -1: anybody's
  Policy policy;
  int64_t report_per_host_ns = Hearing::kPerHostNs;  // see Hearing
  bool tell_fail_slow = true;                        // verdicts about iterations that take longer
  bool intervene = false;   // the job asks for experiments that move its queue pairs (intervention/)
  std::string source_note;  // each verdict says it as evidence; empty: C4's own agents tell of the job
  // What is slow is suspected only: sources that see no sends and receives take who waits for them for late.
  bool slow_is_suspected = false;
  bool log_verdicts = true;  // not where a recording is replayed: its reader is told by the result
};

class C4dHandler {
 public:
  // Loads the verdicts that an earlier master of this job left. `paths`, `mover`: nullptr where no C4P can be
  // asked; they outlive the handler.
  C4dHandler(const HandlerOptions& options, VerdictStore* store, service::Metrics* metrics,
             PathSource* paths = nullptr, Mover* mover = nullptr);

  // Processes of other users than the job's owner, and those that report absurd counts, are left out one by
  // one. InvalidArgument: the batch is malformed. FailedPrecondition: it is of another job. Either changes
  // nothing. A duplicate is answered like the batch itself.
  absl::StatusOr<v1::TelemetryReply> Ingest(const v1::TelemetryBatch& batch, Now arrival);

  // What Flight Recorder dumps tell of the job, in the place of what they told before; empty: nothing.
  void SetDumps(const AnalysedDumps& dumps, Now now);

  // From now on the job is judged by it. Says so in the log where it is another one.
  void SetPolicy(const Policy& policy);
  // There was to be another one, which cannot be used; the one that is in force stays.
  void RefusePolicy(const absl::Status& why);

  v1::ListVerdictsReply ListVerdicts(bool include_cleared) const;
  v1::GetStatusReply GetStatus(Now now) const;
  // Of the policy in force.
  const std::string& policy_version() const { return policy_version_; }

  // What is held of each host; valid until the next Ingest.
  const std::map<std::string, Host>& hosts() const { return view_.hosts(); }
  // See matrix_reply.h.
  v1::GetMatrixReply GetMatrix(Now now, const v1::GetMatrixRequest& request = {});
  // Of the job's iterations those numbered from `from` on.
  v1::GetIterationsReply GetIterations(uint64_t from, Now now) const;
  // From the next replies on the agents ask their processes for it.
  v1::SetLevelReply SetLevel(v1::RecordLevel level);

  // `on_batch` gets every batch that is taken in from now on, of each host from the first that is whole,
  // which is asked for; on the thread that calls Ingest. It must be quick and must not call back.
  using OnBatch = std::function<void(const v1::TelemetryBatch&, Now)>;
  uint64_t Record(OnBatch on_batch);
  void StopRecord(uint64_t recording);

  // Judges the job. To be called a few times a second.
  void Tick(Now now);

  // `on_verdict` gets at once what is open, then every change, on the thread that calls Tick. It must not
  // call back into the handler.
  using OnVerdict = std::function<void(const v1::Verdict&)>;
  uint64_t Subscribe(OnVerdict on_verdict);
  void Unsubscribe(uint64_t subscription);

 private:
  bool IsOurs(const v1::ProcessReport& report) const;
  bool WantsWhole(const std::string& host) const;
  void JudgeIterations(const JobSnapshot& snapshot, bool recovering, std::vector<Finding>* findings, Now now);
  absl::Status CheckJob(const v1::TelemetryBatch& batch);
  void UsePolicy(const Policy& policy);
  void LogOnce(const std::string& sentence);
  int64_t SlowPauseNs(const JobSnapshot& snapshot) const;
  void Intervene(const JobSnapshot& snapshot, Now now, std::vector<Finding>* findings);
  void AskForPaths(const JobSnapshot& snapshot, Now now);
  void Save(const std::vector<VerdictChange>& changes, Now now);
  void Publish(const std::vector<VerdictChange>& changes, Now now);
  void UpdateGauges(const JobSnapshot& snapshot);
  // What could not be stored is, once the file works again.
  void TendStore(int64_t now_ns);

  const HandlerOptions options_;
  Policy policy_;
  std::string policy_version_;
  std::vector<Finding> of_dumps_;
  std::string policy_fault_;  // why there is not another one
  service::Metrics* const all_metrics_;
  VerdictStore* const store_;
  PathSource* const paths_;
  int64_t asked_at_ns_ = kNever;
  int64_t ask_pause_ns_ = 0;
  int64_t asking_ns_ = 0;  // the time that this round has taken
  size_t ask_next_ = 0;    // process of the snapshot that it goes on with; 0: none is under way
  JobView view_;
  Windows windows_;
  HardwareLog hardware_;
  Hearing hearing_;
  LimitLog limits_;
  FailSlow fail_slow_;
  std::vector<Finding> slow_;  // of the newest slices
  uint64_t slow_slices_ = 0;   // that they were made of
  int64_t slow_at_ns_ = kNever;
  int64_t store_tended_at_ns_ = 0;
  int64_t stood_still_at_ns_ = kNever;                    // when last something was worse than slow
  v1::RecordLevel level_ = v1::RECORD_LEVEL_UNSPECIFIED;  // wanted from the processes
  Verdicts verdicts_;
  Interventions interventions_;

  bool job_seen_ = false;        // telemetry under the job's own name has come
  std::string provisional_job_;  // under which telemetry is taken until then; empty: none
  std::set<std::string> said_;   // sentences that were logged once

  uint64_t next_subscription_ = 1;
  std::map<uint64_t, OnVerdict> subscribers_;
  struct Recorder {
    OnBatch on_batch;
    std::set<std::string> hosts;  // that it has heard of
  };
  std::map<uint64_t, Recorder> recorders_;

  struct {
    service::MetricCounter batches;
    service::MetricCounter batches_ignored;
    service::MetricCounter batches_without_base;
    service::MetricCounter batches_refused;
    service::MetricCounter entries_left_out;
    service::MetricCounter hardware_events;
    service::MetricGauge iteration_seconds;
    service::MetricGauge slowdown;
    service::MetricGauge ranks_with_iterations;
    service::MetricCounter verdict_changes[4];  // by VerdictChange::Kind
    service::MetricCounter store_errors;
    service::MetricGauge store_in_memory;
    service::MetricGauge suspected;
    service::MetricGauge confirmed;
    service::MetricGauge agents;
    service::MetricGauge agents_stale;
    service::MetricGauge processes;
    service::MetricGauge communicators;
    service::MetricGauge watchers;
    service::MetricGauge report_interval;
    service::MetricHistogram tick_seconds;
    service::MetricCounter policy_reloads;
    service::MetricCounter policy_refusals;
    service::MetricGauge policy_refused;
  } metrics_;
};

}  // namespace c4::c4d
