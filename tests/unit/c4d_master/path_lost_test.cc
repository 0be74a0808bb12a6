// Fences: what a dead link looks like, and what must not be taken for one.
#include "c4d_master/detectors/path_lost.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"
#include "tests/unit/c4d_master/fake_paths.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Eight ranks on eight hosts below four leaves, all of them joined, a queue pair over each of two spines.
class PathLostTest : public ::testing::Test {
 protected:
  PathLostTest() {
    for (uint32_t from = 0; from < 8; ++from) {
      for (uint32_t to = 0; to < 8; ++to) {
        if (from / 2 == to / 2) continue;
        for (uint32_t index = 0; index < 2; ++index) {
          QueuePair queue_pair;
          queue_pair.sends = true;
          queue_pair.peer = to;
          queue_pair.index = index;
          queue_pair.local = End(from, port_++);
          queue_pair.remote = End(to, 9000);
          paths_.Add(queue_pair.local, queue_pair.remote, static_cast<int>(from), static_cast<int>(to),
                     static_cast<int>(index), static_cast<int>(index));
          job_.membership(from).queue_pairs.push_back(queue_pair);
        }
      }
    }
    Look(kSecondNs);
  }

  static std::string End(uint32_t rank, uint32_t port) {
    return "10.0.0." + std::to_string(rank) + ":" + std::to_string(port);
  }
  // Its path is lost; it goes on over the other spine. To be seen at the next Look.
  void Fence(uint32_t from, size_t number, bool dead = false) {
    QueuePair& queue_pair = job_.membership(from).queue_pairs[number];
    ++queue_pair.fences;
    queue_pair.dead = dead;
    if (dead) return;
    queue_pair.local = End(from, port_++);
    paths_.Add(queue_pair.local, queue_pair.remote, static_cast<int>(from), static_cast<int>(queue_pair.peer),
               static_cast<int>(1 - queue_pair.index), static_cast<int>(1 - queue_pair.index));
  }
  // Everything over leaf 1 and spine 0.
  size_t Cut(size_t most = 1000) {
    size_t count = 0;
    for (uint32_t from = 0; from < 8; ++from) {
      std::vector<QueuePair>& queue_pairs = job_.membership(from).queue_pairs;
      for (size_t i = 0; i < queue_pairs.size(); ++i) {
        const bool over = queue_pairs[i].index == 0 && queue_pairs[i].fences == 0 &&
                          (from / 2 == 1 || queue_pairs[i].peer / 2 == 1);
        if (over && count < most) {
          Fence(from, i);
          ++count;
        }
      }
    }
    return count;
  }
  // Everything moves that is not dead, and all agents look again: what was fenced since the last look shows.
  void Look(int64_t ns) {
    job_.Advance(ns);
    for (uint32_t rank = 0; rank < 8; ++rank) {
      for (QueuePair& queue_pair : job_.membership(rank).queue_pairs) {
        if (queue_pair.dead) continue;
        queue_pair.last_progress_at_ns = queue_pair.last_heard_at_ns = queue_pair.last_post_at_ns =
            job_.now_ns();
        queue_pair.completed_bytes = queue_pair.posted_bytes += 1000;
      }
    }
    for (const auto& [name, host] : job_.hosts()) {
      const Host& before = last_.try_emplace(name, host).first->second;
      fences_.Observe(before.processes, before.as_of_ns, host.processes, host.as_of_ns);
    }
    last_ = job_.hosts();
  }
  std::vector<Finding> Detect(bool known = true) {
    return DetectLostPaths(job_.Snapshot(), fences_, known ? &paths_ : nullptr, job_.now_ns(), {});
  }

  FakeJob job_{8};
  FakePaths paths_;
  FenceLog fences_;
  std::map<std::string, Host> last_;
  uint32_t port_ = 20000;
};

TEST_F(PathLostTest, AHealthyJobLosesNone) {
  EXPECT_THAT(Detect(), IsEmpty());
}

TEST_F(PathLostTest, ADeadLinkIsSuspectedThenCertainThenForgotten) {
  const size_t lost = Cut();
  Look(kSecondNs);
  Look(kSecondNs / 2);
  std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kPathLost);
  EXPECT_EQ(findings[0].confirmed_by, "");
  EXPECT_EQ(findings[0].cable, "leaf1-spine0");
  Look(2 * kSecondNs);
  findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "fenced");
  EXPECT_EQ(findings[0].kind, CulpritKind::kLink);
  EXPECT_EQ(findings[0].cable, "leaf1-spine0");
  EXPECT_THAT(findings[0].links, ::testing::UnorderedElementsAre("leaf1>spine0", "leaf1<spine0"));
  EXPECT_THAT(findings[0].connections, SizeIs(lost));
  EXPECT_EQ(findings[0].connections[0].local, End(0, 20000)) << "as it was";
  EXPECT_THAT(findings[0].evidence[0].text,
              HasSubstr("24 of 24 queue pairs over leaf1-spine0 lost their path, 0 of "));
  EXPECT_THAT(findings[0].waiting, IsEmpty());
  Look(9 * kSecondNs);
  EXPECT_THAT(Detect(), IsEmpty());
}

TEST_F(PathLostTest, OneFenceHereAndThereIsNothing) {
  Fence(3, 2);
  Look(kSecondNs);
  Look(3 * kSecondNs);
  EXPECT_THAT(Detect(), IsEmpty());
  // A second one is a suspicion, and stays one.
  Fence(6, 5);
  Look(kSecondNs);
  for (int i = 0; i < 8; ++i) {
    Look(kSecondNs);
    for (const Finding& finding : Detect()) EXPECT_EQ(finding.confirmed_by, "");
  }
}

TEST_F(PathLostTest, ALinkThatOthersStillTakeIsNotDead) {
  Cut(6);  // of 24
  Look(kSecondNs);
  for (int i = 0; i < 5; ++i) {
    Look(kSecondNs);
    const std::vector<Finding> findings = Detect();
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].confirmed_by, "");
  }
}

// One after the other, over ten seconds: by the end none is left on the link, but it carried them meanwhile.
TEST_F(PathLostTest, ALinkThatWasLeftBitByBitIsNotDead) {
  for (int i = 0; i < 8; ++i) {
    Cut(3);
    Look(kSecondNs);
    for (const Finding& finding : Detect()) EXPECT_EQ(finding.confirmed_by, "") << i;
  }
  for (int i = 0; i < 4; ++i) {
    Look(kSecondNs);
    for (const Finding& finding : Detect()) EXPECT_EQ(finding.confirmed_by, "") << i;
  }
}

// Nobody knows whether it would have carried those that had nothing to send, and a fence long before means
// nothing.
TEST_F(PathLostTest, NeitherIdleQueuePairsNorAnEarlierFenceSpeakForADeadLink) {
  Cut(1);
  Look(kSecondNs);
  for (int i = 0; i < 4; ++i) Look(kSecondNs);
  Cut();
  Look(kSecondNs);
  Look(2 * kSecondNs);
  const std::vector<Finding> findings = Detect();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].confirmed_by, "fenced");
  EXPECT_EQ(findings[0].cable, "leaf1-spine0");
}

TEST_F(PathLostTest, TroubleEverywhereIsNoLink) {
  for (uint32_t rank = 0; rank < 8; ++rank) {
    for (size_t i = 0; i < job_.membership(rank).queue_pairs.size(); i += 2) Fence(rank, i);
  }
  Look(kSecondNs);
  for (int i = 0; i < 5; ++i) {
    Look(kSecondNs);
    for (const Finding& finding : Detect()) EXPECT_EQ(finding.confirmed_by, "") << finding.cable;
  }
}

// A receiver without processor time lets all that is sent to it stand still: its own link is its NIC's
// matter.
TEST_F(PathLostTest, AReceiverThatPausesIsNoLink) {
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const std::vector<QueuePair>& queue_pairs = job_.membership(rank).queue_pairs;
    for (size_t i = 0; i < queue_pairs.size(); ++i) {
      if (queue_pairs[i].peer == 5) Fence(rank, i);
    }
  }
  Look(kSecondNs);
  for (int i = 0; i < 5; ++i) {
    Look(kSecondNs);
    for (const Finding& finding : Detect()) {
      EXPECT_EQ(finding.confirmed_by, "");
      EXPECT_NE(finding.kind, CulpritKind::kLink);
    }
  }
}

TEST_F(PathLostTest, WhatFailsBecauseItsPeerIsGoneIsNoLink) {
  Cut();
  job_.SetState(2, ProcessState::kStopped);
  job_.SetState(3, ProcessState::kGone);
  Look(kSecondNs);
  Look(3 * kSecondNs);
  EXPECT_THAT(Detect(), IsEmpty()) << "all of these have an end on rank 2 or 3";
}

TEST_F(PathLostTest, WithoutPathsOnlyWhatStaysDeadIsCertain) {
  Cut();
  Look(kSecondNs);
  Look(3 * kSecondNs);
  std::vector<Finding> findings = Detect(false);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kConnection);
  EXPECT_EQ(findings[0].confirmed_by, "");
  Fence(0, 0, /*dead=*/true);
  Fence(7, 0, /*dead=*/true);
  Look(kSecondNs);
  EXPECT_EQ(Detect(false)[0].confirmed_by, "");
  Look(6 * kSecondNs);
  EXPECT_EQ(Detect(false)[0].confirmed_by, "fenced");
}

}  // namespace
}  // namespace c4::c4d
