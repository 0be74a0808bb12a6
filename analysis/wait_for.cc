#include "analysis/wait_for.h"

#include <algorithm>
#include <cassert>

namespace c4::analysis {

WaitForGraph::Node WaitForGraph::AddNode() {
  out_.emplace_back();
  in_.emplace_back();
  return static_cast<Node>(out_.size() - 1);
}

void WaitForGraph::AddEdge(Node from, Node to, uint64_t reason) {
  assert(from < out_.size() && to < out_.size());
  const auto index = static_cast<uint32_t>(edges_.size());
  edges_.push_back({from, to, reason});
  out_[from].push_back(index);
  in_[to].push_back(index);
}

std::vector<WaitForGraph::Node> WaitForGraph::Roots() const {
  // "Somebody waits for it, transitively" needs no search: whoever is waited for at all has a direct edge.
  std::vector<Node> roots;
  for (Node node = 0; node < out_.size(); ++node) {
    if (out_[node].empty() && !in_[node].empty()) roots.push_back(node);
  }
  return roots;
}

std::vector<WaitForGraph::Edge> WaitForGraph::EdgesInto(Node node) const {
  std::vector<Edge> result;
  result.reserve(in_[node].size());
  for (const uint32_t index : in_[node]) result.push_back(edges_[index]);
  return result;
}

std::vector<WaitForGraph::Node> WaitForGraph::WaitersOf(Node node) const {
  std::vector<bool> seen(out_.size(), false);
  seen[node] = true;
  std::vector<Node> todo = {node};
  std::vector<Node> waiters;
  while (!todo.empty()) {
    const Node current = todo.back();
    todo.pop_back();
    for (const uint32_t index : in_[current]) {
      const Node from = edges_[index].from;
      if (seen[from]) continue;
      seen[from] = true;
      waiters.push_back(from);
      todo.push_back(from);
    }
  }
  std::sort(waiters.begin(), waiters.end());
  return waiters;
}

namespace {

// Tarjan's strongly connected components with a stack of its own: a graph may be a chain of as many
// nodes as the job has ranks, too deep for recursion.
class Components {
 public:
  Components(const std::vector<WaitForGraph::Edge>& edges, const std::vector<std::vector<uint32_t>>& out)
      : edges_(edges), out_(out), order_(out.size(), 0), low_(out.size(), 0), component_(out.size(), kNone) {
    for (uint32_t node = 0; node < out_.size(); ++node) {
      if (order_[node] == 0) Visit(node);
    }
  }

  const std::vector<std::vector<WaitForGraph::Node>>& all() const { return all_; }
  uint32_t of(WaitForGraph::Node node) const { return component_[node]; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Frame {
    uint32_t node;
    size_t next_edge;
  };

  void Visit(uint32_t first) {
    std::vector<Frame> frames = {{first, 0}};
    Enter(first);
    while (!frames.empty()) {
      const uint32_t node = frames.back().node;
      if (frames.back().next_edge < out_[node].size()) {
        const uint32_t to = edges_[out_[node][frames.back().next_edge++]].to;
        if (order_[to] == 0) {
          Enter(to);
          frames.push_back({to, 0});
        } else if (component_[to] == kNone) {
          low_[node] = std::min(low_[node], order_[to]);
        }
        continue;
      }
      if (low_[node] == order_[node]) Close(node);
      frames.pop_back();
      if (!frames.empty()) {
        const uint32_t parent = frames.back().node;
        low_[parent] = std::min(low_[parent], low_[node]);
      }
    }
  }

  void Enter(uint32_t node) {
    order_[node] = low_[node] = ++clock_;
    open_.push_back(node);
  }

  void Close(uint32_t node) {
    std::vector<WaitForGraph::Node> nodes;
    uint32_t last = kNone;
    do {
      last = open_.back();
      open_.pop_back();
      component_[last] = static_cast<uint32_t>(all_.size());
      nodes.push_back(last);
    } while (last != node);
    std::sort(nodes.begin(), nodes.end());
    all_.push_back(std::move(nodes));
  }

  const std::vector<WaitForGraph::Edge>& edges_;
  const std::vector<std::vector<uint32_t>>& out_;
  std::vector<uint32_t> order_;  // when a node was first met; 0: not yet
  std::vector<uint32_t> low_;
  std::vector<uint32_t> component_;
  std::vector<uint32_t> open_;
  std::vector<std::vector<WaitForGraph::Node>> all_;
  uint32_t clock_ = 0;
};

}  // namespace

std::vector<WaitForGraph::Cycle> WaitForGraph::Cycles() const {
  const Components components(edges_, out_);
  std::vector<Cycle> cycles;
  for (const std::vector<Node>& nodes : components.all()) {
    Cycle cycle{nodes, true};
    bool has_edge = false;
    for (const Node node : nodes) {
      for (const uint32_t index : out_[node]) {
        if (components.of(edges_[index].to) == components.of(node)) {
          has_edge = true;
        } else {
          cycle.closed = false;
        }
      }
    }
    if (has_edge) cycles.push_back(std::move(cycle));
  }
  std::sort(cycles.begin(), cycles.end(), [](const Cycle& a, const Cycle& b) { return a.nodes < b.nodes; });
  return cycles;
}

}  // namespace c4::analysis
