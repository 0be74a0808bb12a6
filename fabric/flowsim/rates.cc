#include "fabric/flowsim/rates.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace c4::flowsim {
namespace {

class Filling {
 public:
  Filling(const FlowTable& flows, const std::vector<double>& capacities)
      : flows_(flows), rates_(flows.size(), -1), links_(capacities.size()) {
    for (size_t link = 0; link < capacities.size(); ++link) links_[link].left = capacities[link];
    for (const uint32_t link : flows.links) ++links_[link].rising;
    // Which flows take a link, packed in the same way.
    first_of_link_.assign(capacities.size() + 1, 0);
    for (size_t link = 0; link < capacities.size(); ++link) {
      first_of_link_[link + 1] = first_of_link_[link] + links_[link].rising;
    }
    flows_of_link_.resize(flows.links.size());
    std::vector<uint64_t> next(first_of_link_.begin(), first_of_link_.end() - 1);
    for (size_t flow = 0; flow < flows.size(); ++flow) {
      for (uint64_t i = flows.first[flow]; i < flows.first[flow + 1]; ++i) {
        flows_of_link_[next[flows.links[i]]++] = static_cast<uint32_t>(flow);
      }
    }
    by_want_.resize(flows.size());
    std::iota(by_want_.begin(), by_want_.end(), 0u);
    std::sort(by_want_.begin(), by_want_.end(),
              [&](uint32_t a, uint32_t b) { return flows.wanted[a] < flows.wanted[b]; });
  }

  std::vector<double> Run() {
    for (uint32_t link = 0; link < links_.size(); ++link) {
      if (links_[link].rising > 0) queue_.push({Level(link), link});
    }
    while (!queue_.empty()) {
      const Entry next = queue_.top();
      // Levels only rise: an entry that is out of date comes too early, and goes back to its place.
      const Link& link = links_[next.link];
      if (link.rising == 0) {
        queue_.pop();
        continue;
      }
      const double level = Level(next.link);
      if (level > next.level) {
        queue_.pop();
        queue_.push({level, next.link});
        continue;
      }
      if (SettleWanted(level)) continue;  // some have enough before this link is full
      queue_.pop();
      for (uint64_t i = first_of_link_[next.link]; i < first_of_link_[next.link + 1]; ++i) {
        Settle(flows_of_link_[i], level);
      }
    }
    // What takes no link.
    for (size_t flow = 0; flow < flows_.size(); ++flow) {
      if (rates_[flow] < 0) rates_[flow] = flows_.wanted[flow];
    }
    return std::move(rates_);
  }

 private:
  struct Link {
    double left = 0;      // of the capacity, after those that have settled
    uint64_t rising = 0;  // flows that have not
  };
  struct Entry {
    double level;
    uint32_t link;
    bool operator>(const Entry& other) const {
      return level != other.level ? level > other.level : link > other.link;
    }
  };

  double Level(uint32_t link) const {
    return std::max(links_[link].left, 0.0) / static_cast<double>(links_[link].rising);
  }

  void Settle(uint32_t flow, double rate) {
    if (rates_[flow] >= 0) return;
    rates_[flow] = rate;
    for (uint64_t i = flows_.first[flow]; i < flows_.first[flow + 1]; ++i) {
      Link& link = links_[flows_.links[i]];
      link.left -= rate;
      --link.rising;
    }
  }

  // Those that want no more than `level`; true when there were any.
  bool SettleWanted(double level) {
    bool any = false;
    for (; next_want_ < by_want_.size() && flows_.wanted[by_want_[next_want_]] <= level; ++next_want_) {
      const uint32_t flow = by_want_[next_want_];
      if (rates_[flow] >= 0 || flows_.first[flow] == flows_.first[flow + 1]) continue;
      Settle(flow, flows_.wanted[flow]);
      any = true;
    }
    return any;
  }

  const FlowTable& flows_;
  std::vector<double> rates_;
  std::vector<Link> links_;
  std::vector<uint64_t> first_of_link_;
  std::vector<uint32_t> flows_of_link_;
  std::vector<uint32_t> by_want_;
  size_t next_want_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::vector<double> MaxMinRates(const FlowTable& flows, const std::vector<double>& capacities) {
  return Filling(flows, capacities).Run();
}

std::vector<double> LinkLoads(const FlowTable& flows, const std::vector<double>& rates, size_t links) {
  std::vector<double> loads(links, 0);
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    for (uint64_t i = flows.first[flow]; i < flows.first[flow + 1]; ++i) {
      loads[flows.links[i]] += rates[flow];
    }
  }
  return loads;
}

}  // namespace c4::flowsim
