#include "c4d_master/verdicts.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "c4d_master/hardware_log.h"
#include "c4d_master/same_culprit.h"

namespace c4::c4d {
namespace {

static_assert(static_cast<int>(Syndrome::kNonCommunicationHang) == v1::SYNDROME_NON_COMMUNICATION_HANG);

static_assert(static_cast<int>(Syndrome::kNeverJoined) == v1::SYNDROME_NEVER_JOINED);
static_assert(static_cast<int>(Syndrome::kPathLost) == v1::SYNDROME_PATH_LOST);
static_assert(static_cast<int>(Syndrome::kFailSlow) == v1::SYNDROME_FAIL_SLOW);
static_assert(static_cast<int>(FailSlowCause::kBoth) == v1::FAIL_SLOW_CAUSE_BOTH);
static_assert(static_cast<int>(CulpritKind::kAmbiguous) == v1::CULPRIT_KIND_AMBIGUOUS);
static_assert(static_cast<int>(CulpritKind::kLink) == v1::CULPRIT_KIND_LINK);

void FillCulprit(const Finding& finding, v1::Culprit* culprit) {
  culprit->set_kind(static_cast<v1::CulpritKind>(finding.kind));
  culprit->set_rank(finding.rank);
  culprit->set_host(finding.host);
  culprit->set_nic(finding.nic);
  culprit->mutable_candidates()->Assign(finding.candidates.begin(), finding.candidates.end());
  culprit->mutable_links()->Assign(finding.links.begin(), finding.links.end());
  culprit->set_cable(finding.cable);
  culprit->clear_connections();
  for (const ConnectionRef& ref : finding.connections) {
    v1::ConnectionRef* item = culprit->add_connections();
    item->set_from_rank(ref.from_rank);
    item->set_to_rank(ref.to_rank);
    item->set_from_host(ref.from_host);
    item->set_to_host(ref.to_host);
    item->set_local(ref.local);
    item->set_remote(ref.remote);
    item->set_communicator_id(ref.communicator_id);
    item->set_channel(ref.channel);
    item->set_index(ref.index);
    item->set_queue_pair_number(ref.queue_pair_number);
    item->set_ratio(ref.ratio);
  }
  culprit->mutable_process()->set_host(finding.host);
  culprit->mutable_process()->set_boot_id(finding.culprit.boot_id);
  culprit->mutable_process()->set_pid(finding.culprit.pid);
  culprit->mutable_process()->set_start_time_ticks(finding.culprit.start_time_ticks);
  culprit->set_state(static_cast<v1::ProcessState>(finding.state));
  culprit->set_wait_channel(finding.wait_channel);
  culprit->set_last_call(finding.last_call);
}

// Whether a later process has taken the place of the one that the verdict names, or its job's.
bool IsReplaced(const v1::Verdict& verdict, const JobSnapshot& snapshot) {
  const v1::ProcessId& culprit = verdict.culprit().process();
  std::set<int32_t> dead;  // candidates
  if (verdict.syndrome() == v1::SYNDROME_CRASH) {
    dead.insert(verdict.culprit().candidates().begin(), verdict.culprit().candidates().end());
  }
  for (const ProcessRef& ref : snapshot.processes) {
    const bool same = ref.process->key.pid == culprit.pid() &&
                      ref.process->key.start_time_ticks == culprit.start_time_ticks() &&
                      ref.process->key.boot_id == culprit.boot_id();
    if (same && ref.superseded) return true;
    if (same || ref.superseded || ref.process->ended || CannotRun(ref.process->health.state)) continue;
    const int64_t suspected_ns = verdict.suspected_unix_ns();
    if (verdict.culprit().rank() >= 0 && ref.process->rank == verdict.culprit().rank() &&
        culprit.pid() != 0 && suspected_ns != 0) {
      return true;
    }
    // Of those of whom one crashed, all were dead.
    if (dead.count(ref.process->rank) != 0) return true;
  }
  return false;
}

bool IsEnd(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_CRASH || verdict.syndrome() == v1::SYNDROME_MISMATCH ||
         verdict.syndrome() == v1::SYNDROME_NEVER_JOINED;
}

bool IsSlow(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_FAIL_SLOW;
}

// Trouble that goes away leaves one queue pair after the other: what is left of it makes a confirmed verdict
// about many no smaller, nor one about a NIC one about connections. Nor does one death make way for many.
bool IsFading(const Finding& finding, const v1::Verdict& verdict) {
  const v1::Culprit& culprit = verdict.culprit();
  if (finding.settled) return false;
  if (finding.syndrome == Syndrome::kFailSlow) return false;
  if (IsOneOf(finding, culprit)) return true;
  if (finding.connections.empty()) return false;
  const bool sets = finding.kind == CulpritKind::kConnection || finding.kind == CulpritKind::kLink;
  if (sets && culprit.kind() == v1::CULPRIT_KIND_NIC) return true;
  if (verdict.state() != v1::VERDICT_STATE_CONFIRMED) return false;
  if (culprit.kind() == v1::CULPRIT_KIND_LINK) {
    if (finding.kind != CulpritKind::kLink || finding.cable != culprit.cable()) return true;
  } else if (finding.kind == CulpritKind::kLink) {
    return false;  // the paths have become known
  }
  return finding.connections.size() < static_cast<size_t>(culprit.connections_size());
}

void FillFailSlow(const FailSlowFacts& facts, Now now, v1::FailSlow* to) {
  to->set_before_s(facts.before_s);
  to->set_after_s(facts.after_s);
  to->set_slowdown(facts.after_s / facts.before_s);
  to->set_creeping(facts.creeping);
  to->set_cause(static_cast<v1::FailSlowCause>(facts.cause));
  to->set_relief_unix_ns(facts.relief_at_ns == kNever ? 0 : now.UnixOf(facts.relief_at_ns));
  to->set_iterations(facts.iterations);
  to->set_lost_s(facts.lost_s);
  to->set_lost_rank_s(facts.lost_s * static_cast<double>(facts.watched));
  to->set_ranks(static_cast<uint32_t>(facts.ranks));
  to->set_ranks_watched(static_cast<uint32_t>(facts.watched));
  to->set_known_from(facts.known_from);
  to->mutable_verdicts()->Assign(facts.verdicts.begin(), facts.verdicts.end());
  to->clear_groups();
  for (const SlowGroup& group : facts.groups) {
    v1::SlowGroup* const item = to->add_groups();
    item->set_kind(group.kind);
    item->mutable_ranks()->Assign(group.ranks.begin(), group.ranks.end());
    item->set_communicator_id(group.communicator_id);
    item->set_ratio(group.ratio);
    item->set_seconds(group.seconds);
    item->set_median_seconds(group.median_seconds);
    item->set_of(group.of);
  }
}

// Whether more than what runs on (iterations, cost) is another than it was.
bool FailSlowChanged(const v1::FailSlow& before, const v1::FailSlow& now) {
  const bool other_ratio =
      now.slowdown() > 1.1 * before.slowdown() || now.slowdown() < before.slowdown() / 1.1;
  return other_ratio || before.cause() != now.cause() || before.known_from() != now.known_from() ||
         before.verdicts_size() != now.verdicts_size() || before.groups_size() != now.groups_size() ||
         (before.relief_unix_ns() != 0) != (now.relief_unix_ns() != 0);
}

constexpr char kRecurring[] = "recurring";
constexpr double kSuspected = 0.5;   // the confidence of what is not certain
constexpr double kComesAgain = 0.7;  // and of what is certain by coming again

// For how long a finding must have been a suspicion before it can be certain.
int64_t LeastSeenNs(const Finding& finding, const VerdictThresholds& thresholds) {
  if (finding.confirmed_by == "past-limit") return thresholds.by_length_ns;
  return finding.confirmed_by == "lasting" ? thresholds.scattered_ns : 0;
}

// Brings the verdict up to date with the finding, which is certain or not; tells whether more than the
// running times has changed.
bool Refresh(const Finding& finding, bool certain, Now now, v1::Verdict* verdict) {
  const bool same_waiting = std::equal(finding.waiting.begin(), finding.waiting.end(),
                                       verdict->waiting().begin(), verdict->waiting().end());
  // Of several communicators that are held up, the one that was named stays it.
  const bool held_up = std::find(finding.communicators.begin(), finding.communicators.end(),
                                 verdict->communicator_id()) != finding.communicators.end();
  const bool moves = !held_up || finding.communicator_id == verdict->communicator_id();
  const uint64_t communicator = moves ? finding.communicator_id : verdict->communicator_id();
  const uint64_t operation = moves ? finding.operation : verdict->operation();
  const bool changed = !same_waiting || verdict->culprit().state() != static_cast<int>(finding.state) ||
                       verdict->communicator_id() != communicator || verdict->operation() != operation ||
                       verdict->culprit().rank() != finding.rank ||
                       verdict->culprit().kind() != static_cast<int>(finding.kind) ||
                       verdict->culprit().cable() != finding.cable ||
                       !SameConnections(finding, verdict->culprit());
  const v1::Culprit before = verdict->culprit();
  FillCulprit(finding, verdict->mutable_culprit());
  // A source that does not tell the process takes it from nobody.
  if (finding.kind == CulpritKind::kRank && finding.culprit.pid == 0 && before.process().pid() != 0) {
    verdict->mutable_culprit()->set_host(before.host());
    *verdict->mutable_culprit()->mutable_process() = before.process();
  }
  verdict->set_communicator_id(communicator);
  verdict->set_operation(operation);
  verdict->mutable_waiting()->Assign(finding.waiting.begin(), finding.waiting.end());
  verdict->set_suggested_action(finding.suggested_action);
  verdict->clear_evidence();
  for (const Evidence& evidence : finding.evidence) {
    v1::Evidence* item = verdict->add_evidence();
    item->set_kind(evidence.kind);
    item->set_text(evidence.text);
  }
  const bool new_sign = MergeSigns(finding.hardware, verdict);
  bool other_facts = false;
  if (finding.fail_slow.has_value()) {
    v1::FailSlow facts;
    FillFailSlow(*finding.fail_slow, now, &facts);
    other_facts = FailSlowChanged(verdict->fail_slow(), facts);
    *verdict->mutable_fail_slow() = std::move(facts);
  }
  // A confirmed verdict stays what it is; a stronger reason replaces a weaker one.
  const double confidence = certain ? finding.confidence : std::min(finding.confidence, kSuspected);
  if (verdict->state() != v1::VERDICT_STATE_CONFIRMED || confidence > verdict->confidence()) {
    verdict->set_confidence(confidence);
    if (certain) verdict->set_confirmed_by(finding.confirmed_by);
  }
  return changed || new_sign || other_facts;
}

// How many of these moments lie that far apart, counted back from the newest.
size_t TimesApart(std::vector<int64_t> times_ns, int64_t apart_ns) {
  std::sort(times_ns.begin(), times_ns.end(), std::greater<>());
  size_t count = 0;
  int64_t last_ns = 0;
  for (const int64_t at_ns : times_ns) {
    if (count > 0 && last_ns - at_ns < apart_ns) continue;
    last_ns = at_ns;
    ++count;
  }
  return count;
}

}  // namespace

std::string_view VerdictChangeWord(VerdictChange::Kind kind) {
  switch (kind) {
    case VerdictChange::Kind::kSuspected:
      return "suspected";
    case VerdictChange::Kind::kConfirmed:
      return "confirmed";
    case VerdictChange::Kind::kUpdated:
      return "updated";
    case VerdictChange::Kind::kCleared:
      return "cleared";
  }
  return "unknown";
}

Verdicts::Verdicts(std::string job, uint64_t master_epoch)
    : job_(std::move(job)), master_epoch_(master_epoch) {}

void Verdicts::SetPolicy(const VerdictThresholds& thresholds, std::string version) {
  thresholds_ = thresholds;
  policy_version_ = std::move(version);
}

void Verdicts::Restore(const std::vector<v1::Verdict>& verdicts) {
  for (const v1::Verdict& verdict : verdicts) {
    if (verdict.state() == v1::VERDICT_STATE_CLEARED) {
      cleared_.push_back(verdict);
    } else {
      open_.push_back({verdict, true, kNever, kNever});
    }
  }
  while (cleared_.size() > kMaxCleared) cleared_.pop_front();
}

Verdicts::Open* Verdicts::FindOpen(const Finding& finding) {
  for (Open& open : open_) {
    if (open.verdict.syndrome() == static_cast<int>(finding.syndrome) && SameCulprit(finding, open.verdict)) {
      return &open;
    }
  }
  return nullptr;
}

std::string Verdicts::IdOf(const Finding& finding) {
  const Open* const open = FindOpen(finding);
  return open == nullptr ? std::string() : open->verdict.id();
}

// What it means that the detectors no longer speak of this verdict.
Verdicts::Absence Verdicts::Judge(const Open& open, const JobSnapshot& snapshot) const {
  if (IsReplaced(open.verdict, snapshot)) return {};
  const Communicator* communicator = snapshot.Find(open.verdict.communicator_id());
  const bool stale = communicator != nullptr && communicator->judgement == Judgement::kStale;
  const std::string& name = open.verdict.culprit().host().empty() ? open.verdict.culprit().process().host()
                                                                  : open.verdict.culprit().host();
  if (open.verdict.syndrome() == v1::SYNDROME_LOST_NODE) {
    const auto host = snapshot.stale_hosts.find(name);
    const bool back = host != snapshot.stale_hosts.end() && !host->second;
    return {false, back ? 0 : thresholds_.end_settle_ns};
  }
  if (name.empty()) {
    if (stale || snapshot.stale_hosts.empty()) return {true, 0};
  } else {
    const auto host = snapshot.stale_hosts.find(name);
    if (host == snapshot.stale_hosts.end() || host->second || stale) return {true, 0};
  }
  if (IsEnd(open.verdict) && !open.restored) return {false, thresholds_.end_settle_ns};
  // A rank that computes slowly does so in no communicator.
  const bool nowhere = open.verdict.communicator_id() == 0;
  if (open.restored || (communicator == nullptr && !nowhere) ||
      (communicator != nullptr && communicator->judgement == Judgement::kIncomplete)) {
    return {false, thresholds_.settle_ns};
  }
  return {false, IsSlow(open.verdict) ? thresholds_.slow_settle_ns : 0};
}

bool Verdicts::IsOver(Open* open, const JobSnapshot& snapshot, int64_t now_ns) const {
  const Absence absence = Judge(*open, snapshot);
  if (absence.silent) {
    open->settling_since_ns = kNever;
    if (open->silent_since_ns == kNever) open->silent_since_ns = now_ns;
    return now_ns - open->silent_since_ns >= thresholds_.silent_clear_ns;
  }
  open->silent_since_ns = kNever;
  if (open->settling_since_ns == kNever) open->settling_since_ns = now_ns;
  return now_ns - open->settling_since_ns >= absence.settle_ns;
}

// Whether the suspicion that this finding begins is one of several of late. What is told of the network
// counts where nothing else of it is suspected: of a network that is full everywhere each part comes again.
// One queue pair among thousands is unlucky several times in a minute now and then.
bool Verdicts::Recurs(const Finding& finding, int64_t now_unix_ns) const {
  const bool network = finding.syndrome == Syndrome::kCommunicationSlow;
  if (!network && finding.syndrome != Syndrome::kNonCommunicationSlow) return false;
  if (network && finding.connections.size() == 1) return false;
  std::vector<int64_t> times_ns = {now_unix_ns};
  bool others = false;
  const auto look = [&](const v1::Verdict& before) {
    if (before.syndrome() != static_cast<int>(finding.syndrome)) return;
    const bool sets = finding.kind == CulpritKind::kConnection || finding.kind == CulpritKind::kAmbiguous;
    const bool same = before.culprit().kind() == static_cast<int>(finding.kind) &&
                      (sets ? Overlap(finding, before.culprit()) : SameCulprit(finding, before));
    const bool of_late = now_unix_ns - before.suspected_unix_ns() <= thresholds_.recurring_ns;
    if (same && of_late) times_ns.push_back(before.suspected_unix_ns());
    others = others || (!same && !Overlap(finding, before.culprit()));
  };
  for (const Open& open : open_) look(open.verdict);
  for (auto before = cleared_.rbegin(); before != cleared_.rend(); ++before) {
    // They were cleared in order.
    if (now_unix_ns - before->cleared_unix_ns() > thresholds_.recurring_ns) break;
    look(*before);
  }
  return TimesApart(std::move(times_ns), thresholds_.recurring_apart_ns) >= thresholds_.recurring_times &&
         !(network && others);
}

void Verdicts::Clear(Open* open, Now now, std::vector<VerdictChange>* changes) {
  open->verdict.set_state(v1::VERDICT_STATE_CLEARED);
  open->verdict.set_cleared_unix_ns(now.unix_ns);
  changes->push_back({VerdictChange::Kind::kCleared, open->verdict});
  cleared_.push_back(std::move(open->verdict));
  if (cleared_.size() > kMaxCleared) cleared_.pop_front();
}

std::vector<VerdictChange> Verdicts::Update(const std::vector<Finding>& findings, const JobSnapshot& snapshot,
                                            Now now) {
  std::vector<VerdictChange> changes;
  std::vector<bool> found(open_.size(), false);
  for (const Finding& finding : findings) {
    Open* open = FindOpen(finding);
    bool report_update = false;
    bool certain = false;
    if (open == nullptr) {
      v1::Verdict verdict;
      verdict.set_id(absl::StrFormat("%08x-%u", static_cast<uint32_t>(master_epoch_), next_number_++));
      verdict.set_job(job_);
      verdict.set_syndrome(static_cast<v1::Syndrome>(finding.syndrome));
      verdict.set_state(v1::VERDICT_STATE_SUSPECTED);
      verdict.set_policy_version(policy_version_);
      verdict.set_since_unix_ns(finding.since_at_ns == kNever ? now.unix_ns
                                                              : now.UnixOf(finding.since_at_ns));
      verdict.set_suspected_unix_ns(now.unix_ns);
      certain = !finding.confirmed_by.empty() && LeastSeenNs(finding, thresholds_) == 0;
      Refresh(finding, certain, now, &verdict);
      // Less than that says that its source cannot be certain, however often it comes again.
      const bool doubtful = finding.confidence > 0 && finding.confidence < kSuspected;
      if (!certain && !doubtful && Recurs(finding, now.unix_ns)) {
        certain = true;
        verdict.set_confirmed_by(kRecurring);
        verdict.set_confidence(kComesAgain);
      }
      open_.push_back({std::move(verdict), false, kNever, kNever});
      found.push_back(true);
      open = &open_.back();
      changes.push_back({VerdictChange::Kind::kSuspected, open->verdict});
    } else {
      found[static_cast<size_t>(open - open_.data())] = true;
      open->restored = false;
      open->settling_since_ns = kNever;
      open->silent_since_ns = kNever;
      const int64_t seen_ns = now.unix_ns - open->verdict.suspected_unix_ns();
      certain = !finding.confirmed_by.empty() && seen_ns >= LeastSeenNs(finding, thresholds_);
      report_update = !IsFading(finding, open->verdict) && Refresh(finding, certain, now, &open->verdict);
    }
    if (certain && open->verdict.state() == v1::VERDICT_STATE_SUSPECTED) {
      open->verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
      open->verdict.set_policy_version(policy_version_);
      open->verdict.set_confirmed_unix_ns(now.unix_ns);
      changes.push_back({VerdictChange::Kind::kConfirmed, open->verdict});
    } else if (report_update) {
      changes.push_back({VerdictChange::Kind::kUpdated, open->verdict});
    }
  }
  std::vector<Open> still_open;
  for (size_t i = 0; i < open_.size(); ++i) {
    const bool held = open_[i].verdict.id() == held_ && !IsReplaced(open_[i].verdict, snapshot);
    if (found[i] || held || !IsOver(&open_[i], snapshot, now.monotonic_ns)) {
      still_open.push_back(std::move(open_[i]));
    } else {
      Clear(&open_[i], now, &changes);
    }
  }
  open_ = std::move(still_open);
  return changes;
}

std::optional<VerdictChange> Verdicts::Note(const std::string& id, const v1::Intervention& intervention) {
  v1::Verdict* verdict = nullptr;
  for (Open& open : open_) {
    if (open.verdict.id() == id) verdict = &open.verdict;
  }
  for (v1::Verdict& cleared : cleared_) {
    if (cleared.id() == id) verdict = &cleared;
  }
  if (verdict == nullptr) return std::nullopt;
  const auto known =
      std::find_if(verdict->mutable_interventions()->begin(), verdict->mutable_interventions()->end(),
                   [&](const v1::Intervention& one) { return one.id() == intervention.id(); });
  if (known != verdict->mutable_interventions()->end()) {
    *known = intervention;
  } else {
    *verdict->add_interventions() = intervention;
  }
  return VerdictChange{VerdictChange::Kind::kUpdated, *verdict};
}

std::vector<v1::Verdict> Verdicts::List(bool include_cleared) const {
  std::vector<v1::Verdict> result;
  if (include_cleared) result.assign(cleared_.begin(), cleared_.end());
  for (const Open& open : open_) result.push_back(open.verdict);
  // Whoever holds the job up comes before what that costs it.
  const auto order = [](const v1::Verdict& verdict) {
    return std::pair(verdict.syndrome() == v1::SYNDROME_FAIL_SLOW, verdict.since_unix_ns());
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const v1::Verdict& a, const v1::Verdict& b) { return order(a) < order(b); });
  return result;
}

size_t Verdicts::CountOpen(v1::VerdictState state) const {
  return static_cast<size_t>(std::count_if(
      open_.begin(), open_.end(), [state](const Open& open) { return open.verdict.state() == state; }));
}

}  // namespace c4::c4d
