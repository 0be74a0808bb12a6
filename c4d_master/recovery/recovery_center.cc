#include "c4d_master/recovery/recovery_center.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "c4d_master/recovery/downtime.h"
#include "c4d_master/recovery/state_proto.h"
#include "service/log.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;

constexpr int64_t kIntervalNs = kSecond;
constexpr int64_t kRetoldNs = 5 * kSecond;
constexpr absl::Duration kLookTimeout = absl::Seconds(10);
constexpr const char* kEnds[] = {"recovered", "failed", "denied", "dropped"};
constexpr const char* kParts[] = {"lost work", "detection", "diagnosis and isolation", "re-initialisation"};

}  // namespace

RecoveryCenter::RecoveryCenter(std::string job, RecoveryFile file, RecoveryWork* work, RecoveryStore* store,
                               service::Metrics* metrics, Now now)
    : job_(std::move(job)),
      file_(std::move(file)),
      work_(work),
      store_(store),
      began_at_ns_(now.monotonic_ns) {
  for (size_t i = 0; i < std::size(kEnds); ++i) {
    metrics_.ended[i] = metrics->Counter("c4d_recovery_incidents_total",
                                         "Incidents of recovery that are over", {{"result", kEnds[i]}});
    metrics_.downtime[i] =
        metrics->Counter("c4d_downtime_seconds_total",
                         "What incidents from which the job has recovered cost it", {{"part", kParts[i]}});
  }
  metrics_.out = metrics->Gauge("c4d_recovery_nodes_out", "Nodes that were taken out of the scheduler");
  metrics_.held = metrics->Gauge("c4d_recovery_held", "Incidents that wait for a person or for the limits");
  metrics_.under_way = metrics->Gauge("c4d_recovery_under_way", "1 while the job is being brought back");
  metrics_.refused =
      metrics->Gauge("c4d_recovery_refused", "1 while the file of recovery says what cannot be in force");
  metrics_.store_errors =
      metrics->Counter("c4d_recovery_store_errors_total", "Decisions of recovery that could not be stored");
  const absl::StatusOr<v1::RecoveryState> stored = store_->Load();
  if (stored.ok()) {
    state_ = FromProto(*stored);
  } else {
    service::LogWarning("recovery: ", stored.status().message(), "; beginning without");
  }
  state_.next_command = std::max<uint64_t>(state_.next_command, 1);
  state_.next_incident = std::max<uint64_t>(state_.next_incident, 1);
  for (const Incident& incident : state_.incidents) {
    if (IsEnd(incident.phase)) counted_.insert(incident.id);
  }
  UseDriver();
  Do({.kind = Event::Kind::kStarted}, now);
}

void RecoveryCenter::UseDriver() {
  work_->SetDriver(MakeDriver(file_.driver, job_));
}

void RecoveryCenter::SetFile(RecoveryFile file, Now now) {
  const bool another = !(file.driver == file_.driver);
  file_ = std::move(file);
  config_fault_.clear();
  if (another) UseDriver();
  service::LogInfo("recovery goes by its file again: ", ModeWord(file_.rules.mode));
  Do({.kind = Event::Kind::kTick}, now);
}

void RecoveryCenter::RefuseFile(const absl::Status& why) {
  config_fault_ = service::ToUtf8(std::string(why.message()));
  service::LogWarning(why.message(), "; recovery goes by the rules of before");
  UpdateGauges();
}

absl::Duration RecoveryCenter::TimeoutOf(Command::Kind kind) const {
  switch (kind) {
    case Command::Kind::kRestart:
      return absl::Nanoseconds(file_.rules.restart_timeout_ns);
    case Command::Kind::kCheck:
      return absl::Nanoseconds(file_.rules.check_timeout_ns);
    default:
      return absl::Nanoseconds(file_.rules.isolate_timeout_ns);
  }
}

// One step of the machine; what came of it is stored before anything is asked for.
void RecoveryCenter::Do(Event event, Now now) {
  event.now_ns = now.unix_ns;
  const State before = state_;
  const std::vector<Action> actions = Step(file_.rules, &state_, event);
  std::vector<RecoveryStore::Note> notes;
  for (const Action& action : actions) {
    if (action.kind != Action::Kind::kAudit) continue;
    RecoveryStore::Note& note = notes.emplace_back();
    note.note.set_unix_ns(now.unix_ns);
    note.note.set_incident(action.incident);
    note.note.set_node(service::ToUtf8(action.node));
    note.note.set_what(action.what);
    note.note.set_text(service::ToUtf8(action.text));
    const auto evidence = open_.find(event.verdict);
    if (event.kind == Event::Kind::kVerdict && evidence != open_.end())
      note.evidence = &evidence->second.verdict;
    const std::string of = action.incident == 0 ? "" : Concat(" incident ", action.incident);
    service::LogInfo("recovery,", of.empty() ? "" : of, " ", action.what, ": ", service::ToUtf8(action.text));
  }
  if (!notes.empty() || !(before == state_)) {
    if (const absl::Status saved = store_->Save(ToProto(state_), notes); !saved.ok()) {
      metrics_.store_errors.Add();
      service::LogError("recovery's decisions cannot be stored: ", saved.message());
    }
  }
  for (const Action& action : actions) {
    if (action.kind != Action::Kind::kRun) continue;
    const Command& command = action.command;
    service::LogInfo("recovery asks for ", VerbOf(command.kind), " ", command.node, " (command ", command.id,
                     ", attempt ", command.attempt, ")");
    if (file_.driver.kind == DriverConfig::Kind::kNone) {
      Do({.kind = Event::Kind::kReply,
          .command = command.id,
          .outcome = Event::Outcome::kRefused,
          .text = "there is no driver (\"driver\" in the file of --recovery)"},
         now);
      return;
    }
    work_->Run(command, TimeoutOf(command.kind));
  }
  CountEnded();
  UpdateGauges();
}

void RecoveryCenter::OnVerdict(const v1::Verdict& verdict, uint32_t incarnation, Now now) {
  if (verdict.state() == v1::VERDICT_STATE_CLEARED) {
    if (open_.erase(verdict.id()) == 0 && verdict.confirmed_unix_ns() == 0) return;
    Do({.kind = Event::Kind::kCleared, .verdict = verdict.id()}, now);
    return;
  }
  if (verdict.state() != v1::VERDICT_STATE_CONFIRMED) return;
  const auto [known, is_new] = open_.try_emplace(verdict.id());
  known->second.verdict = verdict;
  if (is_new) known->second.incarnation = incarnation;
  if (permit_ && !permit_(verdict)) return;
  const bool settled = heard_since_ns_ != kNever && now.monotonic_ns - heard_since_ns_ >= kSettleNs;
  const bool of_before = verdict.confirmed_unix_ns() < now.unix_ns - (now.monotonic_ns - began_at_ns_);
  Do({.kind = Event::Kind::kVerdict,
      .verdict = verdict.id(),
      .syndrome = static_cast<int>(verdict.syndrome()),
      .confidence = verdict.confidence(),
      .node = verdict.culprit().host(),
      .incarnation = known->second.incarnation,
      .onset_ns = verdict.since_unix_ns(),
      .confirmed_ns = verdict.confirmed_unix_ns(),
      .seen_ns = settled || !of_before ? now.unix_ns : verdict.confirmed_unix_ns()},
     now);
}

std::string RecoveryCenter::WhyNot(const v1::Verdict& verdict) const {
  const auto* const slot = std::find(kSyndromeNumbers.begin(), kSyndromeNumbers.end(), verdict.syndrome());
  if (slot == kSyndromeNumbers.end()) return "recovery does not know such verdicts";
  const SyndromePolicy& policy = file_.rules.policies[static_cast<size_t>(slot - kSyndromeNumbers.begin())];
  const std::string_view word = service::SyndromeWord(verdict.syndrome());
  if (policy.act == Act::kNone) {
    return Concat("recovery's policy for \"", word, "\" is to do nothing (--recovery)");
  }
  if (file_.driver.kind == DriverConfig::Kind::kNone) return "recovery has no driver (--recovery)";
  if (file_.rules.mode != Mode::kAutomatic) return "recovery restarts nothing by itself (--recovery: mode)";
  if (verdict.culprit().host().empty()) return "no node is to blame: a restart would take all of them again";
  if (verdict.confidence() < policy.min_confidence) {
    return "the verdict is less certain than recovery's policy asks for";
  }
  return "";
}

std::optional<double> RecoveryCenter::UsualRestartS() const {
  std::vector<double> seconds;
  for (const Incident& incident : state_.incidents) {
    if (incident.phase != Phase::kRecovered || incident.running_ns == 0) continue;
    seconds.push_back(static_cast<double>(RestartCostNs(incident)) / 1e9);
  }
  if (seconds.empty()) return std::nullopt;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

const Incident* RecoveryCenter::IncidentOf(const std::string& verdict) const {
  for (auto incident = state_.incidents.rbegin(); incident != state_.incidents.rend(); ++incident) {
    const auto& verdicts = incident->verdicts;
    if (std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end()) return &*incident;
  }
  return nullptr;
}

void RecoveryCenter::TakeResults(Now now) {
  for (DriverResult& result : work_->Take()) {
    if (!result.look) {
      answered_ = std::max(answered_, result.command);
      driver_trouble_ = result.reply.outcome == Event::Outcome::kDone ? "" : result.reply.text;
      Do({.kind = Event::Kind::kReply,
          .incarnation = result.reply.incarnation,
          .command = result.command,
          .outcome = result.reply.outcome,
          .checkpoint_ns = result.reply.checkpoint_ns,
          .text = result.reply.text},
         now);
      continue;
    }
    looking_ = false;
    if (!result.inventory.ok()) {
      if (!absl::IsCancelled(result.inventory.status())) {
        driver_trouble_ = service::ToUtf8(std::string(result.inventory.status().message()));
      }
      continue;
    }
    driver_trouble_.clear();
    Event event;
    event.kind = Event::Kind::kInventory;
    event.as_of_command = result.command;
    event.seen = std::move(result.inventory->nodes);
    event.failed = result.inventory->failed.has_value();
    event.incarnation = result.inventory->failed.value_or(0);
    Do(std::move(event), now);
  }
}

// Without a driver the agents tell which nodes there are.
void RecoveryCenter::LookAtNodes(const JobProgress& progress, Now now) {
  if (looked_at_ns_ != kNever && now.monotonic_ns - looked_at_ns_ < file_.look_every_ns) return;
  looked_at_ns_ = now.monotonic_ns;
  if (file_.driver.kind != DriverConfig::Kind::kNone) {
    if (looking_ || state_.in_flight.has_value()) return;
    looking_ = true;
    work_->Look(answered_, kLookTimeout);
    return;
  }
  for (const std::string& host : progress.hosts) {
    if (!state_.nodes.contains(host)) state_.nodes[host].in_use = true;
  }
}

void RecoveryCenter::Tick(const JobProgress& progress, Now now) {
  if (heard_since_ns_ == kNever && progress.seen) heard_since_ns_ = now.monotonic_ns;
  TakeResults(now);
  LookAtNodes(progress, now);
  if (progress.running && (progress.incarnation > state_.incarnation || UnderWay(state_) != nullptr)) {
    Do({.kind = Event::Kind::kRunning, .incarnation = progress.incarnation}, now);
  }
  if (retold_at_ns_ == kNever || now.monotonic_ns - retold_at_ns_ >= kRetoldNs) {
    retold_at_ns_ = now.monotonic_ns;
    for (const auto& [id, known] : std::map<std::string, Known>(open_))
      OnVerdict(known.verdict, known.incarnation, now);
  }
  if (ticked_at_ns_ != kNever && now.monotonic_ns - ticked_at_ns_ < kIntervalNs) return;
  ticked_at_ns_ = now.monotonic_ns;
  Event tick;
  for (const auto& [host, heard_at_ns] : progress.heard_at_ns) {
    if (now.monotonic_ns - heard_at_ns >= file_.rules.silent_ns) tick.silent.push_back(host);
  }
  Do(std::move(tick), now);
}

v1::RecoveryState RecoveryCenter::state() const {
  return ToProto(state_);
}

v1::GetRecoveryReply RecoveryCenter::Get(uint32_t notes) const {
  v1::GetRecoveryReply reply;
  reply.set_job(service::ToUtf8(job_));
  reply.set_mode(ModeWord(file_.rules.mode));
  reply.set_driver(DriverText(file_.driver));
  reply.set_driver_trouble(driver_trouble_);
  reply.set_cap(CapOf(file_.rules, state_));
  reply.set_automated_out(AutomatedOut(state_));
  reply.set_isolations_per_hour(file_.rules.isolations_per_hour);
  reply.set_restarts_per_hour(file_.rules.restarts_per_hour);
  reply.set_config_fault(config_fault_);
  *reply.mutable_state() = ToProto(state_);
  if (notes == 0) return reply;
  if (const auto stored = store_->Notes(notes); stored.ok()) {
    for (const v1::RecoveryNote& note : *stored) *reply.add_notes() = note;
  }
  return reply;
}

absl::Status RecoveryCenter::CheckIncident(uint64_t id, bool proposed) const {
  const Incident* incident = FindIncident(state_, id);
  std::vector<std::string> open;
  for (const Incident& one : state_.incidents) {
    if (proposed ? one.phase == Phase::kProposed : !IsEnd(one.phase)) open.push_back(Concat(one.id));
  }
  const std::string there =
      open.empty() ? "; there is none that does" : Concat("; those that do: ", absl::StrJoin(open, ", "));
  if (incident == nullptr) return absl::NotFoundError(Concat("there is no incident ", id, there));
  if (proposed && incident->phase != Phase::kProposed) {
    return absl::FailedPreconditionError(Concat("incident ", id, " does not wait for a person", there));
  }
  if (IsEnd(incident->phase))
    return absl::FailedPreconditionError(Concat("incident ", id, " is over", there));
  return absl::OkStatus();
}

absl::Status RecoveryCenter::Approve(const v1::DecideRecoveryRequest& request, Now now) {
  if (const absl::Status may = CheckIncident(request.incident(), true); !may.ok()) return may;
  if (file_.driver.kind == DriverConfig::Kind::kNone) {
    return absl::FailedPreconditionError(
        "this master has no driver that could do it (\"driver\" in the file of --recovery)");
  }
  Do({.kind = Event::Kind::kApprove,
      .incident = request.incident(),
      .text = request.why(),
      .by = request.by()},
     now);
  return absl::OkStatus();
}

absl::Status RecoveryCenter::Deny(const v1::DecideRecoveryRequest& request, Now now) {
  if (const absl::Status may = CheckIncident(request.incident(), false); !may.ok()) return may;
  Do({.kind = Event::Kind::kDeny, .incident = request.incident(), .text = request.why(), .by = request.by()},
     now);
  return absl::OkStatus();
}

absl::Status RecoveryCenter::Isolate(const v1::DecideRecoveryRequest& request, Now now) {
  const auto node = state_.nodes.find(request.node());
  if (node == state_.nodes.end()) {
    return absl::NotFoundError(
        Concat("there is no node ", service::ToUtf8(request.node()), "; `c4 recovery status` lists them"));
  }
  if (file_.driver.kind == DriverConfig::Kind::kNone) {
    return absl::FailedPreconditionError(
        "this master has no driver that could do it (\"driver\" in the file of --recovery)");
  }
  if (node->second.state == NodeState::kForeign || node->second.state == NodeState::kGone) {
    return absl::FailedPreconditionError(
        Concat(request.node(), " is out already: the scheduler says that it is not the job's"));
  }
  Do({.kind = Event::Kind::kIsolate, .node = request.node(), .text = request.why(), .by = request.by()}, now);
  return absl::OkStatus();
}

absl::Status RecoveryCenter::Release(const v1::DecideRecoveryRequest& request, Now now) {
  if (!state_.nodes.contains(request.node())) {
    return absl::NotFoundError(
        Concat("there is no node ", service::ToUtf8(request.node()), "; `c4 recovery status` lists them"));
  }
  Do({.kind = Event::Kind::kRelease, .node = request.node(), .text = request.why(), .by = request.by()}, now);
  return absl::OkStatus();
}

void RecoveryCenter::CountEnded() {
  for (const Incident& incident : state_.incidents) {
    if (!IsEnd(incident.phase) || !counted_.insert(incident.id).second) continue;
    metrics_.ended[static_cast<size_t>(incident.phase) - static_cast<size_t>(Phase::kRecovered)].Add();
    if (incident.phase != Phase::kRecovered || incident.running_ns == 0) continue;
    const Downtime downtime = DowntimeOf(incident);
    const int64_t parts[] = {downtime.lost_work_ns, downtime.detection_ns, downtime.isolation_ns,
                             downtime.initialisation_ns};
    for (size_t i = 0; i < std::size(parts); ++i) {
      metrics_.downtime[i].Add(static_cast<double>(std::max<int64_t>(parts[i], 0)) / 1e9);
    }
  }
}

void RecoveryCenter::UpdateGauges() {
  double out = 0, held = 0;
  for (const auto& [name, node] : state_.nodes) {
    const bool is_out = node.state >= NodeState::kIsolating && node.state <= NodeState::kReturning;
    out += is_out ? 1 : 0;
  }
  for (const Incident& incident : state_.incidents) held += incident.phase == Phase::kProposed ? 1 : 0;
  metrics_.out.Set(out);
  metrics_.held.Set(held);
  metrics_.under_way.Set(UnderWay(state_) == nullptr ? 0 : 1);
  metrics_.refused.Set(config_fault_.empty() ? 0 : 1);
}

}  // namespace c4::c4d::recovery
