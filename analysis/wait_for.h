// The wait-for graph: who waits for whom, and who is to blame in the end.
//
// Nodes are small numbers; the caller gives them a meaning (a process, an operation). An edge says that
// `from` cannot go on before `to` has done something, with a reason that the caller chooses. A root is a
// node that waits for nobody and that somebody waits for, directly or through others. Nodes that wait for
// each other in a ring form a cycle; no root lies inside a cycle.
//
// A plain value: its user owns it, one thread uses it at a time. No I/O and no errors. An edge to a node
// that does not exist is a defect of the caller and fails an assertion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4::analysis {

class WaitForGraph {
 public:
  using Node = uint32_t;

  struct Edge {
    Node from = 0;
    Node to = 0;
    uint64_t reason = 0;
  };

  // Nodes that all wait for each other. `closed`: none of them waits for a node outside, so that nobody
  // outside can resolve it (a deadlock of its own). An open one is held up by somebody further on.
  struct Cycle {
    std::vector<Node> nodes;  // ascending
    bool closed = false;

    friend bool operator==(const Cycle&, const Cycle&) = default;
  };

  explicit WaitForGraph(size_t node_count = 0) : out_(node_count), in_(node_count) {}

  Node AddNode();
  void AddEdge(Node from, Node to, uint64_t reason = 0);

  size_t node_count() const { return out_.size(); }
  const std::vector<Edge>& edges() const { return edges_; }

  bool Waits(Node node) const { return !out_[node].empty(); }
  bool WaitedFor(Node node) const { return !in_[node].empty(); }

  // Ascending. Linear in nodes and edges.
  std::vector<Node> Roots() const;

  // The edges that end at `node`, in the order in which they were added.
  std::vector<Edge> EdgesInto(Node node) const;

  // All nodes that wait for `node`, directly or through others, ascending and without `node` itself.
  std::vector<Node> WaitersOf(Node node) const;

  // By lowest node. A node with an edge to itself is a cycle of one.
  std::vector<Cycle> Cycles() const;

 private:
  std::vector<Edge> edges_;
  std::vector<std::vector<uint32_t>> out_;  // per node: indices into edges_
  std::vector<std::vector<uint32_t>> in_;
};

}  // namespace c4::analysis
