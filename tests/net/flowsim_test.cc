// The simulator beside the emulated fabric: the same flows on the same ways, TCP over shaped links there,
// max-min fair rates here.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
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
constexpr int kCandidates = 96;  // ports, from which a flow takes one

// Takes the fabric down, whatever became of the test.
struct Down {
  std::string name;
  ~Down() { EXPECT_TRUE(fabric::Fabric::Down(name).ok()); }
};

std::string Name() {
  return "al" + std::to_string(getpid() % 100000);
}

absl::StatusOr<flowsim::Clos> Like(const fabric::FabricSpec& spec) {
  return flowsim::Clos::Make({.leaves = spec.leaves,
                              .spines = spec.spines,
                              .hosts_per_leaf = spec.hosts_per_leaf,
                              .planes = fabric::PortsPerHost(spec),
                              .host_mbps = spec.rate_mbps,
                              .spine_mbps = spec.rate_mbps});
}

struct Candidate {
  fabric::FiveTuple tuple;
  fabric::Path data;
  fabric::Path acknowledgements;
};

// A direction of a link between leaf and spine.
using Direction = std::tuple<int, int, bool>;

std::array<Direction, 2> DirectionsOf(const fabric::Path& path) {
  return {Direction{path.source_leaf, path.spine, true}, Direction{path.destination_leaf, path.spine, false}};
}

// One flow from each port of each host to the like one of the host half the fabric away. The seed says which
// spines: some flows meet. The first one takes `slow`, where that is an uplink.
//
// Acknowledgements are no traffic to the simulator. Behind the data of a full link they wait, and their flow
// gets less than its own way has room for: as little as a third, where that link is slow (measured). Ports
// are chosen so that they go where least data goes, and never over `slow`; nothing is sent to a host whose
// own data fill a slow link.
absl::StatusOr<std::vector<fabric::FiveTuple>> Draw(const fabric::FabricSpec& spec, unsigned seed,
                                                    const std::optional<fabric::Link>& slow) {
  std::mt19937 random(seed);
  std::vector<std::vector<Candidate>> flows;  // by flow, all with its data on one way
  std::map<Direction, int> data;
  const bool uplink = slow && slow->kind == fabric::Link::Kind::kUplink;
  const int hosts = fabric::HostCount(spec);
  for (int host = 0; host < hosts; ++host) {
    for (int port = 0; port < fabric::PortsPerHost(spec); ++port) {
      if (slow == fabric::HostLinkOf(spec, (host + hosts / 2) % hosts, port)) continue;
      std::vector<fabric::FiveTuple> tuples;  // each with its reverse behind it
      for (int i = 0; i < kCandidates; ++i) {
        tuples.push_back({.source = fabric::HostPortAddress(spec, host, port),
                          .source_port = 32768 + kCandidates * static_cast<int>(flows.size()) + i,
                          .destination = fabric::HostPortAddress(spec, (host + hosts / 2) % hosts, port),
                          .destination_port = 5201});
        tuples.push_back(fabric::Reversed(tuples.back()));
      }
      const absl::StatusOr<std::vector<fabric::Path>> ways = fabric::PathsOf(spec, tuples);
      if (!ways.ok()) return ways.status();
      std::map<int, std::vector<Candidate>> by_spine;
      for (int i = 0; i < kCandidates; ++i) {
        const Candidate candidate{tuples[2 * i], (*ways)[2 * i], (*ways)[2 * i + 1]};
        if (uplink && fabric::Takes(candidate.acknowledgements, *slow)) continue;
        if (uplink && flows.empty() && !fabric::Takes(candidate.data, *slow)) continue;
        by_spine[candidate.data.spine].push_back(candidate);
      }
      if (by_spine.empty()) return absl::NotFoundError("no port goes the way that is wanted");
      auto chosen = by_spine.begin();
      std::advance(chosen, static_cast<int>(random() % by_spine.size()));
      flows.push_back(chosen->second);
      for (const Direction& direction : DirectionsOf(flows.back().front().data)) ++data[direction];
    }
  }
  std::vector<fabric::FiveTuple> drawn;
  for (const std::vector<Candidate>& candidates : flows) {
    const auto in_the_way = [&](const Candidate& candidate) {
      int most = 0;
      for (const Direction& direction : DirectionsOf(candidate.acknowledgements)) {
        const auto found = data.find(direction);
        if (found != data.end()) most = std::max(most, found->second);
      }
      return most;
    };
    drawn.push_back(
        std::min_element(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
          return in_the_way(a) < in_the_way(b);
        })->tuple);
  }
  return drawn;
}

// What the spine links carry, there and here.
void Compare(const fabric::FabricSpec& spec, const flowsim::Clos& clos, unsigned seed,
             const std::optional<fabric::Link>& slow = std::nullopt) {
  SCOPED_TRACE(seed);
  const absl::StatusOr<std::vector<fabric::FiveTuple>> drawn = Draw(spec, seed, slow);
  ASSERT_TRUE(drawn.ok()) << drawn.status().message();
  const std::vector<fabric::FiveTuple>& tuples = *drawn;
  const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec, tuples);
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  flowsim::FlowTable table;
  for (size_t i = 0; i < tuples.size(); ++i) {
    const fabric::Path& path = (*paths)[i];
    const int plane = std::max(0, fabric::PortOfAddress(spec, tuples[i].source));
    const flowsim::Path simulated =
        clos.PathOf({path.source_host, plane}, {path.destination_host, plane}, path.spine);
    ASSERT_EQ(path.source_leaf, clos.LeafOf({path.source_host, plane})) << "the same network";
    ASSERT_EQ(path.destination_leaf, clos.LeafOf({path.destination_host, plane}));
    ASSERT_TRUE(clos.IsUp(simulated)) << fabric::TupleText(tuples[i]);
    table.Add(simulated);
  }
  const std::vector<double> simulated = flowsim::MaxMinRates(table, flowsim::CapacitiesOf(clos));
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

TEST(Flowsim, AgreesWithTheEmulatedFabric) {
  if (absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights.message();
  const fabric::FabricSpec spec{
      .name = Name(), .leaves = 2, .spines = 4, .hosts_per_leaf = 4, .rate_mbps = 100};
  const absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  ASSERT_TRUE(up.ok()) << up.status().message();
  const Down down{spec.name};
  const absl::StatusOr<flowsim::Clos> clos = Like(spec);
  ASSERT_TRUE(clos.ok());
  for (unsigned seed = 1; seed <= 3; ++seed) Compare(spec, *clos, seed);
}

// A link breaks, another one becomes slow; both together; and healed.
TEST(Flowsim, AgreesAfterFaults) {
  if (absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights.message();
  const fabric::FabricSpec spec{
      .name = Name(), .leaves = 2, .spines = 4, .hosts_per_leaf = 4, .rate_mbps = 60};
  absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  ASSERT_TRUE(up.ok()) << up.status().message();
  const Down down{spec.name};
  absl::StatusOr<flowsim::Clos> clos = Like(spec);
  ASSERT_TRUE(clos.ok());
  ASSERT_TRUE(up->Break("leaf0-spine1").ok());
  clos->SetUp(clos->SpineLink(0, 1, true), false);
  Compare(spec, *clos, 4);
  ASSERT_TRUE(up->Slow("leaf1-spine2", 25).ok());
  for (const bool upwards : {true, false}) clos->SetCapacity(clos->SpineLink(1, 2, upwards), 25);
  Compare(spec, *clos, 5, fabric::UplinkOf(1, 2));
  ASSERT_TRUE(up->Heal("leaf0-spine1").ok());
  clos->SetUp(clos->SpineLink(0, 1, true), true);
  Compare(spec, *clos, 6, fabric::UplinkOf(1, 2));
}

TEST(Flowsim, AgreesWithTwoPlanes) {
  if (absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights.message();
  const fabric::FabricSpec spec{.name = Name(),
                                .leaves = 4,
                                .spines = 3,
                                .hosts_per_leaf = 2,
                                .rate_mbps = 60,
                                .ports = fabric::Ports::kPlanes};
  absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  ASSERT_TRUE(up.ok()) << up.status().message();
  const Down down{spec.name};
  absl::StatusOr<flowsim::Clos> clos = Like(spec);
  ASSERT_TRUE(clos.ok());
  Compare(spec, *clos, 7);
  ASSERT_TRUE(up->Slow("host1-leaf1", 20).ok());
  for (const bool upwards : {true, false}) clos->SetCapacity(clos->HostLink({1, 1}, upwards), 20);
  ASSERT_TRUE(up->Break("leaf2-spine0").ok());
  clos->SetUp(clos->SpineLink(2, 0, true), false);
  Compare(spec, *clos, 8, fabric::HostLinkOf(spec, 1, 1));
}

}  // namespace
}  // namespace c4
