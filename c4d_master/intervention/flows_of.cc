#include "c4d_master/intervention/flows_of.h"

#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "c4d_master/detectors/cells.h"
#include "c4d_master/detectors/queue_pair_ends.h"

namespace c4::c4d {
namespace {

struct Concern {
  std::set<uint64_t> communicators;
  std::set<std::string> hosts;
  std::set<std::tuple<uint64_t, int32_t, int32_t, uint32_t, uint32_t>> named;

  bool Meets(const QueuePairEnds& ends) const {
    return communicators.contains(ends.communicator->id) || hosts.contains(ends.sender->host->name) ||
           (ends.receiver != nullptr && hosts.contains(ends.receiver->host->name));
  }
};

Flow FlowOf(const QueuePairEnds& ends, const Cell* cell, PathSource* paths) {
  const QueuePair& queue_pair = *ends.queue_pair;
  Flow flow;
  flow.communicator_id = ends.communicator->id;
  flow.channel = queue_pair.channel;
  flow.index = queue_pair.index;
  flow.from_rank = ends.sender->process->rank;
  flow.from_host = ends.sender->host->name;
  if (ends.receiver != nullptr) {
    flow.to_rank = ends.receiver->process->rank;
    flow.to_host = ends.receiver->host->name;
  }
  flow.from_nic = ends.from_nic;
  flow.to_nic = ends.to_nic;
  flow.local = queue_pair.local;
  flow.remote = queue_pair.remote;
  if (const std::shared_ptr<const LinkPath> path = paths->Find(flow.local, flow.remote)) flow.links = *path;
  flow.sound = CanJudge(ends.sender) && CanJudge(ends.receiver) && !queue_pair.dead;
  if (cell == nullptr) return flow;
  flow.ns_per_kib = cell->low.ns_per_kib;
  flow.chunks = cell->low.chunks;
  flow.bytes = cell->bytes();
  flow.ratio = cell->ratio;
  flow.judged = cell->judged;
  flow.slow = cell->slow;
  flow.unclear = cell->unclear;
  return flow;
}

}  // namespace

std::vector<Flow> FlowsOf(const JobSnapshot& snapshot, const Windows& windows, PathSource* paths,
                          const SlowThresholds& thresholds, const std::vector<Flow>& about) {
  Concern concern;
  for (const Flow& flow : about) {
    concern.communicators.insert(flow.communicator_id);
    concern.hosts.insert({flow.from_host, flow.to_host});
    concern.named.insert(flow.Id());
  }
  const JobQueuePairs& all = QueuePairsOf(snapshot);
  // On the way that each has now.
  std::unordered_map<const QueuePairEnds*, Cell> cells;
  for (const Cell& cell : Cells(all.ends, windows, 0, thresholds)) {
    if (cell.local != cell.ends->queue_pair->local || cell.remote != cell.ends->queue_pair->remote) continue;
    if (concern.Meets(*cell.ends)) cells.emplace(cell.ends, cell);
  }
  std::vector<Flow> flows;
  for (const bool first : {true, false}) {
    for (const QueuePairEnds& ends : all.ends) {
      if (flows.size() >= kMostFlows) return flows;
      if (ends.sender->superseded || ends.sender->process->ended || !concern.Meets(ends)) continue;
      if (ends.from_number == ends.to_number || ends.queue_pair->local.empty()) continue;
      const int32_t to_rank = ends.receiver == nullptr ? -1 : ends.receiver->process->rank;
      const bool named = concern.named.contains({ends.communicator->id, ends.sender->process->rank, to_rank,
                                                 ends.queue_pair->channel, ends.queue_pair->index});
      if (named != first) continue;
      const auto cell = cells.find(&ends);
      flows.push_back(FlowOf(ends, cell == cells.end() ? nullptr : &cell->second, paths));
    }
  }
  return flows;
}

}  // namespace c4::c4d
