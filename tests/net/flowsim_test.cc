// The simulator beside the emulated fabric: the same flows on the same ways, TCP over shaped links there,
// max-min fair rates here.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>

#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"
#include "fabric/emulator/raw_flow.h"
#include "fabric/flowsim/clos.h"
#include "fabric/flowsim/policy.h"

namespace c4 {
namespace {

// What of a link's rate TCP's payload gets: headers, and the rest of what the emulated links cost.
constexpr double kPayload = 0.983;
constexpr double kAgreement = 0.05;
constexpr int kAttempts = 4;

// Takes the fabric down, whatever became of the test.
struct Down {
  std::string name;
  ~Down() { EXPECT_TRUE(fabric::Fabric::Down(name).ok()); }
};

TEST(Flowsim, AgreesWithTheEmulatedFabric) {
  if (absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights.message();
  fabric::FabricSpec spec{.name = "fs" + std::to_string(getpid() % 100000),
                          .leaves = 2,
                          .spines = 4,
                          .hosts_per_leaf = 4,
                          .rate_mbps = 100};
  const absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  ASSERT_TRUE(up.ok()) << up.status().message();
  const Down down{spec.name};
  const absl::StatusOr<flowsim::Clos> clos = flowsim::Clos::Make({.leaves = spec.leaves,
                                                                  .spines = spec.spines,
                                                                  .hosts_per_leaf = spec.hosts_per_leaf,
                                                                  .host_mbps = spec.rate_mbps,
                                                                  .spine_mbps = spec.rate_mbps});
  ASSERT_TRUE(clos.ok());
  // One flow a host to the other leaf, from ports as the kernel would give them: some meet on a spine.
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<fabric::FiveTuple> tuples;
    tuples.reserve(8);
    for (int host = 0; host < 8; ++host) {
      tuples.push_back({.source = fabric::HostPortAddress(spec, host, 0),
                        .source_port = static_cast<int>(32768 + random() % 20000),
                        .destination = fabric::HostPortAddress(spec, (host + 4) % 8, 0),
                        .destination_port = 5201});
    }
    const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec, tuples);
    ASSERT_TRUE(paths.ok()) << paths.status().message();
    flowsim::FlowTable table;
    for (const fabric::Path& path : *paths) {
      table.Add(clos->PathOf({path.source_host, 0}, {path.destination_host, 0}, path.spine));
    }
    const std::vector<double> simulated = flowsim::MaxMinRates(table, flowsim::CapacitiesOf(*clos));
    // Flows that meet share unevenly for seconds at a time; what their spine link carries is sharper.
    std::map<std::pair<int, int>, double> expected;
    for (size_t i = 0; i < tuples.size(); ++i) {
      expected[{(*paths)[i].source_leaf, (*paths)[i].spine}] += simulated[i] * kPayload;
    }
    // TCP that has lost packets takes seconds to come back to what it could have: another look then.
    double worst = 1;
    for (int attempt = 0; attempt < kAttempts && worst > kAgreement; ++attempt) {
      const absl::StatusOr<std::vector<double>> measured = fabric::GoodputOf(spec, tuples, 1500, 3000);
      ASSERT_TRUE(measured.ok()) << measured.status().message();
      std::map<std::pair<int, int>, double> found;
      for (size_t i = 0; i < tuples.size(); ++i) {
        found[{(*paths)[i].source_leaf, (*paths)[i].spine}] += (*measured)[i];
      }
      worst = 0;
      for (const auto& [link, mbps] : found) worst = std::max(worst, std::abs(mbps / expected[link] - 1));
      printf("seed %u: %zu spine links, %.1f Mbit/s measured, %.1f simulated, worst link off by %.3f\n", seed,
             found.size(), std::accumulate(measured->begin(), measured->end(), 0.0),
             kPayload * std::accumulate(simulated.begin(), simulated.end(), 0.0), worst);
    }
    EXPECT_LE(worst, kAgreement);
  }
}

}  // namespace
}  // namespace c4
