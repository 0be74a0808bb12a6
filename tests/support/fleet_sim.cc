#include "tests/support/fleet_sim.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace c4::test {
namespace {

constexpr uint32_t kNodeNics = 8;
constexpr uint32_t kPlanes = 2;
constexpr double kWindowS = 10;

// Quick, and good enough for noise: xorshift64*.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x1234567) {}
  uint64_t Bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>((Bits() >> 32) * bound >> 32); }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  // Box and Muller's, one of the two thrown away.
  double Normal() {
    return std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283185307179586 * Uniform());
  }
  uint32_t Poisson(double mean) {
    uint32_t count = 0;
    for (double product = Uniform(); product > std::exp(-mean); product *= Uniform()) ++count;
    return count;
  }

 private:
  uint64_t state_;
};

// The nodes of each job.
std::vector<std::vector<uint32_t>> MakeJobs(const FleetSpec& spec, Random* random) {
  std::vector<uint32_t> nodes(spec.nics / kNodeNics);
  std::iota(nodes.begin(), nodes.end(), 0U);
  for (uint32_t i = static_cast<uint32_t>(nodes.size()); i > 1; --i)
    std::swap(nodes[i - 1], nodes[random->Below(i)]);
  std::vector<std::vector<uint32_t>> jobs;
  const double doublings = std::log2(static_cast<double>(spec.most_job_nodes) / 2);
  for (size_t first = 0; first < nodes.size();) {
    const auto wanted = static_cast<size_t>(std::lround(2 * std::exp2(doublings * random->Uniform())));
    const size_t size = std::min(wanted, nodes.size() - first);
    jobs.emplace_back(nodes.begin() + static_cast<std::ptrdiff_t>(first),
                      nodes.begin() + static_cast<std::ptrdiff_t>(first + size));
    first += size;
  }
  return jobs;
}

}  // namespace

Fleet SimulateFleet(const FleetSpec& spec) {
  Random random(spec.seed);
  Fleet fleet;
  const uint32_t leaves = spec.nics / spec.nics_per_leaf_pair * kPlanes;
  fleet.links = 2 * leaves * spec.spines;
  std::vector<float> worse(fleet.links, 0);
  while (fleet.grey.size() < spec.grey_links) {
    const uint32_t link = random.Below(fleet.links);
    if (worse[link] != 0) continue;
    const double by = spec.least_worse + (spec.most_worse - spec.least_worse) * random.Uniform();
    worse[link] = static_cast<float>(std::log1p(by));
    fleet.grey.push_back({link, by});
  }
  std::vector<double> nic_bias(spec.nics);
  for (double& bias : nic_bias) {
    bias = spec.nic_bias * random.Normal();
    if (random.Uniform() < spec.slow_nics) bias += std::log1p(0.1 + 0.4 * random.Uniform());
  }
  fleet.job_of_nic.assign(spec.nics, 0);
  // The next spine of each leaf: as even as can be.
  std::vector<uint32_t> next_spine(leaves);
  for (uint32_t& next : next_spine) next = random.Below(spec.spines);
  const double windows = std::max(1.0, spec.minutes * 60 / kWindowS);
  const double averaged = spec.window_noise / std::sqrt(windows);
  fleet.samples.reserve(static_cast<size_t>(spec.nics) * spec.peers * kPlanes);
  uint32_t job = 0;
  for (const std::vector<uint32_t>& nodes : MakeJobs(spec, &random)) {
    const auto size = static_cast<uint32_t>(nodes.size());
    const double job_bias = 0.1 * random.Normal();
    ++job;
    for (const uint32_t node : nodes) {
      for (uint32_t rail = 0; rail < kNodeNics; ++rail) fleet.job_of_nic[node * kNodeNics + rail] = job;
    }
    for (uint32_t peer = 0; peer < spec.peers && size > 1; ++peer) {
      const uint32_t distance = 1 + random.Below(size - 1);
      for (uint32_t i = 0; i < size; ++i) {
        for (uint32_t rail = 0; rail < kNodeNics; ++rail) {
          for (uint32_t plane = 0; plane < kPlanes; ++plane) {
            analysis::FleetSample sample;
            sample.source = nodes[i] * kNodeNics + rail;
            sample.destination = nodes[(i + distance) % size] * kNodeNics + rail;
            const uint32_t from = sample.source / spec.nics_per_leaf_pair * kPlanes + plane;
            const uint32_t to = sample.destination / spec.nics_per_leaf_pair * kPlanes + plane;
            double time = job_bias + nic_bias[sample.source] + nic_bias[sample.destination] +
                          spec.queue_pair_bias * random.Normal() + averaged * random.Normal();
            for (uint32_t hit = random.Poisson(spec.congested_share * windows); hit > 0; --hit) {
              time += std::log1p(spec.most_congestion * random.Uniform()) / windows;
            }
            if (from != to) {
              const uint32_t spine = next_spine[from]++ % spec.spines;
              sample.links = {2 * (from * spec.spines + spine), 2 * (to * spec.spines + spine) + 1};
              sample.link_count = 2;
              time += static_cast<double>(worse[sample.links[0]] + worse[sample.links[1]]);
            }
            sample.log_time = static_cast<float>(time);
            fleet.samples.push_back(sample);
          }
        }
      }
    }
  }
  return fleet;
}

}  // namespace c4::test
