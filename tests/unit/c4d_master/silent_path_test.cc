// A path that died while nothing was under way: permissions to send were lost with it, so that nobody has
// posted anything that is not acknowledged. The signs of life tell.
#include "c4d_master/detectors/communication_hang.h"
#include "c4d_master/queue_pair_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 6;

// A rank a host, each with its neighbours and the rank across.
class SilentPathTest : public ::testing::Test {
 protected:
  SilentPathTest() : job_(kRanks) {
    job_.Complete(20);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint32_t distance : {1U, kRanks - 1, kRanks / 2}) {
        const uint32_t peer = (rank + distance) % kRanks;
        for (const bool sends : {true, false}) {
          QueuePair end;
          end.peer = peer;
          end.sends = sends;
          end.posted_bytes = end.completed_bytes = end.moved_bytes = 1 << 20;
          end.last_post_at_ns = end.last_progress_at_ns = job_.now_ns();
          end.connection = {.known = true, .wanted = 20, .granted = 20, .done = 20};
          end.local = Address(rank, sends);
          end.remote = Address(peer, !sends);
          job_.membership(rank).queue_pairs.push_back(end);
        }
      }
      job_.Enter(rank);
    }
  }

  static std::string Address(uint32_t rank, bool sends) {
    return "10.0.0." + std::to_string(rank + 1) + (sends ? ":20001" : ":9000");
  }
  QueuePair& End(uint32_t rank, uint32_t peer, bool sends) {
    for (QueuePair& end : job_.membership(rank).queue_pairs) {
      if (end.peer == peer && end.sends == sends) return end;
    }
    ADD_FAILURE() << rank << " and " << peer << " have no queue pair";
    return job_.membership(rank).queue_pairs.front();
  }
  // A receive is posted, and the word of it comes or does not.
  void Receive(uint32_t rank, uint32_t from) { ++End(rank, from, false).connection.wanted; }
  // For so long, signs of life come over all paths but those of `silent`.
  std::vector<Finding> After(int64_t ns, int silent) {
    job_.Advance(ns);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (QueuePair& end : job_.membership(rank).queue_pairs) {
        const bool cut = static_cast<int>(rank) == silent || static_cast<int>(end.peer) == silent;
        if (end.sends && (!cut || end.last_heard_at_ns == kNever)) {
          end.last_heard_at_ns = job_.now_ns() - (cut ? ns : kSecondNs / 2);
        }
      }
      ++job_.membership(rank).revision;
      AddUp(&job_.membership(rank));
    }
    return DetectCommunicationHangs(job_.Snapshot(), nullptr, {});
  }

  FakeJob job_;
};

TEST_F(SilentPathTest, ANicThatWasCutOffWithNothingUnderWayIsNamed) {
  for (const uint32_t distance : {1U, kRanks - 1, kRanks / 2}) Receive((2 + distance) % kRanks, 2);
  EXPECT_THAT(After(kSecondNs, 2), IsEmpty());
  std::vector<Finding> findings = After(2 * kSecondNs, 2);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "");
  findings = After(2 * kSecondNs, 2);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].host, "host2");
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
  EXPECT_THAT(findings[0].evidence,
              Contains(Field(&Evidence::text, HasSubstr("no sign of life has come for 5.0 s"))));
}

TEST_F(SilentPathTest, OneThatNobodyWaitsForIsNot) {
  EXPECT_THAT(After(5 * kSecondNs, 2), IsEmpty());
}

TEST_F(SilentPathTest, WhoIsHeardIsWaitedFor) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) Receive(rank, (rank + 1) % kRanks);
  EXPECT_THAT(After(60 * kSecondNs, -1), IsEmpty());
}

TEST_F(SilentPathTest, APathThatWasGivenUpIsNot) {
  Receive(3, 2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (QueuePair& end : job_.membership(rank).queue_pairs) end.dead = true;
  }
  EXPECT_THAT(After(5 * kSecondNs, 2), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
