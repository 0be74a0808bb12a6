// Collectives that take longer though nobody comes late to them: what is slow within a node, told by how long
// the operations of its communicators take.
#include <functional>
#include <map>
#include <vector>

#include "c4d_master/detectors/slow.h"
#include "c4d_master/windows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 16;
constexpr uint64_t kGroup = 0x100;  // and a number: ranks 4 n to 4 n + 3, on one host
constexpr uint64_t kPair = 0x200;   // and a number: ranks 2 n and 2 n + 1

// What an operation of a communicator takes by itself, in ms.
using Takes = std::function<uint64_t(uint64_t communicator)>;

class SlowInsideTest : public ::testing::Test {
 protected:
  SlowInsideTest() : job_(kRanks, 4) {
    for (uint32_t i = 0; i < 4; ++i) {
      job_.AddCommunicator(kGroup + i, {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3});
    }
    for (uint32_t i = 0; i < 8; ++i) job_.AddCommunicator(kPair + i, {2 * i, 2 * i + 1});
    Run(40, [](uint64_t) { return 10; });
  }

  // Five operations a second of each; all but the first member wait 15 ms more for it.
  void Run(int seconds, const Takes& takes, uint64_t wait_ms = 15) {
    for (int i = 0; i < 5 * seconds; ++i) {
      job_.Advance(kSecondNs / 5);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        Process& process = job_.process(rank);
        ++process.operations_finished;
        process.in_operation_ns += 50 * kMillisecondNs;
        for (Membership& membership : process.communicators) {
          membership.timed = 1;
          const uint64_t ms = takes(membership.communicator_id) + (membership.rank == 0 ? 0 : wait_ms);
          membership.timed_ns = ms * kMillisecondNs;
        }
      }
      for (const auto& [name, host] : job_.hosts()) windows_.Observe(host);
    }
  }
  std::vector<Finding> Slow() { return DetectSlow(job_.Snapshot(), windows_, {}, job_.now_ns(), {}); }

  FakeJob job_;
  Windows windows_;
};

TEST_F(SlowInsideTest, NobodyIsBlamedForWhatIsUsual) {
  EXPECT_THAT(Slow(), IsEmpty());
}

TEST_F(SlowInsideTest, TheRanksOfASlowCommunicatorAreCandidates) {
  Run(9, [](uint64_t id) { return id == kGroup + 2 ? 50 : 10; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCommunicationSlow);
  EXPECT_EQ(findings[0].kind, CulpritKind::kAmbiguous);
  EXPECT_THAT(findings[0].candidates, ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(findings[0].communicator_id, kGroup + 2);
  EXPECT_EQ(findings[0].confirmed_by, "slow");
}

TEST_F(SlowInsideTest, WhoIsInAllOfThemIsMeant) {
  Run(9, [](uint64_t id) { return id == kGroup + 2 || id == kPair + 5 ? 50 : 10; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].candidates, ElementsAre(10, 11));
}

TEST_F(SlowInsideTest, TwoThatShareNobodyAreTwo) {
  Run(9, [](uint64_t id) { return id == kGroup || id == kGroup + 2 ? 50 : 10; });
  const std::vector<Finding> findings = Slow();
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_THAT(findings[0].candidates, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(findings[1].candidates, ElementsAre(8, 9, 10, 11));
}

// Who comes late makes the others wait in the operation; who comes last does not.
TEST_F(SlowInsideTest, WaitsForSomebodyAreNot) {
  Run(
      9, [](uint64_t) { return 10; }, 90);
  EXPECT_THAT(Slow(), IsEmpty());
}

// More to do, of all alike: larger batches, an evaluation.
TEST_F(SlowInsideTest, WhatAllOfAKindDoIsNot) {
  Run(9, [](uint64_t id) { return id >= kPair ? 40 : 10; });
  EXPECT_THAT(Slow(), IsEmpty());
}

TEST_F(SlowInsideTest, ALittleOfTheTimeIsNot) {
  Run(9, [](uint64_t id) { return id == kGroup + 2 ? 25 : 10; });
  EXPECT_THAT(Slow(), IsEmpty()) << "7.5 % of the time";
}

TEST_F(SlowInsideTest, AMomentIsNot) {
  Run(3, [](uint64_t id) { return id == kGroup + 2 ? 50 : 10; });
  for (const Finding& finding : Slow()) EXPECT_EQ(finding.confirmed_by, "");
}

// Its network may be what is slow where that is not seen.
TEST_F(SlowInsideTest, OverSeveralNodesTheNetworkHasToBeSeen) {
  Run(9, [](uint64_t id) { return id == kWorld ? 60 : 10; });
  EXPECT_THAT(Slow(), IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
