#include "c4d_master/detectors/path_lost.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using analysis::FlowState;
using service::Concat;

constexpr size_t kMaxTold = 6;  // queue pairs that get a sentence each

// A queue pair that was fenced, with what it is now.
struct Fenced {
  const LostPath* lost = nullptr;
  const QueuePairEnds* ends = nullptr;
};

using Key = std::tuple<ProcessKey, uint64_t, uint32_t, uint32_t, uint32_t, uint32_t>;

Key KeyOf(const QueuePairEnds& ends) {
  return {ends.sender->process->key, ends.communicator->id,    ends.from->rank,
          ends.queue_pair->peer,     ends.queue_pair->channel, ends.queue_pair->index};
}

Key KeyOf(const LostPath& lost) {
  return {lost.process, lost.communicator_id, lost.rank, lost.peer, lost.channel, lost.index};
}

// Fences of the window whose ends live: what fails because its peer does is no matter of paths.
std::vector<Fenced> Collect(const std::vector<QueuePairEnds>& queue_pairs, const FenceLog& fences,
                            int64_t now_ns, int64_t window_ns) {
  std::map<Key, const QueuePairEnds*> by_key;
  for (const QueuePairEnds& ends : queue_pairs) by_key[KeyOf(ends)] = &ends;
  std::vector<Fenced> result;
  for (const LostPath& lost : fences.recent()) {
    if (now_ns - lost.at_ns > window_ns) continue;
    const auto it = by_key.find(KeyOf(lost));
    if (it == by_key.end() || !CanJudge(it->second->sender) || !CanJudge(it->second->receiver)) continue;
    result.push_back({&lost, it->second});
  }
  return result;
}

// When paths began to be lost. Single fences come before, for no reason that counts.
int64_t BeginOf(const std::vector<Fenced>& fenced) {
  std::vector<int64_t> times;
  times.reserve(fenced.size());
  for (const Fenced& item : fenced) times.push_back(item.lost->at_ns);
  const auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), quarter, times.end());
  return *quarter;
}

std::pair<std::string, std::string> HostsOf(const QueuePairEnds& ends) {
  return std::minmax(ends.sender->host->name, ends.receiver->host->name);
}

// Connections that lost a queue pair; one that lost several, or one several times, counts for two.
size_t CountConnections(const std::vector<Fenced>& fenced) {
  std::map<std::tuple<uint64_t, uint32_t, uint32_t, uint32_t>, uint32_t> times;
  for (const Fenced& item : fenced) {
    times[{item.lost->communicator_id, item.lost->rank, item.lost->peer, item.lost->channel}] +=
        item.lost->fences;
  }
  size_t count = 0;
  for (const auto& entry : times) count += entry.second > 1 ? 2 : 1;
  return count;
}

// The lost paths are bad. Good is what has moved after the first of them was lost.
std::vector<Witness> Witnesses(const std::vector<QueuePairEnds>& queue_pairs,
                               const std::vector<Fenced>& fenced, int64_t slack_ns) {
  std::vector<Witness> witnesses;
  std::set<std::pair<std::string, std::string>> lost;
  for (const Fenced& item : fenced) {
    witnesses.push_back({item.lost->local, item.lost->remote, FlowState::kBad});
    lost.insert({item.lost->local, item.lost->remote});
  }
  const int64_t first_ns = BeginOf(fenced);
  for (const QueuePairEnds& ends : queue_pairs) {
    const QueuePair& queue_pair = *ends.queue_pair;
    if (lost.count({queue_pair.local, queue_pair.remote}) != 0) continue;
    // Having been heard says that the acknowledgements' path is well, and nothing of the data's.
    int64_t alive_ns = queue_pair.last_progress_at_ns;
    if (ends.received != nullptr) alive_ns = std::max(alive_ns, ends.received->last_progress_at_ns);
    const bool alive = !queue_pair.dead && CanJudge(ends.sender) && CanJudge(ends.receiver) &&
                       alive_ns != kNever && alive_ns >= first_ns + slack_ns;
    witnesses.push_back(
        {queue_pair.local, queue_pair.remote, alive ? FlowState::kGood : FlowState::kUnknown});
  }
  return witnesses;
}

std::string FencedText(const Fenced& item) {
  const QueuePair& now = *item.ends->queue_pair;
  const std::string next = now.dead                        ? std::string(", it is not built again yet")
                           : now.local == item.lost->local ? std::string()
                                                           : Concat(", it goes on from ", now.local);
  return Concat("rank ", item.ends->sender->process->rank, " to rank ", item.ends->receiver->process->rank,
                " (", item.lost->local, " to ", item.lost->remote, ") stood still and was fenced", next);
}

Finding Describe(const std::vector<Fenced>& fenced) {
  Finding finding;
  finding.syndrome = Syndrome::kPathLost;
  finding.kind = CulpritKind::kConnection;
  finding.confidence = 0.5;
  finding.since_at_ns = INT64_MAX;
  const int64_t begin_ns = BeginOf(fenced);
  std::set<std::pair<std::string, std::string>> known;
  for (const Fenced& item : fenced) {
    if (item.lost->at_ns >= begin_ns) {
      finding.since_at_ns = std::min(finding.since_at_ns, item.lost->after_ns);
    }
    if (!known.insert({item.lost->local, item.lost->remote}).second) continue;
    ConnectionRef ref = RefOf(*item.ends);
    ref.local = item.lost->local;
    ref.remote = item.lost->remote;
    ref.queue_pair_number = item.lost->number;
    finding.connections.push_back(std::move(ref));
    if (known.size() <= kMaxTold) finding.evidence.push_back({"fence", FencedText(item)});
  }
  if (known.size() > kMaxTold) {
    finding.evidence.push_back(
        {"fence", Concat("the same on ", known.size() - kMaxTold, " more queue pairs")});
  }
  SortConnections(&finding.connections);
  finding.suggested_action =
      "the job goes on over other paths; if more queue pairs lose theirs, look for what these had in common: "
      "a "
      "switch port or link, or one that is congested";
  return finding;
}

void Confirm(Finding* finding) {
  finding->confidence = 0.95;
  finding->confirmed_by = "fenced";
}

// Paths over the link that lasted though it was said to be dead: since the first of `own`, or since they were
// built after that.
size_t CountLasting(const std::vector<Fenced>& own, const FenceLog& fences, int64_t first_ns,
                    int64_t settle_ns) {
  std::map<Key, std::vector<int64_t>> times;
  for (const Fenced& item : own) times[KeyOf(*item.lost)];
  for (const LostPath& lost : fences.recent()) {
    const auto it = times.find(KeyOf(lost));
    if (it != times.end()) it->second.push_back(lost.at_ns);
  }
  size_t count = 0;
  for (const Fenced& item : own) {
    int64_t born_ns = first_ns;
    for (const int64_t at_ns : times[KeyOf(*item.lost)]) {
      if (at_ns < item.lost->at_ns) born_ns = std::max(born_ns, at_ns);
    }
    count += item.lost->worked_ns != kNever && item.lost->worked_ns - born_ns >= settle_ns ? 1 : 0;
  }
  return count;
}

// What congestion does not do.
bool IsCertain(const BlamedLink& link, const std::vector<Fenced>& own, const FenceLog& fences,
               size_t unexplained, int64_t now_ns, const PathLostThresholds& thresholds) {
  std::set<std::pair<std::string, std::string>> tuples;
  std::set<std::pair<std::string, std::string>> hosts;
  for (const Fenced& item : own) {
    tuples.insert({item.lost->local, item.lost->remote});
    hosts.insert(HostsOf(*item.ends));
  }
  const int64_t first_ns = own.empty() ? now_ns : BeginOf(own);
  if (tuples.size() < thresholds.least || hosts.size() < 2 || now_ns - first_ns < thresholds.settle_ns) {
    return false;
  }
  const size_t well = link.good + CountLasting(own, fences, first_ns, thresholds.settle_ns);
  return static_cast<double>(well) <=
             thresholds.contradicting * static_cast<double>(tuples.size() + link.good) &&
         static_cast<double>(unexplained) <= thresholds.elsewhere * static_cast<double>(link.other_good);
}

// Under lasting congestion queue pairs lose one path after the other; off a dead link one is enough. And what
// all have an end on one host may be that host's doing. Asked for where not even the link is certain.
bool IsPlain(const std::vector<Fenced>& fenced) {
  std::set<Key> keys;
  std::map<std::string, size_t> ends;
  for (const Fenced& item : fenced) {
    if (item.lost->fences != 1 || !keys.insert(KeyOf(*item.lost)).second) return false;
    ++ends[item.ends->sender->host->name];
    ++ends[item.ends->receiver->host->name];
  }
  return std::none_of(ends.begin(), ends.end(),
                      [&](const auto& entry) { return entry.second == fenced.size(); });
}

// Without paths there is nothing to tell a dead link from congestion by, but that it stays dead.
bool StaysDead(const std::vector<Fenced>& fenced, int64_t now_ns, int64_t dead_ns) {
  std::map<const QueuePairEnds*, int64_t> newest;
  for (const Fenced& item : fenced) {
    int64_t& at_ns = newest.try_emplace(item.ends, item.lost->at_ns).first->second;
    at_ns = std::max(at_ns, item.lost->at_ns);
  }
  std::set<std::pair<std::string, std::string>> hosts;
  for (const auto& [ends, at_ns] : newest) {
    if (ends->queue_pair->dead && now_ns - at_ns >= dead_ns) hosts.insert(HostsOf(*ends));
  }
  return hosts.size() >= 2;
}

}  // namespace

std::vector<Finding> DetectLostPaths(const JobSnapshot& snapshot, const FenceLog& fences, PathSource* paths,
                                     int64_t now_ns, const PathLostThresholds& thresholds) {
  const auto is_recent = [&](const LostPath& lost) { return now_ns - lost.at_ns <= thresholds.window_ns; };
  if (std::none_of(fences.recent().begin(), fences.recent().end(), is_recent)) return {};
  const std::vector<QueuePairEnds>& queue_pairs = CollectQueuePairs(snapshot);
  const std::vector<Fenced> fenced = Collect(queue_pairs, fences, now_ns, thresholds.window_ns);
  if (CountConnections(fenced) < 2) return {};
  const LinkBlame blame = BlameLinks(Witnesses(queue_pairs, fenced, thresholds.slack_ns), /*acks_count=*/true,
                                     paths, thresholds.link);
  const auto over = [&](const BlamedLink& link) {
    std::vector<Fenced> own;
    for (const size_t witness : link.bad) own.push_back(fenced[witness]);  // these come first
    return own;
  };
  std::vector<Finding> findings;
  if (blame.sort == LinkBlame::Sort::kLinks) {
    for (const BlamedLink& link : blame.blamed) {
      const std::vector<Fenced> own = over(link);
      Finding finding = Describe(own);
      finding.kind = CulpritKind::kLink;
      finding.cable = link.cable;
      finding.links = link.links;
      finding.evidence.insert(finding.evidence.begin(), LinkEvidence(link, "lost their path"));
      finding.suggested_action = Concat(
          "look at the link ", link.cable,
          ": both switch ports, its cable, errors and drops that they count; the job goes on over other "
          "paths, with that much less of the network");
      if (IsCertain(link, own, fences, blame.unexplained, now_ns, thresholds)) Confirm(&finding);
      findings.push_back(std::move(finding));
    }
    return findings;
  }
  Finding finding = Describe(fenced);
  if (blame.sort == LinkBlame::Sort::kAmbiguous) {
    finding.kind = CulpritKind::kAmbiguous;
    if (IsPlain(fenced) &&
        IsCertain(blame.shared, over(blame.shared), fences, blame.unexplained, now_ns, thresholds)) {
      Confirm(&finding);
    }
  }
  if (blame.sort != LinkBlame::Sort::kNone) {
    finding.links = blame.candidates;
    finding.evidence.insert(finding.evidence.begin(), CandidatesEvidence(blame, "lost their path"));
  }
  AddWhyNone(blame, &finding);
  if (blame.sort != LinkBlame::Sort::kHost && StaysDead(fenced, now_ns, thresholds.dead_ns))
    Confirm(&finding);
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace c4::c4d
