#include "analysis/dump_waits.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/dump_groups.h"
#include "analysis/wait_for.h"

namespace c4::analysis {
namespace {

using Node = WaitForGraph::Node;

// Members of other groups of the same name (where names are given out locally) do not meet.
using OperationKey = std::tuple<std::string, std::vector<int>, int64_t>;

struct Reason {
  const GroupProgress* group = nullptr;  // of the rank that waits
  std::string name;
  int64_t operation = -1;
};

using TransferKey = std::tuple<std::string, int, int>;  // group, sender, receiver

struct Transfer {
  Node node = 0;
  std::vector<std::pair<int, size_t>> sides;  // rank, and when it called
};

// What a rank waits in, and for which nodes.
struct Wait {
  std::optional<size_t> order;
  std::vector<Node> targets;
  bool for_ranks = false;
};

class Finder {
 public:
  Finder(const std::map<int, const RankDump*>& dumps, const std::vector<int>& ranks, bool with_trailing)
      : dumps_(dumps), ranks_(ranks), with_trailing_(with_trailing) {
    for (const int rank : ranks_) nodes_[rank] = graph_.AddNode();
    std::set<std::string> listed;
    for (const auto& [rank, dump] : dumps_) {
      for (const auto& [name, group] : dump->groups) {
        if (Trails(group)) trailing_.insert(name);
        if (group.seen_entered >= 0) listed.insert(name);
      }
    }
    // Where nobody lists an operation of the default group, transfers may be in its numbers.
    for (const auto& [rank, dump] : dumps_) {
      for (const auto& [name, group] : dump->groups) {
        if (group.description == "default_pg" && !listed.contains(name)) trailing_.insert(name);
      }
    }
  }

  StalledRanks Find() {
    for (const auto& [rank, dump] : dumps_) {
      for (const auto& [name, group] : dump->groups) {
        if (!with_trailing_ && trailing_.contains(name)) continue;
        if (group.last_entered > group.last_completed) Collective(rank, name, group);
      }
      Transfers(*dump);
    }
    for (const auto& [key, node] : operations_) BehindOthers(key, node);
    for (const auto& [key, transfer] : transfers_) {
      std::set<Node> targets;
      for (const auto& [rank, order] : transfer.sides) AddEarlier(waits_[rank], order, &targets);
      targets.erase(transfer.node);
      Behind(transfer.node, targets, {nullptr, std::get<0>(key), -1});
    }
    StalledRanks found;
    for (const Node root : graph_.Roots()) Root(root, &found);
    for (const WaitForGraph::Cycle& cycle : graph_.Cycles()) {
      if (cycle.closed) AddCycle(cycle, &found);
    }
    for (auto& [key, mismatch] : mismatches_) found.mismatched.push_back(std::move(mismatch));
    return found;
  }

 private:
  static bool Trails(const GroupProgress& group) {
    return group.point_to_point || group.description.starts_with("PIPELINE_MODEL_PARALLEL_GROUP");
  }

  const GroupProgress* Progress(int rank, const std::string& name) const {
    const auto dump = dumps_.find(rank);
    if (dump == dumps_.end()) return nullptr;
    const auto group = dump->second->groups.find(name);
    return group == dump->second->groups.end() ? nullptr : &group->second;
  }

  static std::optional<size_t> OrderOf(const GroupProgress& group, int64_t operation) {
    const auto found = group.operations.find(operation);
    return found == group.operations.end() ? std::nullopt : std::optional(found->second.order);
  }

  void Edge(int rank, Node to, const Reason& reason, Wait* wait) {
    graph_.AddEdge(nodes_.at(rank), to, reasons_.size());
    reasons_.push_back(reason);
    wait->targets.push_back(to);
  }

  void Collective(int rank, const std::string& name, const GroupProgress& group) {
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
    // A dump that knows nothing of the group is one of a rank that has not come to it. A rank of which
    // nothing is known is blamed where nobody else is.
    if (completed) unknown.clear();
    if (absent.empty()) {
      std::copy_if(unknown.begin(), unknown.end(), std::back_inserter(absent),
                   [this](int member) { return dumps_.contains(member); });
    }
    Compare(name, group, operation);
    Wait wait;
    wait.order = OrderOf(group, operation);
    const Reason reason = {&group, name, operation};
    const std::vector<int>& blamed = absent.empty() ? unknown : absent;
    for (const int member : blamed) Edge(rank, nodes_.at(member), reason, &wait);
    wait.for_ranks = !blamed.empty();
    // What others have finished is no excuse: the rank is behind in it by itself, and what it called later
    // waits for it.
    if (blamed.empty() && completed) {
      wait.targets = {nodes_.at(rank)};
      wait.for_ranks = true;
    } else if (blamed.empty()) {
      Edge(rank, OperationNode(name, group, operation), reason, &wait);
    }
    waits_[rank].push_back(std::move(wait));
  }

  Node OperationNode(const std::string& name, const GroupProgress& group, int64_t operation) {
    std::vector<int> members = group.members;
    std::sort(members.begin(), members.end());
    const auto [found, added] = operations_.try_emplace({name, std::move(members), operation}, 0);
    if (added) found->second = graph_.AddNode();
    key_of_node_[found->second] = &found->first;
    return found->second;
  }

  // The transfer that a rank called first; what is behind it has not begun. Where the peer has called its
  // side too, both wait for the transfer, and else the rank waits for its peer.
  void Transfers(const RankDump& dump) {
    const auto first =
        std::min_element(dump.open_transfers.begin(), dump.open_transfers.end(),
                         [](const OpenTransfer& a, const OpenTransfer& b) { return a.order < b.order; });
    if (first == dump.open_transfers.end() || first->peer == dump.rank) return;
    const auto peer_node = nodes_.find(first->peer);
    if (peer_node == nodes_.end()) return;
    std::vector<Wait>& waits = waits_[dump.rank];
    const bool behind = std::any_of(waits.begin(), waits.end(), [&first](const Wait& wait) {
      return !wait.order || *wait.order < first->order;
    });
    if (behind) return;
    Wait wait;
    wait.order = first->order;
    const OpenTransfer* other = OtherSide(dump.rank, *first);
    wait.for_ranks = other == nullptr;
    const Reason reason = {Progress(dump.rank, first->group), first->group, -1};
    Edge(dump.rank, other == nullptr ? peer_node->second : TransferNode(dump.rank, *first, *other), reason,
         &wait);
    waits.push_back(std::move(wait));
  }

  const OpenTransfer* OtherSide(int rank, const OpenTransfer& transfer) const {
    const auto peer = dumps_.find(transfer.peer);
    if (peer == dumps_.end()) return nullptr;
    const OpenTransfer* found = nullptr;
    for (const OpenTransfer& other : peer->second->open_transfers) {
      const bool fits = other.group == transfer.group && other.peer == rank && other.sends != transfer.sends;
      if (fits && (found == nullptr || other.order < found->order)) found = &other;
    }
    return found;
  }

  Node TransferNode(int rank, const OpenTransfer& side, const OpenTransfer& other) {
    const int sender = side.sends ? rank : side.peer;
    const int receiver = side.sends ? side.peer : rank;
    const auto [found, added] = transfers_.try_emplace({side.group, sender, receiver}, Transfer());
    if (added) {
      found->second.node = graph_.AddNode();
      found->second.sides = {{rank, side.order}, {side.peer, other.order}};
      key_of_transfer_[found->second.node] = &found->first;
    }
    return found->second.node;
  }

  // What the members of an operation, which all have entered it, wait in first. Where the order of their
  // calls is not known, waiting for a rank comes first: an operation that waits cannot be to blame while
  // another explanation is at hand.
  void BehindOthers(const OperationKey& key, Node node) {
    const auto& [name, members, operation] = key;
    std::set<Node> targets;
    for (const int member : members) {
      const GroupProgress* group = Progress(member, name);
      const auto waits = waits_.find(member);
      if (group == nullptr || waits == waits_.end()) continue;
      AddEarlier(waits->second, OrderOf(*group, operation), &targets);
    }
    targets.erase(node);
    // A damaged dump may not know the group's members.
    Behind(node, targets, {members.empty() ? nullptr : Progress(members.front(), name), name, operation});
  }

  static void AddEarlier(const std::vector<Wait>& waits, std::optional<size_t> order,
                         std::set<Node>* targets) {
    for (const Wait& wait : waits) {
      const bool known = order && wait.order;
      if (known ? *wait.order < *order : wait.for_ranks)
        targets->insert(wait.targets.begin(), wait.targets.end());
    }
  }

  void Behind(Node node, const std::set<Node>& targets, const Reason& reason) {
    for (const Node target : targets) {
      graph_.AddEdge(node, target, reasons_.size());
      reasons_.push_back(reason);
    }
  }

  void Compare(const std::string& name, const GroupProgress& group, int64_t operation) {
    std::vector<int> members = group.members;
    std::sort(members.begin(), members.end());
    OperationKey key = {name, members, operation};
    if (!compared_.insert(key).second) return;
    std::map<std::string, std::vector<int>> by_shape;
    for (const int member : members) {
      const GroupProgress* progress = Progress(member, name);
      if (progress == nullptr) continue;
      const auto found = progress->operations.find(operation);
      if (found != progress->operations.end() && !found->second.shape.empty())
        by_shape[found->second.shape].push_back(member);
    }
    if (by_shape.size() < 2) return;
    MismatchedOperation mismatch = {name, group.description, operation, {}, {}};
    for (auto& [shape, ranks] : by_shape) mismatch.sides.push_back({shape, std::move(ranks)});
    std::stable_sort(mismatch.sides.begin(), mismatch.sides.end(),
                     [](const auto& a, const auto& b) { return a.ranks.size() > b.ranks.size(); });
    if (mismatch.sides[0].ranks.size() > mismatch.sides[1].ranks.size()) {
      for (size_t i = 1; i < mismatch.sides.size(); ++i) {
        const std::vector<int>& ranks = mismatch.sides[i].ranks;
        mismatch.culprits.insert(mismatch.culprits.end(), ranks.begin(), ranks.end());
      }
      std::sort(mismatch.culprits.begin(), mismatch.culprits.end());
    }
    mismatches_.emplace(std::move(key), std::move(mismatch));
  }

  void Root(Node root, StalledRanks* found) const {
    if (root < ranks_.size()) {
      StalledRank stalled = Describe(root);
      (dumps_.contains(stalled.rank) ? found->stalled : found->without_dump).push_back(std::move(stalled));
      return;
    }
    if (const auto transfer = key_of_transfer_.find(root); transfer != key_of_transfer_.end()) {
      const auto& [group, sender, receiver] = *transfer->second;
      const GroupProgress* progress = Progress(sender, group);
      found->stuck.push_back(
          {group, progress == nullptr ? "" : progress->description, -1, {sender, receiver}, {}});
      return;
    }
    const OperationKey& key = *key_of_node_.at(root);
    if (mismatches_.contains(key)) return;
    const auto& [name, members, operation] = key;
    StuckOperation stuck = {name, "", operation, {}, {}};
    for (const int member : members) {
      const GroupProgress* progress = Progress(member, name);
      if (progress == nullptr) continue;
      stuck.description = progress->description;
      (progress->last_completed >= operation ? stuck.finished : stuck.unfinished).push_back(member);
    }
    found->stuck.push_back(std::move(stuck));
  }

  StalledRank Describe(Node root) const {
    StalledRank stalled;
    stalled.rank = ranks_[root];
    for (const Node waiter : graph_.WaitersOf(root)) {
      if (waiter < ranks_.size()) stalled.waiters.push_back(ranks_[waiter]);
    }
    const std::vector<WaitForGraph::Edge> edges = graph_.EdgesInto(root);
    if (edges.empty()) return stalled;
    const Reason& reason = reasons_[edges.front().reason];
    stalled.group = reason.name;
    if (reason.group != nullptr) stalled.description = reason.group->description;
    stalled.operation = reason.operation;
    if (const GroupProgress* progress = Progress(stalled.rank, reason.name)) {
      stalled.last_entered = progress->last_entered;
      stalled.last_completed = progress->last_completed;
    }
    return stalled;
  }

  void AddCycle(const WaitForGraph::Cycle& cycle, StalledRanks* found) const {
    std::vector<int> in_cycle;
    for (const Node node : cycle.nodes) {
      if (node < ranks_.size()) in_cycle.push_back(ranks_[node]);
    }
    // Operations alone: their members called them in different orders.
    for (const Node node : cycle.nodes) {
      if (!in_cycle.empty() && in_cycle.size() > 1) break;
      if (node < ranks_.size() || !key_of_node_.contains(node)) continue;
      const auto& members = std::get<1>(*key_of_node_.at(node));
      in_cycle.insert(in_cycle.end(), members.begin(), members.end());
    }
    std::sort(in_cycle.begin(), in_cycle.end());
    in_cycle.erase(std::unique(in_cycle.begin(), in_cycle.end()), in_cycle.end());
    found->cycles.push_back(std::move(in_cycle));
  }

  const std::map<int, const RankDump*>& dumps_;
  const std::vector<int>& ranks_;  // by node: ranks come first, then operations
  const bool with_trailing_;
  std::set<std::string> trailing_;
  std::map<int, Node> nodes_;
  std::map<OperationKey, Node> operations_;
  std::map<Node, const OperationKey*> key_of_node_;
  std::map<TransferKey, Transfer> transfers_;
  std::map<Node, const TransferKey*> key_of_transfer_;
  std::map<int, std::vector<Wait>> waits_;
  std::set<OperationKey> compared_;
  std::map<OperationKey, MismatchedOperation> mismatches_;
  WaitForGraph graph_;
  std::vector<Reason> reasons_;
};

}  // namespace

StalledRanks FindStalledRanks(std::vector<RankDump> dumps) {
  MakeComparable(&dumps);
  std::map<int, const RankDump*> by_rank;
  std::set<int> all;
  for (const RankDump& dump : dumps) {
    by_rank[dump.rank] = &dump;
    all.insert(dump.rank);
    for (const auto& [name, group] : dump.groups) all.insert(group.members.begin(), group.members.end());
  }
  const std::vector<int> ranks(all.begin(), all.end());
  StalledRanks found = Finder(by_rank, ranks, false).Find();
  if (found.empty()) found = Finder(by_rank, ranks, true).Find();
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found.missing),
               [&by_rank](int rank) { return !by_rank.contains(rank); });
  // Of several without a dump one may wait for another, in a group that no dump tells of.
  found.without_dump_certain = found.missing.size() == 1 && found.without_dump.size() == 1;
  return found;
}

std::string ProgressText(const StalledRank& rank) {
  if (rank.operation < 0) return "it has not begun its side";
  if (rank.last_entered >= rank.operation)
    return "it has not finished operation " + std::to_string(rank.last_completed + 1);
  if (rank.last_entered < 0) return "it has entered none";
  return "it has entered " + std::to_string(rank.last_entered);
}

}  // namespace c4::analysis
