#include "c4d_master/intervention/interventions.h"

#include <algorithm>
#include <set>

#include "c4d_master/intervention/flows_of.h"
#include "c4d_master/intervention/settlement.h"
#include "service/log.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kHourNs = 3600 * kSecondNs;
constexpr int64_t kLookAgainNs = 10 * kSecondNs;  // at a verdict about which nothing could be tried
constexpr int64_t kEndAgainNs = 10 * kSecondNs;
constexpr size_t kMostEndTries = 6;
constexpr int64_t kStandsStillNs = kSecondNs;
constexpr int64_t kSettleNs = 15 * kSecondNs;  // until what was moved back shows again
constexpr size_t kMostSuspects = 512;          // more of them would tell no more
constexpr size_t kMostVerdicts = 1000;         // that are remembered

bool IsSlowNetwork(const Finding& finding) {
  return finding.syndrome == Syndrome::kCommunicationSlow;
}

// What no experiment outlives.
bool IsGrave(const Finding& finding) {
  switch (finding.syndrome) {
    case Syndrome::kCrash:
    case Syndrome::kMismatch:
    case Syndrome::kLostNode:
    case Syndrome::kNeverJoined:
      return true;
    case Syndrome::kCommunicationSlow:
      return false;
    default:
      return !finding.confirmed_by.empty();
  }
}

Flow FlowOfRef(const v1::ConnectionRef& ref) {
  Flow flow;
  flow.communicator_id = ref.communicator_id();
  flow.from_rank = ref.from_rank();
  flow.to_rank = ref.to_rank();
  flow.channel = ref.channel();
  flow.index = ref.index();
  flow.from_host = ref.from_host();
  flow.to_host = ref.to_host();
  flow.local = ref.local();
  flow.remote = ref.remote();
  return flow;
}

}  // namespace

Interventions::Interventions(bool enabled, Mover* mover, service::Metrics* metrics)
    : enabled_(enabled), mover_(mover), metrics_(metrics) {
  running_ = metrics->Gauge("c4d_intervention_running", "1 while queue pairs are moved to settle a verdict");
  moved_ = metrics->Counter("c4d_queue_pairs_moved_total",
                            "Queue pairs that C4P moved, there or back, to settle verdicts");
}

void Interventions::Restore(const std::vector<v1::Verdict>& verdicts) {
  for (const v1::Verdict& verdict : verdicts) {
    for (const v1::Intervention& record : verdict.interventions()) {
      ++numbers_[verdict.id()];
      ++tried_[verdict.id()];
      begun_unix_ns_.push_back(record.begun_unix_ns());
      if (record.ended_unix_ns() == 0) unended_.emplace_back(verdict.id(), record);
    }
  }
  std::sort(begun_unix_ns_.begin(), begun_unix_ns_.end());
}

void Interventions::Write(const std::string& verdict, v1::Intervention record) {
  for (auto& [known, before] : records_) {
    if (known != verdict || before.id() != record.id()) continue;
    before = std::move(record);
    return;
  }
  records_.emplace_back(verdict, std::move(record));
}

// C4P moves back by itself what nobody ends. But it is told at once, and the record says what came of it.
void Interventions::EndForPredecessor(Now now) {
  auto& [verdict, record] = unended_.front();
  if (!ending_ || now.monotonic_ns - ended_asked_ns_ > kEndAgainNs) {
    MoveOrder order;
    order.kind = MoveOrder::Kind::kEnd;
    order.experiment = record.id();
    order.why = "the master that began it is gone";
    mover_->Send(order);
    ending_ = true;
    ended_asked_ns_ = now.monotonic_ns;
    ++end_tries_;
    return;
  }
  const std::optional<MoveAnswer> answer = mover_->Take();
  if (!answer || (answer->kind == MoveAnswer::Kind::kNoAnswer && end_tries_ < kMostEndTries)) return;
  const auto back = static_cast<size_t>(
      std::count_if(answer->moves.begin(), answer->moves.end(), [](const auto& move) { return move.moved; }));
  std::string line = "this master was started again in the middle of it: ";
  if (answer->kind == MoveAnswer::Kind::kDone) {
    line += answer->moves.empty() ? "C4P holds nothing of it any more, what it had moved it has moved back"
                                  : Concat("C4P moved ", CountText(back), " back");
  } else {
    line += Concat("C4P was not reached (", answer->why, "), and moves everything back by itself");
  }
  service::LogWarning("experiment ", record.id(), ": ", line);
  record.add_lines(line);
  record.set_outcome("interrupted");
  record.set_ended_unix_ns(now.unix_ns);
  Write(verdict, record);
  unended_.pop_front();
  ending_ = false;
  end_tries_ = 0;
}

void Interventions::Tick(const View& view, const std::vector<v1::Verdict>& open,
                         std::vector<Finding>* findings) {
  if (!enabled() && unended_.empty()) return;
  if (mover_ != nullptr && !unended_.empty() && experiment_ == nullptr) {
    EndForPredecessor(view.now);
    return;
  }
  if (!enabled() || view.paths == nullptr) return;
  if (!Disturbed(view, *findings).empty() ||
      std::any_of(findings->begin(), findings->end(),
                  [](const Finding& one) { return !IsSlowNetwork(one); })) {
    unquiet_ns_ = view.now.monotonic_ns;
  }
  if (experiment_ == nullptr) {
    if (const v1::Verdict* const verdict = Choose(view, open)) Begin(*verdict, view);
  }
  if (experiment_ != nullptr) Drive(view, open, *findings);
  TellSettled(view, findings);
  running_.Set(under_way() ? 1 : 0);
}

const v1::Verdict* Interventions::Choose(const View& view, const std::vector<v1::Verdict>& open) {
  const InterventionThresholds& thresholds = view.policy.intervention;
  const int64_t now_ns = view.now.monotonic_ns;
  if (last_over_ns_ != kNever && now_ns - last_over_ns_ < thresholds.pause_ns) return nullptr;
  while (!begun_unix_ns_.empty() && view.now.unix_ns - begun_unix_ns_.front() >= kHourNs) {
    begun_unix_ns_.pop_front();
  }
  for (const v1::Verdict& verdict : open) {
    if (verdict.syndrome() != v1::SYNDROME_COMMUNICATION_SLOW) continue;
    if (view.now.unix_ns - verdict.suspected_unix_ns() < thresholds.after_ns) continue;
    const bool confirmed = verdict.state() == v1::VERDICT_STATE_CONFIRMED;
    switch (verdict.culprit().kind()) {
      case v1::CULPRIT_KIND_AMBIGUOUS:
      case v1::CULPRIT_KIND_CONNECTION:
      case v1::CULPRIT_KIND_NIC:
        break;
      case v1::CULPRIT_KIND_LINK:
        if (!confirmed) break;
        continue;
      default:
        continue;
    }
    if (verdict.confirmed_by() == "moved" || verdict.culprit().connections().empty()) continue;
    const auto again = again_ns_.find(verdict.id());
    if (again != again_ns_.end() && now_ns < again->second) continue;
    const auto tried = tried_.find(verdict.id());
    if (tried != tried_.end() && tried->second >= thresholds.per_verdict) continue;
    if (begun_unix_ns_.size() >= thresholds.per_hour) {
      service::LogInfo("verdict ", verdict.id(), " could be tried by moving queue pairs, but ",
                       begun_unix_ns_.size(), " experiments within the hour are the most");
      again_ns_[verdict.id()] = now_ns + kHourNs;
      continue;
    }
    return &verdict;
  }
  return nullptr;
}

void Interventions::Begin(const v1::Verdict& verdict, const View& view) {
  if (again_ns_.size() > kMostVerdicts) again_ns_.clear();
  if (numbers_.size() > kMostVerdicts) numbers_.erase(numbers_.begin());
  if (tried_.size() > kMostVerdicts) tried_.erase(tried_.begin());
  std::vector<Flow> suspects;
  for (const v1::ConnectionRef& ref : verdict.culprit().connections()) {
    if (suspects.size() < kMostSuspects) suspects.push_back(FlowOfRef(ref));
  }
  verdict_ = verdict;
  told_lines_ = 0;
  experiment_ = std::make_unique<Experiment>(Concat(verdict.id(), "/", numbers_[verdict.id()] + 1),
                                             std::move(suspects), view.now, view.policy.intervention);
}

std::string Interventions::Unsafe(const View& view, const std::vector<Finding>& findings) const {
  const InterventionThresholds& thresholds = view.policy.intervention;
  for (const Finding& finding : findings) {
    if (!IsSlowNetwork(finding)) {
      return Concat("there is a ", service::SyndromeWord(static_cast<v1::Syndrome>(finding.syndrome)),
                    " too");
    }
  }
  std::set<uint64_t> communicators;
  for (const Flow& suspect : experiment_->suspects()) {
    communicators.insert(suspect.communicator_id);
    for (const std::string& name : {suspect.from_host, suspect.to_host}) {
      const auto host = view.snapshot.stale_hosts.find(name);
      if (host != view.snapshot.stale_hosts.end() && host->second) {
        return Concat("the agent of ", name, " is silent");
      }
    }
  }
  for (const uint64_t id : communicators) {
    const Communicator* const communicator = view.snapshot.Find(id);
    if (communicator == nullptr || communicator->judgement != Judgement::kCanBeJudged) {
      return "a communicator of the suspects is not seen as a whole";
    }
    if (communicator->StandstillNs() > kStandsStillNs) return "a communicator of the suspects stands still";
  }
  const int64_t now_ns = view.now.monotonic_ns;
  for (const LostPath& lost : view.fences.recent()) {
    if (now_ns - lost.at_ns < thresholds.quiet_ns) return "a queue pair has just lost its path";
  }
  if (unquiet_ns_ != kNever && now_ns - unquiet_ns_ < thresholds.quiet_ns) {
    return "the job has just been in other trouble";
  }
  return "";
}

std::string Interventions::Disturbed(const View& view, const std::vector<Finding>& findings) const {
  for (const Finding& finding : findings) {
    if (!IsGrave(finding)) continue;
    return Concat("there is a ", service::SyndromeWord(static_cast<v1::Syndrome>(finding.syndrome)),
                  ": nothing can be concluded any more");
  }
  if (experiment_ == nullptr) return "";
  for (const MoveRecord& move : experiment_->moves()) {
    for (const LostPath& lost : view.fences.recent()) {
      const int64_t at_unix_ns = view.now.UnixOf(lost.at_ns);
      if (lost.communicator_id == move.before.communicator_id && lost.channel == move.before.channel &&
          lost.index == move.before.index && at_unix_ns > move.unix_ns && lost.local == move.local) {
        return "a queue pair that was moved has lost its path";
      }
    }
  }
  return "";
}

void Interventions::Drive(const View& view, const std::vector<v1::Verdict>& open,
                          const std::vector<Finding>& findings) {
  const auto still = std::find_if(open.begin(), open.end(),
                                  [&](const v1::Verdict& one) { return one.id() == verdict_.id(); });
  const bool untouched = experiment_->phase() == Experiment::Phase::kWaiting && experiment_->moves().empty();
  if (untouched) {
    // It is over, or the detectors have settled it meanwhile.
    const bool moot = still == open.end() || (still->culprit().kind() == v1::CULPRIT_KIND_LINK &&
                                              still->state() == v1::VERDICT_STATE_CONFIRMED);
    if (moot) {
      experiment_.reset();
      return;
    }
    verdict_ = *still;
  }
  ExperimentLook look;
  look.now = view.now;
  look.answer = mover_->Take();
  look.disturbed = Disturbed(view, findings);
  if (still == open.end() && look.disturbed.empty()) look.disturbed = "the processes of the verdict are gone";
  std::vector<Flow> flows;
  if (experiment_->phase() == Experiment::Phase::kWaiting) look.unsafe = Unsafe(view, findings);
  const bool looks = experiment_->phase() == Experiment::Phase::kWaiting ||
                     experiment_->phase() == Experiment::Phase::kCarrying ||
                     experiment_->phase() == Experiment::Phase::kMeasuring;
  if (looks && look.unsafe.empty() && view.windows.slices() != looked_at_slices_ &&
      (last_look_ns_ == kNever || view.now.monotonic_ns - last_look_ns_ >= kSecondNs)) {
    looked_at_slices_ = view.windows.slices();
    last_look_ns_ = view.now.monotonic_ns;
    flows =
        FlowsOf(view.snapshot, view.windows, view.paths, view.policy.detectors.slow, experiment_->suspects());
    look.flows = &flows;
  }
  const size_t moves = experiment_->moves().size();
  experiment_->Step(look);
  if (const std::optional<MoveOrder> order = experiment_->TakeOrder()) {
    mover_->Send(*order);
    if (held_.empty()) {
      begun_unix_ns_.push_back(view.now.unix_ns);
      ++numbers_[verdict_.id()];
      ++tried_[verdict_.id()];
      held_ = verdict_.id();
      service::LogInfo("experiment ", experiment_->id(), " is made about verdict ", verdict_.id(), ": ",
                       order->why);
    }
  }
  moved_.Add(static_cast<double>(experiment_->moves().size() - moves));
  if (!held_.empty() && (experiment_->lines().size() != told_lines_ || experiment_->moves().size() != moves ||
                         experiment_->done())) {
    for (; told_lines_ < experiment_->lines().size(); ++told_lines_) {
      service::LogInfo("experiment ", experiment_->id(), ": ", experiment_->lines()[told_lines_]);
    }
    Write(verdict_.id(), RecordOf(*experiment_));
  }
  if (experiment_->done()) Over(view);
}

void Interventions::Over(const View& view) {
  if (held_.empty()) {
    // It never came to asking C4P: nothing has happened, and nothing is written down.
    again_ns_[verdict_.id()] = view.now.monotonic_ns + kLookAgainNs;
    experiment_.reset();
    return;
  }
  metrics_
      ->Counter("c4d_interventions_total", "Experiments that moved queue pairs, or asked for it",
                {{"outcome", experiment_->outcome()}})
      .Add();
  const InterventionThresholds& thresholds = view.policy.intervention;
  service::LogInfo("experiment ", experiment_->id(), " is over: ", experiment_->outcome(), "; ",
                   CandidatesText(experiment_->candidates()));
  if (std::optional<Finding> finding =
          SettledFinding(*experiment_, verdict_, view.snapshot, view.now, thresholds)) {
    // With none on it any more nothing shows whether the link is bad still.
    const bool left_off =
        !experiment_->left_off().empty() && experiment_->left_off().size() >= experiment_->suspects().size();
    tried_[verdict_.id()] = UINT64_MAX;  // more would not come of it
    settled_.push_back({verdict_.id(), *std::move(finding), left_off,
                        view.now.monotonic_ns + std::max(kSettleNs, left_off ? thresholds.told_ns : 0)});
  }
  experiment_.reset();
  held_.clear();
  last_over_ns_ = view.now.monotonic_ns;
}

void Interventions::TellSettled(const View& view, std::vector<Finding>* findings) {
  const int64_t now_ns = view.now.monotonic_ns;
  const bool grave = std::any_of(findings->begin(), findings->end(), IsGrave);
  for (Settled& settled : settled_) {
    // The detectors have found a link for themselves: that is news.
    const bool other_link = std::any_of(findings->begin(), findings->end(), [&](const Finding& finding) {
      return IsSlowNetwork(finding) && finding.kind == CulpritKind::kLink && !finding.confirmed_by.empty() &&
             finding.cable != settled.finding.cable && SharesConnection(finding, settled.finding);
    });
    if (other_link) settled.until_ns = now_ns;
    const size_t erased = other_link ? 0 : std::erase_if(*findings, [&](const Finding& finding) {
      return IsSlowNetwork(finding) && SharesConnection(finding, settled.finding);
    });
    if (erased > 0) {
      const int64_t after_ns = settled.left_off ? view.policy.intervention.told_ns : 3 * kSecondNs;
      settled.until_ns = std::max(settled.until_ns, now_ns + after_ns);
    }
    if (now_ns < settled.until_ns && !grave) findings->push_back(settled.finding);
  }
  std::erase_if(settled_, [&](const Settled& settled) { return now_ns >= settled.until_ns; });
}

}  // namespace c4::c4d
