#include "c4d_master/detectors/sole_host.h"

#include <algorithm>
#include <map>
#include <utility>

namespace c4::c4d {

bool IsBySteps(const QueuePairEnds& ends) {
  const bool tells_none = ends.queue_pair->carrier == Carrier::kVendor || ends.queue_pair->peer_number != 0;
  return tells_none && ends.queue_pair->last_heard_at_ns == kNever;
}

namespace {

constexpr size_t kLeastWays = 4;  // fewer may take one link between switches by chance

// Whether they may meet on a link rather than on the host: a few, of several of its ranks, while most of its
// ranks are not held up.
bool MayMeetOnALink(const Host* host, const std::vector<QueuePairEnds>& all,
                    const std::vector<Stuck>& stuck) {
  std::set<uint32_t> own;
  std::set<uint32_t> held_up;
  size_t ways = 0;
  for (const QueuePairEnds& ends : all) {
    if (!IsBySteps(ends) || ends.receiver == nullptr || ends.sender->host == ends.receiver->host) continue;
    if (ends.sender->host == host) own.insert(ends.from_number);
    if (ends.receiver->host == host) own.insert(ends.to_number);
  }
  for (const Stuck& item : stuck) {
    if (!IsBySteps(*item.ends)) continue;
    ++ways;
    held_up.insert(item.ends->sender->host == host ? item.ends->from_number : item.ends->to_number);
  }
  return ways < kLeastWays && held_up.size() > 1 && 2 * held_up.size() <= own.size();
}

// Whether data have gone between its ranks that are held up and other hosts since the first way stood still:
// a NIC that is cut off lets nothing pass, a link between switches holds up what takes it.
bool LetsPass(const Host* host, const std::vector<QueuePairEnds>& all, const std::vector<Stuck>& stuck) {
  std::set<const QueuePairEnds*> is_stuck;
  std::set<uint32_t> held_up;
  int64_t first_ns = INT64_MAX;
  for (const Stuck& item : stuck) {
    if (!IsBySteps(*item.ends)) continue;
    is_stuck.insert(item.ends);
    first_ns = std::min(first_ns, item.since_ns);
    held_up.insert(item.ends->sender->host == host ? item.ends->from_number : item.ends->to_number);
  }
  return std::any_of(all.begin(), all.end(), [&](const QueuePairEnds& ends) {
    if (!IsBySteps(ends) || ends.receiver == nullptr || ends.sender->host == ends.receiver->host)
      return false;
    const bool is_own = (ends.sender->host == host && held_up.contains(ends.from_number)) ||
                        (ends.receiver->host == host && held_up.contains(ends.to_number));
    return is_own && !is_stuck.contains(&ends) && ends.queue_pair->last_progress_at_ns > first_ns;
  });
}

// Between two hosts it is the one of which some ranks hold data for several of the other one, if these have
// exchanged theirs with the rest of its ranks.
bool IsCutOff(const Host* host, const std::vector<QueuePairEnds>& all, const std::vector<Stuck>& stuck,
              const std::vector<Nic>& nics, const CommunicationHangThresholds& thresholds) {
  std::set<const QueuePairEnds*> is_stuck;
  std::set<uint32_t> own;
  std::set<uint32_t> peers;
  for (const Stuck& item : stuck) {
    if (!IsBySteps(*item.ends)) continue;
    is_stuck.insert(item.ends);
    const bool sends = item.ends->sender->host == host;
    own.insert(sends ? item.ends->from_number : item.ends->to_number);
    peers.insert(sends ? item.ends->to_number : item.ends->from_number);
  }
  const bool several = std::all_of(own.begin(), own.end(), [&](uint32_t nic) {
    return nics[nic].Silent(thresholds) && nics[nic].stuck_peers.size() >= 2;
  });
  if (!several || is_stuck.size() < kLeastWays) return false;
  std::set<uint32_t> exchanged;  // peers that have
  for (const QueuePairEnds& ends : all) {
    if (!IsBySteps(ends) || is_stuck.contains(&ends) || ends.queue_pair->completed_bytes == 0) continue;
    if (ends.sender->host == host && !own.contains(ends.from_number)) exchanged.insert(ends.to_number);
    if (ends.receiver != nullptr && ends.receiver->host == host && !own.contains(ends.to_number))
      exchanged.insert(ends.from_number);
  }
  return std::all_of(peers.begin(), peers.end(), [&](uint32_t nic) { return exchanged.contains(nic); });
}

}  // namespace

Sole SoleHost(const std::vector<QueuePairEnds>& queue_pairs, const std::vector<Stuck>& stuck,
              const std::vector<Nic>& nics, const CommunicationHangThresholds& thresholds) {
  std::map<const Host*, std::pair<size_t, std::set<const Host*>>> touched;  // how often, and with whom
  size_t all = 0;
  for (const Stuck& item : stuck) {
    if (!IsBySteps(*item.ends)) continue;
    const Host* const from = item.ends->sender->host;
    const Host* const to = item.ends->receiver->host;
    ++all;
    for (const auto& [own, peer] : {std::pair(from, to), std::pair(to, from)}) {
      auto& [times, peers] = touched[own];
      if (own != peer || own == from) ++times;
      if (own != peer) peers.insert(peer);
      if (from == to) break;
    }
  }
  Sole sole;
  for (const auto& [host, of] : touched) {
    const size_t peers = of.second.size();
    if (of.first != all || peers == 0 || MayMeetOnALink(host, queue_pairs, stuck)) continue;
    if (LetsPass(host, queue_pairs, stuck)) continue;
    if (peers >= 2 || IsCutOff(host, queue_pairs, stuck, nics, thresholds)) sole = {host, peers};
  }
  return sole;
}

bool IsSilent(const Host* host, const std::vector<Nic>& nics, const CommunicationHangThresholds& thresholds) {
  size_t known = 0;
  size_t unheard = 0;
  for (const Nic& nic : nics) {
    if (nic.process == nullptr || nic.process->host != host || !nic.by_steps || nic.stuck.empty()) continue;
    known += nic.known;
    unheard += nic.unheard;
  }
  return known > 0 && static_cast<double>(unheard) >= thresholds.nic_share * static_cast<double>(known);
}

}  // namespace c4::c4d
