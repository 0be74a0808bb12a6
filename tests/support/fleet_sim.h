// A cluster full of jobs as fleet tomography sees it: how long messages took on each queue pair, on a
// two-tier network with two planes, some of whose links are grey. For its tests and its benchmark.
//
// Jobs of random sizes stand on random nodes of eight NICs. Each NIC has peers at random distances within its
// job, on its own rail, and a queue pair to each in each plane; ways are even over the spines, as an
// allocation gives them. What is seen of a queue pair is the mean of windows of ten seconds. Each window has
// noise of its own, and now and then congestion; hosts, jobs and queue pairs have a bias that no time
// averages out, and some NICs are slow themselves. A plain generator: the same seed, the same samples.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/fleet_tomography.h"

namespace c4::test {

struct FleetSpec {
  uint32_t nics = 65536;
  uint32_t spines = 64;
  uint32_t nics_per_leaf_pair = 64;
  uint32_t peers = 16;
  uint32_t most_job_nodes = 64;  // least: 2
  double minutes = 5;
  double window_noise = 0.2;      // of a window: standard deviations of logarithms, as what follows
  double congested_share = 0.03;  // of windows
  double most_congestion = 1;     // a congested window takes up to so much longer (1: twice)
  double nic_bias = 0.05;
  double queue_pair_bias = 0.03;
  double slow_nics = 0.01;  // share of those that are 10 to 50 % slow themselves
  uint32_t grey_links = 2;
  double least_worse = 0.1;
  double most_worse = 0.5;
  uint64_t seed = 1;
};

struct SimulatedGreyLink {
  uint32_t link = 0;
  double worse = 0;
};

struct Fleet {
  std::vector<analysis::FleetSample> samples;
  std::vector<uint32_t> job_of_nic;
  uint32_t links = 0;  // between switches, directed: 2 (leaf * spines + spine), down: + 1
  std::vector<SimulatedGreyLink> grey;
};

Fleet SimulateFleet(const FleetSpec& spec);

}  // namespace c4::test
