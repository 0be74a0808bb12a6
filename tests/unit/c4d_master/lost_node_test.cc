// A node whose agent is silent and whose ranks are waited for, in whichever communicator.
#include "c4d_master/detectors/crash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kStage = 0x100;     // ranks 0 and 1, on host0
constexpr uint64_t kPipeline = 0x200;  // ranks 0 and 2, of two hosts

// A stage a node. Rank 0 waits for a message of rank 2, rank 1 for rank 0, and host1 is silent.
class LostNodeTest : public ::testing::Test {
 protected:
  LostNodeTest() : job_(4, 2) {
    job_.AddCommunicator(kStage, {0, 1});
    job_.AddCommunicator(kPipeline, {0, 2});
    job_.Complete(20);
    job_.Complete(20, kStage);
    QueuePair receives;
    receives.peer = 1;
    receives.local = "10.0.0.1:1";
    receives.remote = "10.0.0.2:2";
    receives.last_progress_at_ns = job_.now_ns();
    job_.membership(0, kPipeline).queue_pairs.push_back(receives);
    job_.membership(0, kPipeline).p2p_started = {1, job_.now_ns()};
    job_.Enter(1, kStage);
    job_.Silence("host1");
  }
  std::vector<Finding> After(int64_t ns) {
    job_.Advance(ns);
    return DetectLostNodes(job_.Snapshot(), job_.now_ns(), {});
  }

  FakeJob job_;
};

TEST_F(LostNodeTest, ItIsNamedThoughSomeWaitElsewhere) {
  EXPECT_THAT(After(4 * kSecondNs), IsEmpty());
  const std::vector<Finding> findings = After(2 * kSecondNs);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kLostNode);
  EXPECT_EQ(findings[0].kind, CulpritKind::kNode);
  EXPECT_EQ(findings[0].host, "host1");
  EXPECT_EQ(findings[0].confirmed_by, "silent");
}

// Its agent is silent while rank 0 writes a checkpoint, say: nobody is lost before agents that start anew
// would be back.
TEST(LostNodeLateTest, NotWhoseNodeSpokeOnWhileTheJobStoodStill) {
  FakeJob job(4, 2);
  job.AddCommunicator(kPipeline, {0, 2});
  job.Complete(20);
  job.membership(0, kPipeline).p2p_started = {1, job.now_ns()};
  job.Enter(1);
  job.Advance(10 * kSecondNs);
  job.Silence("host1");
  const auto after = [&](int64_t ns) {
    job.Advance(ns);
    return DetectLostNodes(job.Snapshot(), job.now_ns(), {});
  };
  EXPECT_THAT(after(40 * kSecondNs), IsEmpty());
  EXPECT_THAT(after(25 * kSecondNs), SizeIs(1));
}

// Rank 1 may be what all wait for.
TEST_F(LostNodeTest, NotWhereSomebodyWaitsForNothing) {
  job_.Finish(1, kStage);
  EXPECT_THAT(After(20 * kSecondNs), IsEmpty());
}

TEST_F(LostNodeTest, NotWhereItsQueuePairsAreHeard) {
  job_.Advance(19 * kSecondNs);
  job_.membership(0, kPipeline).queue_pairs[0].last_heard_at_ns = job_.now_ns();
  EXPECT_THAT(After(kSecondNs), IsEmpty()) << "its agent alone is silent";
}

TEST_F(LostNodeTest, NotWhileStepsAreMade) {
  job_.Advance(19 * kSecondNs);
  job_.Call(0);
  EXPECT_THAT(After(kSecondNs), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
