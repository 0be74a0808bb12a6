#include "c4d_master/detectors/queue_pair_ends.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

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

namespace {

using EndKey = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, Carrier>;

// The ends of one communicator that receive, for those that send to find them.
class Receivers {
 public:
  explicit Receivers(const Communicator& communicator) {
    for (const Member& member : communicator.members) {
      for (const QueuePair& queue_pair : member.own->queue_pairs) {
        if (!queue_pair.sends)
          all_.emplace_back(KeyOf(queue_pair.peer, member.state->rank, queue_pair), &queue_pair);
      }
    }
    std::stable_sort(all_.begin(), all_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  // What this one sends to; of several with one key the last that was listed.
  const QueuePair* Of(uint32_t rank, const QueuePair& sender) const {
    const EndKey key = KeyOf(rank, sender.peer, sender);
    const auto after = std::upper_bound(all_.begin(), all_.end(), key,
                                        [](const EndKey& k, const auto& entry) { return k < entry.first; });
    return after != all_.begin() && std::prev(after)->first == key ? std::prev(after)->second : nullptr;
  }

 private:
  static EndKey KeyOf(uint32_t from, uint32_t to, const QueuePair& queue_pair) {
    return {from, to, queue_pair.channel, queue_pair.index, queue_pair.carrier};
  }

  std::vector<std::pair<EndKey, const QueuePair*>> all_;
};

// The ends of one communicator that know their other end's number, by address and number of their own.
class Numbered {
 public:
  struct End {
    const Member* member = nullptr;
    const QueuePair* sends = nullptr;
    const QueuePair* receives = nullptr;
  };

  explicit Numbered(const Communicator& communicator) {
    for (const Member& member : communicator.members) {
      for (const QueuePair& queue_pair : member.own->queue_pairs) {
        if (queue_pair.peer_number == 0 || queue_pair.local.empty()) continue;
        End& end = ends_[{AddressOf(queue_pair.local), queue_pair.number}];
        // A number that a device has given anew: of the member that is believed to live.
        if (end.member != nullptr && end.member != &member) end = End();
        end.member = &member;
        (queue_pair.sends ? end.sends : end.receives) = &queue_pair;
      }
    }
  }

  // The other end, where each knows the other; nullptr: not seen.
  const End* Of(const QueuePair& sender) const {
    if (sender.peer_number == 0) return nullptr;
    const auto found = ends_.find({AddressOf(sender.remote), sender.peer_number});
    if (found == ends_.end()) return nullptr;
    const QueuePair* const any =
        found->second.sends != nullptr ? found->second.sends : found->second.receives;
    const bool mutual =
        any->peer_number == sender.number && AddressOf(any->remote) == AddressOf(sender.local);
    return mutual ? &found->second : nullptr;
  }

 private:
  std::map<std::pair<std::string, uint64_t>, End> ends_;
};

void Collect(const JobSnapshot& snapshot, const Communicator& communicator,
             std::vector<QueuePairEnds>* queue_pairs) {
  const bool some = std::any_of(communicator.members.begin(), communicator.members.end(),
                                [](const Member& member) { return !member.own->queue_pairs.empty(); });
  if (!some) return;
  const Receivers receivers(communicator);
  const Numbered numbered(communicator);
  for (const Member& member : communicator.members) {
    const std::vector<QueuePair>& own = member.own->queue_pairs;
    const bool addressed = TellsAddresses(*snapshot.processes[member.process].process, *member.own);
    for (const QueuePair& queue_pair : own) {
      if (!queue_pair.sends || (addressed && queue_pair.local.empty())) continue;
      QueuePairEnds ends;
      ends.communicator = &communicator;
      ends.sender = &snapshot.processes[member.process];
      ends.from = member.state;
      ends.queue_pair = &queue_pair;
      const Numbered::End* const other = numbered.Of(queue_pair);
      const Member* const peer = other != nullptr ? other->member : communicator.FindRank(queue_pair.peer);
      if (peer != nullptr) ends.receiver = &snapshot.processes[peer->process];
      ends.received = other != nullptr ? other->receives : receivers.Of(member.state->rank, queue_pair);
      if (other != nullptr) ends.answers = other->sends;
      ends.from_nic = AddressOf(queue_pair.local);
      ends.to_nic = AddressOf(queue_pair.remote);
      if (queue_pair.local.empty()) {
        ends.from_nic = NicOfRank(*ends.sender);
        if (ends.receiver != nullptr) ends.to_nic = NicOfRank(*ends.receiver);
      }
      queue_pairs->push_back(std::move(ends));
    }
  }
}

// Numbers in the order of the addresses.
void NumberNics(JobQueuePairs* all) {
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (const QueuePairEnds& ends : all->ends) {
    numbers.try_emplace(ends.from_nic, 0);
    numbers.try_emplace(ends.to_nic, 0);
  }
  for (const auto& entry : numbers) all->nics.push_back({std::string(entry.first), 0});
  std::sort(all->nics.begin(), all->nics.end(),
            [](const JobNic& a, const JobNic& b) { return a.address < b.address; });
  for (uint32_t i = 0; i < all->nics.size(); ++i) numbers[all->nics[i].address] = i;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (QueuePairEnds& ends : all->ends) {
    ends.from_number = numbers[ends.from_nic];
    ends.to_number = numbers[ends.to_nic];
    if (ends.from_nic.empty() || ends.to_nic.empty() || ends.from_number == ends.to_number) continue;
    pairs.emplace_back(ends.from_number, ends.to_number);
    pairs.emplace_back(ends.to_number, ends.from_number);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  for (const auto& pair : pairs) ++all->nics[pair.first].peers;
}

}  // namespace

const JobQueuePairs& QueuePairsOf(const JobSnapshot& snapshot) {
  if (snapshot.queue_pairs == nullptr) {
    const auto all = std::make_shared<JobQueuePairs>();
    for (const Communicator& communicator : snapshot.communicators)
      Collect(snapshot, communicator, &all->ends);
    NumberNics(all.get());
    snapshot.queue_pairs = all;
  }
  return *snapshot.queue_pairs;
}

const std::vector<QueuePairEnds>& CollectQueuePairs(const JobSnapshot& snapshot) {
  return QueuePairsOf(snapshot).ends;
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
  std::vector<uint32_t> ranks;
  ranks.reserve(processes.size());
  for (const uint32_t process : processes) {
    const int32_t rank = snapshot.processes[process].process->rank;
    if (rank >= 0) ranks.push_back(static_cast<uint32_t>(rank));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
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
