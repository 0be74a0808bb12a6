#include "c4d_master/detectors/queue_pair_ends.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "c4d_master/detectors/hang_evidence.h"
#include "service/text.h"

namespace c4::c4d {

std::string AddressOf(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return endpoint;
  if (endpoint.front() == '[') return endpoint.substr(1, colon < 2 ? 0 : colon - 2);
  return endpoint.substr(0, colon);
}

std::string NicOfRank(const ProcessRef& rank) {
  return service::Concat("of rank ", rank.process->rank);
}

std::vector<QueuePairEnds> CollectQueuePairs(const JobSnapshot& snapshot) {
  std::vector<QueuePairEnds> queue_pairs;
  for (const Communicator& communicator : snapshot.communicators) {
    std::map<uint32_t, const Member*> by_rank;
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, Carrier>, const QueuePair*> received;
    for (const Member& member : communicator.members) {
      by_rank[member.state->rank] = &member;
      for (const QueuePair& queue_pair : member.state->queue_pairs) {
        if (!queue_pair.sends) {
          received[{queue_pair.peer, member.state->rank, queue_pair.channel, queue_pair.index,
                    queue_pair.carrier}] = &queue_pair;
        }
      }
    }
    for (const Member& member : communicator.members) {
      const std::vector<QueuePair>& own = member.state->queue_pairs;
      const bool addressed =
          std::any_of(own.begin(), own.end(), [](const QueuePair& pair) { return !pair.local.empty(); });
      for (const QueuePair& queue_pair : own) {
        if (!queue_pair.sends || (addressed && queue_pair.local.empty())) continue;
        QueuePairEnds ends;
        ends.communicator = &communicator;
        ends.sender = &snapshot.processes[member.process];
        ends.from = member.state;
        ends.queue_pair = &queue_pair;
        if (const auto peer = by_rank.find(queue_pair.peer); peer != by_rank.end()) {
          ends.receiver = &snapshot.processes[peer->second->process];
        }
        const auto other = received.find(
            {member.state->rank, queue_pair.peer, queue_pair.channel, queue_pair.index, queue_pair.carrier});
        if (other != received.end()) ends.received = other->second;
        ends.from_nic = AddressOf(queue_pair.local);
        ends.to_nic = AddressOf(queue_pair.remote);
        if (queue_pair.local.empty()) {
          ends.from_nic = NicOfRank(*ends.sender);
          if (ends.receiver != nullptr) ends.to_nic = NicOfRank(*ends.receiver);
        }
        queue_pairs.push_back(std::move(ends));
      }
    }
  }
  return queue_pairs;
}

bool CanJudge(const ProcessRef* end) {
  return end != nullptr && !end->stale && !end->superseded && !end->process->ended &&
         !CannotRun(end->process->health.state);
}

ConnectionRef RefOf(const QueuePairEnds& ends) {
  const QueuePair& queue_pair = *ends.queue_pair;
  ConnectionRef ref;
  ref.from_rank = ends.sender->process->rank;
  ref.from_host = ends.sender->host->name;
  if (ends.receiver != nullptr) {
    ref.to_rank = ends.receiver->process->rank;
    ref.to_host = ends.receiver->host->name;
  }
  ref.local = queue_pair.local;
  ref.remote = queue_pair.remote;
  ref.communicator_id = ends.communicator->id;
  ref.channel = queue_pair.channel;
  ref.index = queue_pair.index;
  ref.queue_pair_number = queue_pair.number;
  return ref;
}

void SortConnections(std::vector<ConnectionRef>* connections) {
  const auto key = [](const ConnectionRef& ref) {
    return std::tie(ref.from_rank, ref.to_rank, ref.communicator_id, ref.channel, ref.index);
  };
  std::sort(connections->begin(), connections->end(),
            [&](const ConnectionRef& a, const ConnectionRef& b) { return key(a) < key(b); });
}

std::vector<uint32_t> RanksOf(const JobSnapshot& snapshot, const std::vector<uint32_t>& processes) {
  std::set<uint32_t> ranks;
  for (const uint32_t process : processes) {
    const int32_t rank = snapshot.processes[process].process->rank;
    if (rank >= 0) ranks.insert(static_cast<uint32_t>(rank));
  }
  return {ranks.begin(), ranks.end()};
}

void FillProcess(const ProcessRef& culprit, Finding* finding) {
  finding->culprit = culprit.process->key;
  finding->host = culprit.host->name;
  finding->rank = culprit.process->rank;
  finding->state = culprit.process->health.state;
  finding->wait_channel = culprit.process->health.wait_channel;
  finding->last_call = LastCallText(*culprit.process);
}

}  // namespace c4::c4d
