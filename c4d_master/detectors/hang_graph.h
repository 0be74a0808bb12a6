// Who waits for whom in a job (hang.h has the rules): processes, and the operations that they wait in, as the
// nodes of one graph. Made of a snapshot, and valid as long as that is. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "analysis/wait_for.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

enum HangReason : uint64_t { kInside = 0, kAbsent = 1, kCannotRun = 2 };

// An operation of a communicator that some members wait in: a node of the graph, so that n waiting and m
// absent ranks make n + m edges, not n x m. A send or receive is a step of its own.
struct HangStep {
  const Communicator* communicator = nullptr;
  uint64_t operation = 0;
  std::vector<const Member*> waiting;
  bool point_to_point = false;
};

class HangGraph {
 public:
  using Node = analysis::WaitForGraph::Node;

  explicit HangGraph(const JobSnapshot& snapshot);

  // Processes that others wait for and that wait for nobody.
  std::vector<Node> Culprits() const;
  // Collectives that others wait for, or wait in, and that hold themselves up: all members are known, have
  // entered, and could go on.
  std::vector<Node> EnteredByAll() const;

  bool IsProcess(Node node) const { return node < snapshot_.processes.size(); }
  const HangStep& step(Node node) const { return steps_[node - snapshot_.processes.size()]; }
  const analysis::WaitForGraph& graph() const { return graph_; }

 private:
  void Add(const Communicator& communicator);
  // A member inside a group of sends and receives: for whom of its peers it waits.
  void AddPeers(const Communicator& communicator, const Member& member);
  Node AddStep(HangStep step);
  // Where not all members are known, who can run is not blamed: it may wait for the unknown ones.
  std::set<uint32_t> AddTargets(const Communicator& communicator, uint64_t operation, Node node);

  // The connection of `membership` with `peer` that `mine` is the other end of; nullptr: none is known.
  const QueuePair* FindOtherEnd(const Membership& membership, uint32_t peer, const QueuePair& mine);

  const JobSnapshot& snapshot_;
  analysis::WaitForGraph graph_;
  std::vector<HangStep> steps_;
  std::unordered_map<const Membership*, std::vector<const QueuePair*>> ends_;  // while the graph is made
};

}  // namespace c4::c4d
