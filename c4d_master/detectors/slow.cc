#include "c4d_master/detectors/slow.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_format.h"
#include "c4d_master/detectors/late_rank.h"
#include "c4d_master/detectors/links.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kMaxTold = 6;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = (values.size() - 1) / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  return values[middle];
}

struct Cell {
  const Link* link = nullptr;
  Latency low;
  double usual = 0;      // 0: not known
  double usual_bad = 0;  // what the worse chunks usually cost
  double ratio = 0;      // to the baseline, else to the median of the communicator
  bool judged = false;   // there is something to compare it with
  bool slow = false;
  // Slower than usual, but its bad chunks usually are as slow: speaks neither for nor against anybody.
  bool unclear = false;
};

QueuePairKey KeyOf(const Link& link) {
  return {link.communicator->id, link.from->rank, link.queue_pair->peer, link.queue_pair->channel,
          link.queue_pair->index};
}

std::vector<Cell> Cells(const std::vector<Link>& links, const Windows& windows, size_t back,
                        const SlowThresholds& thresholds) {
  std::vector<Cell> cells;
  std::vector<double> ratios;
  std::map<uint64_t, std::vector<double>> lows;
  for (const Link& link : links) {
    if (link.sender->superseded) continue;
    Cell cell;
    cell.link = &link;
    const ProcessKey& process = link.sender->process->key;
    cell.low = windows.Recent(process, KeyOf(link), back, thresholds.share);
    if (cell.low.chunks <= 0) continue;
    const Latency usual = windows.Usual(process, KeyOf(link), thresholds.share);
    if (usual.chunks >= thresholds.min_usual_chunks) {
      cell.usual = usual.ns_per_kib;
      cell.usual_bad = windows.Usual(process, KeyOf(link), thresholds.usual_share).ns_per_kib;
      cell.ratio = cell.low.ns_per_kib / cell.usual;
      ratios.push_back(cell.ratio);
    }
    lows[link.communicator->id].push_back(cell.low.ns_per_kib);
    cells.push_back(cell);
  }
  // The whole job may have become slower (or faster) for a reason of its own.
  const double usual_ratio = std::max(ratios.empty() ? 1.0 : Median(ratios), 0.5);
  std::map<uint64_t, double> medians;
  for (const auto& [communicator, values] : lows) {
    if (values.size() >= 4) medians[communicator] = Median(values);
  }
  // What the bad chunks of the job usually cost, whichever way they take: less than that holds nobody up.
  const double job_bad = windows.UsualOfAll(thresholds.usual_share).ns_per_kib;
  for (Cell& cell : cells) {
    if (cell.usual > 0) {
      cell.judged = true;
      const bool grown =
          cell.ratio >= thresholds.own_factor && cell.ratio >= thresholds.matrix_factor * usual_ratio;
      cell.slow = grown && cell.low.ns_per_kib >= thresholds.bad_factor * std::max(cell.usual_bad, job_bad);
      cell.unclear = grown && !cell.slow;
      continue;
    }
    const auto median = medians.find(cell.link->communicator->id);
    if (median == medians.end() || median->second <= 0) continue;
    cell.ratio = cell.low.ns_per_kib / median->second;
    cell.judged = cell.low.chunks >= thresholds.blind_chunks &&
                  windows.Own(cell.link->sender->process->key, back).seen >= thresholds.blind_slices;
    cell.slow = cell.judged && cell.ratio >= thresholds.blind_factor;
  }
  return cells;
}

struct Explanation {
  std::map<std::string, std::vector<const Cell*>> nics;
  std::vector<const Cell*> connections;
  bool ambiguous = false;
};

// The fewest NICs that most slow cells touch, and the cells that are left.
Explanation Explain(const std::vector<Cell>& cells, const std::set<const Process*>& late,
                    const SlowThresholds& thresholds) {
  struct Nic {
    size_t populated = 0;
    std::vector<const Cell*> slow;
    std::set<std::string> slow_peers;
    std::set<std::string> peers;
  };
  Explanation result;
  std::set<const Cell*> left;
  for (const Cell& cell : cells) {
    const Link& link = *cell.link;
    if (late.count(link.sender->process) != 0) continue;
    if (link.receiver != nullptr && late.count(link.receiver->process) != 0) continue;
    if (cell.slow) left.insert(&cell);
  }
  for (;;) {
    std::map<std::string, Nic> nics;
    size_t strong = 0;
    for (const Cell& cell : cells) {
      const bool slow = left.count(&cell) != 0;
      if (slow && cell.low.chunks >= thresholds.min_chunks) ++strong;
      if (!slow && (!cell.judged || cell.unclear || cell.low.chunks < 2)) continue;
      for (const bool sender : {true, false}) {
        Nic& nic = nics[sender ? cell.link->from_nic : cell.link->to_nic];
        const std::string& peer = sender ? cell.link->to_nic : cell.link->from_nic;
        ++nic.populated;
        nic.peers.insert(peer);
        if (!slow) continue;
        nic.slow.push_back(&cell);
        nic.slow_peers.insert(peer);
      }
    }
    if (strong == 0) return result;
    const std::string* best = nullptr;
    for (const auto& [address, nic] : nics) {
      if (nic.slow_peers.size() < 2 ||
          static_cast<double>(nic.slow.size()) < thresholds.nic_share * static_cast<double>(nic.populated)) {
        continue;
      }
      if (best == nullptr || nic.slow.size() > nics[*best].slow.size()) best = &address;
    }
    if (best == nullptr) {
      std::set<std::string> ends;
      for (const Cell* cell : left) {
        if (cell->low.chunks < 2) continue;
        result.connections.push_back(cell);
        ends.insert(cell->link->from_nic);
        ends.insert(cell->link->to_nic);
      }
      result.ambiguous = ends.size() == 2;
      for (const std::string& end : ends) {
        const Nic& nic = nics[end];
        result.ambiguous = result.ambiguous && nic.peers.size() == 1 && nic.slow.size() == nic.populated;
      }
      return result;
    }
    std::vector<const Cell*>& explained = result.nics[*best];
    explained = nics[*best].slow;
    for (const Cell* cell : explained) left.erase(cell);
  }
}

std::string CellText(const Cell& cell) {
  const Link& link = *cell.link;
  return absl::StrFormat(
      "rank %d to rank %d (%s to %s): %.1f us per KiB, %.1f times %s, %.0f chunks",
      link.sender->process->rank, link.receiver == nullptr ? -1 : link.receiver->process->rank,
      link.queue_pair->local, link.queue_pair->remote, cell.low.ns_per_kib / 1e3, cell.ratio,
      cell.usual > 0 ? "what is usual for it" : "the median of its communicator", cell.low.chunks);
}

Finding DescribeCells(const std::vector<const Cell*>& cells) {
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationSlow;
  finding.confidence = 0.5;
  std::set<uint64_t> communicators;
  size_t told = 0;
  for (const Cell* cell : cells) {
    ConnectionRef ref = RefOf(*cell->link);
    ref.ratio = cell->ratio;
    finding.connections.push_back(std::move(ref));
    communicators.insert(cell->link->communicator->id);
    finding.since_at_ns = std::max(finding.since_at_ns, cell->link->sender->host->as_of_ns - 4 * kSecondNs);
    if (++told <= kMaxTold) finding.evidence.push_back({"latency", CellText(*cell)});
  }
  if (told > kMaxTold) {
    finding.evidence.push_back({"latency", Concat("the same on ", told - kMaxTold, " more queue pairs")});
  }
  SortConnections(&finding.connections);
  finding.communicators.assign(communicators.begin(), communicators.end());
  if (!communicators.empty()) finding.communicator_id = *communicators.begin();
  return finding;
}

void Confirm(Finding* finding) {
  finding->confidence = 0.9;
  finding->confirmed_by = "slow";
}

bool Overlap(const std::vector<const Cell*>& a, const std::vector<const Cell*>& b) {
  std::set<const Link*> links;
  for (const Cell* cell : a) links.insert(cell->link);
  return std::any_of(b.begin(), b.end(), [&](const Cell* cell) { return links.count(cell->link) != 0; });
}

// Cells of connections that were slow in at least two of these looks, as the newest look of them shows each:
// one that is near the limit comes and goes, and one that was unlucky does not come again.
std::vector<const Cell*> SlowMoreThanOnce(const std::vector<Explanation>& looks) {
  std::map<const Link*, std::pair<const Cell*, size_t>> seen;
  std::vector<const Link*> order;
  for (const Explanation& look : looks) {
    for (const Cell* cell : look.connections) {
      auto& [newest, times] = seen[cell->link];
      if (times++ > 0) continue;
      newest = cell;
      order.push_back(cell->link);
    }
  }
  std::vector<const Cell*> cells;
  for (const Link* link : order) {
    if (seen[link].second >= 2) cells.push_back(seen[link].first);
  }
  return cells;
}

// What each queue pair says of its path: those that are told of first, in their order. Good is what can be
// judged and was slow in none of the looks.
template <typename Fading>
std::vector<Witness> Witnesses(const std::vector<const Cell*>& told,
                               const std::vector<std::vector<Cell>>& looks, const Fading& fading,
                               const std::set<const Process*>& late) {
  std::vector<Witness> witnesses;
  std::set<const Link*> slow;
  for (const Cell* cell : told) {
    witnesses.push_back(
        {cell->link->queue_pair->local, cell->link->queue_pair->remote, analysis::FlowState::kBad});
    slow.insert(cell->link);
  }
  const std::set<const Link*> known = slow;
  for (const std::vector<Cell>& cells : looks) {
    for (const Cell& cell : cells) {
      if (cell.slow) slow.insert(cell.link);
    }
  }
  for (const Cell& cell : looks.front()) {
    const Link& link = *cell.link;
    if (known.count(&link) != 0) continue;
    const bool excused = late.count(link.sender->process) != 0 ||
                         (link.receiver != nullptr && late.count(link.receiver->process) != 0);
    const bool good = slow.count(&link) == 0 && cell.judged && !cell.unclear && cell.low.chunks >= 2 &&
                      !excused && !fading(&cell);
    witnesses.push_back({link.queue_pair->local, link.queue_pair->remote,
                         good ? analysis::FlowState::kGood : analysis::FlowState::kUnknown});
  }
  return witnesses;
}

// A NIC most of whose queue pairs take a slow link looks slow itself: where the paths tell that it is the
// link, the NIC's queue pairs are connections like all others.
void Overrule(const std::vector<Cell>& cells, const std::set<const Process*>& late, PathSource* paths,
              const SlowThresholds& thresholds, Explanation* explanation) {
  if (paths == nullptr || explanation->nics.empty()) return;
  std::vector<const Cell*> slow = explanation->connections;
  for (const auto& entry : explanation->nics)
    slow.insert(slow.end(), entry.second.begin(), entry.second.end());
  const auto never = [](const Cell*) { return false; };
  const LinkBlame blame =
      BlameLinks(Witnesses(slow, {cells}, never, late), /*acks_count=*/false, paths, thresholds.link);
  if (blame.sort != LinkBlame::Sort::kLinks) return;
  explanation->nics.clear();
  explanation->connections = std::move(slow);
}

// The findings about links between switches that slow queue pairs share; none where no link can be named.
// `finding`, which tells of the queue pairs, gets what is known of the link where several are possible.
std::vector<Finding> NameLinks(const std::vector<const Cell*>& told, std::vector<Witness> witnesses,
                               const std::vector<Witness>& fenced, PathSource* paths, Finding* finding,
                               const SlowThresholds& thresholds) {
  std::vector<Finding> findings;
  const char* what = "are slow";
  LinkBlame blame = BlameLinks(witnesses, /*acks_count=*/false, paths, thresholds.link);
  if (blame.sort != LinkBlame::Sort::kLinks && !fenced.empty()) {
    witnesses.insert(witnesses.end(), fenced.begin(), fenced.end());
    LinkBlame with_fenced = BlameLinks(witnesses, /*acks_count=*/false, paths, thresholds.link);
    if (with_fenced.sort == LinkBlame::Sort::kLinks || blame.sort == LinkBlame::Sort::kNone) {
      blame = std::move(with_fenced);
      what = "are slow, or were given up by the transport,";
    }
  }
  for (const BlamedLink& link : blame.blamed) {
    std::vector<const Cell*> own;
    for (const size_t witness : link.bad) {
      if (witness < told.size()) own.push_back(told[witness]);
    }
    if (own.empty()) continue;  // that is another detector's
    Finding named = DescribeCells(own);
    named.kind = CulpritKind::kLink;
    named.cable = link.cable;
    named.links = link.links;
    named.confidence = finding->confidence;
    named.confirmed_by = finding->confirmed_by;
    named.evidence.insert(named.evidence.begin(), LinkEvidence(link, what));
    named.suggested_action = Concat("look at the link ", link.cable,
                                    ": the rate of both switch ports, errors that they count, congestion by "
                                    "other jobs; take it out of the routing if it stays slow");
    findings.push_back(std::move(named));
  }
  if (blame.sort == LinkBlame::Sort::kAmbiguous) {
    finding->kind = CulpritKind::kAmbiguous;
    finding->links = blame.candidates;
    finding->candidates.clear();
  }
  if (blame.sort == LinkBlame::Sort::kAmbiguous || blame.sort == LinkBlame::Sort::kHost) {
    finding->evidence.insert(finding->evidence.begin(), CandidatesEvidence(blame, what));
  }
  AddWhyNone(blame, finding);
  return findings;
}

// The paths that were fenced lately.
std::vector<Witness> FencedWitnesses(const FenceLog* fences, int64_t now_ns, const SlowThresholds& thresholds) {
  std::vector<Witness> witnesses;
  if (fences == nullptr) return witnesses;
  std::set<std::pair<std::string, std::string>> known;
  for (const LostPath& lost : fences->recent()) {
    if (now_ns - lost.at_ns > thresholds.fenced_ns || !known.insert({lost.local, lost.remote}).second) continue;
    witnesses.push_back({lost.local, lost.remote, analysis::FlowState::kBad});
  }
  return witnesses;
}

std::vector<Finding> DetectSlowNetwork(const std::vector<Link>& links, const Windows& windows,
                                       const std::set<const Process*>& late, const NetworkView& network,
                                       int64_t now_ns, const SlowThresholds& thresholds) {
  PathSource* const paths = network.paths;
  std::vector<std::vector<Cell>> cells;
  std::vector<Explanation> past;
  for (size_t back = 0; back <= thresholds.persist; ++back) {
    cells.push_back(Cells(links, windows, back, thresholds));
    past.push_back(Explain(cells.back(), late, thresholds));
    Overrule(cells.back(), late, paths, thresholds, &past.back());
    if (back == 0 && past[0].nics.empty() && past[0].connections.empty()) return {};
  }
  const Explanation& now = past.front();
  std::vector<Finding> findings;
  for (const auto& entry : now.nics) {
    const std::string& address = entry.first;
    const std::vector<const Cell*>& slow = entry.second;
    Finding finding = DescribeCells(slow);
    finding.kind = CulpritKind::kNic;
    finding.nic = address;
    for (const Cell* cell : slow) {
      if (cell->link->from_nic == address) finding.host = cell->link->sender->host->name;
    }
    if (finding.host.empty() && slow.front()->link->receiver != nullptr) {
      finding.host = slow.front()->link->receiver->host->name;
    }
    if (std::all_of(past.begin(), past.end(),
                    [&](const Explanation& then) { return then.nics.count(address) != 0; })) {
      Confirm(&finding);
    }
    finding.evidence.insert(
        finding.evidence.begin(),
        {"nic", Concat("nearly all queue pairs that ", finding.host, " uses on ", address, " are slow (",
                       slow.size(), "), those of its peers among each other are not")});
    finding.suggested_action = Concat("look at the NIC ", address, " of ", finding.host,
                                      ", its negotiated rate, errors and pauses "
                                      "(`ethtool`, `ip -s link`); if it stays slow, replace the node");
    findings.push_back(std::move(finding));
  }
  if (now.connections.empty()) return findings;
  const bool lasting = past.size() > 1 && std::all_of(past.begin(), past.end(), [&](const Explanation& then) {
                         return Overlap(then.connections, now.connections);
                       });
  // What is left of a NIC that was slow a moment ago is not news of its connections.
  std::set<std::string> faded;
  const auto fade = [&](const Explanation& then) {
    for (const auto& entry : then.nics) faded.insert(entry.first);
  };
  for (size_t back = 1; back <= thresholds.fade; ++back) {
    const std::vector<Cell> older =
        back < past.size() ? std::vector<Cell>() : Cells(links, windows, back, thresholds);
    if (back < past.size()) {
      fade(past[back]);
      continue;
    }
    Explanation then = Explain(older, late, thresholds);
    Overrule(older, late, paths, thresholds, &then);
    fade(then);
  }
  const auto fading = [&](const Cell* cell) {
    return faded.count(cell->link->from_nic) != 0 || faded.count(cell->link->to_nic) != 0;
  };
  // Looks share chunks. Where there are few, they have to be slow in two that share none.
  std::set<const Link*> slow_before;
  const std::vector<Cell> before =
      lasting ? Cells(links, windows, thresholds.persist + 1, thresholds) : std::vector<Cell>();
  for (const Cell& cell : before) {
    if (cell.slow) slow_before.insert(cell.link);
  }
  std::vector<const Cell*> told;
  for (const Cell* cell : lasting ? SlowMoreThanOnce(past) : now.connections) {
    const bool few = lasting && cell->low.chunks < thresholds.min_chunks;
    if (!fading(cell) && (!few || slow_before.count(cell->link) != 0)) told.push_back(cell);
  }
  if (told.empty()) return findings;
  // A single queue pair is more often unlucky than alone on a bad path, and without a baseline any may be.
  const bool blind = std::all_of(told.begin(), told.end(), [](const Cell* cell) { return cell->usual <= 0; });
  bool alone_lasts = true;
  for (size_t back = thresholds.persist + 1; (told.size() == 1 || blind) && back <= thresholds.alone_persist;
       ++back) {
    const std::vector<Cell> then = Cells(links, windows, back, thresholds);
    alone_lasts = alone_lasts && std::any_of(then.begin(), then.end(), [&](const Cell& cell) {
                    return cell.slow && std::any_of(told.begin(), told.end(), [&](const Cell* now_slow) {
                             return now_slow->link == cell.link;
                           });
                  });
  }
  Finding finding = DescribeCells(told);
  finding.kind = now.ambiguous ? CulpritKind::kAmbiguous : CulpritKind::kConnection;
  if (now.ambiguous) {
    std::set<int32_t> ends;
    for (const ConnectionRef& ref : finding.connections) ends.insert({ref.from_rank, ref.to_rank});
    finding.candidates.assign(ends.begin(), ends.end());
  }
  if (lasting && alone_lasts) Confirm(&finding);
  finding.suggested_action =
      "look for what these connections have in common: a switch port or link on the path of their ports (its "
      "rate, errors, congestion); other connections of the same hosts are not slow";
  if (paths != nullptr) {
    std::vector<Finding> named =
        NameLinks(told, Witnesses(told, cells, fading, late),
                  FencedWitnesses(network.fences, now_ns, thresholds), paths, &finding, thresholds);
    if (!named.empty()) {
      for (Finding& link : named) findings.push_back(std::move(link));
      return findings;
    }
  }
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace

std::vector<Finding> DetectSlow(const JobSnapshot& snapshot, const Windows& windows,
                                const NetworkView& network, int64_t now_ns, const SlowThresholds& thresholds) {
  std::vector<Finding> findings;
  std::vector<Late> ranks = Lateness(snapshot, windows, 0);
  std::set<const Process*> explains;
  if (const Late* late = FindExplaining(ranks, thresholds)) {
    explains.insert(snapshot.processes[late->process].process);
  }
  if (const Late* late = FindLate(&ranks, thresholds)) {
    Finding finding = DescribeLate(snapshot, *late, ranks);
    finding.confidence = 0.5;
    bool lasting = true;
    for (size_t back = 1; back <= thresholds.late_persist; ++back) {
      std::vector<Late> then = Lateness(snapshot, windows, back);
      const Late* same = FindLate(&then, thresholds);
      lasting = lasting && same != nullptr && same->process == late->process;
    }
    if (lasting) Confirm(&finding);
    explains.insert(snapshot.processes[late->process].process);
    findings.push_back(std::move(finding));
  }
  const std::vector<Link> links = CollectLinks(snapshot);
  for (Finding& finding : DetectSlowNetwork(links, windows, explains, network, now_ns, thresholds)) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<MatrixCell> LatencyMatrix(const JobSnapshot& snapshot, const Windows& windows,
                                      const SlowThresholds& thresholds) {
  std::vector<MatrixCell> matrix;
  const std::vector<Link> links = CollectLinks(snapshot);
  for (const Cell& cell : Cells(links, windows, 0, thresholds)) {
    MatrixCell item;
    item.connection = RefOf(*cell.link);
    item.connection.ratio = cell.ratio;
    item.from_nic = cell.link->from_nic;
    item.to_nic = cell.link->to_nic;
    item.ns_per_kib = windows.Recent(cell.link->sender->process->key, KeyOf(*cell.link), 0, 0.5).ns_per_kib;
    item.low_ns_per_kib = cell.low.ns_per_kib;
    item.usual_ns_per_kib = cell.usual;
    item.chunks = cell.low.chunks;
    item.slow = cell.slow;
    matrix.push_back(std::move(item));
  }
  return matrix;
}

}  // namespace c4::c4d
