// Slow ways of the vendor's engine, whose queue pairs nobody sees: what is told of a rank's NIC, a node and
// ways by the latencies of what goes between two ranks, in which all channels come together.
#include <functional>
#include <vector>

#include "c4d_master/detectors/slow.h"
#include "c4d_master/windows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 32;
constexpr uint32_t kPerHost = 4;
constexpr size_t kUsualBucket = 10;
constexpr size_t kSlowBucket = 16;  // eight times as much

// How many of twelve chunks from one rank to another are slow; UINT32_MAX: there are none.
using SlowChunks = std::function<uint32_t(uint32_t from, uint32_t to)>;

// Four ranks a host; each exchanges with those of its number on the next host and the one before.
class SlowVendorTest : public ::testing::Test {
 protected:
  SlowVendorTest() : job_(kRanks, kPerHost) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      Membership& membership = job_.membership(rank);
      membership.vendor = membership.sees_events = membership.sees_kernels = true;
      for (const uint32_t distance : {kPerHost, kRanks - kPerHost}) {
        for (const bool sends : {true, false}) {
          QueuePair way;
          way.peer = (rank + distance) % kRanks;
          way.sends = sends;
          way.carrier = Carrier::kVendor;
          membership.queue_pairs.push_back(way);
        }
      }
    }
    Run(40, [](uint32_t, uint32_t) { return 0; });
  }

  // Ten operations a second.
  void Run(int seconds, const SlowChunks& slow) {
    for (int i = 0; i < 4 * seconds; ++i) {
      job_.Advance(kSecondNs / 4);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        Process& process = job_.process(rank);
        process.operations_finished += 2;
        process.in_operation_ns += 100 * kMillisecondNs;
        for (QueuePair& way : job_.membership(rank).queue_pairs) {
          if (!way.sends) continue;
          const uint32_t bad = slow(rank, way.peer);
          if (bad == UINT32_MAX) continue;
          way.latency[kSlowBucket] += bad;
          way.latency[kUsualBucket] += 12 - bad;
        }
      }
      for (const auto& [name, host] : job_.hosts()) windows_.Observe(host);
    }
  }
  std::vector<Finding> Slow() {
    std::vector<Finding> confirmed;
    for (Finding& finding : DetectSlow(job_.Snapshot(), windows_, {}, job_.now_ns(), {})) {
      if (!finding.confirmed_by.empty()) confirmed.push_back(std::move(finding));
    }
    return confirmed;
  }

  FakeJob job_;
  Windows windows_;
};

TEST_F(SlowVendorTest, AHealthyJobIsNot) {
  EXPECT_THAT(Slow(), IsEmpty());
}

TEST_F(SlowVendorTest, TheNicOfARankIsNamed) {
  Run(9, [](uint32_t from, uint32_t to) { return from == 6 || to == 6 ? 12 : 0; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCommunicationSlow);
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "of rank 6");
  EXPECT_EQ(findings[0].host, "host1");
}

// One NIC for all ranks of the node.
TEST_F(SlowVendorTest, ANodeIsNamedWhereItsRanksAreNotToldApart) {
  Run(9, [](uint32_t from, uint32_t to) { return from / kPerHost == 1 || to / kPerHost == 1 ? 12 : 0; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host1");
}

// Steps of nine seconds: chunks come once in each, those of its two ways not at the same moment.
TEST_F(SlowVendorTest, ChunksOfLongStepsAreHeldTogether) {
  const auto none = [](uint32_t, uint32_t) { return UINT32_MAX; };
  for (int step = 0; step < 4; ++step) {
    Run(2, [](uint32_t from, uint32_t to) { return from == 6 ? 12U : to == 6 ? UINT32_MAX : 0U; });
    Run(4, none);
    Run(2, [](uint32_t from, uint32_t to) { return to == 6 ? 12U : from == 6 ? UINT32_MAX : 0U; });
    if (step < 3) Run(1, none);
  }
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "of rank 6");
}

// A link between switches: a third of the channels take it, here and there.
TEST_F(SlowVendorTest, SomeChannelsOfSomeWaysAreWaysAndNoNic) {
  const auto takes = [](uint32_t from, uint32_t to) {
    return (from == 4 && to == 8) || (from == 5 && to == 9) || (from == 1 && to == 5) ||
           (from == 10 && to == 6);
  };
  Run(12, [&](uint32_t from, uint32_t to) { return takes(from, to) ? 4 : 0; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  EXPECT_THAT(findings[0].connections, SizeIs(4));
  for (const ConnectionRef& way : findings[0].connections) {
    EXPECT_TRUE(takes(static_cast<uint32_t>(way.from_rank), static_cast<uint32_t>(way.to_rank)));
  }
}

// All that two nodes exchange is slow: a leaf, or a link that they share, for all that is seen.
// The chunks of one operation fare alike, and a window of a job of long steps may hold one.
TEST_F(SlowVendorTest, OneUnluckyOperationIsNot) {
  Run(1, [](uint32_t from, uint32_t to) {
    return from % kPerHost == 0 && to == (from + kPerHost) % kRanks ? 12U : 0U;
  });
  SlowThresholds hasty;
  hasty.again_slices = 1;
  hasty.chance_a_day = 1e6;
  size_t hasty_findings = 0;
  for (int second = 0; second < 8; ++second) {
    Run(1, [](uint32_t, uint32_t) { return UINT32_MAX; });
    EXPECT_THAT(Slow(), IsEmpty()) << second;
    hasty_findings += DetectSlow(job_.Snapshot(), windows_, {}, job_.now_ns(), hasty).size();
  }
  EXPECT_GT(hasty_findings, 0U) << "the one operation is in the windows";
}

TEST_F(SlowVendorTest, SeveralNodesAreNotHeldAgainstOneOfThem) {
  Run(12, [](uint32_t from, uint32_t to) { return from / kPerHost <= 1 || to / kPerHost <= 1 ? 12 : 0; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
}

// Where our transport carries the data its queue pairs tell, and the vendor's steps are the same data again.
TEST_F(SlowVendorTest, StepsBesideAddressesTellNothing) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    QueuePair pair;
    pair.peer = (rank + kPerHost) % kRanks;
    pair.sends = true;
    pair.local = "10.0.0." + std::to_string(rank) + ":1";
    pair.remote = "10.0.0." + std::to_string(pair.peer) + ":2";
    job_.membership(rank).queue_pairs.push_back(pair);
  }
  Run(9, [](uint32_t from, uint32_t to) { return from == 6 || to == 6 ? 12 : 0; });
  for (const Finding& finding : Slow()) EXPECT_NE(finding.nic, "of rank 6");
}

// The network plugin's queue pairs stand in a communicator of their own.
TEST_F(SlowVendorTest, StepsBesideThePluginsQueuePairsTellNothing) {
  constexpr uint64_t kPlugin = 0x9e7;
  std::vector<uint32_t> ranks(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) ranks[rank] = rank;
  job_.AddCommunicator(kPlugin, ranks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    Membership& membership = job_.membership(rank, kPlugin);
    membership.name = "net";
    membership.vendor = true;
    QueuePair pair;
    pair.peer = (rank + kPerHost) % kRanks;
    pair.sends = true;
    pair.local = "10.0.0." + std::to_string(rank) + ":1";
    pair.remote = "10.0.0." + std::to_string(pair.peer) + ":2";
    membership.queue_pairs.push_back(pair);
    job_.process(rank).plugin_tells_addresses = true;
  }
  Run(9, [](uint32_t from, uint32_t to) { return from == 6 || to == 6 ? 12 : 0; });
  EXPECT_THAT(Slow(), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
