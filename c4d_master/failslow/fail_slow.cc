#include "c4d_master/failslow/fail_slow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/failslow/level.h"
#include "c4/v1/c4d.pb.h"
#include "c4d_master/failslow/group_blame.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kSweepNs = 10 * kSecondNs;
constexpr size_t kMostKnown = 256;
constexpr int64_t kWellNs = 2 * kSecondNs;  // findings come and go with the traffic
constexpr int64_t kLeastProfileNs = 2 * kSecondNs;

bool IsComputation(const Finding& finding) {
  return finding.syndrome == Syndrome::kNonCommunicationSlow;
}

// What makes iterations longer.
bool IsSlow(const Finding& finding) {
  return finding.syndrome == Syndrome::kCommunicationSlow || IsComputation(finding) ||
         finding.syndrome == Syndrome::kPathLost;
}

// How much a finding says of who it is. Some links of which one is slow are more than the connections over
// them.
int Certainty(const Finding& finding) {
  if (finding.kind == CulpritKind::kAmbiguous) return finding.links.empty() ? 0 : 2;
  return finding.kind == CulpritKind::kConnection ? 1 : 3;
}

std::string NameOf(const Finding& finding) {
  switch (finding.kind) {
    case CulpritKind::kRank:
      return Concat("rank ", finding.rank, " on ", finding.host);
    case CulpritKind::kNode:
      return Concat("node ", finding.host);
    case CulpritKind::kNic:
      return Concat("NIC ", finding.nic, " of ", finding.host);
    case CulpritKind::kLink:
      return Concat("link ", finding.cable);
    case CulpritKind::kConnection:
      return Concat(finding.connections.size(), " queue pairs");
    case CulpritKind::kAmbiguous:
      if (!finding.links.empty()) return Concat("one of the links ", absl::StrJoin(finding.links, ", "));
      break;
  }
  return "no single culprit";
}

std::string TimesText(const Episode& episode) {
  return absl::StrFormat("%.4g s, %.2f times as long as before (%.4g s)", episode.after_s, episode.slowdown(),
                         episode.before_s);
}

void AddFacts(const Episode& episode, Finding* finding) {
  finding->evidence.push_back(
      {"iterations",
       absl::StrFormat("an iteration takes %s%s; %d of %d ranks whose iterations are known tell it",
                       TimesText(episode), episode.creeping ? ", and became so by and by" : "", episode.ranks,
                       episode.watched)});
  finding->evidence.push_back(
      {"cost", absl::StrFormat("%d iterations since then took %.1f s more than before: %.2f hours of the "
                               "job's %d ranks",
                               episode.iterations, std::max(0.0, episode.lost_s),
                               std::max(0.0, episode.lost_s) * static_cast<double>(episode.watched) / 3600,
                               episode.watched)});
}

void Copy(const Finding& from, Finding* to) {
  to->kind = from.kind;
  to->nic = from.nic;
  to->connections = from.connections;
  to->candidates = from.candidates;
  to->links = from.links;
  to->cable = from.cable;
  to->culprit = from.culprit;
  to->host = from.host;
  to->rank = from.rank;
  to->state = from.state;
  to->wait_channel = from.wait_channel;
  to->last_call = from.last_call;
  to->suggested_action = from.suggested_action;
}

}  // namespace

void FailSlow::Remember(const std::vector<Finding>& findings, const VerdictOf& verdict_of, Now now) {
  for (const Finding& finding : findings) {
    if (!IsSlow(finding) || finding.confirmed_by.empty()) continue;
    const std::string id = verdict_of(finding);
    if (id.empty()) continue;  // it has one with the next look
    const auto [at, is_new] = known_.try_emplace(id);
    Known& known = at->second;
    // One verdict may name connections, then their link; and what is left of it at the end names fewer.
    const auto says = [](const Finding& one) { return std::pair(Certainty(one), one.connections.size()); };
    if (is_new || says(finding) > says(known.finding)) known.finding = finding;
    if (is_new) known.first_at_ns = std::min(now.monotonic_ns, finding.since_at_ns);
    known.last_at_ns = now.monotonic_ns;
    known.verdict = id;
  }
  const std::optional<Episode>& episode = watch_.episode();
  const int64_t keep_from_ns = (episode.has_value() ? episode->onset_at_ns : now.monotonic_ns) -
                               thresholds_.overlap_ns - thresholds_.unusual_ns;
  std::erase_if(known_, [keep_from_ns](const auto& entry) { return entry.second.last_at_ns < keep_from_ns; });
  if (known_.size() > kMostKnown) known_.erase(known_.begin());
}

// What was slow while the job was. A slow part that was over when the job became slow, or was known long
// before and did not outlast the onset by much, belongs to an earlier trouble: verdicts linger. What came
// nearest to the onset comes first, connections of which nobody knows what slows them last.
std::vector<const FailSlow::Known*> FailSlow::TakenOver(const Episode& episode) const {
  const int64_t onset_ns = episode.onset_at_ns;
  std::vector<const Known*> taken;
  for (const auto& [key, known] : known_) {
    const bool came_with_it = known.first_at_ns >= onset_ns - thresholds_.overlap_ns;
    const bool outlasts_it = known.last_at_ns >= onset_ns + thresholds_.overlap_ns;
    if (known.last_at_ns >= onset_ns && (came_with_it || outlasts_it)) taken.push_back(&known);
  }
  const auto order = [onset_ns](const Known* known) {
    return std::pair(Certainty(known->finding) < 2, std::abs(known->first_at_ns - onset_ns));
  };
  std::sort(taken.begin(), taken.end(), [&](const Known* a, const Known* b) { return order(a) < order(b); });
  return taken;
}

void FailSlow::Blame(const std::vector<const Known*>& known, Finding* finding) const {
  FailSlowFacts& facts = *finding->fail_slow;
  bool computation = false;
  bool communication = false;
  std::vector<std::string> names;
  for (const Known* one : known) {
    (IsComputation(one->finding) ? computation : communication) = true;
    facts.verdicts.push_back(one->verdict);
    names.push_back(Concat(NameOf(one->finding), " (",
                           std::string(service::SyndromeWord(static_cast<int>(one->finding.syndrome))),
                           ", verdict ", one->verdict, ")"));
  }
  facts.cause = computation && communication ? FailSlowCause::kBoth
                : computation                ? FailSlowCause::kComputation
                                             : FailSlowCause::kCommunication;
  facts.known_from = "c4d";
  Copy(known.front()->finding, finding);
  finding->evidence.push_back(
      {"culprit", Concat("validation skipped: C4D knows ", absl::StrJoin(names, "; "))});
}

// Fine records of a few iterations, once in an episode, while nobody is known to be to blame.
void FailSlow::Profile(const Episode& episode, bool known, const Windows& windows, Now now) {
  if (known || episode.relief_at_ns != kNever) {
    collector_.reset();
    return;
  }
  if (profile_began_at_ns_ == kNever) {
    if (watch_.PaceNow(log_, thresholds_, now) != EpisodeWatch::Pace::kSlow) return;
    profile_began_at_ns_ = now.monotonic_ns;
    profile_data_at_ns_ = kNever;
    collector_ = std::make_unique<ProfileCollector>(kProfileEntries);
  }
  if (collector_ == nullptr) return;
  const auto has_data = [](const auto& entry) { return !entry.second.operations.empty(); };
  const auto& processes = collector_->profile().processes;
  if (profile_data_at_ns_ == kNever && std::any_of(processes.begin(), processes.end(), has_data)) {
    profile_data_at_ns_ = now.monotonic_ns;
  }
  const double wanted_ns =
      std::max(static_cast<double>(kLeastProfileNs),
               static_cast<double>(thresholds_.profile_iterations) * 1e9 * episode.after_s);
  const bool enough = profile_data_at_ns_ != kNever &&
                      static_cast<double>(now.monotonic_ns - profile_data_at_ns_) >= wanted_ns;
  if (!enough && now.monotonic_ns - profile_began_at_ns_ < thresholds_.profile_ns) return;
  const Growth growth = [&windows](const ProcessKey& process) {
    const OwnTime own = windows.Own(process, 0);
    return own.usual_ns > 0 ? own.recent_ns / own.usual_ns : 0;
  };
  profile_ = CompareGroups(collector_->profile(), episode, growth, thresholds_);
  collector_.reset();
}

// All that was to blame is found slow no more; kNever: nobody was, or is still.
int64_t FailSlow::WellSince(const std::vector<const Known*>& known, Now now) const {
  int64_t last_at_ns = kNever;
  for (const Known* one : known) last_at_ns = std::max(last_at_ns, one->last_at_ns);
  return last_at_ns != kNever && now.monotonic_ns - last_at_ns >= kWellNs ? last_at_ns : kNever;
}

// Nothing is slow, or nobody can say.
void FailSlow::Rest() {
  slow_since_ns_ = kNever;
  suspected_at_ns_ = kNever;
  profile_began_at_ns_ = kNever;
  profile_.reset();
  collector_.reset();
}

// Once told it is told until its relief. Before, it has to last, and the series has to bear it out: what
// ranks tell may be noise, a short fault that is over, or what a standstill has left behind.
bool FailSlow::IsTold(const Episode& episode, bool stands_still, Now now) {
  if (suspected_at_ns_ != kNever) return true;
  if (episode.relief_at_ns != kNever || stands_still) return false;
  if (now.monotonic_ns - episode.onset_at_ns < thresholds_.lasting_ns) return false;
  const EpisodeWatch::Pace pace = watch_.PaceNow(log_, thresholds_, now);
  if (pace == EpisodeWatch::Pace::kUsual) watch_.Drop(now);
  if (pace != EpisodeWatch::Pace::kSlow) return false;
  suspected_at_ns_ = now.monotonic_ns;
  return true;
}

std::optional<Finding> FailSlow::Judge(const std::vector<Finding>& findings, const JobSnapshot& snapshot,
                                       const std::map<std::string, Host>& hosts, const Windows& windows,
                                       const VerdictOf& verdict_of, bool stands_still, Now now) {
  const bool other_process = !log_.SeriesProcessLives(hosts);
  if (other_process || swept_at_ns_ == kNever || now.monotonic_ns - swept_at_ns_ >= kSweepNs) {
    swept_at_ns_ = now.monotonic_ns;
    log_.ForgetGone(hosts);
  }
  watch_.Observe(&log_, thresholds_, now);
  if (other_process && watch_.episode().has_value()) watch_.Drop(now);
  Remember(findings, verdict_of, now);
  if (watch_.episode().has_value() && watch_.IsSilent(log_, thresholds_, now)) {
    Rest();
    return std::nullopt;
  }
  if (watch_.episode().has_value() && watch_.episode()->number != episode_) {
    Rest();
    episode_ = watch_.episode()->number;
  }
  if (!watch_.episode().has_value()) {
    Rest();
    return std::nullopt;
  }
  const std::vector<const Known*> known = TakenOver(*watch_.episode());
  const int64_t well_since_ns = WellSince(known, now);
  if (well_since_ns != kNever) watch_.RelieveWithout(log_, thresholds_, well_since_ns);
  const Episode episode = *watch_.episode();
  slow_since_ns_ = episode.relief_at_ns == kNever ? episode.onset_at_ns : kNever;
  if (now.monotonic_ns - episode.onset_at_ns >= thresholds_.profile_after_ns && !stands_still) {
    Profile(episode, !known.empty(), windows, now);
  }
  if (!IsTold(episode, stands_still, now)) return std::nullopt;

  Finding finding;
  finding.syndrome = Syndrome::kFailSlow;
  finding.kind = CulpritKind::kAmbiguous;
  finding.since_at_ns = episode.onset_at_ns;
  finding.confidence = 0.5;
  finding.fail_slow = FailSlowFacts{.before_s = episode.before_s,
                                    .after_s = episode.after_s,
                                    .creeping = episode.creeping,
                                    .relief_at_ns = episode.relief_at_ns,
                                    .iterations = episode.iterations,
                                    .lost_s = std::max(0.0, episode.lost_s),
                                    .ranks = episode.ranks,
                                    .watched = episode.watched};
  AddFacts(episode, &finding);
  if (episode.relief_at_ns != kNever) {
    finding.evidence.push_back(
        {"relief", absl::StrFormat("it is over: an iteration takes %.4g s again", episode.relief_s)});
  }
  if (profile_.has_value()) AddGroups(*profile_, &finding);
  bool blamed = !known.empty();
  if (!known.empty()) {
    Blame(known, &finding);
  } else if (profile_.has_value() && BlameByProfile(*profile_, snapshot, &finding)) {
    blamed = true;
  } else {
    finding.suggested_action =
        "nothing that C4D measures stands out: `c4 validate` tests the job's devices and links; `c4 "
        "iterations` "
        "shows when it began, and what changed then (data, code, neighbours) is the next thing to ask";
  }
  const bool waited = now.monotonic_ns - suspected_at_ns_ >= thresholds_.culprit_ns;
  if (episode.confirmed && (blamed || waited)) {
    finding.confirmed_by = "iterations";
    finding.confidence = 0.9;
  }
  return finding;
}

void FailSlow::Fill(uint64_t from, Now now, v1::GetIterationsReply* reply) const {
  reply->set_rank(log_.series().empty() ? -1 : std::max(0, log_.series_rank()));
  for (const SeriesPoint& point : log_.series()) {
    if (point.number < from) continue;
    v1::SeriesIteration* const item = reply->add_iterations();
    item->set_number(point.number);
    item->set_began_unix_ns(now.UnixOf(point.began_at_ns));
    item->set_duration_s(point.duration_s);
    item->set_shape(point.shape);
  }
  const size_t watched = log_.ranks().size();
  for (const auto& [number, change] : watch_.changes()) {
    if (change.ranks == 0) continue;
    v1::SeriesChange* const item = reply->add_changes();
    item->set_at_unix_ns(now.UnixOf(change.at_ns));
    item->set_before_s(change.before_s);
    item->set_after_s(change.after_s);
    item->set_creeping(change.creeping);
    item->set_ranks(static_cast<uint32_t>(change.ranks));
    item->set_confirmed(2 * change.confirmed >= change.ranks);
    item->set_job_wide(static_cast<double>(change.ranks) >= thresholds_.share * static_cast<double>(watched));
    // Of the series, the first iteration of the new level.
    const auto first = std::find_if(
        log_.series().begin(), log_.series().end(), [at_ns = change.at_ns](const SeriesPoint& point) {
          return point.began_at_ns + static_cast<int64_t>(point.duration_s * 5e8) >= at_ns;
        });
    item->set_iteration(first == log_.series().end() ? 0 : first->number);
  }
  std::sort(reply->mutable_changes()->begin(), reply->mutable_changes()->end(),
            [](const auto& a, const auto& b) { return a.at_unix_ns() < b.at_unix_ns(); });
  for (const auto& [rank, series] : log_.ranks()) {
    v1::RankIterationsStatus* const item = reply->add_ranks();
    const auto median = [](const std::vector<float>& times) {
      return times.empty() ? 0 : failslow::MedianOf({times.begin(), times.end()});
    };
    item->set_rank(rank);
    item->set_host(series.host);
    item->set_iterations(series.iterations);
    item->set_newest_s(median(series.newest_s));
    item->set_calls(series.calls);
    item->set_marked(series.marked);
    item->set_marked_newest_s(median(series.marked_newest_s));
    item->set_calls_newest_s(median(series.calls_newest_s));
  }
}

void FailSlow::Forget() {
  log_ = IterationLog();
  watch_ = EpisodeWatch();
  known_.clear();
  Rest();
}

}  // namespace c4::c4d
