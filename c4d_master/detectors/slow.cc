#include "c4d_master/detectors/slow.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "c4d_master/detectors/cells.h"
#include "c4d_master/detectors/explain_cells.h"
#include "c4d_master/detectors/late_rank.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/detectors/slow_inside.h"
#include "c4d_master/detectors/slow_links.h"
#include "c4d_master/detectors/slow_switch.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

void Confirm(Finding* finding) {
  finding->confidence = 0.9;
  finding->confirmed_by = "slow";
}

// Most of them by far.
bool AreFarSlower(const std::vector<const Cell*>& slow, const SlowThresholds& thresholds) {
  const auto far = std::count_if(slow.begin(), slow.end(), [&](const Cell* cell) {
    return (cell->slow_upper ? cell->upper_ratio : cell->ratio) >= thresholds.scattered_factor;
  });
  return 2 * static_cast<size_t>(far) >= slow.size();
}

// Certain once it has lasted (VerdictThresholds::scattered_ns).
void ConfirmIfItLasts(const std::vector<const Cell*>& slow, const SlowThresholds& thresholds,
                      Finding* finding) {
  if (!AreFarSlower(slow, thresholds)) return;
  finding->confidence = 0.7;
  finding->confirmed_by = "lasting";
}

// The job a few slices ago, as the detector would have seen it then.
struct Past {
  Look look;
  Explanation explanation;
  SlowSwitch shared;  // by NICs of many hosts
};

bool Overlap(const std::vector<const Cell*>& a, const std::vector<const Cell*>& b) {
  std::set<Cell::Id> ids;
  for (const Cell* cell : a) ids.insert(cell->id());
  return std::any_of(b.begin(), b.end(), [&](const Cell* cell) { return ids.count(cell->id()) != 0; });
}

bool Overlap(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& name) { return std::find(b.begin(), b.end(), name) != b.end(); });
}

// Cells that were slow in at least two of these looks, as the newest look of them shows each: one that is
// near the limit comes and goes, and one that was unlucky does not come again.
std::vector<const Cell*> SlowMoreThanOnce(const std::vector<Past>& looks, size_t count) {
  std::map<Cell::Id, std::pair<const Cell*, size_t>> seen;
  std::vector<Cell::Id> order;
  for (size_t back = 0; back < count; ++back) {
    for (const Cell* cell : looks[back].look.slow) {
      auto& [newest, times] = seen[cell->id()];
      if (times++ > 0) continue;
      newest = cell;
      order.push_back(cell->id());
    }
  }
  std::vector<const Cell*> cells;
  for (const Cell::Id& id : order) {
    if (seen[id].second >= 2) cells.push_back(seen[id].first);
  }
  return cells;
}

bool IsExcused(const Cell& cell, const std::set<const Process*>& late) {
  return late.count(cell.ends->sender->process) != 0 ||
         (cell.ends->receiver != nullptr && late.count(cell.ends->receiver->process) != 0);
}

// NICs of so many hosts do not go bad in the same seconds.
constexpr size_t kManyHosts = 3;

size_t HostsOf(const std::map<std::string, std::vector<const Cell*>>& nics) {
  std::set<const Host*> hosts;
  for (const auto& [address, cells] : nics) {
    for (const Cell* cell : cells) {
      const QueuePairEnds& ends = *cell->ends;
      if (ends.from_nic == address) hosts.insert(ends.sender->host);
      if (ends.to_nic == address && ends.receiver != nullptr) hosts.insert(ends.receiver->host);
    }
  }
  return hosts.size();
}

Past LookBack(const JobQueuePairs& all, const Windows& windows, size_t back,
              const std::set<const Process*>& late, PathSource* paths, const SlowThresholds& thresholds) {
  Past past;
  past.look.cells = Cells(all.ends, windows, back, thresholds);
  past.explanation = Explain(all, past.look.cells, late, thresholds);
  past.look.slow = past.explanation.connections;
  if (paths == nullptr || past.explanation.nics.empty()) return past;
  if (HostsOf(past.explanation.nics) >= kManyHosts) {
    past.shared = FindSlowSwitch(past.look.cells, paths);
    if (!past.shared.names.empty()) return past;
  }
  // A NIC most of whose queue pairs take a slow link looks slow itself: where the paths tell that it is the
  // link, or one of several, the NIC's queue pairs are connections like all others.
  const std::vector<const Cell*> rest = past.look.slow;
  for (const auto& entry : past.explanation.nics) {
    past.look.slow.insert(past.look.slow.end(), entry.second.begin(), entry.second.end());
  }
  const Excused excused = [&](const Cell& cell) { return IsExcused(cell, late); };
  const LinkBlame::Sort sort = BlameLook(past.look, excused, {}, paths, thresholds).blame.sort;
  if (sort == LinkBlame::Sort::kLinks || sort == LinkBlame::Sort::kAmbiguous) {
    past.explanation.nics.clear();
  } else {
    past.look.slow = rest;
  }
  return past;
}

// The paths that were fenced lately.
std::vector<Witness> FencedWitnesses(const FenceLog* fences, int64_t now_ns,
                                     const SlowThresholds& thresholds) {
  std::vector<Witness> witnesses;
  if (fences == nullptr) return witnesses;
  std::set<std::pair<std::string, std::string>> known;
  for (const LostPath& lost : fences->recent()) {
    if (now_ns - lost.at_ns > thresholds.fenced_ns || !known.insert({lost.local, lost.remote}).second)
      continue;
    witnesses.push_back({lost.local, lost.remote, analysis::FlowState::kBad});
  }
  return witnesses;
}

// Where the engine says no address the NIC is known by its rank.
bool HasAddress(const Cell& cell) {
  return !cell.local.empty();
}

Finding DescribeNic(const std::string& address, const std::vector<const Cell*>& slow) {
  Finding finding = DescribeCells(slow);
  finding.kind = CulpritKind::kNic;
  finding.nic = address;
  for (const Cell* cell : slow) {
    if (cell->ends->from_nic == address) finding.host = cell->ends->sender->host->name;
  }
  if (finding.host.empty() && slow.front()->ends->receiver != nullptr) {
    finding.host = slow.front()->ends->receiver->host->name;
  }
  const std::string what =
      HasAddress(*slow.front())
          ? Concat("nearly all queue pairs that ", finding.host, " uses on ", address, " are slow (",
                   slow.size(), "), those of its peers among each other are not")
          : Concat("nearly all ways to other ranks over the NIC ", address, " on ", finding.host,
                   " are slow (", slow.size(), "), those of its peers among each other are not");
  finding.evidence.insert(finding.evidence.begin(), {"nic", what});
  finding.suggested_action = Concat("look at the NIC ", address, " of ", finding.host,
                                    ", its negotiated rate, errors and pauses "
                                    "(`ethtool`, `ip -s link`); if it stays slow, replace the node");
  return finding;
}

// Several ranks whose NICs nobody tells apart.
Finding DescribeNode(const std::string& host, const std::vector<const Cell*>& slow) {
  Finding finding = DescribeCells(slow);
  finding.kind = CulpritKind::kNode;
  finding.host = host;
  finding.evidence.insert(
      finding.evidence.begin(),
      {"nic",
       Concat("nearly all ways between ranks of ", host, " and other nodes are slow (", slow.size(),
              "), those of their peers among each other are not; which NICs they share is not known")});
  finding.suggested_action = Concat("look at the NICs of ", host,
                                    ", their negotiated rate, errors and pauses (`ibstat`, `ethtool`, "
                                    "`ip -s link`), and at its PCIe; if it stays slow, replace the node");
  return finding;
}

// Slow connections that no link is named for.
Finding DescribeConnections(const std::vector<const Cell*>& told, bool ambiguous, const LookBlame& newest) {
  Finding finding = DescribeCells(told);
  finding.kind = ambiguous ? CulpritKind::kAmbiguous : CulpritKind::kConnection;
  if (ambiguous) {
    std::set<int32_t> ends;
    for (const ConnectionRef& ref : finding.connections) ends.insert({ref.from_rank, ref.to_rank});
    finding.candidates.assign(ends.begin(), ends.end());
  }
  finding.suggested_action =
      "look for what these connections have in common: a switch port or link on the path of their ports (its "
      "rate, errors, congestion); other connections of the same hosts are not slow";
  const LinkBlame& blame = newest.blame;
  if (blame.sort == LinkBlame::Sort::kAmbiguous) {
    finding.kind = CulpritKind::kAmbiguous;
    finding.candidates.clear();
  }
  if (blame.sort == LinkBlame::Sort::kAmbiguous || blame.sort == LinkBlame::Sort::kHost) {
    finding.links = blame.candidates;
    finding.evidence.insert(finding.evidence.begin(), CandidatesEvidence(blame, newest.what));
  }
  AddWhyNone(blame, &finding);
  return finding;
}

// One or two of hundreds are three times as slow for a while in any job.
constexpr size_t kUnlucky = 2;

// A few ways that no node has in common have no cause in common that anybody could name: as a rule flows that
// met on a link, and will part again. Many are a link's that nobody knows, unless the paths say that they
// share none.
bool MayHaveOneCause(const std::vector<const Cell*>& slow, const LinkBlame& blame,
                     const SlowThresholds& thresholds) {
  constexpr size_t kMany = 6;
  if (slow.size() >= kMany && !blame.contradicted()) return true;
  if (slow.size() <= kUnlucky && !AreFarSlower(slow, thresholds)) return false;
  const auto touches = [](const Cell& cell, const Host* host) {
    const ProcessRef* const receiver = cell.ends->receiver;
    return cell.ends->sender->host == host || (receiver != nullptr && receiver->host == host);
  };
  const auto of_all = [&](const Host* host) {
    return std::all_of(slow.begin(), slow.end(), [&](const Cell* cell) { return touches(*cell, host); });
  };
  const ProcessRef* const receiver = slow.front()->ends->receiver;
  return of_all(slow.front()->ends->sender->host) || (receiver != nullptr && of_all(receiver->host));
}

std::vector<Finding> NameBySlices(const JobQueuePairs& all, const Windows& windows,
                                  const std::set<const Process*>& late, const SlowThresholds& thresholds) {
  const std::vector<Cell> cells = CellsBySlices(all.ends, windows, thresholds);
  const Explanation found = Explain(all, cells, late, thresholds);
  std::vector<Finding> findings;
  for (const auto& [address, slow] : found.nics) findings.push_back(DescribeNic(address, slow));
  for (const auto& [host, slow] : found.nodes) findings.push_back(DescribeNode(host, slow));
  for (Finding& finding : findings) Confirm(&finding);
  // Ways of one NIC or node do not all show in the same slice: what they are together shows when more have
  // told.
  constexpr uint64_t kMoreSlices = 3;
  const auto last = static_cast<size_t>(
      std::count_if(found.connections.begin(), found.connections.end(), [&](const Cell* cell) {
        return SlowSlices(*cell, windows, kLeastSliceChunks, thresholds) >=
               thresholds.own_persist + kMoreSlices;
      }));
  if (last > 0 && 2 * last >= found.connections.size()) {
    findings.push_back(DescribeConnections(found.connections, found.ambiguous, LookBlame()));
    if (MayHaveOneCause(found.connections, LinkBlame(), thresholds)) {
      Confirm(&findings.back());
    } else {
      ConfirmIfItLasts(found.connections, thresholds, &findings.back());
    }
  }
  return findings;
}

// False: no cell is slow, whatever the medians of the job and of its communicators are.
bool SomeMayBeSlow(const Windows& windows, const SlowThresholds& thresholds) {
  constexpr double kLeastMedianRatio = 0.5;  // see Cells
  return windows.SomeMayBeSlow(
      {.share = thresholds.share,
       .bad_share = thresholds.usual_share,
       .upper_share = thresholds.upper_share,
       .ratio = std::max(thresholds.own_factor,
                         std::min(thresholds.matrix_most, thresholds.matrix_factor * kLeastMedianRatio)),
       .bad_ratio = thresholds.bad_factor,
       .least_usual_chunks = thresholds.min_usual_chunks,
       .blind_chunks = thresholds.blind_chunks,
       .blind_slices = thresholds.blind_slices});
}

std::vector<Finding> DetectSlowNetwork(const JobQueuePairs& all, const Windows& windows,
                                       const std::set<const Process*>& late, const NetworkView& network,
                                       int64_t now_ns, const SlowThresholds& thresholds) {
  const size_t most = std::max({thresholds.persist + 1, thresholds.alone_persist, thresholds.fade});
  std::vector<Past> looks;
  looks.reserve(most + 1);
  for (size_t back = 0; back <= most; ++back) {
    looks.push_back(LookBack(all, windows, back, late, network.paths, thresholds));
    if (back == 0 && looks[0].explanation.nics.empty() && looks[0].explanation.nodes.empty() &&
        looks[0].look.slow.empty()) {
      return {};
    }
  }
  Past& now = looks.front();
  // In a job of which queue pairs are slow in single slices all day, what nothing but their paths explains is
  // told when it has been so for longer.
  const size_t slices = SlicesAgainstChance(windows, all.ends.size(), thresholds);
  if (slices > thresholds.again_slices + 1) {
    std::erase_if(now.look.slow, [&](const Cell* cell) {
      return cell->usual > 0 && SlowSlices(*cell, windows, 1, thresholds) < slices;
    });
  }
  // Without addresses no link will show, and all ways can be held against their own past.
  const auto unaddressed = [](const Cell& cell) { return cell.bad() && !HasAddress(cell); };
  if (std::any_of(now.look.cells.begin(), now.look.cells.end(), unaddressed)) {
    std::vector<Finding> sure = NameBySlices(all, windows, late, thresholds);
    // What looks like a NIC or a node at this moment will be named as one, or not at all.
    if (!now.explanation.nics.empty() || !now.explanation.nodes.empty()) {
      std::erase_if(sure, [](const Finding& finding) {
        return finding.kind == CulpritKind::kConnection || finding.kind == CulpritKind::kAmbiguous;
      });
    }
    if (!sure.empty()) return sure;
  }
  const size_t lasts = thresholds.persist + 1;  // looks
  std::vector<Finding> findings;
  if (!now.shared.names.empty()) {
    Finding finding = DescribeSwitch(now.shared);
    const bool lasting =
        std::all_of(looks.begin(), looks.begin() + static_cast<std::ptrdiff_t>(lasts),
                    [&](const Past& then) { return Overlap(then.shared.names, now.shared.names); });
    if (lasting) Confirm(&finding);
    findings.push_back(std::move(finding));
    return findings;
  }
  for (const auto& [address, slow] : now.explanation.nics) {
    Finding finding = DescribeNic(address, slow);
    if (std::all_of(
            looks.begin(), looks.begin() + static_cast<std::ptrdiff_t>(lasts),
            [&, &nic = address](const Past& then) { return then.explanation.nics.count(nic) != 0; })) {
      Confirm(&finding);
    }
    findings.push_back(std::move(finding));
  }
  for (const auto& [host, slow] : now.explanation.nodes) {
    Finding finding = DescribeNode(host, slow);
    if (std::all_of(
            looks.begin(), looks.begin() + static_cast<std::ptrdiff_t>(lasts),
            [&, &name = host](const Past& then) { return then.explanation.nodes.count(name) != 0; })) {
      Confirm(&finding);
    }
    findings.push_back(std::move(finding));
  }
  if (now.look.slow.empty()) return findings;
  // What is left of a NIC that was slow a moment ago is not news of its connections.
  std::set<std::string> faded;
  std::set<std::string> faded_nodes;
  for (size_t back = 1; back <= thresholds.fade; ++back) {
    for (const auto& entry : looks[back].explanation.nics) faded.insert(entry.first);
    for (const auto& entry : looks[back].explanation.nodes) faded_nodes.insert(entry.first);
  }
  const auto fading = [&](const Cell& cell) {
    const ProcessRef* const receiver = cell.ends->receiver;
    return faded.count(cell.ends->from_nic) != 0 || faded.count(cell.ends->to_nic) != 0 ||
           faded_nodes.count(cell.ends->sender->host->name) != 0 ||
           (receiver != nullptr && faded_nodes.count(receiver->host->name) != 0);
  };
  std::vector<LookBlame> blames;
  if (network.paths != nullptr) {
    const Excused excused = [&](const Cell& cell) { return IsExcused(cell, late) || fading(cell); };
    const std::vector<Witness> fenced = FencedWitnesses(network.fences, now_ns, thresholds);
    for (size_t back = 0; back <= thresholds.alone_persist; ++back) {
      blames.push_back(BlameLook(looks[back].look, excused, fenced, network.paths, thresholds));
    }
    std::vector<Finding> named = NameSlowLinks(blames, thresholds);
    if (!named.empty()) {
      for (Finding& link : named) findings.push_back(std::move(link));
      return findings;
    }
  }
  const auto slow_then = [&](const Past& then) { return Overlap(then.look.slow, now.look.slow); };
  const bool lasting =
      std::all_of(looks.begin() + 1, looks.begin() + static_cast<std::ptrdiff_t>(lasts), slow_then);
  // Looks share chunks, and the chunks of one operation fare alike: one that was unlucky is slow in every
  // look that holds it. Whoever is slow in another slice as well is not unlucky.
  std::vector<const Cell*> told;
  for (const Cell* cell : lasting ? SlowMoreThanOnce(looks, lasts) : now.look.slow) {
    const bool again = cell->usual <= 0 || SlowSlices(*cell, windows, 1, thresholds) >= slices;
    if (!fading(*cell) && again) told.push_back(cell);
  }
  if (told.empty()) return findings;
  const LookBlame newest = blames.empty() ? LookBlame() : std::move(blames.front());
  // A single queue pair is more often unlucky than alone on a bad path, without a baseline any may be, and
  // where paths are known the link that they share may yet show.
  const bool blind = std::all_of(told.begin(), told.end(), [](const Cell* cell) { return cell->usual <= 0; });
  const bool may_show = newest.blame.sort != LinkBlame::Sort::kNone || !newest.blame.why.empty();
  bool alone_lasts = true;
  for (size_t back = lasts; (told.size() == 1 || blind || may_show) && back <= thresholds.alone_persist;
       ++back) {
    const std::vector<Cell>& then = looks[back].look.cells;
    alone_lasts = alone_lasts && std::any_of(then.begin(), then.end(), [&](const Cell& cell) {
                    return cell.bad() && std::any_of(told.begin(), told.end(), [&](const Cell* now_slow) {
                             return now_slow->id() == cell.id();
                           });
                  });
  }
  Finding finding = DescribeConnections(told, now.explanation.ambiguous, newest);
  for (const Cell* cell : network.paths == nullptr ? std::vector<const Cell*>() : told) {
    const std::shared_ptr<const LinkPath> path =
        network.paths->Find(std::string(cell->local), std::string(cell->remote));
    for (const std::string& link : path == nullptr ? LinkPath() : *path) finding.taken.insert(CableOf(link));
  }
  const bool named = newest.blame.sort != LinkBlame::Sort::kNone;
  const bool one_cause = MayHaveOneCause(told, newest.blame, thresholds) ||
                         (named && (told.size() > kUnlucky || AreFarSlower(told, thresholds)));
  if (lasting && alone_lasts && one_cause) Confirm(&finding);
  if (lasting && alone_lasts && !one_cause) ConfirmIfItLasts(told, thresholds, &finding);
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace

std::vector<Finding> DetectSlow(const JobSnapshot& snapshot, const Windows& windows,
                                const NetworkView& network, int64_t now_ns,
                                const SlowThresholds& thresholds) {
  std::vector<Finding> findings;
  const std::vector<Late> ranks = Lateness(snapshot, windows, 0);
  std::set<const Process*> explains;
  if (const Late* late = FindExplaining(ranks, thresholds)) {
    explains.insert(snapshot.processes[late->process].process);
  }
  const auto besides_a_pause = [&](const Late& rank) {
    return IsLateBesidesAPause(windows.MeanOwn(snapshot.processes[rank.process].process->key), thresholds);
  };
  const std::vector<LateGroup> groups = FindLateGroups(snapshot, ranks, thresholds);
  for (const LateGroup& group : groups) {
    Finding finding = DescribeLateGroup(snapshot, group, ranks);
    finding.confidence = 0.5;
    const auto going_on = std::count_if(group.ranks.begin(), group.ranks.end(), besides_a_pause);
    bool lasting = 2 * static_cast<size_t>(going_on) >= group.ranks.size();
    for (size_t back = 1; back <= thresholds.late_persist; ++back) {
      const std::vector<LateGroup> then =
          FindLateGroups(snapshot, Lateness(snapshot, windows, back), thresholds);
      lasting = lasting && std::any_of(then.begin(), then.end(),
                                       [&](const LateGroup& other) { return group.Names(other); });
    }
    if (lasting) Confirm(&finding);
    for (const Late& rank : group.ranks) explains.insert(snapshot.processes[rank.process].process);
    findings.push_back(std::move(finding));
  }
  if (const std::optional<Late> late = groups.empty() ? FindLate(ranks, thresholds) : std::nullopt) {
    Finding finding = DescribeLate(snapshot, *late, ranks);
    finding.confidence = 0.5;
    bool lasting = late->from_start || besides_a_pause(*late);
    // What has always been so need not be said at once, and steps have phases.
    const size_t looks = (late->from_start ? 2 : 1) * thresholds.late_persist;
    for (size_t back = 1; back <= looks; ++back) {
      const std::optional<Late> same = FindLate(Lateness(snapshot, windows, back), thresholds);
      lasting = lasting && same.has_value() && same->process == late->process;
    }
    if (lasting) Confirm(&finding);
    explains.insert(snapshot.processes[late->process].process);
    findings.push_back(std::move(finding));
  }
  if (SomeMayBeSlow(windows, thresholds)) {
    for (Finding& finding :
         DetectSlowNetwork(QueuePairsOf(snapshot), windows, explains, network, now_ns, thresholds)) {
      findings.push_back(std::move(finding));
    }
  }
  for (Finding& finding : DetectSlowInside(snapshot, windows, explains, thresholds)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace c4::c4d
