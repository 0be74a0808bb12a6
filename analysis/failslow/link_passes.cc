#include "analysis/failslow/link_passes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace c4::analysis {
namespace {

constexpr int kNone = -1;

// The links without repetitions, between devices numbered from 0.
struct Graph {
  struct Edge {
    int a;
    int b;
    int Other(int vertex) const { return vertex == a ? b : a; }
  };
  std::vector<Edge> edges;
  std::vector<std::vector<int>> at;  // edges of each vertex

  int Degree(int vertex) const { return static_cast<int>(at[static_cast<size_t>(vertex)].size()); }
};

struct Reduced {
  Graph graph;
  std::vector<int> edge_of;  // of each link; kNone: it joins a device to itself
};

Reduced Reduce(std::span<const Link> links) {
  Reduced reduced;
  std::map<uint32_t, int> vertices;
  std::map<std::pair<int, int>, int> edges;
  const auto number = [&](uint32_t device) {
    const auto [found, added] = vertices.try_emplace(device, static_cast<int>(vertices.size()));
    if (added) reduced.graph.at.emplace_back();
    return found->second;
  };
  for (const Link& link : links) {
    if (link.a == link.b) {
      reduced.edge_of.push_back(kNone);
      continue;
    }
    const int a = number(link.a);
    const int b = number(link.b);
    const auto [found, added] = edges.try_emplace(std::minmax(a, b), static_cast<int>(edges.size()));
    if (added) {
      reduced.graph.edges.push_back({a, b});
      reduced.graph.at[static_cast<size_t>(a)].push_back(found->second);
      reduced.graph.at[static_cast<size_t>(b)].push_back(found->second);
    }
    reduced.edge_of.push_back(found->second);
  }
  return reduced;
}

// The vertices of each connected part.
std::vector<std::vector<int>> PartsOf(const Graph& graph) {
  std::vector<std::vector<int>> parts;
  std::vector<bool> seen(graph.at.size());
  for (size_t first = 0; first < seen.size(); ++first) {
    if (seen[first]) continue;
    std::vector<int>& part = parts.emplace_back(1, static_cast<int>(first));
    seen[first] = true;
    for (size_t next = 0; next < part.size(); ++next) {
      const int vertex = part[next];
      for (const int edge : graph.at[static_cast<size_t>(vertex)]) {
        const int other = graph.edges[static_cast<size_t>(edge)].Other(vertex);
        if (seen[static_cast<size_t>(other)]) continue;
        seen[static_cast<size_t>(other)] = true;
        part.push_back(other);
      }
    }
  }
  return parts;
}

LinkShape ShapeOf(const Graph& graph, const std::vector<int>& part) {
  size_t ends = 0;
  int most = 0;
  for (const int vertex : part) {
    ends += static_cast<size_t>(graph.Degree(vertex));
    most = std::max(most, graph.Degree(vertex));
  }
  if (most <= 2) return LinkShape::kRing;
  return ends / 2 + 1 == part.size() ? LinkShape::kTree : LinkShape::kOther;
}

// From an end of a chain, or from anywhere on a ring: alternately, the last link of an odd ring apart.
void ColourRing(const Graph& graph, const std::vector<int>& part, std::vector<int>* colours) {
  int vertex = part.front();
  for (const int candidate : part) {
    if (graph.Degree(candidate) == 1) vertex = candidate;
  }
  const bool is_ring = graph.Degree(vertex) == 2;
  const size_t links = is_ring ? part.size() : part.size() - 1;
  int last = kNone;
  for (size_t i = 0; i < links; ++i) {
    const std::vector<int>& at = graph.at[static_cast<size_t>(vertex)];
    const int edge = at[0] != last ? at[0] : at[1];
    const bool odd_one = is_ring && i + 1 == links && links % 2 == 1;
    (*colours)[static_cast<size_t>(edge)] = odd_one ? 2 : static_cast<int>(i % 2);
    vertex = graph.edges[static_cast<size_t>(edge)].Other(vertex);
    last = edge;
  }
}

// From the root down: the links of a device take the first colours but that of the link above it.
void ColourTree(const Graph& graph, const std::vector<int>& part, std::vector<int>* colours) {
  std::deque<std::pair<int, int>> next = {{part.front(), kNone}};  // vertex, edge that led to it
  while (!next.empty()) {
    const auto [vertex, above] = next.front();
    next.pop_front();
    const int taken = above == kNone ? kNone : (*colours)[static_cast<size_t>(above)];
    int colour = 0;
    for (const int edge : graph.at[static_cast<size_t>(vertex)]) {
      if (edge == above) continue;
      if (colour == taken) ++colour;
      (*colours)[static_cast<size_t>(edge)] = colour++;
      next.emplace_back(graph.edges[static_cast<size_t>(edge)].Other(vertex), edge);
    }
  }
}

// Misra and Gries, "A constructive proof of Vizing's theorem".
class AnyColouring {
 public:
  AnyColouring(const Graph& graph, std::vector<int>* colours) : graph_(graph), colours_(*colours) {
    int most = 0;
    for (size_t vertex = 0; vertex < graph.at.size(); ++vertex) {
      most = std::max(most, graph.Degree(static_cast<int>(vertex)));
    }
    used_.assign(graph.at.size(), std::vector<int>(static_cast<size_t>(most) + 1, kNone));
  }

  void Colour(int edge) {
    const int centre = graph_.edges[static_cast<size_t>(edge)].a;
    const std::vector<int> fan = FanOf(centre, edge);
    const int at_centre = Free(centre);
    const int at_last = Free(End(fan.back(), centre));
    if (at_centre != at_last) Invert(centre, at_last, at_centre);
    // Up to the first device of the fan that lacks the colour; the inversion may have ended the fan early.
    for (size_t i = 0; i < fan.size(); ++i) {
      if (i > 0 && !IsFree(End(fan[i - 1], centre), ColourOf(fan[i]))) break;
      if (!IsFree(End(fan[i], centre), at_last)) continue;
      Rotate(fan, i, at_last);
      return;
    }
  }

 private:
  int ColourOf(int edge) const { return colours_[static_cast<size_t>(edge)]; }
  int End(int edge, int centre) const { return graph_.edges[static_cast<size_t>(edge)].Other(centre); }
  int& Used(int vertex, int colour) {
    return used_[static_cast<size_t>(vertex)][static_cast<size_t>(colour)];
  }
  bool IsFree(int vertex, int colour) { return Used(vertex, colour) == kNone; }
  int Free(int vertex) {
    const std::vector<int>& used = used_[static_cast<size_t>(vertex)];
    return static_cast<int>(std::find(used.begin(), used.end(), kNone) - used.begin());
  }
  void Set(int edge, int colour) {
    const Graph::Edge& ends = graph_.edges[static_cast<size_t>(edge)];
    for (const int vertex : {ends.a, ends.b}) {
      if (ColourOf(edge) != kNone && Used(vertex, ColourOf(edge)) == edge)
        Used(vertex, ColourOf(edge)) = kNone;
      if (colour != kNone) Used(vertex, colour) = edge;
    }
    colours_[static_cast<size_t>(edge)] = colour;
  }

  // Links of the centre, each of a colour that the device at the other end of the one before it lacks.
  std::vector<int> FanOf(int centre, int first) {
    std::vector<int> fan = {first};
    for (bool grows = true; grows;) {
      grows = false;
      const int last = End(fan.back(), centre);
      for (size_t colour = 0; colour < used_.front().size() && !grows; ++colour) {
        const int edge = Used(centre, static_cast<int>(colour));
        if (edge == kNone || !IsFree(last, static_cast<int>(colour))) continue;
        if (std::find(fan.begin(), fan.end(), edge) != fan.end()) continue;
        fan.push_back(edge);
        grows = true;
      }
    }
    return fan;
  }

  // The longest chain from `vertex` whose links have the two colours in turns, `first` the first of them.
  void Invert(int vertex, int first, int second) {
    std::vector<int> chain;
    for (int colour = first, edge = Used(vertex, colour); edge != kNone; edge = Used(vertex, colour)) {
      chain.push_back(edge);
      vertex = End(edge, vertex);
      colour = colour == first ? second : first;
    }
    std::vector<int> turned;
    for (const int edge : chain) turned.push_back(ColourOf(edge) == first ? second : first);
    for (const int edge : chain) Set(edge, kNone);
    for (size_t i = 0; i < chain.size(); ++i) Set(chain[i], turned[i]);
  }

  // Each link of the fan up to `last` takes the colour of the next, and that one `colour`.
  void Rotate(const std::vector<int>& fan, size_t last, int colour) {
    std::vector<int> turned;
    for (size_t i = 1; i <= last; ++i) turned.push_back(ColourOf(fan[i]));
    turned.push_back(colour);
    for (size_t i = 0; i <= last; ++i) Set(fan[i], kNone);
    for (size_t i = 0; i <= last; ++i) Set(fan[i], turned[i]);
  }

  const Graph& graph_;
  std::vector<int>& colours_;
  std::vector<std::vector<int>> used_;  // by vertex and colour: the edge
};

}  // namespace

LinkPasses PlanLinkPasses(std::span<const Link> links) {
  const Reduced reduced = Reduce(links);
  const Graph& graph = reduced.graph;
  std::vector<int> colours(graph.edges.size(), kNone);
  LinkPasses plan;
  std::vector<bool> is_other(graph.at.size());
  for (const std::vector<int>& part : PartsOf(graph)) {
    const LinkShape shape = ShapeOf(graph, part);
    plan.shape = std::max(plan.shape, shape);
    if (shape == LinkShape::kRing) ColourRing(graph, part, &colours);
    if (shape == LinkShape::kTree) ColourTree(graph, part, &colours);
    if (shape == LinkShape::kOther) {
      for (const int vertex : part) is_other[static_cast<size_t>(vertex)] = true;
    }
  }
  if (plan.shape == LinkShape::kOther) {
    AnyColouring any(graph, &colours);
    for (size_t edge = 0; edge < graph.edges.size(); ++edge) {
      if (is_other[static_cast<size_t>(graph.edges[edge].a)]) any.Colour(static_cast<int>(edge));
    }
  }
  for (size_t i = 0; i < links.size(); ++i) {
    if (reduced.edge_of[i] == kNone) continue;
    const auto pass = static_cast<size_t>(colours[static_cast<size_t>(reduced.edge_of[i])]);
    if (plan.passes.size() <= pass) plan.passes.resize(pass + 1);
    plan.passes[pass].push_back(i);
  }
  std::erase_if(plan.passes, [](const auto& pass) { return pass.empty(); });
  return plan;
}

}  // namespace c4::analysis
