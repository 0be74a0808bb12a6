#include "analysis/dump_waits.h"

#include <algorithm>
#include <set>

#include "analysis/wait_for.h"

namespace c4::analysis {
namespace {

struct Reason {
  std::string group;
  std::string description;
  int64_t operation = 0;
  int64_t last_entered = -1;
};

class Finder {
 public:
  explicit Finder(const std::vector<RankDump>& dumps) {
    std::set<int> ranks;
    for (const RankDump& dump : dumps) {
      dumps_[dump.rank] = &dump;
      ranks.insert(dump.rank);
      for (const auto& [name, group] : dump.groups) {
        ranks.insert(group.members.begin(), group.members.end());
        if (group.point_to_point) point_to_point_.insert(name);
      }
    }
    for (const int rank : ranks) {
      nodes_[rank] = graph_.AddNode();
      ranks_.push_back(rank);
    }
  }

  StalledRanks Find() {
    std::map<std::string, std::set<int64_t>> everywhere;
    for (const auto& [rank, dump] : dumps_) {
      for (const auto& [name, group] : dump->groups) {
        if (point_to_point_.contains(name) || group.last_entered <= group.last_completed) continue;
        if (!Waits(rank, name, group)) everywhere[name].insert(group.last_completed + 1);
      }
    }
    StalledRanks found;
    for (const WaitForGraph::Node root : graph_.Roots()) found.stalled.push_back(Describe(root));
    for (const WaitForGraph::Cycle& cycle : graph_.Cycles()) {
      if (!cycle.closed) continue;
      found.cycles.emplace_back();
      for (const WaitForGraph::Node node : cycle.nodes) found.cycles.back().push_back(ranks_[node]);
    }
    for (const auto& [name, operations] : everywhere) {
      if (operations.size() == 1) found.stuck_groups.push_back(name);
    }
    return found;
  }

 private:
  const GroupProgress* Progress(int rank, const std::string& name) const {
    const auto dump = dumps_.find(rank);
    if (dump == dumps_.end()) return nullptr;
    const auto group = dump->second->groups.find(name);
    return group == dump->second->groups.end() ? nullptr : &group->second;
  }

  // False: every member has entered what the rank waits in.
  bool Waits(int rank, const std::string& name, const GroupProgress& group) {
    const int64_t operation = group.last_completed + 1;
    std::vector<int> absent;
    std::vector<int> unknown;
    bool completed = false;  // by some member: then every member has entered it, whatever is known of it
    for (const int member : group.members) {
      if (member == rank) continue;
      const GroupProgress* progress = Progress(member, name);
      if (progress == nullptr || progress->last_entered < 0) {
        unknown.push_back(member);
        continue;
      }
      completed = completed || progress->last_completed >= operation;
      if (progress->last_entered < operation || progress->last_completed < operation - 1)
        absent.push_back(member);
    }
    // A rank of which nothing is known is blamed where nobody else is.
    if (completed) unknown.clear();
    const std::vector<int>& blamed = absent.empty() ? unknown : absent;
    for (const int member : blamed) {
      const GroupProgress* progress = Progress(member, name);
      graph_.AddEdge(nodes_[rank], nodes_[member], reasons_.size());
      reasons_.push_back(
          {name, group.description, operation, progress == nullptr ? -1 : progress->last_entered});
    }
    return !blamed.empty();
  }

  StalledRank Describe(WaitForGraph::Node root) const {
    StalledRank stalled;
    stalled.rank = ranks_[root];
    stalled.dumped = dumps_.contains(stalled.rank);
    for (const WaitForGraph::Node waiter : graph_.WaitersOf(root)) stalled.waiters.push_back(ranks_[waiter]);
    const std::vector<WaitForGraph::Edge> edges = graph_.EdgesInto(root);
    if (!edges.empty()) {
      const Reason& reason = reasons_[edges.front().reason];
      stalled.group = reason.group;
      stalled.description = reason.description;
      stalled.operation = reason.operation;
      stalled.last_entered = reason.last_entered;
    }
    return stalled;
  }

  std::map<int, const RankDump*> dumps_;
  std::set<std::string> point_to_point_;
  std::map<int, WaitForGraph::Node> nodes_;
  std::vector<int> ranks_;  // by node
  WaitForGraph graph_;
  std::vector<Reason> reasons_;
};

}  // namespace

StalledRanks FindStalledRanks(const std::vector<RankDump>& dumps) {
  return Finder(dumps).Find();
}

}  // namespace c4::analysis
