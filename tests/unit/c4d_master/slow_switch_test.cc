// Many NICs that are slow at once: the switch that what they exchange crosses.
#include "c4d_master/detectors/slow_switch.h"

#include <deque>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_paths.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Eight hosts below four leaves (two each, as FakePaths has them), two spines; everybody sends to everybody.
class SlowSwitchTest : public ::testing::Test {
 protected:
  void SendAll(const std::function<bool(int from, int to, int spine)>& is_slow) {
    for (int from = 0; from < 8; ++from) {
      for (int to = 0; to < 8; ++to) {
        for (int spine = 0; from != to && spine < 2; ++spine) Add(from, to, spine, is_slow(from, to, spine));
      }
    }
  }

  void Add(int from, int to, int spine, bool slow, bool path = true) {
    const std::string& local =
        names_.emplace_back("10.0.0." + std::to_string(from) + ":" + std::to_string(20000 + names_.size()));
    const std::string& remote = names_.emplace_back("10.0.0." + std::to_string(to) + ":9000");
    if (path) paths_.Add(local, remote, from, to, spine, spine);
    Cell cell;
    cell.local = local;
    cell.remote = remote;
    cell.low.chunks = 20;
    cell.judged = true;
    cell.slow = slow;
    cells_.push_back(cell);
  }

  SlowSwitch Find() { return FindSlowSwitch(cells_, &paths_); }

  FakePaths paths_;
  std::deque<std::string> names_;
  std::vector<Cell> cells_;
};

TEST_F(SlowSwitchTest, ALeafThatIsPaused) {
  SendAll([](int from, int to, int) { return from / 2 == 1 || to / 2 == 1; });
  const SlowSwitch found = Find();
  EXPECT_THAT(found.names, ElementsAre("leaf1"));
  EXPECT_THAT(found.links, Contains("leaf1>spine0"));
  EXPECT_GT(found.others, 0U);
}

TEST_F(SlowSwitchTest, ASpine) {
  SendAll([](int from, int to, int spine) { return spine == 1 && from / 2 != to / 2; });
  EXPECT_THAT(Find().names, ElementsAre("spine1"));
}

TEST_F(SlowSwitchTest, OneHostIsNoSwitch) {
  SendAll([](int from, int to, int) { return from == 2 || to == 2; });
  EXPECT_THAT(Find().names, IsEmpty());
}

TEST_F(SlowSwitchTest, WhatIsWellContradicts) {
  SendAll([](int from, int to, int spine) { return (from / 2 == 1 || to / 2 == 1) && spine == 0; });
  EXPECT_THAT(Find().names, IsEmpty());
}

TEST_F(SlowSwitchTest, TwoThatNothingTellsApart) {
  // All of leaf 0's exchange with leaf 1's, and nobody else does anything.
  for (int from = 0; from < 2; ++from) {
    for (int to = 2; to < 4; ++to) {
      Add(from, to, 0, true);
      Add(to, from, 1, true);
    }
  }
  EXPECT_THAT(Find().names, ElementsAre("leaf0", "leaf1"));
}

TEST_F(SlowSwitchTest, NothingIsKnownOfPaths) {
  for (int from = 0; from < 8; ++from) Add(from, (from + 2) % 8, 0, true, /*path=*/false);
  EXPECT_THAT(Find().names, IsEmpty());
}

}  // namespace
}  // namespace c4::c4d
