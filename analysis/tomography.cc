#include "analysis/tomography.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <utility>

namespace c4::analysis {
namespace {

constexpr size_t kBeam = 64;
constexpr double kEpsilon = 1e-9;  // of sums of weights

enum class Reach : uint8_t { kNone, kMay, kSure };  // of a bad link, to a flow

// Bad directions of one cable.
struct Suspect {
  uint32_t cable = 0;
  std::vector<uint32_t> links;
  double bad = 0;
  double good = 0;
  std::vector<Reach> reach;  // by group
};

using Set = std::vector<size_t>;  // indices of suspects, ascending

struct Scored {
  Set set;
  double cost = 0;
};

// Flows that look alike to every suspect, taken together.
struct Group {
  std::vector<uint32_t> sure;  // links, ascending: bad if one of them is
  std::vector<uint32_t> may;   // links, ascending: may be bad if one of them is
  double bad = 0;
  double good = 0;
};

bool Meets(const std::vector<uint32_t>& links, const std::vector<uint32_t>& others) {
  return std::any_of(links.begin(), links.end(),
                     [&](uint32_t link) { return std::binary_search(others.begin(), others.end(), link); });
}

class Search {
 public:
  Search(const std::vector<uint32_t>& cable_of, const std::vector<FlowObservation>& flows,
         const TomographyOptions& options)
      : options_(options) {
    CollectSuspects(cable_of, flows);
    CollectGroups(flows);
    Prune();
  }

  Tomography Run() {
    Tomography result;
    for (const Group& group : groups_) result.bad += group.bad;
    if (suspects_.empty()) return result;
    Grow();
    const Scored best = *std::min_element(seen_.begin(), seen_.end(), IsBetter);
    Replace(best.set);
    Fill(best, &result);
    return result;
  }

 private:
  static bool IsBetter(const Scored& a, const Scored& b) {
    if (a.cost < b.cost - kEpsilon) return true;
    if (b.cost < a.cost - kEpsilon) return false;
    return a.set.size() != b.set.size() ? a.set.size() < b.set.size() : a.set < b.set;
  }

  // Whoever is not on the way of a bad flow is not to blame. Both directions come before each alone: where
  // they are equally good, the cable it is.
  void CollectSuspects(const std::vector<uint32_t>& cable_of, const std::vector<FlowObservation>& flows) {
    std::map<uint32_t, std::set<uint32_t>> hit;
    for (const FlowObservation& flow : flows) {
      if (flow.state != FlowState::kBad) continue;
      for (const auto* way : {&flow.data, &flow.acks}) {
        for (const uint32_t link : *way) {
          assert(link < cable_of.size());
          hit[cable_of[link]].insert(link);
        }
      }
    }
    for (const auto& [cable, links] : hit) {
      if (links.size() > 1) suspects_.push_back({cable, {links.begin(), links.end()}, 0, 0, {}});
      for (const uint32_t link : links) suspects_.push_back({cable, {link}, 0, 0, {}});
    }
  }

  void CollectGroups(const std::vector<FlowObservation>& flows) {
    std::set<uint32_t> suspicious;
    for (const Suspect& suspect : suspects_) suspicious.insert(suspect.links.begin(), suspect.links.end());
    std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, Group> groups;
    for (const FlowObservation& flow : flows) {
      if (flow.state == FlowState::kUnknown) continue;
      std::set<uint32_t> sure;
      std::set<uint32_t> may;
      for (const uint32_t link : flow.data) {
        if (suspicious.count(link) != 0) sure.insert(link);
      }
      for (const uint32_t link : flow.acks) {
        if (suspicious.count(link) == 0 || sure.count(link) != 0) continue;
        (options_.acks_count ? sure : may).insert(link);
      }
      Group group{{sure.begin(), sure.end()}, {may.begin(), may.end()}, 0, 0};
      Group& same = groups.try_emplace({group.sure, group.may}, group).first->second;
      (flow.state == FlowState::kBad ? same.bad : same.good) += flow.weight;
    }
    for (auto& entry : groups) groups_.push_back(std::move(entry.second));
  }

  // Keeps what is worth a search when there are very many.
  void Prune() {
    for (Suspect& suspect : suspects_) {
      for (const Group& group : groups_) {
        const bool sure = Meets(suspect.links, group.sure);
        const bool may = !sure && Meets(suspect.links, group.may);
        suspect.reach.push_back(sure ? Reach::kSure : may ? Reach::kMay : Reach::kNone);
        if (sure || may) suspect.bad += group.bad;
        if (sure) suspect.good += group.good;
      }
    }
    std::map<uint32_t, double> worth;
    for (const Suspect& suspect : suspects_) {
      const double net = suspect.bad - suspect.good;
      const auto [it, is_new] = worth.try_emplace(suspect.cable, net);
      if (!is_new) it->second = std::max(it->second, net);
    }
    if (worth.size() <= kMaxCables) return;
    std::vector<std::pair<double, uint32_t>> order;
    order.reserve(worth.size());
    for (const auto& [cable, net] : worth) order.emplace_back(-net, cable);
    std::sort(order.begin(), order.end());
    std::set<uint32_t> kept;
    for (size_t i = 0; i < kMaxCables; ++i) kept.insert(order[i].second);
    std::erase_if(suspects_, [&](const Suspect& suspect) { return kept.count(suspect.cable) == 0; });
  }

  Reach ReachOf(const Set& set, size_t group) const {
    Reach reach = Reach::kNone;
    for (const size_t index : set) reach = std::max(reach, suspects_[index].reach[group]);
    return reach;
  }

  double Cost(const Set& set) const {
    double cost = options_.culprit_cost * static_cast<double>(set.size());
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Reach reach = ReachOf(set, i);
      if (reach == Reach::kSure) {
        cost += groups_[i].good;
      } else {
        cost += groups_[i].bad * (reach == Reach::kMay ? options_.acks_only_cost : 1);
      }
    }
    return cost;
  }

  bool Has(const Set& set, uint32_t cable) const {
    return std::any_of(set.begin(), set.end(), [&](size_t index) { return suspects_[index].cable == cable; });
  }

  void See(Set set, std::vector<Scored>* out) {
    if (!known_.insert(set).second) return;
    const double cost = Cost(set);
    out->push_back({set, cost});
    seen_.push_back({std::move(set), cost});
  }

  static Set With(const Set& set, size_t index) {
    Set larger = set;
    larger.insert(std::upper_bound(larger.begin(), larger.end(), index), index);
    return larger;
  }

  // All sets of one and of two, then larger ones from the best of those, as long as that gains something.
  void Grow() {
    std::vector<Scored> level;
    for (size_t i = 0; i < suspects_.size(); ++i) See({i}, &level);
    double best = std::min_element(level.begin(), level.end(), IsBetter)->cost;
    for (size_t size = 2; size <= options_.max_culprits; ++size) {
      if (best <= options_.culprit_cost * static_cast<double>(size) + kEpsilon)
        return;  // no more can be less
      std::vector<Scored> next;
      for (const Scored& scored : level) {
        for (size_t i = 0; i < suspects_.size(); ++i) {
          if (!Has(scored.set, suspects_[i].cable)) See(With(scored.set, i), &next);
        }
      }
      if (next.empty()) return;
      std::sort(next.begin(), next.end(), IsBetter);
      if (next.size() > kBeam) next.resize(kBeam);
      if (next.front().cost >= best - kEpsilon) return;
      best = next.front().cost;
      level = std::move(next);
    }
  }

  // What differs from the best set in one culprit, where the beam may have passed it by.
  void Replace(const Set& best) {
    if (best.size() < 3) return;
    std::vector<Scored> unused;
    for (const size_t out : best) {
      Set rest = best;
      rest.erase(std::find(rest.begin(), rest.end(), out));
      for (size_t i = 0; i < suspects_.size(); ++i) {
        if (!Has(rest, suspects_[i].cable)) See(With(rest, i), &unused);
      }
    }
  }

  void Fill(const Scored& best, Tomography* result) const {
    std::set<uint32_t> own;
    std::map<uint32_t, std::set<uint32_t>> instead;
    for (const size_t index : best.set) own.insert(suspects_[index].cable);
    for (const Scored& other : seen_) {
      if (other.cost >= best.cost + options_.margin - kEpsilon || other.set.size() > best.set.size())
        continue;
      std::vector<uint32_t> foreign;
      for (const size_t index : other.set) {
        if (own.count(suspects_[index].cable) == 0) foreign.push_back(suspects_[index].cable);
      }
      for (const uint32_t cable : own) {
        if (!Has(other.set, cable)) instead[cable].insert(foreign.begin(), foreign.end());
      }
    }
    for (const size_t index : best.set) {
      const Suspect& suspect = suspects_[index];
      BadCable& cable = result->cables.emplace_back();
      cable.cable = suspect.cable;
      cable.links = suspect.links;
      cable.bad = suspect.bad;
      cable.good = suspect.good;
      cable.instead.assign(instead[suspect.cable].begin(), instead[suspect.cable].end());
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Reach reach = ReachOf(best.set, i);
      if (reach != Reach::kNone) result->explained += groups_[i].bad;
      if (reach == Reach::kSure) result->contradicting += groups_[i].good;
    }
  }

  const TomographyOptions options_;
  std::vector<Suspect> suspects_;
  std::vector<Group> groups_;
  std::vector<Scored> seen_;
  std::set<Set> known_;
};

}  // namespace

bool Tomography::ambiguous() const {
  return std::any_of(cables.begin(), cables.end(),
                     [](const BadCable& cable) { return !cable.instead.empty(); });
}

Tomography FindBadLinks(const std::vector<uint32_t>& cable_of, const std::vector<FlowObservation>& flows,
                        const TomographyOptions& options) {
  return Search(cable_of, flows, options).Run();
}

}  // namespace c4::analysis
