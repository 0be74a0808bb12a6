// Data that stands still in the vendor's own transport, whose queue pairs nobody sees: what is told of a
// rank's NIC from what it has handed to the network and nobody has taken.
#include <algorithm>

#include "c4d_master/detectors/communication_hang.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 8;
constexpr uint64_t kStepBytes = 1 << 20;

// Two ranks a host; each exchanges with its neighbours in a ring and with the rank across.
class VendorNetworkTest : public ::testing::Test {
 protected:
  explicit VendorNetworkTest(uint32_t ranks = kRanks, uint32_t per_host = 2)
      : ranks_(ranks), job_(ranks, per_host) {
    job_.Complete(20);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      Membership& membership = job_.membership(rank);
      membership.vendor = membership.sees_events = membership.sees_kernels = true;
      for (const uint32_t distance : {1U, ranks - 1, ranks / 2}) {
        for (const bool sends : {true, false}) {
          QueuePair way;
          way.peer = (rank + distance) % ranks;
          way.sends = sends;
          way.carrier = Carrier::kVendor;
          way.posted_bytes = way.completed_bytes = way.moved_bytes = 50 * kStepBytes;
          way.last_post_at_ns = way.last_progress_at_ns = job_.now_ns();
          membership.queue_pairs.push_back(way);
        }
      }
      job_.Enter(rank);
    }
  }

  // Besides those that there are.
  void AddWay(uint32_t one, uint32_t other) {
    for (const auto& [rank, peer] : {std::pair(one, other), std::pair(other, one)}) {
      for (const bool sends : {true, false}) {
        auto& pairs = job_.membership(rank).queue_pairs;
        const bool known = std::any_of(pairs.begin(), pairs.end(), [&, to = peer](const QueuePair& pair) {
          return pair.sends == sends && pair.peer == to;
        });
        if (known) continue;
        QueuePair way = pairs.front();
        way.peer = peer;
        way.sends = sends;
        pairs.push_back(way);
      }
    }
  }

  QueuePair& Way(uint32_t from, uint32_t to) {
    auto& pairs = job_.membership(from).queue_pairs;
    return *std::find_if(pairs.begin(), pairs.end(),
                         [to](const QueuePair& pair) { return pair.sends && pair.peer == to; });
  }
  // What it sends from now on stays under way.
  void Hold(uint32_t from, uint32_t to) {
    Way(from, to).posted_bytes += 2 * kStepBytes;
    Way(from, to).last_post_at_ns = job_.now_ns();
  }
  void HoldAllOf(uint32_t rank) {
    for (const uint32_t distance : {1U, ranks_ - 1, ranks_ / 2}) {
      Hold(rank, (rank + distance) % ranks_);
      Hold((rank + distance) % ranks_, rank);
    }
  }
  std::vector<Finding> After(int64_t ns) {
    job_.Advance(ns);
    return DetectCommunicationHangs(job_.Snapshot(), nullptr, {});
  }

  const uint32_t ranks_;
  FakeJob job_;
};

class WideNodesTest : public VendorNetworkTest {
 protected:
  WideNodesTest() : VendorNetworkTest(16, 4) {}
};

TEST_F(VendorNetworkTest, TheNicOfARankIsNamed) {
  HoldAllOf(5);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "of rank 5");
  EXPECT_EQ(findings[0].host, "host2");
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
}

TEST_F(VendorNetworkTest, ANodeAllOfWhoseNicsAreSilentIsNamed) {
  HoldAllOf(4);
  HoldAllOf(5);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host2");
}

// A ring enters a node at one rank and leaves it at another: no rank has two stuck peers of its own.
TEST_F(VendorNetworkTest, ANodeIsNamedByWaysOfSeveralOfItsRanks) {
  Hold(3, 4);
  Hold(5, 6);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host2");
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
}

// What its ranks exchange with others since goes over the same NICs: a link is cut, not the node off.
TEST_F(VendorNetworkTest, ANodeWhoseHeldUpRanksStillReachOthersIsNotCutOff) {
  Hold(3, 4);
  Hold(5, 6);
  job_.Advance(10 * kMillisecondNs);
  Way(4, 0).last_progress_at_ns = job_.now_ns();
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  EXPECT_THAT(findings[0].connections, SizeIs(2));
}

// Two ways of two of a node's four ranks may as well meet on a link, while the other two ranks reach
// everybody.
TEST_F(WideNodesTest, AFewWaysOfTwoRanksOfFourAreNoNode) {
  Hold(3, 4);
  Hold(5, 13);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  EXPECT_THAT(findings[0].connections, SizeIs(2));
}

TEST_F(WideNodesTest, MoreOfThemAre) {
  Hold(3, 4);
  Hold(12, 4);
  Hold(5, 13);
  Hold(13, 5);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host1");
}

// A link between switches holds up ways of several nodes.
TEST_F(VendorNetworkTest, WaysThatHaveNoNodeInCommonAreNoNode) {
  Hold(3, 4);
  Hold(5, 6);
  Hold(7, 0);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  EXPECT_THAT(findings[0].connections, SizeIs(3));
}

// Which of the two it is nobody can tell.
TEST_F(VendorNetworkTest, WaysBetweenTwoNodesAreNoNode) {
  Hold(3, 4);
  Hold(4, 3);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
}

// A rank that holds data for several of another node, whose ranks have exchanged theirs with its neighbours.
TEST_F(VendorNetworkTest, ANodeThatIsCutOffFromOneOtherIsNamed) {
  for (const uint32_t peer : {6U, 7U}) {
    for (const uint32_t rank : {4U, 5U}) AddWay(rank, peer);
    Hold(5, peer);
    Hold(peer, 5);
  }
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "of rank 5");
}

// Where they hold data for all of its ranks, it may as well be theirs.
TEST_F(VendorNetworkTest, TwoNodesThatAreCutOffFromEachOtherAreNotToldApart) {
  for (const uint32_t peer : {6U, 7U}) {
    for (const uint32_t rank : {4U, 5U}) {
      AddWay(rank, peer);
      Hold(rank, peer);
      Hold(peer, rank);
    }
  }
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
}

// Of a node that has several NICs some ranks go on.
TEST_F(VendorNetworkTest, ANodeOneOfWhoseNicsGoesOnIsNamed) {
  Hold(3, 4);
  Hold(0, 4);
  Hold(6, 5);
  Way(5, 1).completed_bytes += kStepBytes;
  Way(5, 1).posted_bytes += kStepBytes;
  AddWay(5, 0);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host2");
}

TEST_F(VendorNetworkTest, OneWayThatIsStuckIsAConnectionAndNoNic) {
  Hold(2, 3);
  const std::vector<Finding> findings = After(4 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  ASSERT_THAT(findings[0].connections, SizeIs(1));
  EXPECT_EQ(findings[0].connections[0].from_rank, 2);
  EXPECT_EQ(findings[0].connections[0].to_rank, 3);
}

// Its other ways went on after the first one had stopped.
TEST_F(VendorNetworkTest, ANicThatOthersStillUseIsNotSilent) {
  Hold(5, 6);
  Hold(4, 5);
  job_.Advance(kSecondNs);
  for (const uint32_t peer : {1U, 4U}) {
    Way(5, peer).posted_bytes += kStepBytes;
    Way(5, peer).completed_bytes += kStepBytes;
    Way(5, peer).last_progress_at_ns = job_.now_ns();
  }
  for (const Finding& finding : After(4 * kSecondNs)) EXPECT_EQ(finding.kind, CulpritKind::kConnection);
}

TEST_F(VendorNetworkTest, WaysOnWhichNothingIsUnderWayTellNothing) {
  EXPECT_THAT(After(60 * kSecondNs), IsEmpty());
}

// Where our transport carries the data, its own queue pairs tell, and the vendor's steps are the same data
// again.
TEST_F(VendorNetworkTest, QueuePairsWithAddressesStandForTheirSteps) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    QueuePair pair;
    pair.peer = (rank + 1) % kRanks;
    pair.sends = true;
    pair.local = "10.0.0." + std::to_string(rank) + ":1";
    pair.remote = "10.0.0." + std::to_string(pair.peer) + ":2";
    job_.membership(rank).queue_pairs.push_back(pair);
  }
  const JobSnapshot snapshot = job_.Snapshot();
  const std::vector<QueuePairEnds> all = CollectQueuePairs(snapshot);
  EXPECT_THAT(all, SizeIs(kRanks));
  for (const QueuePairEnds& ends : all) EXPECT_EQ(ends.queue_pair->carrier, Carrier::kQueuePair);
}

}  // namespace
}  // namespace c4::c4d
