#include "c4d_master/detectors/late_rank.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

std::string MillisecondsText(double ns) {
  return absl::StrFormat("%.1f ms", ns / 1e6);
}

}  // namespace

// Everybody's own time against what is usual for them, largest first.
std::vector<Late> Lateness(const JobSnapshot& snapshot, const Windows& windows, size_t back) {
  std::vector<Late> ranks;
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (ref.superseded || ref.process->ended || ref.process->rank < 0) continue;
    const OwnTime own = windows.Own(ref.process->key, back);
    if (own.slices < 3) continue;
    ranks.push_back({i, own.usual_ns > 0 ? own.recent_ns / own.usual_ns : 0, own});
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const Late& a, const Late& b) { return a.ratio > b.ratio; });
  return ranks;
}

namespace {

// Far above what is usual for it, and above what that comes to in some part of its steps.
bool IsHigh(const Late& late, const SlowThresholds& thresholds) {
  return late.ratio >= thresholds.late_factor &&
         late.own.recent_ns >= thresholds.late_high * late.own.usual_high_ns;
}

// How many of these it is known of what is usual; the others, whose ratio is 0, come after them. After a
// restart that may be few, which say nothing about the others.
size_t Known(const std::vector<Late>& ranks) {
  return static_cast<size_t>(
      std::count_if(ranks.begin(), ranks.end(), [](const Late& rank) { return rank.own.usual_ns > 0; }));
}

double Share(double ns, const OwnTime& own) {
  return own.cycle_ns > 0 ? ns / own.cycle_ns : 0;
}

// What is usual for a rank that was slow before it was first seen is slow too. So the ranks are held against
// each other, by their shares of the time: who does half the operations has twice the time for each. Somebody
// who is late is also waited for: others wait for their first data longer than it does.
std::optional<Late> FindLateFromStart(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  std::vector<double> shares;
  std::vector<double> waits;
  for (const Late& rank : ranks) {
    shares.push_back(Share(rank.own.recent_ns, rank.own));
    waits.push_back(Share(rank.own.first_wait_ns, rank.own));
  }
  const auto first = static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  const Late& slowest = ranks[first];
  // One of whose operations nothing is measured seems to have all the time for itself.
  const bool known =
      slowest.own.seen >= thresholds.blind_late_slices && slowest.own.recent_ns < slowest.own.cycle_ns;
  // What is far from usual for it is not from the start.
  const OwnTime& own = slowest.own;
  const double longest = Share(own.usual_ns > 0 ? std::min(own.usual_ns, own.recent_ns) : own.recent_ns, own);
  const double median = analysis::LowerMedian(shares);
  const bool is_waited_for = waits[first] <= analysis::LowerMedian(waits);
  shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(first));
  const double second = *std::max_element(shares.begin(), shares.end());
  const bool late = known && is_waited_for && longest >= thresholds.blind_late_median * median &&
                    longest >= thresholds.late_alone * second &&
                    longest - median >= thresholds.late_cycle_share;
  if (!late) return std::nullopt;
  Late result = slowest;
  result.from_start = true;
  return result;
}

// Who is late is waited for, and finds the first data of an operation there when it comes: it waits no longer
// for them than others do.
double MedianWait(const std::vector<Late>& ranks) {
  std::vector<double> waits;
  waits.reserve(ranks.size());
  for (const Late& rank : ranks) waits.push_back(Share(rank.own.first_wait_ns, rank.own));
  return analysis::LowerMedian(waits);
}

bool IsWaitedFor(const Late& late, double median_wait, const SlowThresholds& thresholds) {
  const double growth = Share(late.own.recent_ns - late.own.usual_ns, late.own);
  return Share(late.own.first_wait_ns, late.own) - median_wait <= thresholds.late_wait * growth;
}

}  // namespace

// The rank that is late and alone in that, if there is one.
std::optional<Late> FindLate(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  if (ranks.size() < 3) return std::nullopt;
  const Late& first = ranks.front();
  if (Known(ranks) >= 3) {
    const double second = std::max(ranks[1].ratio, 1.0);
    const double growth_ns = first.own.recent_ns - first.own.usual_ns;
    const bool late = IsHigh(first, thresholds) && first.ratio >= thresholds.late_alone * second &&
                      growth_ns >= thresholds.late_cycle_share * first.own.cycle_ns &&
                      IsWaitedFor(first, MedianWait(ranks), thresholds);
    if (late) return first;
  }
  return FindLateFromStart(ranks, thresholds);
}

namespace {

bool Grew(const Late& late, const SlowThresholds& thresholds) {
  return late.own.usual_ns > 0 &&
         late.own.recent_ns - late.own.usual_ns >= thresholds.late_cycle_share * late.own.cycle_ns;
}

// How many of the first are late, and far beyond the next one; `ranks` by ratio. As many as that holds for.
size_t LateTogether(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  size_t together = 0;
  for (size_t k = 1; k <= Known(ranks) / 2; ++k) {
    const Late& last = ranks[k - 1];
    if (!IsHigh(last, thresholds) || !Grew(last, thresholds)) break;
    if (last.ratio >= thresholds.late_alone * std::max(ranks[k].ratio, 1.0)) together = k;
  }
  return together;
}

// Of each host, how many ranks are looked at.
std::map<const Host*, size_t> RanksOfHosts(const JobSnapshot& snapshot, const std::vector<Late>& ranks,
                                           size_t count) {
  std::map<const Host*, size_t> hosts;
  for (size_t i = 0; i < count; ++i) ++hosts[snapshot.processes[ranks[i].process].host];
  return hosts;
}

// The smallest communicator to whose ranks all of these belong, and nearly all of whose ranks are these.
const Communicator* CommunicatorOf(const JobSnapshot& snapshot, const std::vector<Late>& late,
                                   const SlowThresholds& thresholds) {
  const Communicator* found = nullptr;
  for (const Communicator& communicator : snapshot.communicators) {
    const auto has = [&](const Late& rank) {
      return std::any_of(communicator.members.begin(), communicator.members.end(),
                         [&](const Member& member) { return member.process == rank.process; });
    };
    if (static_cast<double>(late.size()) < thresholds.late_whole * communicator.rank_count) continue;
    if (found != nullptr && found->rank_count <= communicator.rank_count) continue;
    if (late.size() <= communicator.members.size() && std::all_of(late.begin(), late.end(), has)) {
      found = &communicator;
    }
  }
  return found;
}

}  // namespace

bool LateGroup::Names(const LateGroup& other) const {
  return kind == other.kind && host == other.host && communicator_id == other.communicator_id &&
         (kind != CulpritKind::kRank || ranks.front().process == other.ranks.front().process);
}

std::vector<LateGroup> FindLateGroups(const JobSnapshot& snapshot, const std::vector<Late>& ranks,
                                      const SlowThresholds& thresholds) {
  std::vector<LateGroup> groups;
  const size_t count = LateTogether(ranks, thresholds);
  if (count < 2) return groups;
  const std::vector<Late> late(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count));
  std::map<const Host*, size_t> all = RanksOfHosts(snapshot, ranks, ranks.size());
  const std::map<const Host*, size_t> slow = RanksOfHosts(snapshot, ranks, count);
  const bool nodes = std::all_of(slow.begin(), slow.end(), [&](const auto& entry) {
    return entry.second >= 2 &&
           static_cast<double>(entry.second) >= thresholds.late_whole * static_cast<double>(all[entry.first]);
  });
  if (nodes) {
    for (const auto& [host, of_host] : slow) {
      LateGroup group{CulpritKind::kNode, {}, host->name, 0};
      for (const Late& rank : late) {
        if (snapshot.processes[rank.process].host == host) group.ranks.push_back(rank);
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }
  if (const Communicator* const communicator = CommunicatorOf(snapshot, late, thresholds)) {
    groups.push_back({CulpritKind::kAmbiguous, late, "", communicator->id});
    return groups;
  }
  if (static_cast<double>(count) > thresholds.late_few * static_cast<double>(ranks.size())) return groups;
  for (const Late& rank : late) groups.push_back({CulpritKind::kRank, {rank}, "", 0});
  return groups;
}

bool IsLateBesidesAPause(const OwnMean& own, const SlowThresholds& thresholds) {
  return own.recent_ns >= thresholds.late_mean_factor * own.usual_ns;
}

// A rank that may be late: not enough to blame it, but enough not to blame the network for what touches it.
const Late* FindExplaining(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  if (ranks.size() < 2) return nullptr;
  if (ranks.front().own.usual_ns > 0) {
    const bool late = ranks[0].ratio >= thresholds.late_suspect &&
                      ranks[0].ratio >= thresholds.late_suspect_alone * ranks[1].ratio;
    return late ? &ranks[0] : nullptr;
  }
  std::vector<double> all;
  all.reserve(ranks.size());
  for (const Late& rank : ranks) all.push_back(rank.own.recent_ns);
  const auto longest = std::max_element(all.begin(), all.end());
  return *longest >= thresholds.blind_late_median * analysis::LowerMedian(all)
             ? &ranks[static_cast<size_t>(longest - all.begin())]
             : nullptr;
}

Finding DescribeLate(const JobSnapshot& snapshot, const Late& late, const std::vector<Late>& ranks) {
  const ProcessRef& culprit = snapshot.processes[late.process];
  Finding finding;
  finding.syndrome = Syndrome::kNonCommunicationSlow;
  FillProcess(culprit, &finding);
  finding.since_at_ns = late.from_start ? late.own.since_ns : culprit.host->as_of_ns - 4 * kSecondNs;
  std::vector<uint32_t> others;
  std::vector<double> waits;
  std::vector<double> ratios;
  std::vector<double> shares;
  for (const Late& rank : ranks) {
    if (rank.process == late.process) continue;
    others.push_back(rank.process);
    waits.push_back(rank.own.first_wait_ns);
    ratios.push_back(rank.ratio);
    shares.push_back(100 * Share(rank.own.recent_ns, rank.own));
  }
  finding.waiting = RanksOf(snapshot, others);
  finding.evidence.push_back(
      {"own-time",
       late.from_start
           ? absl::StrFormat(
                 "rank %d has had %.0f %% of the time for itself since it began, %s on each operation; the "
                 "median of the others is %.0f %%",
                 finding.rank, 100 * Share(late.own.recent_ns, late.own),
                 MillisecondsText(late.own.recent_ns), analysis::LowerMedian(shares))
           : absl::StrFormat(
                 "rank %d spends %s of its own on each operation, %.1f times what is usual for it "
                 "(%s); the median of the others is %.1f times",
                 finding.rank, MillisecondsText(late.own.recent_ns), late.ratio,
                 MillisecondsText(late.own.usual_ns), analysis::LowerMedian(ratios))});
  finding.evidence.push_back(
      {"waiting", absl::StrFormat("it waits %s for the first data of an operation, the others %s (median)",
                                  MillisecondsText(late.own.first_wait_ns),
                                  MillisecondsText(analysis::LowerMedian(waits)))});
  finding.suggested_action =
      Concat("see what slows process ", finding.culprit.pid, " on ", finding.host,
             " down: CPU quota and neighbours, GPU clocks and temperature, data loading (`py-spy dump --pid ",
             finding.culprit.pid, "`); if it stays slow, replace the node");
  return finding;
}

Finding DescribeLateGroup(const JobSnapshot& snapshot, const LateGroup& group,
                          const std::vector<Late>& ranks) {
  if (group.kind == CulpritKind::kRank) return DescribeLate(snapshot, group.ranks.front(), ranks);
  Finding finding;
  finding.syndrome = Syndrome::kNonCommunicationSlow;
  finding.kind = group.kind;
  finding.host = group.host;
  std::vector<uint32_t> own;
  std::vector<double> ratios;
  std::vector<double> times;
  for (const Late& rank : group.ranks) {
    own.push_back(rank.process);
    ratios.push_back(rank.ratio);
    times.push_back(rank.own.recent_ns);
  }
  std::vector<uint32_t> others;
  std::vector<double> ratios_of_others;
  for (const Late& rank : ranks) {
    if (std::find(own.begin(), own.end(), rank.process) != own.end()) continue;
    others.push_back(rank.process);
    ratios_of_others.push_back(rank.ratio);
  }
  const std::vector<uint32_t> named = RanksOf(snapshot, own);
  finding.since_at_ns = snapshot.processes[own.front()].host->as_of_ns - 4 * kSecondNs;
  finding.waiting = RanksOf(snapshot, others);
  std::string who = service::RankListText(named);
  if (group.kind == CulpritKind::kNode) {
    who = Concat("all of ", group.host, " (", who, ")");
  } else {
    finding.communicator_id = group.communicator_id;
    finding.communicators = {group.communicator_id};
    for (const uint32_t rank : named) finding.candidates.push_back(static_cast<int32_t>(rank));
    who = Concat(who, ", which are communicator ", service::CommunicatorText(group.communicator_id), ",");
  }
  finding.evidence.push_back(
      {"own-time", absl::StrFormat("%s spend %s of their own on each operation (median), %.1f times what is "
                                   "usual for them; the median of the others is %.1f times",
                                   who, MillisecondsText(analysis::LowerMedian(times)),
                                   analysis::LowerMedian(ratios), analysis::LowerMedian(ratios_of_others))});
  finding.suggested_action =
      group.kind == CulpritKind::kNode
          ? Concat("look at what the ranks of ", group.host,
                   " share: power and cooling (`nvidia-smi -q -d PERFORMANCE,CLOCK,POWER`), CPU quota and "
                   "neighbours, its disk; if it stays slow, replace the node")
          : std::string(
                "one of these ranks slows the others of its group down between their operations, or "
                "all have more to do: compare their GPUs' clocks and their data; if one differs, "
                "replace its node");
  return finding;
}

}  // namespace c4::c4d
