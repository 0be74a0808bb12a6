#include "c4d_master/smon/smon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "c4d_master/smon/smon_json.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr uint32_t kListed = 100;
constexpr char kNoSource[] =
    "this master has no source of profiles: its version of C4 cannot profile jobs; what earlier sessions "
    "left is "
    "still shown";

const std::shared_ptr<const std::string>& NoText() {
  static const auto* const kEmpty =
      new std::shared_ptr<const std::string>(std::make_shared<const std::string>());
  return *kEmpty;
}

bool IsOver(const v1::ProfilingSession& session) {
  return session.state() != v1::SESSION_STATE_COLLECTING && session.state() != v1::SESSION_STATE_ANALYSING;
}

void GiveUp(v1::ProfilingSession* session, v1::SessionState state, const std::string& why) {
  session->set_state(state);
  session->set_why(service::ToUtf8(why));
}

std::string SessionLine(const v1::ProfilingSession& session) {
  std::string line = Concat("profiling session ", session.number(), ": ");
  if (session.state() != v1::SESSION_STATE_ANALYSED) return line + session.why();
  line += absl::StrFormat("slow-down %.3f over %d steps", session.slowdown(), session.steps());
  if (!session.causes().empty()) {
    line += absl::StrFormat(", most of it %s (%.0f %%)", session.causes(0).cause(),
                            100 * session.causes(0).share());
  }
  return line + (session.doubtful() ? "; doubtful, the replay is too far from what was recorded" : "");
}

}  // namespace

Smon::Smon(const SmonOptions& options, ProfileSource* source, SmonWork* work, SmonStore* store,
           service::Metrics* metrics, Now now)
    : options_(options), source_(source), work_(work), store_(store), schedule_(options.every_ns) {
  const auto sessions = [metrics](const char* result) {
    return metrics->Counter("c4d_smon_sessions_total", "Profiling sessions that are over",
                            {{"result", result}});
  };
  metrics_.analysed = sessions("analysed");
  metrics_.nothing = sessions("nothing to analyse");
  metrics_.failed = sessions("failed");
  metrics_.store_errors =
      metrics->Counter("c4d_smon_store_errors_total", "Sessions that could not be stored");
  metrics_.slowdown = metrics->Gauge("c4d_smon_slowdown_ratio",
                                     "Slow-down by stragglers in the last analysed session; 0: none yet");
  metrics_.waste = metrics->Gauge("c4d_smon_waste_ratio",
                                  "Share of the time that stragglers cost in the last analysed session");
  metrics_.running = metrics->Gauge("c4d_smon_session_running", "1 while a session is collected or analysed");
  Load(now);
  PruneOld(now);
  UpdateGauges();
}

void Smon::Load(Now now) {
  absl::StatusOr<std::vector<SmonStore::Kept>> stored = store_->LoadSessions();
  if (!stored.ok()) {
    service::LogWarning("the stored profiling sessions cannot be read: ", stored.status().message(),
                        "; beginning without");
    stored = std::vector<SmonStore::Kept>();
  }
  for (SmonStore::Kept& kept : *stored) {
    Entry entry{std::move(kept.session), std::make_shared<const std::string>(std::move(kept.report)),
                std::make_shared<const std::string>(std::move(kept.text))};
    next_number_ = std::max(next_number_, entry.session.number() + 1);
    if (!IsOver(entry.session)) {
      GiveUp(&entry.session, v1::SESSION_STATE_FAILED,
             "the master ended before the session did; ask for another");
      Save(entry);
    }
    sessions_.push_back(std::move(entry));
  }
  schedule_.Start(now, sessions_.empty() ? 0 : sessions_.back().session.begun_unix_ns());
}

Smon::Entry* Smon::Running() {
  return running_ ? &sessions_.back() : nullptr;
}

void Smon::Tick(Now now) {
  TakeResults(now);
  if (Entry* entry = Running(); entry != nullptr && entry->session.state() == v1::SESSION_STATE_COLLECTING) {
    if (running_limits_.Over(source_->CompleteSteps(), running_begun_at_ns_, now)) FinishCollecting(now);
  } else if (entry == nullptr && source_ != nullptr && schedule_.Due(now)) {
    (void)Begin(options_.limits, /*requested=*/false, now);
  }
}

void Smon::TakeResults(Now now) {
  for (Analysed& result : work_->TakeAnalysed()) {
    Entry* entry = Running();
    if (entry == nullptr || entry->session.number() != result.session) continue;
    if (result.report.ok()) {
      entry->session.MergeFrom(result.report->figures);
      entry->session.set_state(v1::SESSION_STATE_ANALYSED);
      entry->session.set_report_kept(true);
      entry->report = std::make_shared<const std::string>(std::move(result.report->json));
      entry->text = std::make_shared<const std::string>(std::move(result.report->text));
    } else {
      GiveUp(&entry->session, v1::SESSION_STATE_FAILED,
             Concat("the profile cannot be analysed: ", result.report.status().message()));
    }
    Conclude(entry, now);
  }
}

absl::StatusOr<v1::ProfilingSession> Smon::Run(uint32_t steps, double at_most_s, Now now) {
  if (steps > kMaxSessionSteps || !(at_most_s >= 0) || at_most_s > kMaxSessionSeconds) {
    return absl::InvalidArgumentError(Concat("a session takes at most ", kMaxSessionSteps, " steps and ",
                                             kMaxSessionSeconds, " seconds; 0: as configured"));
  }
  SessionLimits limits = options_.limits;
  if (steps > 0) limits.steps = static_cast<int>(steps);
  if (at_most_s > 0) limits.at_most_ns = static_cast<int64_t>(at_most_s * 1e9);
  return Begin(limits, /*requested=*/true, now);
}

absl::StatusOr<v1::ProfilingSession> Smon::Begin(SessionLimits limits, bool requested, Now now) {
  if (source_ == nullptr) return absl::FailedPreconditionError(kNoSource);
  if (const Entry* entry = Running(); entry != nullptr) {
    return absl::FailedPreconditionError(Concat("session ", entry->session.number(), " is not over yet (",
                                                SessionStateWord(entry->session.state()),
                                                "); one runs at a time, ask again when it is"));
  }
  schedule_.Began(now);
  if (absl::Status started = source_->Start(now); !started.ok()) {
    if (!requested) service::LogWarning("no profiling session begins: ", started.message());
    return started;
  }
  v1::ProfilingSession session;
  session.set_number(next_number_++);
  session.set_job(options_.job);
  session.set_state(v1::SESSION_STATE_COLLECTING);
  session.set_requested(requested);
  session.set_begun_unix_ns(now.unix_ns);
  session.set_wanted_steps(static_cast<uint32_t>(limits.steps));
  session.set_at_most_s(static_cast<double>(limits.at_most_ns) / 1e9);
  sessions_.push_back({session, NoText(), NoText()});
  running_ = true;
  running_limits_ = limits;
  running_begun_at_ns_ = now.monotonic_ns;
  Save(sessions_.back());
  UpdateGauges();
  return session;
}

void Smon::FinishCollecting(Now now) {
  Entry* const entry = Running();
  entry->session.set_ended_unix_ns(now.unix_ns);
  absl::StatusOr<ProfiledJob> profile = source_->Finish(now);
  if (profile.ok()) {
    if (profile->shape.name.empty()) profile->shape.name = options_.job;
    entry->session.set_state(v1::SESSION_STATE_ANALYSING);
    work_->Analyse(entry->session.number(), *std::move(profile));
    return;
  }
  GiveUp(&entry->session,
         absl::IsNotFound(profile.status()) ? v1::SESSION_STATE_NOTHING_TO_ANALYSE : v1::SESSION_STATE_FAILED,
         std::string(profile.status().message()));
  Conclude(entry, now);
}

// The session is over, whatever came of it.
void Smon::Conclude(Entry* entry, Now now) {
  running_ = false;
  switch (entry->session.state()) {
    case v1::SESSION_STATE_ANALYSED:
      metrics_.analysed.Add();
      break;
    case v1::SESSION_STATE_NOTHING_TO_ANALYSE:
      metrics_.nothing.Add();
      break;
    default:
      metrics_.failed.Add();
      break;
  }
  service::LogInfo(SessionLine(entry->session));
  Save(*entry);
  if (options_.on_session) options_.on_session(entry->session, now);
  PruneOld(now);
  UpdateGauges();
}

void Smon::End(Now now) {
  TakeResults(now);
  Entry* const entry = Running();
  if (entry == nullptr) return;
  if (entry->session.state() == v1::SESSION_STATE_COLLECTING) (void)source_->Finish(now);
  entry->session.set_ended_unix_ns(now.unix_ns);
  GiveUp(&entry->session, v1::SESSION_STATE_FAILED,
         "the master ended before the session did; ask for another");
  Conclude(entry, now);
}

void Smon::PruneOld(Now now) {
  std::vector<KeptSession> kept;
  for (const Entry& entry : sessions_) {
    kept.push_back({entry.session.number(), entry.session.begun_unix_ns(), entry.session.report_kept()});
  }
  const Pruned pruned = Prune(kept, options_.retention, now.unix_ns);
  for (Entry& entry : sessions_) {
    if (std::find(pruned.reports.begin(), pruned.reports.end(), entry.session.number()) ==
        pruned.reports.end()) {
      continue;
    }
    entry.session.set_report_kept(false);
    entry.report = NoText();
    entry.text = NoText();
    Save(entry);
  }
  std::erase_if(sessions_, [&pruned](const Entry& entry) {
    return std::find(pruned.sessions.begin(), pruned.sessions.end(), entry.session.number()) !=
           pruned.sessions.end();
  });
  if (!pruned.sessions.empty()) Note(store_->Remove(pruned.sessions));
}

const Smon::Entry* Smon::NewestAnalysed() const {
  const auto newest = std::find_if(sessions_.rbegin(), sessions_.rend(), [](const Entry& entry) {
    return entry.session.state() == v1::SESSION_STATE_ANALYSED;
  });
  return newest == sessions_.rend() ? nullptr : &*newest;
}

void Smon::Save(const Entry& entry) {
  Note(store_->SaveSession(entry.session, *entry.report, *entry.text));
}

void Smon::Note(const absl::Status& status) {
  if (status.ok()) return;
  metrics_.store_errors.Add();
  service::LogWarning("SMon could not store: ", status.message(), "; it is still given to whoever asks");
}

void Smon::UpdateGauges() {
  metrics_.running.Set(running_ ? 1 : 0);
  if (const Entry* newest = NewestAnalysed(); newest != nullptr) {
    metrics_.slowdown.Set(newest->session.slowdown());
    metrics_.waste.Set(newest->session.waste());
  }
}

v1::ListSessionsReply Smon::List(uint32_t limit) const {
  v1::ListSessionsReply reply;
  reply.set_job(options_.job);
  reply.set_available(source_ != nullptr);
  if (source_ == nullptr) reply.set_not_available(kNoSource);
  reply.set_every_s(static_cast<double>(options_.every_ns) / 1e9);
  const size_t wanted = limit == 0 ? kListed : limit;
  const size_t begin = sessions_.size() > wanted ? sessions_.size() - wanted : 0;
  for (size_t i = begin; i < sessions_.size(); ++i) *reply.add_sessions() = sessions_[i].session;
  return reply;
}

absl::StatusOr<Smon::Found> Smon::Find(uint64_t number) const {
  if (sessions_.empty()) {
    return absl::NotFoundError("there has been no profiling session yet; `c4 smon run` asks for one");
  }
  if (number == 0) return sessions_.back();
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [number](const Entry& entry) { return entry.session.number() == number; });
  if (found != sessions_.end()) return *found;
  return absl::NotFoundError(Concat("there is no session ", number, "; those from ",
                                    sessions_.front().session.number(), " to ",
                                    sessions_.back().session.number(), " are kept"));
}

std::vector<v1::ProfilingSession> Smon::History() const {
  std::vector<v1::ProfilingSession> history;
  for (const Entry& entry : sessions_) {
    if (entry.session.state() == v1::SESSION_STATE_ANALYSED) history.push_back(entry.session);
  }
  return history;
}

const v1::ProfilingSession* Smon::Newest() const {
  const Entry* newest = NewestAnalysed();
  return newest == nullptr ? nullptr : &newest->session;
}

}  // namespace c4::c4d
