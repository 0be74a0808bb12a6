#include "c4d_master/detectors/late_rank.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"

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

}  // namespace

// The rank that is late and alone in that, if there is one.
std::optional<Late> FindLate(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  if (ranks.size() < 3) return std::nullopt;
  const Late& first = ranks.front();
  if (first.own.usual_ns > 0) {
    const double second = std::max(ranks[1].ratio, 1.0);
    const double growth_ns = first.own.recent_ns - first.own.usual_ns;
    const bool late = first.ratio >= thresholds.late_factor &&
                      first.ratio >= thresholds.late_alone * second &&
                      growth_ns >= thresholds.late_cycle_share * first.own.cycle_ns;
    if (late) return first;
  }
  return FindLateFromStart(ranks, thresholds);
}

// A rank that may be late: not enough to blame it, but enough not to blame the network for what touches it.
const Late* FindExplaining(const std::vector<Late>& ranks, const SlowThresholds& thresholds) {
  if (ranks.size() < 2) return nullptr;
  if (ranks.front().own.usual_ns > 0) {
    const bool late = ranks[0].ratio >= thresholds.late_suspect && ranks[0].ratio >= 1.25 * ranks[1].ratio;
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

}  // namespace c4::c4d
