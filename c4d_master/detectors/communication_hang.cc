#include "c4d_master/detectors/communication_hang.h"

#include <algorithm>
#include <map>
#include <set>

#include "c4d_master/detectors/links.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::SecondsText;

constexpr size_t kMaxTold = 6;  // connections that get a sentence each

bool CanJudge(const ProcessRef* end) {
  return end != nullptr && !end->stale && !end->superseded && !end->process->ended &&
         !CannotRun(end->process->health.state);
}

// Since when it has been stuck; kNever when it is not.
int64_t StuckSince(const Link& link) {
  const QueuePair& queue_pair = *link.queue_pair;
  if (queue_pair.posted_bytes <= queue_pair.completed_bytes) return kNever;
  if (!CanJudge(link.sender) || !CanJudge(link.receiver) || link.from->phase != Phase::kReady) return kNever;
  int64_t since = std::max(queue_pair.last_progress_at_ns, queue_pair.last_post_at_ns);
  // What the receiver still gets, the network still carries.
  if (link.received != nullptr) since = std::max(since, link.received->last_progress_at_ns);
  return since;
}

int64_t StuckFor(const Link& link, int64_t since_ns) {
  return std::min(link.sender->host->as_of_ns, link.receiver->host->as_of_ns) - since_ns;
}

struct Stuck {
  const Link* link;
  int64_t since_ns;
};

struct Nic {
  std::vector<const Stuck*> stuck;
  std::set<std::string> stuck_peers;
  std::set<std::string> peers;  // of all its queue pairs
  int64_t first_stuck_ns = INT64_MAX;
  int64_t last_arrival_ns = kNever;  // of a byte over it, on either end
  const ProcessRef* process = nullptr;
};

std::map<std::string, Nic> ByNic(const std::vector<Link>& links, const std::vector<Stuck>& stuck) {
  std::map<std::string, Nic> nics;
  for (const Link& link : links) {
    if (link.from_nic.empty() || link.to_nic.empty() || link.from_nic == link.to_nic) continue;
    Nic& from = nics[link.from_nic];
    Nic& to = nics[link.to_nic];
    from.process = link.sender;
    if (link.receiver != nullptr) to.process = link.receiver;
    from.peers.insert(link.to_nic);
    to.peers.insert(link.from_nic);
    if (link.received == nullptr) continue;
    from.last_arrival_ns = std::max(from.last_arrival_ns, link.received->last_progress_at_ns);
    to.last_arrival_ns = std::max(to.last_arrival_ns, link.received->last_progress_at_ns);
  }
  for (const Stuck& item : stuck) {
    for (const bool sender : {true, false}) {
      const auto it = nics.find(sender ? item.link->from_nic : item.link->to_nic);
      if (it == nics.end()) continue;
      it->second.stuck.push_back(&item);
      it->second.stuck_peers.insert(sender ? item.link->to_nic : item.link->from_nic);
      it->second.first_stuck_ns = std::min(it->second.first_stuck_ns, item.since_ns);
    }
  }
  return nics;
}

// A quick look, because nearly always nothing is.
bool MayBeStuck(const JobSnapshot& snapshot, int64_t suspect_ns) {
  for (const ProcessRef& ref : snapshot.processes) {
    for (const Membership& membership : ref.process->communicators) {
      for (const QueuePair& queue_pair : membership.queue_pairs) {
        if (queue_pair.sends && queue_pair.posted_bytes > queue_pair.completed_bytes &&
            ref.host->as_of_ns - std::max(queue_pair.last_progress_at_ns, queue_pair.last_post_at_ns) >=
                suspect_ns) {
          return true;
        }
      }
    }
  }
  return false;
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
    const Link& link = *item->link;
    finding.connections.push_back(RefOf(link));
    communicators.insert(link.communicator->id);
    const int64_t stuck_ns = StuckFor(link, item->since_ns);
    if (stuck_ns > longest_ns) {
      longest_ns = stuck_ns;
      finding.since_at_ns = item->since_ns;
      finding.communicator_id = link.communicator->id;
      finding.operation = IsWaitingForPeer(*link.sender->process, *link.from) ? link.from->p2p_finished.count
                                                                              : link.from->finished.count;
    }
    if (++told > kMaxTold) continue;
    finding.evidence.push_back(
        {"connection",
         Concat("rank ", link.sender->process->rank, " has ",
                link.queue_pair->posted_bytes - link.queue_pair->completed_bytes, " bytes towards rank ",
                link.receiver->process->rank, " that are not acknowledged (", link.queue_pair->local, " to ",
                link.queue_pair->remote, "), no byte moved for ", SecondsText(stuck_ns))});
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

}  // namespace

std::vector<Finding> DetectCommunicationHangs(const JobSnapshot& snapshot,
                                              const CommunicationHangThresholds& thresholds) {
  if (!MayBeStuck(snapshot, thresholds.suspect_ns)) return {};
  const std::vector<Link> links = CollectLinks(snapshot);
  std::vector<Stuck> stuck;
  bool suspicious = false;
  for (const Link& link : links) {
    const int64_t since_ns = StuckSince(link);
    if (since_ns == kNever || StuckFor(link, since_ns) < thresholds.suspect_ns / 2) continue;
    suspicious = suspicious || StuckFor(link, since_ns) >= thresholds.suspect_ns;
    stuck.push_back({&link, since_ns});
  }
  if (!suspicious) return {};
  const std::map<std::string, Nic> nics = ByNic(links, stuck);
  // NICs that are silent since before the first post that got stuck on them, most stuck queue pairs first.
  const auto silent = [&](const Nic& nic) {
    return !nic.stuck.empty() && nic.last_arrival_ns <= nic.first_stuck_ns + thresholds.alive_margin_ns;
  };
  std::vector<std::pair<std::string, const Nic*>> candidates;
  for (const auto& [address, nic] : nics) {
    if (silent(nic) && nic.stuck_peers.size() >= 2) candidates.emplace_back(address, &nic);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.second->stuck_peers.size() > b.second->stuck_peers.size();
  });
  std::vector<Finding> findings;
  std::set<const Stuck*> explained;
  for (const auto& [address, nic] : candidates) {
    std::vector<const Stuck*> rest;
    std::set<std::string> peers;
    for (const Stuck* item : nic->stuck) {
      if (explained.count(item) != 0) continue;
      rest.push_back(item);
      peers.insert(item->link->from_nic == address ? item->link->to_nic : item->link->from_nic);
    }
    if (peers.size() < 2) continue;
    explained.insert(rest.begin(), rest.end());
    Finding finding = Describe(snapshot, nic->stuck, thresholds);
    finding.kind = CulpritKind::kNic;
    finding.nic = address;
    finding.host = nic->process->host->name;
    finding.rank = -1;
    finding.evidence.insert(
        finding.evidence.begin(),
        {"nic", Concat("all that ", finding.host, " exchanges over ", address,
                       " stands still: ", nic->stuck.size(), " queue pairs with ", nic->stuck_peers.size(),
                       " peers, and nothing has arrived over it since")});
    finding.suggested_action = Concat("look at the NIC ", address, " of ", finding.host,
                                      ", its cable and its switch port (`ip -s link`, "
                                      "`ethtool`); if it stays silent, isolate ",
                                      finding.host, " and restart the job");
    findings.push_back(std::move(finding));
  }
  std::vector<const Stuck*> rest;
  for (const Stuck& item : stuck) {
    if (explained.count(&item) == 0) rest.push_back(&item);
  }
  if (rest.empty()) return findings;
  Finding finding = Describe(snapshot, rest, thresholds);
  finding.kind = CulpritKind::kConnection;
  // Two NICs that see nobody but each other, both silent: it is either of them, or what lies between.
  std::set<std::string> ends;
  for (const Stuck* item : rest) {
    ends.insert(item->link->from_nic);
    ends.insert(item->link->to_nic);
  }
  if (ends.size() == 2 && findings.empty()) {
    bool either = true;
    for (const std::string& end : ends) {
      const auto it = nics.find(end);
      either = either && it != nics.end() && it->second.peers.size() == 1 && silent(it->second);
    }
    if (either) {
      finding.kind = CulpritKind::kAmbiguous;
      finding.candidates = {
          std::min(rest.front()->link->sender->process->rank, rest.front()->link->receiver->process->rank),
          std::max(rest.front()->link->sender->process->rank, rest.front()->link->receiver->process->rank)};
    }
  }
  finding.suggested_action =
      "look for what these connections have in common: the switch port or link on the path of their ports; "
      "other connections of the same hosts go on";
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace c4::c4d
