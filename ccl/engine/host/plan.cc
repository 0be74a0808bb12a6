#include "ccl/engine/host/plan.h"

#include <algorithm>
#include <map>

namespace c4::host {
namespace {

constexpr Region None() {
  return {};
}
Region Input(int block, int part) {
  return {Buffer::kInput, block, part};
}
Region Output(int block, int part) {
  return {Buffer::kOutput, block, part};
}

int Mod(int a, int n) {
  return (a % n + n) % n;
}

// The plans of one rank. Each function appends the steps of one collective.
class Planner {
 public:
  Planner(const Layout& layout, int rank, int root, int channels)
      : layout_(layout), n_(layout.rank_count), me_(rank), root_(root), channels_(channels) {
    for (int i = 0; i < n_; ++i) {
      if (layout.ring[static_cast<size_t>(i)] == rank) position_ = i;
      if (layout.ring[static_cast<size_t>(i)] == root) root_position_ = i;
    }
    for (int peer = 0; peer < n_; ++peer) {
      if (peer != me_) others_.push_back(peer);
    }
    // Everybody begins with somebody else.
    after_me_ = others_;
    std::rotate(after_me_.begin(), after_me_.begin() + me_, after_me_.end());
  }

  Plan Make(Algorithm algorithm, wire::Function function) {
    if (n_ == 1) {
      Add({}, Input(0, kWhole), Output(0, kWhole), {});
      return std::move(plan_);
    }
    switch (algorithm) {
      case Algorithm::kRing:
        Ring(function);
        break;
      case Algorithm::kTree:
        Tree(function);
        break;
      case Algorithm::kExchange:
        Exchange();
        break;
      case Algorithm::kHierarchy:
        Hierarchy(function);
        break;
      default:
        Direct(function);
    }
    return std::move(plan_);
  }

 private:
  int AtRing(int position) const { return layout_.ring[static_cast<size_t>(Mod(position, n_))]; }

  void Add(std::vector<int> from, Region operand, Region store, std::vector<int> to, bool whole = true) {
    Step step;
    step.whole = whole;
    step.channel = static_cast<uint16_t>(channel_);
    step.operand = operand;
    step.store = store;
    std::sort(from.begin(), from.end());
    if (plan_.in_rank_order) {
      step.own_place =
          static_cast<int>(std::count_if(from.begin(), from.end(), [&](int r) { return r < me_; }));
    }
    step.from = std::move(from);
    step.to = std::move(to);
    plan_.stages = plan_.stages || (!step.from.empty() && step.store.buffer == Buffer::kNone);
    plan_.most_sources = std::max(plan_.most_sources, step.from.size());
    plan_.steps.push_back(std::move(step));
  }

  void Ring(wire::Function function) {
    plan_.parts = function == wire::kAllReduce ? n_ * channels_ : channels_;
    for (channel_ = 0; channel_ < channels_; ++channel_) {
      switch (function) {
        case wire::kAllReduce:
          RingAllReduce();
          break;
        case wire::kReduceScatter:
          RingReduceScatter();
          break;
        case wire::kAllGather:
          RingAllGather();
          break;
        case wire::kBroadcast:
          ChainBroadcast();
          break;
        default:
          ChainReduce();
      }
    }
  }

  // The chunk that starts at a place of the ring is whole after n - 1 hops, and everywhere after n - 1 more.
  void RingAllReduce() {
    const int next = AtRing(position_ + 1);
    const int previous = AtRing(position_ - 1);
    for (int s = 0; s <= 2 * n_ - 2; ++s) {
      const int part = Mod(position_ - s, n_) * channels_ + channel_;
      std::vector<int> from;
      std::vector<int> to;
      if (s > 0) from.push_back(previous);
      if (s < 2 * n_ - 2) to.push_back(next);
      // Partial sums go into the output as well: it is theirs until the result comes, and needs no other
      // memory.
      Add(std::move(from), s < n_ ? Input(0, part) : None(), s > 0 ? Output(0, part) : None(), std::move(to),
          s >= n_ - 1);
    }
  }

  // The block of the rank before this one starts here, and comes to it last.
  void RingReduceScatter() {
    const int next = AtRing(position_ + 1);
    const int previous = AtRing(position_ - 1);
    for (int s = 0; s < n_; ++s) {
      const bool last = s == n_ - 1;
      Add(s > 0 ? std::vector<int>{previous} : std::vector<int>(), Input(AtRing(position_ - 1 - s), channel_),
          last ? Output(0, channel_) : None(), last ? std::vector<int>() : std::vector<int>{next});
    }
  }

  void RingAllGather() {
    const int next = AtRing(position_ + 1);
    const int previous = AtRing(position_ - 1);
    for (int s = 0; s < n_; ++s) {
      Add(s > 0 ? std::vector<int>{previous} : std::vector<int>(), s == 0 ? Input(0, channel_) : None(),
          Output(AtRing(position_ - s), channel_), s < n_ - 1 ? std::vector<int>{next} : std::vector<int>());
    }
  }

  void ChainBroadcast() {
    const int at = Mod(position_ - root_position_, n_);
    Add(at > 0 ? std::vector<int>{AtRing(position_ - 1)} : std::vector<int>(),
        at == 0 ? Input(0, channel_) : None(), Output(0, channel_),
        at < n_ - 1 ? std::vector<int>{AtRing(position_ + 1)} : std::vector<int>());
  }

  // From the rank behind the root all the way round to it.
  void ChainReduce() {
    const int at = Mod(position_ - root_position_, n_);
    Add(at != 1 ? std::vector<int>{AtRing(position_ - 1)} : std::vector<int>(), Input(0, channel_),
        at == 0 ? Output(0, channel_) : None(),
        at != 0 ? std::vector<int>{AtRing(position_ + 1)} : std::vector<int>());
  }

  void Tree(wire::Function function) {
    plan_.parts = channels_;
    for (channel_ = 0; channel_ < channels_; ++channel_) {
      // Another root for each channel, where there is none of its own, so that nobody is a leaf in all.
      const int root = function == wire::kAllReduce ? channel_ * n_ / channels_ : root_position_;
      const int at = Mod(position_ - root, n_);
      std::vector<int> parent;
      if (at > 0) parent.push_back(AtRing(root + (at - 1) / 2));
      std::vector<int> children;
      for (const int child : {2 * at + 1, 2 * at + 2}) {
        if (child < n_) children.push_back(AtRing(root + child));
      }
      const Region input = Input(0, channel_);
      const Region output = Output(0, channel_);
      if (function == wire::kBroadcast) {
        Add(parent, at == 0 ? input : None(), output, children);
      } else if (function == wire::kReduce) {
        Add(children, input, at == 0 ? output : None(), parent);
      } else if (at == 0) {
        Add(children, input, output, children);
      } else {
        Add(children, input, children.empty() ? None() : output, parent, false);
        Add(parent, None(), output, children);
      }
    }
  }

  void Exchange() {
    plan_.in_rank_order = true;
    Add({}, Input(0, 0), None(), after_me_);
    Add(others_, Input(0, 0), Output(0, 0), {});
    plan_.overlaps = true;
  }

  void Direct(wire::Function function) {
    const bool is_root = me_ == root_;
    switch (function) {
      case wire::kAllReduce:
        plan_.parts = n_;
        for (const int peer : after_me_) Add({}, Input(0, peer), None(), {peer});
        Add(others_, Input(0, me_), Output(0, me_), after_me_);
        for (const int peer : after_me_) Add({peer}, None(), Output(0, peer), {});
        break;
      case wire::kReduceScatter:
        for (const int peer : after_me_) Add({}, Input(peer, 0), None(), {peer});
        Add(others_, Input(me_, 0), Output(0, 0), {});
        break;
      case wire::kAllGather:
        Add({}, Input(0, 0), Output(me_, 0), after_me_);
        for (const int peer : after_me_) Add({peer}, None(), Output(peer, 0), {});
        break;
      case wire::kBroadcast:
        if (is_root) {
          Add({}, Input(0, 0), Output(0, 0), after_me_);
        } else {
          Add({root_}, None(), Output(0, 0), {});
        }
        break;
      case wire::kReduce:
        if (is_root) {
          Add(others_, Input(0, 0), Output(0, 0), {});
        } else {
          Add({}, Input(0, 0), None(), {root_});
        }
        break;
      case wire::kAlltoAll:
        for (const int peer : after_me_) Add({}, Input(peer, 0), None(), {peer});
        Add({}, Input(me_, 0), Output(me_, 0), {});
        for (const int peer : after_me_) Add({peer}, None(), Output(peer, 0), {});
        break;
      case wire::kGather:
        if (is_root) {
          Add({}, Input(0, 0), Output(me_, 0), {});
          for (const int peer : after_me_) Add({peer}, None(), Output(peer, 0), {});
        } else {
          Add({}, Input(0, 0), None(), {root_});
        }
        break;
      default:  // scatter
        if (is_root) {
          for (const int peer : after_me_) Add({}, Input(peer, 0), None(), {peer});
          Add({}, Input(me_, 0), Output(0, 0), {});
        } else {
          Add({root_}, None(), Output(0, 0), {});
        }
    }
  }

  // Between hosts, a ring of those with the same place. What a host's ranks have to add comes straight into
  // the steps of that ring, and what has gone round goes from there straight to them.
  void Hierarchy(wire::Function function) {
    host_ = layout_.host[static_cast<size_t>(me_)];
    hosts_ = static_cast<int>(layout_.hosts.size());
    place_ = layout_.place[static_cast<size_t>(me_)];
    const std::vector<int>& here = layout_.hosts[static_cast<size_t>(host_)];
    for (const int rank : here) {
      if (rank != me_) locals_.push_back(rank);
    }
    next_ = At(host_ + 1, place_);
    previous_ = At(host_ - 1, place_);
    switch (function) {
      case wire::kAllReduce:
        HierarchyAllReduce(static_cast<int>(here.size()));
        break;
      case wire::kReduceScatter:
        HierarchyReduceScatter();
        break;
      case wire::kAllGather:
        HierarchyAllGather();
        break;
      default:
        HierarchyRooted(function);
    }
  }

  int At(int host, int place) const {
    return layout_.hosts[static_cast<size_t>(Mod(host, hosts_))][static_cast<size_t>(place)];
  }
  int PlaceOf(int rank) const { return layout_.place[static_cast<size_t>(rank)]; }
  std::vector<int> LocalsAnd(int rank) const {
    std::vector<int> ranks = locals_;
    ranks.push_back(rank);
    return ranks;
  }

  void HierarchyAllReduce(int places) {
    plan_.parts = places * hosts_;
    const auto part = [&](int place, int s) { return place * hosts_ + Mod(host_ - s, hosts_); };
    for (int s = 0; s < hosts_; ++s) {
      for (const int peer : locals_) Add({}, Input(0, part(PlaceOf(peer), s)), None(), {peer});
    }
    for (int s = 0; s <= 2 * hosts_ - 2; ++s) {
      const bool reduces = s < hosts_;
      const bool whole = s >= hosts_ - 1;
      const bool last = s == 2 * hosts_ - 2;
      std::vector<int> from = reduces ? locals_ : std::vector<int>();
      if (s > 0) from.push_back(previous_);
      std::vector<int> to = whole ? locals_ : std::vector<int>();
      if (!last) to.insert(to.begin(), next_);
      Add(std::move(from), reduces ? Input(0, part(place_, s)) : None(), Output(0, part(place_, s)),
          std::move(to), whole);
    }
    for (int s = hosts_ - 1; s <= 2 * hosts_ - 2; ++s) {
      for (const int peer : locals_) Add({peer}, None(), Output(0, part(PlaceOf(peer), s)), {});
    }
  }

  void HierarchyReduceScatter() {
    const auto block = [&](int place, int s) { return At(host_ - 1 - s, place); };
    for (int s = 0; s < hosts_; ++s) {
      for (const int peer : locals_) Add({}, Input(block(PlaceOf(peer), s), 0), None(), {peer});
    }
    for (int s = 0; s < hosts_; ++s) {
      const bool last = s == hosts_ - 1;
      Add(s > 0 ? LocalsAnd(previous_) : locals_, Input(block(place_, s), 0), last ? Output(0, 0) : None(),
          last ? std::vector<int>() : std::vector<int>{next_});
    }
  }

  void HierarchyAllGather() {
    for (int s = 0; s < hosts_; ++s) {
      std::vector<int> to = locals_;
      if (s < hosts_ - 1) to.insert(to.begin(), next_);
      Add(s > 0 ? std::vector<int>{previous_} : std::vector<int>(), s == 0 ? Input(0, 0) : None(),
          Output(At(host_ - s, place_), 0), std::move(to));
    }
    for (int s = 0; s < hosts_; ++s) {
      for (const int peer : locals_) Add({peer}, None(), Output(At(host_ - s, PlaceOf(peer)), 0), {});
    }
  }

  // Broadcast and reduce: each host's rank with the root's place stands for its host.
  void HierarchyRooted(wire::Function function) {
    const int root_host = layout_.host[static_cast<size_t>(root_)];
    const int root_place = layout_.place[static_cast<size_t>(root_)];
    const int at = Mod(host_ - root_host, hosts_);
    const bool stands = place_ == root_place;
    const int head = At(host_, root_place);
    if (function == wire::kBroadcast) {
      if (!stands) {
        Add({head}, None(), Output(0, 0), {});
        return;
      }
      std::vector<int> to = locals_;
      if (at < hosts_ - 1) to.insert(to.begin(), next_);
      Add(at > 0 ? std::vector<int>{previous_} : std::vector<int>(), at == 0 ? Input(0, 0) : None(),
          Output(0, 0), std::move(to));
      return;
    }
    if (!stands) {
      Add({}, Input(0, 0), None(), {head});
      return;
    }
    Add(at != 1 ? LocalsAnd(previous_) : locals_, Input(0, 0), at == 0 ? Output(0, 0) : None(),
        at != 0 ? std::vector<int>{next_} : std::vector<int>());
  }

  const Layout& layout_;
  const int n_;
  const int me_;
  const int root_;
  const int channels_;
  int position_ = 0;  // in the ring
  int root_position_ = 0;
  std::vector<int> others_;
  std::vector<int> after_me_;
  int channel_ = 0;
  int host_ = 0;
  int hosts_ = 1;
  int place_ = 0;
  int next_ = 0;
  int previous_ = 0;
  std::vector<int> locals_;  // other ranks of this host
  Plan plan_;
};

constexpr std::string_view kNames[kAlgorithms] = {"auto", "ring", "tree", "direct", "exchange", "hierarchy"};

}  // namespace

std::string_view AlgorithmName(Algorithm algorithm) {
  return kNames[static_cast<size_t>(algorithm)];
}

bool ParseAlgorithm(std::string_view name, Algorithm* algorithm) {
  for (size_t i = 0; i < kAlgorithms; ++i) {
    if (kNames[i] != name) continue;
    *algorithm = static_cast<Algorithm>(i);
    return true;
  }
  return false;
}

Layout::Layout(std::vector<uint64_t> host_of_rank)
    : rank_count(static_cast<int>(host_of_rank.size())),
      host(host_of_rank.size()),
      place(host_of_rank.size()) {
  std::map<uint64_t, int> known;
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto [it, is_new] = known.try_emplace(host_of_rank[rank], static_cast<int>(hosts.size()));
    if (is_new) hosts.emplace_back();
    std::vector<int>& ranks = hosts[static_cast<size_t>(it->second)];
    host[rank] = it->second;
    place[rank] = static_cast<int>(ranks.size());
    ranks.push_back(static_cast<int>(rank));
  }
  for (const std::vector<int>& ranks : hosts) ring.insert(ring.end(), ranks.begin(), ranks.end());
}

bool Layout::even() const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const std::vector<int>& ranks) { return ranks.size() == hosts.front().size(); });
}

bool Exists(Algorithm algorithm, wire::Function function, const Layout& layout) {
  const bool all_to_all =
      function == wire::kAlltoAll || function == wire::kGather || function == wire::kScatter;
  switch (algorithm) {
    case Algorithm::kDirect:
      return true;
    case Algorithm::kRing:
      return !all_to_all;
    case Algorithm::kTree:
      return function == wire::kAllReduce || function == wire::kBroadcast || function == wire::kReduce;
    case Algorithm::kExchange:
      return function == wire::kAllReduce;
    case Algorithm::kHierarchy:
      return !all_to_all && layout.hosts.size() > 1 && layout.hosts.front().size() > 1 && layout.even();
    default:
      return false;
  }
}

Plan MakePlan(Algorithm algorithm, wire::Function function, const Layout& layout, int rank, int root,
              int channels) {
  const bool rings = algorithm == Algorithm::kRing || algorithm == Algorithm::kTree;
  return Planner(layout, rank, root, rings ? channels : 1).Make(algorithm, function);
}

Span ChunkSpan(size_t count, int parts, int part) {
  if (part == kWhole) return {0, count};
  const auto n = static_cast<size_t>(parts);
  const auto i = static_cast<size_t>(part);
  const size_t base = count / n;
  const size_t rest = count % n;
  return {i * base + (i < rest ? i : rest), base + (i < rest ? 1 : 0)};
}

}  // namespace c4::host
