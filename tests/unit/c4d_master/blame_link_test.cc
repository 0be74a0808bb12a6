// From queue pairs that are well or not to the link that is named, or not named.
#include "c4d_master/detectors/blame_link.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_paths.h"

namespace c4::c4d {
namespace {

using analysis::FlowState;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Sort = LinkBlame::Sort;

// Eight hosts below four leaves, two spines; each host sends to each other leaf over both spines.
class BlameLinkTest : public ::testing::Test {
 protected:
  BlameLinkTest() {
    for (int from = 0; from < 8; ++from) {
      for (int to = 0; to < 8; ++to) {
        if (from / 2 == to / 2) continue;
        for (int spine = 0; spine < 2; ++spine) Add(from, to, spine, spine);
      }
    }
  }
  void Add(int from, int to, int spine, int ack_spine) {
    Witness witness;
    witness.local = "10.0.0." + std::to_string(from) + ":" + std::to_string(1000 + witnesses_.size());
    witness.remote = "10.0.0." + std::to_string(to) + ":9000";
    witness.state = FlowState::kGood;
    paths_.Add(witness.local, witness.remote, from, to, spine, ack_spine);
    witnesses_.push_back(witness);
  }
  bool Takes(const Witness& witness, const std::string& cable) {
    for (const bool data : {true, false}) {
      const auto path =
          paths_.Find(data ? witness.local : witness.remote, data ? witness.remote : witness.local);
      for (const std::string& link : *path) {
        if (CableOf(link) == cable) return true;
      }
    }
    return false;
  }
  size_t Spoil(const std::string& cable) {
    size_t count = 0;
    for (Witness& witness : witnesses_) {
      if (!Takes(witness, cable)) continue;
      witness.state = FlowState::kBad;
      ++count;
    }
    return count;
  }
  LinkBlame Blame(bool acks = true) { return BlameLinks(witnesses_, acks, &paths_, {}); }

  FakePaths paths_;
  std::vector<Witness> witnesses_;
};

TEST_F(BlameLinkTest, NamesTheLinkAndCounts) {
  const size_t bad = Spoil("leaf1-spine0");
  const LinkBlame blame = Blame();
  ASSERT_EQ(blame.sort, Sort::kLinks);
  ASSERT_THAT(blame.blamed, SizeIs(1));
  const BlamedLink& link = blame.blamed[0];
  EXPECT_EQ(link.cable, "leaf1-spine0");
  EXPECT_THAT(link.links, ::testing::UnorderedElementsAre("leaf1>spine0", "leaf1<spine0"));
  EXPECT_THAT(link.bad, SizeIs(bad));
  EXPECT_EQ(link.good, 0U);
  EXPECT_EQ(link.other_good, witnesses_.size() - bad);
  EXPECT_THAT(LinkEvidence(link, "are slow").text,
              ::testing::HasSubstr("24 of 24 queue pairs over leaf1-spine0 are slow, 0 of 72 others"));
}

TEST_F(BlameLinkTest, TwoLinksAreTwo) {
  Spoil("leaf1-spine0");
  Spoil("leaf3-spine1");
  const LinkBlame blame = Blame();
  ASSERT_EQ(blame.sort, Sort::kLinks);
  ASSERT_THAT(blame.blamed, SizeIs(2));
  EXPECT_EQ(blame.unexplained, 0U);
}

TEST_F(BlameLinkTest, WithoutPathsNothingIsNamed) {
  Spoil("leaf1-spine0");
  EXPECT_EQ(BlameLinks(witnesses_, true, nullptr, {}).sort, Sort::kNone);
  FakePaths none;
  EXPECT_EQ(BlameLinks(witnesses_, true, &none, {}).sort, Sort::kNone);
  EXPECT_EQ(none.asked, static_cast<int>(2 * witnesses_.size())) << "but they are asked for";
}

TEST_F(BlameLinkTest, TooFewKnownPathsNameNothing) {
  Spoil("leaf1-spine0");
  size_t forgotten = 0;
  for (const Witness& witness : witnesses_) {
    if (witness.state == FlowState::kBad && ++forgotten % 2 == 0)
      paths_.Forget(witness.local, witness.remote);
  }
  EXPECT_EQ(Blame().sort, Sort::kNone);
}

TEST_F(BlameLinkTest, AHostsOwnLinkIsItsNics) {
  Spoil("host5-leaf2");
  const LinkBlame blame = Blame();
  EXPECT_EQ(blame.sort, Sort::kHost);
  EXPECT_THAT(blame.blamed, IsEmpty());
}

TEST_F(BlameLinkTest, TroubleEverywhereNamesNothing) {
  for (size_t i = 0; i < witnesses_.size(); i += 2) witnesses_[i].state = FlowState::kBad;
  EXPECT_EQ(Blame().sort, Sort::kNone);
}

TEST_F(BlameLinkTest, ThoseWhoAreWellOnItContradict) {
  // Every second queue pair over it is bad: that is not the link.
  size_t count = 0;
  for (Witness& witness : witnesses_) {
    if (Takes(witness, "leaf1-spine0") && ++count % 2 == 0) witness.state = FlowState::kBad;
  }
  EXPECT_EQ(Blame().sort, Sort::kNone);
}

// All that is bad takes two links, and what is well tells nothing of either.
TEST_F(BlameLinkTest, WhatNobodyTellsApartIsAmbiguous) {
  witnesses_.clear();
  for (const int from : {0, 1}) {
    for (const int to : {2, 3}) Add(from, to, 0, 0);
  }
  for (Witness& witness : witnesses_) witness.state = FlowState::kBad;
  for (int i = 0; i < 4; ++i) {  // the hosts are well
    Add(i, (i + 4) % 8, 1, 1);
    Add(i, (i + 6) % 8, 1, 1);
  }
  const LinkBlame blame = Blame();
  ASSERT_EQ(blame.sort, Sort::kAmbiguous);
  EXPECT_THAT(blame.candidates, ElementsAre("leaf0<spine0", "leaf0>spine0", "leaf1<spine0", "leaf1>spine0"));
  // Two that are well over one of them leave the other.
  Add(4, 2, 0, 0);
  Add(5, 3, 0, 0);
  const LinkBlame named = Blame();
  ASSERT_EQ(named.sort, Sort::kLinks);
  EXPECT_THAT(named.blamed, SizeIs(1));
  EXPECT_EQ(named.blamed[0].cable, "leaf0-spine0");
}

TEST_F(BlameLinkTest, UnknownWitnessesSayNothing) {
  Spoil("leaf1-spine0");
  for (Witness& witness : witnesses_) {
    if (witness.state == FlowState::kGood) witness.state = FlowState::kUnknown;
  }
  // Nothing is known to be well: the link is one of several candidates or explains all on its own.
  const LinkBlame blame = Blame();
  if (blame.sort == Sort::kLinks) {
    EXPECT_EQ(blame.blamed[0].cable, "leaf1-spine0");
  } else {
    EXPECT_THAT(blame.candidates, Contains("leaf1>spine0"));
  }
  EXPECT_THAT(witnesses_, Not(IsEmpty()));
}

}  // namespace
}  // namespace c4::c4d
