#include "c4d_master/detectors/communication_hang.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/detectors/sole_host.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::SecondsText;

constexpr size_t kMaxTold = 6;  // connections that get a sentence each

// Somebody waits for messages of this connection. Those that its receiver has yet to allow, or whose
// permission was lost with the path, are not posted.
bool IsWaitedFor(const QueuePairEnds& ends) {
  const auto waits = [](const QueuePair* of) {
    return of != nullptr && of->connection.known && of->connection.wanted > of->connection.done;
  };
  return waits(ends.queue_pair) || waits(ends.received);
}

bool HasOutstanding(const QueuePair& queue_pair) {
  return queue_pair.posted_bytes > queue_pair.completed_bytes;
}

// Since when it has been stuck; kNever when it is not.
int64_t StuckSince(const QueuePairEnds& ends) {
  const QueuePair& queue_pair = *ends.queue_pair;
  const bool outstanding = HasOutstanding(queue_pair);
  if (!outstanding && (queue_pair.last_heard_at_ns == kNever || queue_pair.dead || !IsWaitedFor(ends)))
    return kNever;
  if (!CanJudge(ends.sender) || !CanJudge(ends.receiver) || ends.from->phase != Phase::kReady) return kNever;
  int64_t since = std::max(queue_pair.last_progress_at_ns, queue_pair.last_post_at_ns);
  if (!outstanding) since = std::max(since, queue_pair.last_heard_at_ns + kSignOfLifeNs);
  // What the receiver still gets, the network still carries.
  if (ends.received != nullptr) since = std::max(since, ends.received->last_progress_at_ns);
  return since;
}

int64_t StuckFor(const QueuePairEnds& ends, int64_t since_ns) {
  return std::min(ends.sender->host->as_of_ns, ends.receiver->host->as_of_ns) - since_ns;
}

// The sender has heard nothing of the other end for too long. Kernel and library answer without the user's
// help, but not in a process that cannot run.
bool Unheard(const QueuePairEnds& ends, int64_t unheard_ns) {
  return ends.sender->host->as_of_ns - ends.queue_pair->last_heard_at_ns >= unheard_ns;
}

// The same of a queue pair of an engine that shows no signs of life: of one that is stuck. Nothing: nothing
// has gone over it since the first was stuck, so that nobody knows.
std::optional<bool> UnheardBySteps(const QueuePairEnds& ends, const std::set<const QueuePairEnds*>& stuck,
                                   int64_t first_stuck_ns) {
  if (stuck.contains(&ends)) return true;
  if (ends.queue_pair->last_progress_at_ns > first_stuck_ns) return false;
  return std::nullopt;
}

// By the numbers of JobQueuePairs::nics; those that nothing is said of have no process.
std::vector<Nic> ByNic(const JobQueuePairs& all, const std::vector<Stuck>& stuck,
                       const CommunicationHangThresholds& thresholds) {
  std::vector<Nic> nics(all.nics.size());
  for (size_t i = 0; i < nics.size(); ++i) nics[i].peers = all.nics[i].peers;
  std::set<const QueuePairEnds*> is_stuck;
  int64_t first_stuck_ns = INT64_MAX;
  for (const Stuck& item : stuck) {
    is_stuck.insert(item.ends);
    first_stuck_ns = std::min(first_stuck_ns, item.since_ns);
  }
  for (const QueuePairEnds& ends : all.ends) {
    if (ends.from_nic.empty() || ends.to_nic.empty() || ends.from_number == ends.to_number) continue;
    Nic& from = nics[ends.from_number];
    Nic& to = nics[ends.to_number];
    from.process = ends.sender;
    if (ends.receiver != nullptr) to.process = ends.receiver;
    from.seen = to.seen = true;
    if (!CanJudge(ends.sender) || !CanJudge(ends.receiver)) continue;
    const bool by_steps = ends.queue_pair->last_heard_at_ns == kNever;
    if (by_steps && !IsBySteps(ends)) continue;
    const std::optional<bool> unheard = by_steps ? UnheardBySteps(ends, is_stuck, first_stuck_ns)
                                                 : std::optional(Unheard(ends, thresholds.unheard_ns));
    if (!unheard.has_value()) continue;
    for (Nic* nic : {&from, &to}) {
      ++nic->known;
      nic->unheard += *unheard ? 1 : 0;
      nic->by_steps = nic->by_steps || by_steps;
    }
  }
  for (const Stuck& item : stuck) {
    for (const auto& [end, peer] : {std::pair(item.ends->from_number, item.ends->to_number),
                                    std::pair(item.ends->to_number, item.ends->from_number)}) {
      if (!nics[end].seen) continue;
      nics[end].stuck.push_back(&item);
      nics[end].stuck_peers.insert(peer);
    }
  }
  return nics;
}

// A quick look, because nearly always nothing is.
bool MayBeStuck(const JobSnapshot& snapshot, int64_t suspect_ns) {
  return std::any_of(snapshot.processes.begin(), snapshot.processes.end(), [&](const ProcessRef& ref) {
    return ref.outstanding_since_ns != INT64_MAX &&
           ref.host->as_of_ns - ref.outstanding_since_ns >= suspect_ns;
  });
}

std::vector<uint32_t> WaitingRanks(const JobSnapshot& snapshot) {
  std::vector<uint32_t> waiting;
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (ref.superseded) continue;
    for (const Membership& membership : ref.process->communicators) {
      if (IsWaiting(*ref.process, membership) || IsWaitingForPeer(*ref.process, membership)) {
        waiting.push_back(i);
        break;
      }
    }
  }
  return RanksOf(snapshot, waiting);
}

Finding Describe(const JobSnapshot& snapshot, const std::vector<const Stuck*>& stuck,
                 const CommunicationHangThresholds& thresholds) {
  Finding finding;
  finding.syndrome = Syndrome::kCommunicationHang;
  int64_t longest_ns = 0;
  std::set<uint64_t> communicators;
  size_t told = 0;
  for (const Stuck* item : stuck) {
    const QueuePairEnds& ends = *item->ends;
    finding.connections.push_back(RefOf(ends));
    communicators.insert(ends.communicator->id);
    const int64_t stuck_ns = StuckFor(ends, item->since_ns);
    if (stuck_ns > longest_ns) {
      longest_ns = stuck_ns;
      finding.since_at_ns = item->since_ns;
      finding.communicator_id = ends.communicator->id;
      finding.operation = IsWaitingForPeer(*ends.sender->process, *ends.from) ? ends.from->p2p_finished.count
                                                                              : ends.from->finished.count;
    }
    if (++told > kMaxTold) continue;
    if (!HasOutstanding(*ends.queue_pair)) {
      finding.evidence.push_back(
          {"connection",
           Concat("messages of rank ", ends.sender->process->rank, " for rank ", ends.receiver->process->rank,
                  " are waited for (", ends.queue_pair->local, " to ", ends.queue_pair->remote,
                  "), and no sign of life has come for ", SecondsText(stuck_ns + kSignOfLifeNs))});
      continue;
    }
    finding.evidence.push_back(
        {"connection",
         Concat("rank ", ends.sender->process->rank, " has ",
                ends.queue_pair->posted_bytes - ends.queue_pair->completed_bytes, " bytes towards rank ",
                ends.receiver->process->rank, " that are not acknowledged (",
                ends.queue_pair->local.empty() ? "the vendor's engine, addresses not known"
                                               : ends.queue_pair->local,
                ends.queue_pair->local.empty() ? "" : " to ", ends.queue_pair->remote,
                "), no byte moved for ", SecondsText(stuck_ns))});
  }
  if (told > kMaxTold) {
    finding.evidence.push_back({"connection", Concat("the same on ", told - kMaxTold, " more queue pairs")});
  }
  SortConnections(&finding.connections);
  finding.communicators.assign(communicators.begin(), communicators.end());
  finding.waiting = WaitingRanks(snapshot);
  finding.confidence = 0.5;
  if (longest_ns >= thresholds.confirm_ns) {
    finding.confidence = 0.95;
    finding.confirmed_by = "no-progress";
  }
  return finding;
}

Witness WitnessOf(const QueuePairEnds& ends, analysis::FlowState state) {
  return c4d::WitnessOf(ends, ends.queue_pair->local, ends.queue_pair->remote, state);
}

// What each queue pair that no silent NIC explains says of its path: the stuck ones first, in their order.
std::vector<Witness> Witnesses(const std::vector<QueuePairEnds>& queue_pairs,
                               const std::vector<const Stuck*>& stuck, const std::set<std::string>& silent,
                               const CommunicationHangThresholds& thresholds) {
  std::vector<Witness> witnesses;
  std::set<const QueuePairEnds*> known;
  int64_t first_stuck_ns = INT64_MAX;
  for (const Stuck* item : stuck) {
    witnesses.push_back(WitnessOf(*item->ends, analysis::FlowState::kBad));
    known.insert(item->ends);
    first_stuck_ns = std::min(first_stuck_ns, item->since_ns);
  }
  for (const QueuePairEnds& ends : queue_pairs) {
    if (known.count(&ends) != 0 || silent.count(ends.from_nic) != 0 || silent.count(ends.to_nic) != 0)
      continue;
    const QueuePair& queue_pair = *ends.queue_pair;
    auto state = analysis::FlowState::kUnknown;
    if (queue_pair.last_heard_at_ns != kNever && CanJudge(ends.sender) && CanJudge(ends.receiver)) {
      const bool heard = !Unheard(ends, thresholds.heard_ns) && StuckSince(ends) == kNever;
      if (heard) state = analysis::FlowState::kGood;
      if (Unheard(ends, thresholds.unheard_ns)) state = analysis::FlowState::kBad;
    }
    // Verbs tell of no sign of life, but complete what was acknowledged.
    if (IsBySteps(ends) && queue_pair.last_progress_at_ns != kNever && CanJudge(ends.sender) &&
        queue_pair.last_progress_at_ns > first_stuck_ns + thresholds.suspect_ns / 2) {
      state = analysis::FlowState::kGood;
    }
    witnesses.push_back(WitnessOf(ends, state));
  }
  return witnesses;
}

// The findings about links between switches; none where no link can be named. `finding` gets what is known
// of the link where several are possible.
std::vector<Finding> NameLinks(const JobSnapshot& snapshot, const std::vector<const Stuck*>& stuck,
                               const std::vector<Witness>& witnesses, PathSource* paths, Finding* finding,
                               const CommunicationHangThresholds& thresholds) {
  std::vector<Finding> findings;
  const LinkBlame blame = BlameLinks(witnesses, /*acks_count=*/true, paths, thresholds.link);
  for (const BlamedLink& link : blame.blamed) {
    std::vector<const Stuck*> own;
    for (const size_t witness : link.bad) {
      if (witness < stuck.size()) own.push_back(stuck[witness]);
    }
    if (own.empty()) continue;  // silent, and nobody waits for it
    Finding named = Describe(snapshot, own, thresholds);
    named.kind = CulpritKind::kLink;
    named.cable = link.cable;
    named.links = link.links;
    named.evidence.insert(named.evidence.begin(), LinkEvidence(link, "are silent"));
    named.suggested_action =
        Concat("look at the link ", link.cable,
               ": both switch ports, its cable, errors and drops that they count; take it "
               "out of the routing, and the connections go other ways");
    findings.push_back(std::move(named));
  }
  if (blame.sort == LinkBlame::Sort::kAmbiguous) {
    finding->kind = CulpritKind::kAmbiguous;
    finding->candidates.clear();
  }
  if (blame.sort == LinkBlame::Sort::kAmbiguous || blame.sort == LinkBlame::Sort::kHost) {
    finding->links = blame.candidates;
    finding->evidence.insert(finding->evidence.begin(), CandidatesEvidence(blame, "are silent"));
  }
  return findings;
}

// Several NICs of a node that are silent, and none that is not: it is the node.
void JoinNodes(const std::vector<Nic>& nics, std::vector<Finding>* findings) {
  std::map<std::string, std::vector<Finding*>> by_host;
  for (Finding& finding : *findings) by_host[finding.host].push_back(&finding);
  std::map<std::string, size_t> speaking;  // NICs of a host over which something goes
  for (const Nic& nic : nics) {
    if (nic.process != nullptr && nic.known > nic.unheard) ++speaking[nic.process->host->name];
  }
  for (auto& [host, silent] : by_host) {
    if (silent.size() < 2 || speaking[host] >= silent.size()) continue;
    Finding& node = *silent.front();
    std::string names = node.nic;
    for (size_t i = 1; i < silent.size(); ++i) {
      names += Concat(", ", silent[i]->nic);
      for (ConnectionRef& ref : silent[i]->connections) node.connections.push_back(std::move(ref));
      if (!silent[i]->confirmed_by.empty()) {
        node.confirmed_by = silent[i]->confirmed_by;
        node.confidence = std::max(node.confidence, silent[i]->confidence);
      }
      silent[i]->host.clear();  // to be taken out
    }
    SortConnections(&node.connections);
    const auto same = [](const ConnectionRef& a, const ConnectionRef& b) {
      return a.communicator_id == b.communicator_id && a.from_rank == b.from_rank && a.to_rank == b.to_rank &&
             a.channel == b.channel && a.index == b.index;
    };
    node.connections.erase(std::unique(node.connections.begin(), node.connections.end(), same),
                           node.connections.end());
    node.kind = CulpritKind::kNode;
    node.nic.clear();
    node.evidence.insert(node.evidence.begin(),
                         {"nic", Concat(silent.size(), " NICs of ", host, " are silent: ", names)});
    node.suggested_action = Concat("look at what the NICs of ", host,
                                   " share: its leaf switch, PCIe, drivers (`dmesg`, `ibstat`); isolate ",
                                   host, " and restart the job from its last checkpoint");
  }
  std::erase_if(*findings, [](const Finding& finding) { return finding.host.empty(); });
}

// Ranks of a node share NICs, and nobody says which. Where all that stands still is one host's and single
// ranks explain only a part of it, it is the node.
void NameNode(const JobSnapshot& snapshot, const Host& host, size_t peers, const std::vector<Stuck>& stuck,
              std::set<const Stuck*>* explained, std::vector<Finding>* findings,
              const CommunicationHangThresholds& thresholds) {
  std::vector<const Stuck*> own;
  bool rest = false;
  for (const Stuck& item : stuck) {
    if (!IsBySteps(*item.ends)) continue;
    own.push_back(&item);
    rest = rest || !explained->contains(&item);
  }
  if (!rest) return;
  explained->insert(own.begin(), own.end());
  std::erase_if(*findings, [&](const Finding& finding) { return finding.host == host.name; });
  Finding node = Describe(snapshot, own, thresholds);
  node.kind = CulpritKind::kNode;
  node.host = host.name;
  node.rank = -1;
  node.evidence.insert(
      node.evidence.begin(),
      {"nic", Concat("all that stands still goes to or from ranks of ", host.name, ": ", own.size(),
                     " ways between it and ", peers, " other nodes hold data that nobody takes")});
  node.suggested_action =
      Concat("look at the NICs of ", host.name,
             ", their cables and switch ports (`ibstat`, `ip -s link`, `dmesg`); isolate ", host.name,
             " and restart the job from its last checkpoint");
  findings->push_back(std::move(node));
}

}  // namespace

std::vector<Finding> DetectCommunicationHangs(const JobSnapshot& snapshot, PathSource* paths,
                                              const CommunicationHangThresholds& thresholds) {
  if (!MayBeStuck(snapshot, thresholds.suspect_ns)) return {};
  const std::vector<QueuePairEnds>& queue_pairs = CollectQueuePairs(snapshot);
  std::vector<Stuck> stuck;
  bool suspicious = false;
  for (const QueuePairEnds& ends : queue_pairs) {
    const int64_t since_ns = StuckSince(ends);
    if (since_ns == kNever || StuckFor(ends, since_ns) < thresholds.suspect_ns / 2) continue;
    suspicious = suspicious || StuckFor(ends, since_ns) >= thresholds.suspect_ns;
    stuck.push_back({&ends, since_ns});
  }
  if (!suspicious) return {};
  const std::vector<Nic> nics = ByNic(QueuePairsOf(snapshot), stuck, thresholds);
  const Sole sole = SoleHost(queue_pairs, stuck, nics, thresholds);
  std::vector<std::pair<std::string, const Nic*>> candidates;
  for (size_t i = 0; i < nics.size(); ++i) {
    // What stands still by its steps alone may stand still for its peer: two of them tell.
    const size_t peers = nics[i].by_steps ? nics[i].stuck_peers.size() : nics[i].peers;
    if (!nics[i].Silent(thresholds) || peers < 2) continue;
    if (nics[i].by_steps && nics[i].process->host != sole.host) continue;
    candidates.emplace_back(QueuePairsOf(snapshot).nics[i].address, &nics[i]);
  }
  // A NIC whose queue pairs all take one link is silent when the link is: the paths tell the two apart.
  if (paths != nullptr && !candidates.empty()) {
    std::vector<const Stuck*> all;
    all.reserve(stuck.size());
    for (const Stuck& item : stuck) all.push_back(&item);
    const LinkBlame blame =
        BlameLinks(Witnesses(queue_pairs, all, {}, thresholds), /*acks_count=*/true, paths, thresholds.link);
    if (blame.sort == LinkBlame::Sort::kLinks) candidates.clear();
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.second->unheard > b.second->unheard; });
  std::vector<Finding> findings;
  std::set<const Stuck*> explained;
  for (const auto& [address, nic] : candidates) {
    std::vector<const Stuck*> rest;
    for (const Stuck* item : nic->stuck) {
      if (explained.count(item) == 0) rest.push_back(item);
    }
    if (rest.empty()) continue;
    explained.insert(rest.begin(), rest.end());
    Finding finding = Describe(snapshot, nic->stuck, thresholds);
    finding.kind = CulpritKind::kNic;
    finding.nic = address;
    finding.host = nic->process->host->name;
    finding.rank = -1;
    finding.evidence.insert(
        finding.evidence.begin(),
        {"nic", nic->by_steps ? Concat("nothing goes through the NIC ", address, " on ", finding.host,
                                       " any more: ", nic->unheard, " of ", nic->known, " ways to and from ",
                                       nic->stuck_peers.size(), " peers hold data that nobody takes")
                              : Concat("nothing is heard over ", address, " of ", finding.host, " any more: ",
                                       nic->unheard, " of ", nic->known, " queue pairs with ", nic->peers,
                                       " peers give no sign of life, which comes once a second")});
    finding.suggested_action = Concat("look at the NIC ", address, " of ", finding.host,
                                      ", its cable and its switch port (`ip -s link`, "
                                      "`ethtool`); if it stays silent, isolate ",
                                      finding.host, " and restart the job");
    findings.push_back(std::move(finding));
  }
  JoinNodes(nics, &findings);
  if (sole.host != nullptr && IsSilent(sole.host, nics, thresholds)) {
    NameNode(snapshot, *sole.host, sole.peers, stuck, &explained, &findings, thresholds);
  }
  std::vector<const Stuck*> rest;
  for (const Stuck& item : stuck) {
    if (explained.count(&item) == 0) rest.push_back(&item);
  }
  if (rest.empty()) return findings;
  Finding finding = Describe(snapshot, rest, thresholds);
  finding.kind = CulpritKind::kConnection;
  // Two NICs that see nobody but each other, both silent: it is either of them, or what lies between.
  std::set<uint32_t> ends;
  for (const Stuck* item : rest) {
    ends.insert(item->ends->from_number);
    ends.insert(item->ends->to_number);
  }
  if (ends.size() == 2 && findings.empty()) {
    bool either = true;
    for (const uint32_t end : ends) either = either && nics[end].peers == 1 && nics[end].Silent(thresholds);
    if (either) {
      finding.kind = CulpritKind::kAmbiguous;
      finding.candidates = {
          std::min(rest.front()->ends->sender->process->rank, rest.front()->ends->receiver->process->rank),
          std::max(rest.front()->ends->sender->process->rank, rest.front()->ends->receiver->process->rank)};
    }
  }
  finding.suggested_action =
      "look for what these connections have in common: the switch port or link on the path of their ports; "
      "other connections of the same hosts go on";
  if (paths != nullptr) {
    std::set<std::string> silent;
    for (const auto& [address, nic] : candidates) silent.insert(address);
    std::vector<Finding> named = NameLinks(snapshot, rest, Witnesses(queue_pairs, rest, silent, thresholds),
                                           paths, &finding, thresholds);
    if (!named.empty()) {
      for (Finding& link : named) findings.push_back(std::move(link));
      return findings;
    }
  }
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace c4::c4d
