// The rates of flows that share links fairly: max-min fair rates, by progressive filling. All rates rise
// together until a link is full. Flows over that link keep their rate, and the others rise on (Bertsekas and
// Gallager, Data Networks, section 6.5.2). So every flow gets all that it wants, or crosses a full link on
// which no other flow gets more.
//
// Only data is traffic: acknowledgements take no room and are never in the way of a flow.
//
// Pure. Time grows with the flows' hops times the logarithm of the links, memory with the hops: 8.4 million
// flows over 65,536 hosts take seconds and less than a gigabyte (docs/benchmarks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace c4::flowsim {

inline constexpr double kAllItCanGet = std::numeric_limits<double>::infinity();

// Flows and the links that each takes, packed: flow f takes links[first[f]] to links[first[f + 1] - 1], each
// at most once.
struct FlowTable {
  std::vector<uint64_t> first = {0};
  std::vector<uint32_t> links;
  std::vector<double> wanted;  // the most that each takes; kAllItCanGet

  size_t size() const { return wanted.size(); }
  template <typename Links>
  void Add(const Links& taken, double wants = kAllItCanGet) {
    links.insert(links.end(), taken.begin(), taken.end());
    first.push_back(links.size());
    wanted.push_back(wants);
  }
};

// By flow, in the unit of `capacities`, which are by link. A flow that takes no link gets what it wants. A
// flow over a link of capacity 0 gets nothing. REQUIRES: no capacity or want is negative or NaN; the links
// are numbers of capacities.
std::vector<double> MaxMinRates(const FlowTable& flows, const std::vector<double>& capacities);

// What each link carries at these rates.
std::vector<double> LinkLoads(const FlowTable& flows, const std::vector<double>& rates, size_t links);

}  // namespace c4::flowsim
