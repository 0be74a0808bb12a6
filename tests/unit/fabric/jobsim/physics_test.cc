// The physics of simulated jobs: order and conservation of what happens, the same for the same seed, and
// faults that change nothing before they begin nor anybody whom they do not concern.
#include "fabric/jobsim/physics.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <tuple>

#include "fabric/jobsim/draw.h"

namespace c4::jobsim {
namespace {

using Happened = std::tuple<int64_t, int, int, int>;  // when, what, role, kind

std::vector<std::vector<Happened>> HappenedIn(const Shape& shape, const Fault& fault, uint64_t seed,
                                              int64_t until_ns, int64_t each_ns = 250 * kMillisecondNs) {
  Physics physics(shape, fault, seed);
  std::vector<std::vector<Happened>> all(shape.ranks());
  for (int64_t at_ns = 0; at_ns <= until_ns; at_ns += each_ns) {
    physics.Advance(at_ns);
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      for (const Event& event : physics.Take(rank, at_ns)) {
        all[rank].emplace_back(event.at_ns, static_cast<int>(event.what->work),
                               static_cast<int>(event.what->role), static_cast<int>(event.kind));
      }
    }
  }
  return all;
}

Shape Quick(uint32_t ranks, uint64_t seed) {
  Shape shape = DrawShape(ranks, seed);
  shape.forward_ns = std::min<int64_t>(shape.forward_ns, 40 * kMillisecondNs);
  shape.start_skew_ns = kSecondNs;
  shape.first_step_ns = kSecondNs;
  return shape;
}

TEST(Physics, EventsAreInOrderAndFinishWhatWasStarted) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Shape shape = Quick(24, seed);
    const auto all = HappenedIn(shape, Fault(), seed, 12 * kSecondNs);
    for (const std::vector<Happened>& events : all) {
      ASSERT_FALSE(events.empty()) << "seed " << seed;
      int64_t last_ns = 0;
      std::map<int, std::array<int64_t, 3>> counts;  // by role: called, started, finished
      for (const auto& [at_ns, work, role, kind] : events) {
        EXPECT_GE(at_ns, last_ns);
        last_ns = at_ns;
        ++counts[role][static_cast<size_t>(kind)];
        EXPECT_GE(counts[role][0], counts[role][1]);
        EXPECT_GE(counts[role][1], counts[role][2]);
        EXPECT_LE(counts[role][1], counts[role][2] + 1);  // one at a time in each communicator
      }
    }
  }
}

TEST(Physics, MembersLeaveACollectiveTogetherAfterTheLastHasCome) {
  const Shape shape = Quick(16, 3);
  const Layout layout = MakeLayout(shape);
  Physics physics(shape, Fault(), 3);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<Event>> left;  // by group and operation
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> done;
  physics.Advance(10 * kSecondNs);
  for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
    for (const Event& event : physics.Take(rank, 10 * kSecondNs)) {
      if (event.kind != EventKind::kFinished || !event.what->is_collective()) continue;
      const uint32_t group = layout.place(rank, event.what->role).group;
      left[{group, done[{group, rank}]++}].push_back(event);
    }
  }
  ASSERT_GT(left.size(), 20U);
  for (const auto& [of, events] : left) {
    int64_t last_ns = 0;
    for (const Event& event : events) last_ns = std::max(last_ns, event.begun_ns);
    for (const Event& event : events) {
      EXPECT_EQ(event.at_ns, events.front().at_ns);
      EXPECT_GT(event.at_ns, last_ns);
    }
  }
}

TEST(Physics, IsTheSameForASeedHoweverItIsAdvanced) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Shape shape = Quick(24, seed);
    const auto once = HappenedIn(shape, Fault(), seed, 8 * kSecondNs);
    EXPECT_EQ(once, HappenedIn(shape, Fault(), seed, 8 * kSecondNs));
    EXPECT_EQ(once, HappenedIn(shape, Fault(), seed, 8 * kSecondNs, kSecondNs));
    EXPECT_NE(once, HappenedIn(shape, Fault(), seed + 100, 8 * kSecondNs));
  }
}

TEST(Physics, NothingDiffersBeforeTheFault) {
  constexpr int64_t kAtNs = 8 * kSecondNs;
  for (int i = 1; i < static_cast<int>(FaultKind::kCount); ++i) {
    const auto kind = static_cast<FaultKind>(i);
    const Shape shape = Quick(32, 40 + static_cast<uint64_t>(i));
    Fault fault = DrawFault(shape, kind, kAtNs, 7);
    fault.at_ns = kAtNs;
    const auto with = HappenedIn(shape, fault, 5, kAtNs - 1);
    EXPECT_EQ(with, HappenedIn(shape, Fault(), 5, kAtNs - 1)) << FaultName(kind);
  }
}

TEST(Physics, OneSlowGpuHoldsUpAllWhoWaitForIt) {
  Shape shape = Quick(32, 9);
  shape.tensor = 2;
  shape.pipeline = 2;
  shape.data = 1;
  shape.expert = 1;
  shape.world_reduce = false;
  Fault fault{.kind = FaultKind::kSlowGpu, .rank = 0, .at_ns = 4 * kSecondNs, .factor = 3};
  const auto with = HappenedIn(shape, fault, 5, 12 * kSecondNs);
  const auto without = HappenedIn(shape, Fault(), 5, 12 * kSecondNs);
  for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
    EXPECT_LT(with[rank].size(), without[rank].size());
  }
}

TEST(Physics, AStandstillComesAndStays) {
  for (const FaultKind kind : {FaultKind::kSpin, FaultKind::kDataLoader, FaultKind::kKill, FaultKind::kStop,
                               FaultKind::kStuckInside, FaultKind::kMismatch, FaultKind::kOffBus}) {
    Shape shape = Quick(16, 21);
    shape.tensor = 4;
    shape.pipeline = 1;
    shape.data = 4;
    shape.expert = 1;
    shape.world_reduce = true;
    Fault fault = DrawFault(shape, kind, 8 * kSecondNs, 7);
    Physics physics(shape, fault, 5);
    physics.Advance(fault.at_ns + 60 * kSecondNs);
    const int64_t last_ns = physics.last_event_ns();
    EXPECT_GT(last_ns, fault.at_ns - 5 * kSecondNs) << FaultName(kind);
    EXPECT_LT(last_ns, fault.at_ns + 30 * kSecondNs) << FaultName(kind);
    physics.Advance(fault.at_ns + 300 * kSecondNs);
    EXPECT_EQ(physics.last_event_ns(), last_ns) << FaultName(kind);
  }
}

TEST(Physics, AStuckFileSystemComesBack) {
  Shape shape = Quick(16, 22);
  Fault fault{.kind = FaultKind::kFileSystem, .rank = 3, .at_ns = 6 * kSecondNs, .lasts_ns = 40 * kSecondNs};
  Physics physics(shape, fault, 5);
  physics.Advance(30 * kSecondNs);
  EXPECT_TRUE(physics.IsBlocked(3, 30 * kSecondNs));
  EXPECT_FALSE(physics.IsBlocked(2, 30 * kSecondNs));
  const uint64_t steps = physics.steps(3);
  physics.Advance(80 * kSecondNs);
  EXPECT_FALSE(physics.IsBlocked(3, 80 * kSecondNs));
  EXPECT_GT(physics.steps(3), steps + 5);
}

TEST(Physics, LaunchersEndAllWithinASecondAfterTheFirst) {
  for (const Launcher launcher : {Launcher::kTorchrun, Launcher::kSrun, Launcher::kMpirun}) {
    const Shape shape = Quick(64, 23);
    Fault fault{.kind = FaultKind::kLaunched, .rank = 9, .at_ns = 5 * kSecondNs, .launcher = launcher};
    const Physics physics(shape, fault, 5);
    EXPECT_EQ(physics.ends_ns(9), fault.at_ns);
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      if (rank == 9) continue;
      EXPECT_GT(physics.ends_ns(rank), fault.at_ns);
      EXPECT_LE(physics.ends_ns(rank), fault.at_ns + kSecondNs);
    }
  }
}

TEST(Physics, AJobEndsRankByRank) {
  Shape shape = Quick(16, 24);
  shape.steps = 5;
  shape.end_spread_ns = 10 * kSecondNs;
  Physics physics(shape, Fault(), 5);
  physics.Advance(200 * kSecondNs);
  ASSERT_LT(physics.over_ns(), 200 * kSecondNs);
  std::set<int64_t> ends;
  for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
    EXPECT_EQ(physics.steps(rank), 5U);
    ends.insert(physics.ends_ns(rank));
  }
  EXPECT_EQ(ends.size(), shape.ranks());
}

TEST(Physics, ACheckpointBlocksWhoWritesIt) {
  Shape shape = Quick(16, 25);
  shape.checkpoint_steps = 2;
  shape.checkpoint_ns = 5 * kSecondNs;
  shape.checkpoint_by_all = false;
  shape.checkpoint_fsync = true;
  Physics physics(shape, Fault(), 5);
  bool blocked = false;
  for (int64_t at_ns = 0; at_ns < 40 * kSecondNs; at_ns += 100 * kMillisecondNs) {
    physics.Advance(at_ns);
    blocked = blocked || physics.IsBlocked(0, at_ns);
    for (uint32_t rank = 1; rank < shape.ranks(); ++rank) EXPECT_FALSE(physics.IsBlocked(rank, at_ns));
  }
  EXPECT_TRUE(blocked);
}

}  // namespace
}  // namespace c4::jobsim
