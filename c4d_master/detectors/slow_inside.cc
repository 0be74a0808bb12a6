#include "c4d_master/detectors/slow_inside.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kLeastSisters = 3;
constexpr size_t kMaxTold = 6;

struct Grown {
  const Communicator* communicator = nullptr;
  Duration duration;
  double sisters = 1;  // how those of its kind have grown
};

// By name and size: communicators of one kind do the same on other ranks.
using Kind = std::pair<std::string_view, uint32_t>;

std::vector<Grown> GrownAt(const JobSnapshot& snapshot, const Windows& windows, size_t back,
                           const SlowThresholds& thresholds) {
  std::map<Kind, std::vector<double>> ratios;
  std::vector<Grown> all;
  for (const Communicator& communicator : snapshot.communicators) {
    const Duration duration = windows.DurationOf(communicator.id, back);
    if (duration.ratio() <= 0) continue;
    ratios[{communicator.name, communicator.rank_count}].push_back(duration.ratio());
    if (duration.ratio() >= thresholds.inside_factor && duration.share >= thresholds.inside_share) {
      all.push_back({&communicator, duration});
    }
  }
  std::erase_if(all, [&](Grown& grown) {
    const std::vector<double>& sisters = ratios[{grown.communicator->name, grown.communicator->rank_count}];
    if (sisters.size() < kLeastSisters) return grown.duration.ratio() < thresholds.inside_alone_factor;
    grown.sisters = std::max(1.0, analysis::LowerMedian(sisters));
    return grown.duration.ratio() < thresholds.inside_sisters * grown.sisters;
  });
  return all;
}

bool IsOnOneHost(const JobSnapshot& snapshot, const Communicator& communicator) {
  const Host* const first = snapshot.processes[communicator.members.front().process].host;
  return std::all_of(communicator.members.begin(), communicator.members.end(),
                     [&](const Member& member) { return snapshot.processes[member.process].host == first; });
}

// Communicators over several nodes of which all of the network is seen, and is as it always is.
std::set<const Communicator*> WellOutside(const JobSnapshot& snapshot, const Windows& windows, size_t back,
                                          const SlowThresholds& thresholds) {
  std::map<const Communicator*, std::set<const QueuePairEnds*>> well;
  std::set<const Communicator*> bad;
  const std::vector<QueuePairEnds>& all = CollectQueuePairs(snapshot);
  for (const Cell& cell : Cells(all, windows, back, thresholds)) {
    const double most = std::max(cell.ratio, cell.upper_ratio);
    if (cell.usual > 0 && !cell.bad() && most < thresholds.inside_network) {
      well[cell.ends->communicator].insert(cell.ends);
    } else {
      bad.insert(cell.ends->communicator);
    }
  }
  std::map<const Communicator*, size_t> counts;
  for (const QueuePairEnds& ends : all) ++counts[ends.communicator];
  std::set<const Communicator*> result;
  for (const auto& [communicator, ends] : well) {
    if (!bad.contains(communicator) && ends.size() == counts[communicator]) result.insert(communicator);
  }
  return result;
}

std::vector<uint32_t> ProcessesOf(const Communicator& communicator) {
  std::vector<uint32_t> processes;
  for (const Member& member : communicator.members) processes.push_back(member.process);
  return processes;
}

// Those of them that nothing else explains.
void LeaveOutTheExplained(const JobSnapshot& snapshot, const Windows& windows, size_t back,
                          const std::set<const Process*>& late, const SlowThresholds& thresholds,
                          std::vector<Grown>* grown) {
  std::erase_if(*grown, [&](const Grown& item) {
    const std::vector<Member>& members = item.communicator->members;
    return members.empty() || std::any_of(members.begin(), members.end(), [&](const Member& member) {
             return late.contains(snapshot.processes[member.process].process);
           });
  });
  const auto on_one_host = [&](const Grown& item) { return IsOnOneHost(snapshot, *item.communicator); };
  // Of a network that has been slow for longer nothing may show any more: that has become usual.
  std::erase_if(*grown, [&](const Grown& item) {
    return !on_one_host(item) && item.duration.before_ns > thresholds.inside_network * item.duration.usual_ns;
  });
  if (std::all_of(grown->begin(), grown->end(), on_one_host)) return;
  const std::set<const Communicator*> well = WellOutside(snapshot, windows, back, thresholds);
  std::erase_if(*grown,
                [&](const Grown& item) { return !on_one_host(item) && !well.contains(item.communicator); });
}

// The processes that are in all of them; empty where there is no such.
std::set<uint32_t> InAll(const std::vector<Grown>& grown) {
  std::unordered_map<uint32_t, size_t> counts;
  for (const Grown& item : grown) {
    for (const Member& member : item.communicator->members) ++counts[member.process];
  }
  std::set<uint32_t> in_all;
  for (const auto& [process, count] : counts) {
    if (count == grown.size()) in_all.insert(process);
  }
  return in_all;
}

// What one cause explains: all of them, where some rank is in all, else each by itself.
std::vector<std::vector<Grown>> Causes(const std::vector<Grown>& grown) {
  if (!grown.empty() && !InAll(grown).empty()) return {grown};
  std::vector<std::vector<Grown>> causes;
  for (const Grown& item : grown) causes.push_back({item});
  return causes;
}

Finding Describe(const JobSnapshot& snapshot, const std::vector<Grown>& cause) {
  const std::set<uint32_t> in_all = InAll(cause);
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationSlow;
  finding.confidence = 0.5;
  if (in_all.size() == 1) {
    FillProcess(snapshot.processes[*in_all.begin()], &finding);
  } else {
    finding.kind = CulpritKind::kAmbiguous;
    for (const uint32_t rank : RanksOf(snapshot, {in_all.begin(), in_all.end()})) {
      finding.candidates.push_back(static_cast<int32_t>(rank));
    }
  }
  std::set<uint32_t> others;
  size_t told = 0;
  const Grown* most = &cause.front();
  for (const Grown& item : cause) {
    finding.communicators.push_back(item.communicator->id);
    if (item.duration.ratio() > most->duration.ratio()) most = &item;
    finding.since_at_ns = std::max(finding.since_at_ns, item.communicator->as_of_ns - 4 * kSecondNs);
    for (const Member& member : item.communicator->members) {
      if (!in_all.contains(member.process)) others.insert(member.process);
    }
    if (++told > kMaxTold) continue;
    finding.evidence.push_back(
        {"duration",
         absl::StrFormat(
             "an operation of communicator %s (%s) takes %.1f ms from the last rank's coming to it, "
             "%.1f times what is usual for it; those of its kind have grown %.1f times",
             service::CommunicatorText(item.communicator->id),
             service::RankListText(RanksOf(snapshot, ProcessesOf(*item.communicator))),
             item.duration.recent_ns / 1e6, item.duration.ratio(), item.sisters)});
  }
  if (told > kMaxTold) {
    finding.evidence.push_back({"duration", Concat("the same of ", told - kMaxTold, " more communicators")});
  }
  finding.evidence.push_back({"duration",
                              "no rank comes to them later than usual, and no queue pair of theirs is slow: "
                              "what is slow lies within a node"});
  finding.communicator_id = most->communicator->id;
  finding.waiting = RanksOf(snapshot, {others.begin(), others.end()});
  finding.suggested_action =
      "look at NVLink and PCIe of these ranks' GPUs (`nvidia-smi nvlink -e`, `nvidia-smi nvlink -s`, "
      "`lspci -vv` for width and speed): one link that runs slower or sends again holds up the whole ring; "
      "replace its node";
  return finding;
}

bool IsSame(const Finding& a, const Finding& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == CulpritKind::kRank) return a.culprit == b.culprit;
  return std::any_of(a.candidates.begin(), a.candidates.end(), [&](int32_t rank) {
    return std::binary_search(b.candidates.begin(), b.candidates.end(), rank);
  });
}

std::vector<Finding> FindAt(const JobSnapshot& snapshot, const Windows& windows, size_t back,
                            const std::set<const Process*>& late, const SlowThresholds& thresholds) {
  std::vector<Grown> grown = GrownAt(snapshot, windows, back, thresholds);
  if (grown.empty()) return {};
  LeaveOutTheExplained(snapshot, windows, back, late, thresholds, &grown);
  std::vector<Finding> findings;
  for (const std::vector<Grown>& cause : Causes(grown)) findings.push_back(Describe(snapshot, cause));
  return findings;
}

}  // namespace

std::vector<Finding> DetectSlowInside(const JobSnapshot& snapshot, const Windows& windows,
                                      const std::set<const Process*>& late,
                                      const SlowThresholds& thresholds) {
  std::vector<Finding> findings = FindAt(snapshot, windows, 0, late, thresholds);
  if (findings.empty()) return findings;
  std::vector<bool> lasting(findings.size(), true);
  for (size_t back = 1; back <= thresholds.persist; ++back) {
    const std::vector<Finding> then = FindAt(snapshot, windows, back, late, thresholds);
    for (size_t i = 0; i < findings.size(); ++i) {
      lasting[i] = lasting[i] && std::any_of(then.begin(), then.end(), [&](const Finding& other) {
                     return IsSame(findings[i], other);
                   });
    }
  }
  for (size_t i = 0; i < findings.size(); ++i) {
    if (!lasting[i]) continue;
    findings[i].confidence = 0.9;
    findings[i].confirmed_by = "slow";
  }
  return findings;
}

}  // namespace c4::c4d
