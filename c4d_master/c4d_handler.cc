#include "c4d_master/c4d_handler.h"

#include <algorithm>
#include <utility>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/telemetry_changes.h"
#include "c4d_master/telemetry_decode.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kSlowIntervalNs = kSecondNs;
// While something is slow every queue pair is looked at, several slices back: some microseconds for each.
constexpr int64_t kSlowPerQueuePairNs = 10'000;
constexpr size_t kMaxSaid = 1000;
// A path that is asked for late may be gone; but asking for those of a large job takes time.
constexpr double kDoubtful = 0.3;  // less than what is certain when it comes again (Verdicts)
constexpr int64_t kAskForPathsNs = kSecondNs;
constexpr int64_t kAskShare = 50;
constexpr size_t kAskAtOnce = 8192;  // queue pairs a tick: some milliseconds

}  // namespace

C4dHandler::C4dHandler(const HandlerOptions& options, VerdictStore* store, service::Metrics* metrics,
                       PathSource* paths, Mover* mover)
    : options_(options),
      all_metrics_(metrics),
      store_(store),
      paths_(paths),
      view_(options.policy.agent_stale_ns),
      windows_(options.policy.windows),
      hearing_(options.report_per_host_ns),
      limits_(metrics),
      verdicts_(options.job, options.master_epoch),
      interventions_(options.intervene, mover, metrics) {
  metrics_.batches = metrics->Counter("c4d_batches_total", "Telemetry batches taken in");
  metrics_.batches_ignored =
      metrics->Counter("c4d_batches_ignored_total", "Batches that were known already or of a former agent");
  metrics_.batches_without_base = metrics->Counter(
      "c4d_batches_without_base_total",
      "Batches that say what has changed since one that is not held; their agents are asked for whole ones");
  metrics_.batches_refused =
      metrics->Counter("c4d_batches_refused_total", "Malformed batches and those of other jobs");
  metrics_.entries_left_out =
      metrics->Counter("c4d_entries_left_out_total", "Entries of batches that contradict themselves");
  metrics_.hardware_events =
      metrics->Counter("c4d_hardware_events_total", "Faults of their nodes' hardware that agents told of");
  metrics_.iteration_seconds = metrics->Gauge(
      "c4d_iteration_seconds", "Time of the job's last iteration, told from its calls; 0: none is known");
  metrics_.slowdown =
      metrics->Gauge("c4d_failslow_slowdown_ratio",
                     "Time of an iteration against before, while the job is in a fail-slow; else 1");
  metrics_.ranks_with_iterations =
      metrics->Gauge("c4d_ranks_with_iterations", "Ranks whose iterations are known");
  for (const auto kind : {VerdictChange::Kind::kSuspected, VerdictChange::Kind::kConfirmed,
                          VerdictChange::Kind::kUpdated, VerdictChange::Kind::kCleared}) {
    metrics_.verdict_changes[static_cast<size_t>(kind)] =
        metrics->Counter("c4d_verdict_changes_total", "Changes of verdicts",
                         {{"change", std::string(VerdictChangeWord(kind))}});
  }
  metrics_.store_errors =
      metrics->Counter("c4d_store_errors_total", "Changes of verdicts that could not be stored");
  metrics_.store_in_memory = metrics->Gauge(
      "c4d_store_in_memory", "1 while verdicts would be lost at a restart, because the file failed");
  metrics_.suspected =
      metrics->Gauge("c4d_verdicts_open", "Verdicts that are not cleared", {{"state", "suspected"}});
  metrics_.confirmed =
      metrics->Gauge("c4d_verdicts_open", "Verdicts that are not cleared", {{"state", "confirmed"}});
  metrics_.agents = metrics->Gauge("c4d_agents", "Nodes of the job that an agent has told of");
  metrics_.agents_stale = metrics->Gauge(
      "c4d_agents_stale", "Nodes of the job whose agent is silent, so that their ranks are not judged");
  metrics_.processes = metrics->Gauge("c4d_processes", "Processes of the job that the agents have told of");
  metrics_.communicators =
      metrics->Gauge("c4d_communicators", "Communicators of the job that the agents have told of");
  metrics_.watchers = metrics->Gauge("c4d_watchers", "Subscribers to changes of verdicts");
  metrics_.report_interval = metrics->Gauge(
      "c4d_report_interval_seconds",
      "How often agents are asked to tell of what goes on as usual; 0: at each of their looks");
  metrics_.tick_seconds =
      metrics->Histogram("c4d_tick_seconds", "Time to judge the job once", {0.0001, 0.001, 0.01, 0.1, 1});

  metrics_.policy_reloads = metrics->Counter(
      "c4d_policy_reads_total", "Times that the policy's file was read again", {{"result", "taken"}});
  metrics_.policy_refusals = metrics->Counter(
      "c4d_policy_reads_total", "Times that the policy's file was read again", {{"result", "refused"}});
  metrics_.policy_refused = metrics->Gauge(
      "c4d_policy_refused", "1 while the policy's file says something that cannot be in force");
  UsePolicy(options_.policy);
  const absl::StatusOr<std::vector<v1::Verdict>> stored = store_->Load(options_.job);
  if (stored.ok()) {
    verdicts_.Restore(*stored);
    interventions_.Restore(*stored);
    const size_t open =
        verdicts_.CountOpen(v1::VERDICT_STATE_SUSPECTED) + verdicts_.CountOpen(v1::VERDICT_STATE_CONFIRMED);
    if (!stored->empty()) {
      service::LogInfo("an earlier master left ", stored->size(), " verdicts, ", open, " of them open");
    }
  } else {
    service::LogWarning("the stored verdicts cannot be read: ", stored.status().message(),
                        "; beginning without");
  }
}

void C4dHandler::UsePolicy(const Policy& policy) {
  if (!policy_version_.empty()) all_metrics_->Remove("c4d_policy_info", {{"version", policy_version_}});
  policy_ = policy;
  policy_version_ = PolicyVersion(policy);
  all_metrics_
      ->Gauge("c4d_policy_info", "1 for the version of the policy that is in force",
              {{"version", policy_version_}})
      .Set(1);
  view_.SetThresholds(policy.agent_stale_ns, policy.rhythm);
  windows_.SetThresholds(policy.windows);
  windows_.SetShares(policy.detectors.slow.share, policy.detectors.slow.usual_share,
                     policy.detectors.slow.upper_share);
  windows_.SetScatter(policy.detectors.slow.own_factor, policy.detectors.slow.bad_factor,
                      policy.detectors.slow.min_usual_chunks);
  fail_slow_.SetThresholds(policy.fail_slow);
  verdicts_.SetPolicy(policy.verdicts, policy_version_);
}

void C4dHandler::SetPolicy(const Policy& policy) {
  metrics_.policy_reloads.Add();
  metrics_.policy_refused.Set(0);
  policy_fault_.clear();
  const std::string before = policy_version_;
  UsePolicy(policy);
  if (policy_version_ == before) return;
  service::LogInfo("the job is judged by policy ", policy_version_, ", no longer by ", before);
}

void C4dHandler::SetDumps(const AnalysedDumps& dumps, Now now) {
  of_dumps_ = FindInDumps(dumps, now, policy_.detectors.hang);
}

void C4dHandler::RefusePolicy(const absl::Status& why) {
  metrics_.policy_refusals.Add();
  metrics_.policy_refused.Set(1);
  policy_fault_ = std::string(why.message());
  service::LogWarning(why.message(), "; the job is judged by policy ", policy_version_, " as before");
}

absl::Status C4dHandler::CheckJob(const v1::TelemetryBatch& batch) {
  for (const v1::ProcessReport& report : batch.processes()) {
    if (report.job() == options_.job) {
      if (!provisional_job_.empty()) {
        service::LogInfo("telemetry has come under the job's own name; what came as ", provisional_job_,
                         " is dropped");
        provisional_job_.clear();
        view_.Forget();
        windows_.Forget();
        fail_slow_.Forget();
      }
      job_seen_ = true;
      continue;
    }
    const bool may_adopt = report.job_provisional() && !report.job().empty() && !job_seen_ &&
                           (provisional_job_.empty() || provisional_job_ == report.job());
    if (!may_adopt) {
      return absl::FailedPreconditionError(Concat(
          "this master serves job \"", options_.job, "\", the batch of ", batch.host(), " is of ",
          report.job_provisional() ? "a process without a job name, \"" : "job \"", CutText(report.job()),
          "\": start a c4d_master --job for it and let the agent find it (no --master), or give the "
          "processes C4_JOB_ID=",
          options_.job));
    }
    if (provisional_job_.empty()) {
      service::LogInfo("processes without a job name (", CutText(report.job()), ") are taken for job ",
                       options_.job);
      provisional_job_ = report.job();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::TelemetryReply> C4dHandler::Ingest(const v1::TelemetryBatch& given, Now arrival) {
  std::vector<std::string> faults;
  std::vector<Limit> limits;
  const std::optional<v1::TelemetryBatch> reduced =
      WithoutExcess(given, options_.owner_uid, &faults, &limits);
  const v1::TelemetryBatch& batch = reduced.has_value() ? *reduced : given;
  absl::Status status = CheckBatch(batch);
  if (status.ok()) status = CheckChanges(batch);
  if (status.ok()) status = CheckJob(batch);
  if (!status.ok()) {
    metrics_.batches_refused.Add();
    LogOnce(Concat("a batch was refused: ", status.message()));
    return status;
  }
  // Who is not to be heard stands in a whole batch, of which the rest is taken in.
  const bool ours = std::all_of(batch.changes().begin(), batch.changes().end(), [&](const auto& changes) {
    return !changes.has_whole() || IsOurs(changes.whole());
  });
  const JobView::Taken taken =
      ours ? view_.Ingest(batch, arrival.monotonic_ns, &faults) : JobView::Taken::kNoBase;
  switch (taken) {
    case JobView::Taken::kNoBase:
      metrics_.batches_without_base.Add();
      break;
    case JobView::Taken::kNew:
      metrics_.batches.Add();
      windows_.Observe(view_.hosts().at(batch.host()));
      fail_slow_.Observe(batch, view_.hosts().at(batch.host()), arrival.monotonic_ns);
      metrics_.hardware_events.Add(
          static_cast<double>(hardware_.Observe(batch, view_.hosts().at(batch.host()).as_of_ns)));
      break;
    case JobView::Taken::kDuplicate:
      metrics_.batches_ignored.Add();
      break;
    case JobView::Taken::kOtherAgent:
      metrics_.batches_ignored.Add();
      LogOnce(Concat(
          "batches of an earlier agent on ", batch.host(),
          " are ignored; if two agents run there, or two nodes share that host name, only the later one is "
          "heard"));
      break;
  }
  for (const Limit& limit : limits) limits_.Reached(limit);
  metrics_.entries_left_out.Add(static_cast<double>(faults.size() + limits.size()));
  for (const std::string& fault : faults) LogOnce(fault);
  v1::TelemetryReply reply;
  reply.set_sequence(batch.sequence());
  reply.set_master_epoch(options_.master_epoch);
  reply.set_received_ns(arrival.monotonic_ns);
  // A profile asks for more than the job is set to, for a few iterations; not where nothing is to be
  // recorded.
  const bool profiles = options_.tell_fail_slow && fail_slow_.WantsFine() && level_ != v1::RECORD_LEVEL_OFF;
  reply.set_level(profiles ? v1::RECORD_LEVEL_FINE : level_);
  reply.set_report_interval_ns(hearing_.interval_ns());
  const bool is_base = (taken == JobView::Taken::kNew || taken == JobView::Taken::kDuplicate) &&
                       !reduced.has_value() && view_.IsBase(batch.host());
  for (auto& [id, recorder] : recorders_) {
    if (batch.base() == 0) recorder.hosts.insert(batch.host());
    if (taken != JobView::Taken::kNoBase && recorder.hosts.count(batch.host()) != 0) {
      recorder.on_batch(batch, arrival);
    }
  }
  if (is_base && !WantsWhole(batch.host())) reply.set_base(batch.sequence());
  return reply;
}

bool C4dHandler::IsOurs(const v1::ProcessReport& report) const {
  const std::string& job = provisional_job_.empty() ? options_.job : provisional_job_;
  return report.job() == job && IsWelcome(report, options_.owner_uid);
}

// A recording begins with what is known of a host, not with what changes of it.
bool C4dHandler::WantsWhole(const std::string& host) const {
  return std::any_of(recorders_.begin(), recorders_.end(),
                     [&](const auto& entry) { return entry.second.hosts.count(host) == 0; });
}

v1::GetIterationsReply C4dHandler::GetIterations(uint64_t from, Now now) const {
  v1::GetIterationsReply reply;
  reply.set_job(options_.job);
  reply.set_master_epoch(options_.master_epoch);
  reply.set_unix_ns(now.unix_ns);
  fail_slow_.Fill(from, now, &reply);
  return reply;
}

v1::SetLevelReply C4dHandler::SetLevel(v1::RecordLevel level) {
  v1::SetLevelReply reply;
  reply.set_former(level_);
  level_ = level;
  return reply;
}

uint64_t C4dHandler::Record(OnBatch on_batch) {
  const uint64_t recording = next_subscription_++;
  recorders_.emplace(recording, Recorder{std::move(on_batch), {}});
  return recording;
}

void C4dHandler::StopRecord(uint64_t recording) {
  recorders_.erase(recording);
}

void C4dHandler::Tick(Now now) {
  const int64_t begin_ns = service::SystemClock().MonotonicNs();
  const JobSnapshot& snapshot = view_.Snapshot(now.monotonic_ns);
  for (const std::string& conflict : snapshot.conflicts) LogOnce(conflict);
  // The matrix changes with the slices, about once a second.
  if (windows_.slices() != slow_slices_ &&
      (slow_at_ns_ == kNever || now.monotonic_ns - slow_at_ns_ >= SlowPauseNs(snapshot))) {
    slow_slices_ = windows_.slices();
    slow_at_ns_ = now.monotonic_ns;
    slow_ =
        DetectSlow(snapshot, windows_, {paths_, &view_.fences()}, now.monotonic_ns, policy_.detectors.slow);
  }
  AskForPaths(snapshot, now);
  // Chunks that were stuck count as slow once they have arrived.
  const bool recovering =
      stood_still_at_ns_ != kNever && now.monotonic_ns - stood_still_at_ns_ < policy_.trouble.recovery_ns;
  std::vector<Finding> findings =
      Diagnose(snapshot, {paths_, &view_.fences()}, recovering ? std::vector<Finding>() : slow_,
               now.monotonic_ns, policy_.detectors);
  AddFindingsOfDumps(of_dumps_, snapshot, &findings);
  if (std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.syndrome != Syndrome::kCommunicationSlow &&
               finding.syndrome != Syndrome::kNonCommunicationSlow &&
               // A few fences are no standstill.
               (finding.syndrome != Syndrome::kPathLost || !finding.confirmed_by.empty());
      })) {
    stood_still_at_ns_ = now.monotonic_ns;
  }
  // What belongs to trouble is not usual, nor what comes shortly after it. A suspicion that has not been
  // confirmed when its slices are old enough to be learnt from was none.
  for (const Finding& finding : findings) {
    if (finding.confirmed_by.empty()) continue;
    const bool slow = finding.syndrome == Syndrome::kCommunicationSlow ||
                      finding.syndrome == Syndrome::kNonCommunicationSlow;
    const int64_t after_ns = slow ? policy_.trouble.slow_after_ns : policy_.trouble.standstill_after_ns;
    const int64_t since_ns = slow ? now.monotonic_ns - policy_.trouble.slow_before_ns : finding.since_at_ns;
    windows_.Exclude(std::min(since_ns, now.monotonic_ns) - kSecondNs, now.monotonic_ns + after_ns);
  }
  for (const Finding& finding : findings) {
    // What lasted longer than ever and went on by itself was usual after all (a checkpoint of many minutes).
    if (finding.confirmed_by.empty() || finding.confirmed_by == "past-limit") continue;
    for (const uint64_t communicator : finding.communicators) view_.ExcludeStandstill(communicator);
  }
  if (options_.slow_is_suspected) {
    for (Finding& finding : findings) {
      const bool slow = finding.syndrome == Syndrome::kCommunicationSlow ||
                        finding.syndrome == Syndrome::kNonCommunicationSlow;
      if (!slow) continue;
      finding.confirmed_by.clear();
      finding.confidence = kDoubtful;
    }
  }
  hearing_.Observe(snapshot, findings, policy_, now.monotonic_ns);
  JudgeIterations(snapshot, recovering, &findings, now);
  Intervene(snapshot, now, &findings);
  hardware_.Attach(snapshot, now, &findings);
  if (!options_.source_note.empty()) {
    for (Finding& finding : findings) finding.evidence.push_back({"source", options_.source_note});
  }
  std::vector<VerdictChange> changes = verdicts_.Update(findings, snapshot, now);
  for (const auto& [verdict, record] : interventions_.TakeRecords()) {
    if (std::optional<VerdictChange> change = verdicts_.Note(verdict, record)) {
      changes.push_back(*std::move(change));
    }
  }
  if (!changes.empty()) {
    Publish(changes, now);
    Save(changes, now);
  }
  TendStore(now.monotonic_ns);
  UpdateGauges(snapshot);
  metrics_.tick_seconds.Observe(static_cast<double>(service::SystemClock().MonotonicNs() - begin_ns) / 1e9);
}

// A job of half a million queue pairs, some of them slow, leaves time for what stands still.
int64_t C4dHandler::SlowPauseNs(const JobSnapshot& snapshot) const {
  if (slow_.empty() || snapshot.queue_pairs == nullptr) return kSlowIntervalNs;
  const auto queue_pairs = static_cast<int64_t>(snapshot.queue_pairs->ends.size());
  return std::max(kSlowIntervalNs, queue_pairs * kSlowPerQueuePairNs);
}

void C4dHandler::Intervene(const JobSnapshot& snapshot, Now now, std::vector<Finding>* findings) {
  if (interventions_.idle(verdicts_.CountOpen())) return;
  interventions_.Tick({snapshot, windows_, paths_, view_.fences(), policy_, now}, verdicts_.List(false),
                      findings);
  verdicts_.Hold(interventions_.held());
  // What is slow on trial is not usual, whatever the verdict's state.
  if (interventions_.under_way()) {
    windows_.Exclude(now.monotonic_ns - policy_.trouble.slow_before_ns - kSecondNs,
                     now.monotonic_ns + policy_.trouble.slow_after_ns);
  }
}

// What the job's iterations say, beside all that was found.
void C4dHandler::JudgeIterations(const JobSnapshot& snapshot, bool recovering, std::vector<Finding>* findings,
                                 Now now) {
  const bool stands_still = recovering || stood_still_at_ns_ == now.monotonic_ns;
  std::optional<Finding> slow = fail_slow_.Judge(
      *findings, snapshot, view_.hosts(), windows_,
      [this](const Finding& finding) { return verdicts_.IdOf(finding); }, stands_still, now);
  const std::deque<SeriesPoint>& series = fail_slow_.log().series();
  metrics_.iteration_seconds.Set(series.empty() ? 0 : series.back().duration_s);
  metrics_.slowdown.Set(slow.has_value() ? slow->fail_slow->after_s / slow->fail_slow->before_s : 1);
  metrics_.ranks_with_iterations.Set(static_cast<double>(fail_slow_.log().ranks().size()));
  if (!options_.tell_fail_slow) return;
  // What may be slow now is not usual, until it has been so for long.
  const int64_t since_ns = fail_slow_.slow_since_ns();
  if (since_ns != kNever && now.monotonic_ns - since_ns < policy_.fail_slow.unusual_ns) {
    windows_.Exclude(std::min(since_ns, now.monotonic_ns) - kSecondNs,
                     now.monotonic_ns + policy_.trouble.slow_after_ns);
  }
  if (slow.has_value()) findings->push_back(*std::move(slow));
}

// So that they are known when something goes wrong.
void C4dHandler::AskForPaths(const JobSnapshot& snapshot, Now now) {
  if (paths_ == nullptr) return;
  if (ask_next_ == 0) {
    if (asked_at_ns_ != kNever && now.monotonic_ns - asked_at_ns_ < ask_pause_ns_) return;
    asked_at_ns_ = now.monotonic_ns;
    asking_ns_ = 0;
  }
  const int64_t begin_ns = service::SystemClock().MonotonicNs();
  size_t asked = 0;
  for (; ask_next_ < snapshot.processes.size() && asked < kAskAtOnce; ++ask_next_) {
    const ProcessRef& ref = snapshot.processes[ask_next_];
    if (ref.superseded || ref.process->ended) continue;
    for (const Membership& membership : ref.process->communicators) {
      for (const QueuePair& queue_pair : membership.queue_pairs) {
        if (!queue_pair.sends || AddressOf(queue_pair.local) == AddressOf(queue_pair.remote)) continue;
        paths_->Find(queue_pair.local, queue_pair.remote);
        paths_->Find(queue_pair.remote, queue_pair.local);
        ++asked;
      }
    }
  }
  asking_ns_ += service::SystemClock().MonotonicNs() - begin_ns;
  if (paths_->left_out() > 0) {
    limits_.Reached({"paths",
                     "the job has more connections than paths are kept of; nobody asks C4P for those of the "
                     "rest, and no link is named for them"});
  }
  if (ask_next_ < snapshot.processes.size()) return;
  ask_next_ = 0;
  ask_pause_ns_ = std::max(kAskForPathsNs, kAskShare * asking_ns_);
}

void C4dHandler::Save(const std::vector<VerdictChange>& changes, Now now) {
  const absl::Status status = store_->Save(changes, now.unix_ns);
  if (status.ok()) return;
  metrics_.store_errors.Add(static_cast<double>(changes.size()));
  LogOnce(Concat("a verdict could not be stored: ", status.message(), "; it is still given to whoever asks"));
}

void C4dHandler::Publish(const std::vector<VerdictChange>& changes, Now now) {
  for (const VerdictChange& change : changes) {
    metrics_.verdict_changes[static_cast<size_t>(change.kind)].Add();
    for (const auto& [id, on_verdict] : subscribers_) on_verdict(change.verdict);
    if (!options_.log_verdicts) continue;
    const std::string line = service::VerdictLine(change.verdict, now.unix_ns);
    if (change.kind == VerdictChange::Kind::kConfirmed) {
      service::LogWarning(line, " [verdict ", change.verdict.id(), "]");
    } else {
      service::LogInfo(line, " [verdict ", change.verdict.id(), "]");
    }
  }
}

void C4dHandler::UpdateGauges(const JobSnapshot& snapshot) {
  metrics_.suspected.Set(static_cast<double>(verdicts_.CountOpen(v1::VERDICT_STATE_SUSPECTED)));
  metrics_.confirmed.Set(static_cast<double>(verdicts_.CountOpen(v1::VERDICT_STATE_CONFIRMED)));
  metrics_.agents.Set(static_cast<double>(snapshot.stale_hosts.size()));
  metrics_.agents_stale.Set(
      static_cast<double>(std::count_if(snapshot.stale_hosts.begin(), snapshot.stale_hosts.end(),
                                        [](const auto& entry) { return entry.second; })));
  metrics_.processes.Set(static_cast<double>(snapshot.processes.size()));
  metrics_.communicators.Set(static_cast<double>(snapshot.communicators.size()));
  metrics_.store_in_memory.Set(store_->in_memory() ? 1 : 0);
  metrics_.report_interval.Set(static_cast<double>(hearing_.interval_ns()) / 1e9);
}

void C4dHandler::TendStore(int64_t now_ns) {
  if (now_ns - store_tended_at_ns_ < kSecondNs) return;
  store_tended_at_ns_ = now_ns;
  if (store_->in_memory()) store_->CatchUp();
}

uint64_t C4dHandler::Subscribe(OnVerdict on_verdict) {
  for (const v1::Verdict& verdict : verdicts_.List(/*include_cleared=*/false)) on_verdict(verdict);
  const uint64_t subscription = next_subscription_++;
  subscribers_.emplace(subscription, std::move(on_verdict));
  metrics_.watchers.Set(static_cast<double>(subscribers_.size()));
  return subscription;
}

void C4dHandler::Unsubscribe(uint64_t subscription) {
  subscribers_.erase(subscription);
  metrics_.watchers.Set(static_cast<double>(subscribers_.size()));
}

void C4dHandler::LogOnce(const std::string& sentence) {
  if (said_.size() >= kMaxSaid) said_.clear();
  if (said_.insert(sentence).second) service::LogWarning(sentence);
}

}  // namespace c4::c4d
