// Experiments in a network of physics: whom slowness follows is named, never an innocent one; and whatever
// goes wrong leaves everything where it was and concludes nothing.
#include "c4d_master/intervention/experiment.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/intervention/fake_network.h"

namespace c4::c4d {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Runs an experiment second by second. `at_second` may change the network meanwhile.
class Bench {
 public:
  explicit Bench(FakeNetwork* network) : network_(network), before_(network->Look()) {}

  Experiment Run(const std::vector<Flow>& suspects,
                 const std::function<void(int, Experiment*)>& at_second = nullptr) {
    Experiment experiment("v-1/1", suspects, now_, thresholds);
    for (int second = 0; second < 400 && !experiment.done(); ++second) {
      if (at_second) at_second(second, &experiment);
      const std::vector<Flow> flows = network_->Look();
      ExperimentLook look;
      look.now = now_;
      look.flows = &flows;
      look.unsafe = unsafe;
      look.disturbed = disturbed;
      look.answer = std::exchange(answer_, std::nullopt);
      experiment.Step(look);
      if (const std::optional<MoveOrder> order = experiment.TakeOrder()) {
        orders.push_back(*order);
        if (!never_answers) answer_ = network_->Carry(*order);
      }
      now_.monotonic_ns += kSecondNs;
      now_.unix_ns += kSecondNs;
    }
    EXPECT_TRUE(experiment.done()) << "it has to come to an end";
    if (answer_) (void)std::exchange(answer_, std::nullopt);
    return experiment;
  }
  bool AllBack() { return network_->AllBack(before_); }

  InterventionThresholds thresholds;
  std::string unsafe;
  std::string disturbed;
  bool never_answers = false;
  std::vector<MoveOrder> orders;

 private:
  FakeNetwork* const network_;
  const std::vector<Flow> before_;
  Now now_ = {1000 * kSecondNs, 5000 * kSecondNs};
  std::optional<MoveAnswer> answer_;
};

std::string Story(const Experiment& experiment) {
  std::string story = experiment.outcome() + ": " + CandidatesText(experiment.candidates());
  for (const std::string& line : experiment.lines()) story += "\n  " + line;
  return story;
}

bool Names(const Experiment& experiment, const std::string& name) {
  const auto& left = experiment.candidates();
  return std::any_of(left.begin(), left.end(), [&](const Candidate& one) { return one.thing.name == name; });
}

// All queue pairs of a NIC take one link, as where there is one a connection: the detectors blame the NIC.
TEST(ExperimentTest, ALinkThatLooksLikeANicIsToldFromIt) {
  size_t tried = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FakeNetwork network({.leaves = 4, .spines = 2, .queue_pairs = 1, .seed = seed});
    network.SlowCable(0, 0, 30);
    const std::vector<Flow> slow = network.Slow();
    if (slow.empty()) continue;
    Bench bench(&network);
    const Experiment experiment = bench.Run(slow);
    if (experiment.outcome() == "nothing to try" || experiment.outcome() == "refused") continue;
    ++tried;
    EXPECT_TRUE(experiment.learnt()) << seed << " " << Story(experiment);
    EXPECT_TRUE(Names(experiment, "leaf0-spine0")) << seed << " " << Story(experiment);
    EXPECT_EQ(CountKind(experiment.candidates(), ThingKind::kNic), 0U) << seed << " " << Story(experiment);
    EXPECT_EQ(CountKind(experiment.candidates(), ThingKind::kRank), 0U) << seed << " " << Story(experiment);
    const bool onto = experiment.moves().front().role == MoveRole::kProbe;
    EXPECT_TRUE(onto || !experiment.left_off().empty()) << "the bad way is left\n" << Story(experiment);
    EXPECT_THAT(experiment.evidence(), Contains(HasSubstr("control"))) << Story(experiment);
  }
  EXPECT_GT(tried, 100U);
}

TEST(ExperimentTest, ANicIsNotTakenForItsPath) {
  size_t tried = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FakeNetwork network({.leaves = 4, .spines = 2, .queue_pairs = 1, .seed = seed});
    network.faults[FakeNetwork::Nic(1, 0)] = 20;
    const std::vector<Flow> slow = network.Slow();
    Bench bench(&network);
    const Experiment experiment = bench.Run(slow);
    if (experiment.outcome() == "nothing to try" || experiment.outcome() == "refused") continue;
    ++tried;
    EXPECT_TRUE(experiment.learnt()) << seed << " " << Story(experiment);
    EXPECT_TRUE(Names(experiment, FakeNetwork::Nic(1, 0))) << seed << " " << Story(experiment);
    EXPECT_EQ(CountKind(experiment.candidates(), ThingKind::kLink), 0U) << seed << " " << Story(experiment);
    EXPECT_TRUE(bench.AllBack()) << seed << " " << Story(experiment);
  }
  EXPECT_GT(tried, 50U);
}

// With other NICs to move to, a NIC is told from its rank.
TEST(ExperimentTest, WithAnotherPlaneANicIsToldFromItsRank) {
  for (const bool nic : {true, false}) {
    size_t told = 0;
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      FakeNetwork network({.leaves = 4, .spines = 2, .planes = 2, .queue_pairs = 2, .seed = seed});
      network.faults[nic ? FakeNetwork::Nic(1, 0) : "rank 1"] = 20;
      // Of one queue pair alone, as if nothing else were slow.
      std::vector<Flow> slow;
      for (const Flow& flow : network.Slow()) {
        if (flow.from_rank == 1 && flow.from_nic == FakeNetwork::Nic(1, 0)) slow.push_back(flow);
      }
      ASSERT_THAT(slow, SizeIs(1));
      Bench bench(&network);
      const Experiment experiment = bench.Run(slow);
      EXPECT_TRUE(bench.AllBack()) << Story(experiment);
      if (!experiment.learnt()) continue;
      ++told;
      EXPECT_TRUE(Names(experiment, nic ? FakeNetwork::Nic(1, 0) : "rank 1"))
          << seed << " " << Story(experiment);
      EXPECT_EQ(CountKind(experiment.candidates(), nic ? ThingKind::kRank : ThingKind::kNic), 0U)
          << seed << " " << Story(experiment);
      EXPECT_EQ(CountKind(experiment.candidates(), ThingKind::kLink), 0U) << seed << " " << Story(experiment);
    }
    EXPECT_GT(told, 90U) << (nic ? "NIC" : "rank");
  }
}

// Several queue pairs between two leaves over one spine: which of the two links it is only a neighbour tells.
TEST(ExperimentTest, ANeighbourMovedOntoOneOfTwoLinksTellsThemApart) {
  size_t settled = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    FakeNetwork network(
        {.leaves = 3, .spines = 3, .hosts_per_leaf = 2, .queue_pairs = 1, .all_to_all = true, .seed = seed});
    network.SlowCable(0, 0, 30);
    std::vector<Flow> slow;
    // What is slow from leaf 0 to leaf 1 alone, as if nobody else had come over that link.
    for (const Flow& flow : network.Slow()) {
      if (flow.from_rank < 2 && (flow.to_rank == 2 || flow.to_rank == 3)) slow.push_back(flow);
    }
    if (slow.empty()) continue;
    Bench bench(&network);
    const Experiment experiment = bench.Run(slow);
    if (!experiment.learnt()) continue;
    EXPECT_TRUE(Names(experiment, "leaf0-spine0")) << seed << " " << Story(experiment);
    if (experiment.outcome() == "settled") ++settled;
  }
  EXPECT_GT(settled, 10U);
}

TEST(ExperimentTest, WhatGoesAwayByItselfIsNobodysFault) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const int queue_pairs : {1, 4}) {
      FakeNetwork network({.leaves = 4, .spines = 2, .queue_pairs = queue_pairs, .seed = seed});
      network.SlowCable(0, 0, 30);
      const std::vector<Flow> slow = network.Slow();
      if (slow.empty()) continue;
      Bench bench(&network);
      const Experiment experiment = bench.Run(slow, [&](int, Experiment* running) {
        if (running->phase() == Experiment::Phase::kCarrying) network.faults.clear();
      });
      EXPECT_FALSE(experiment.learnt()) << seed << " " << Story(experiment);
      EXPECT_TRUE(bench.AllBack()) << seed << " " << Story(experiment);
    }
  }
}

TEST(ExperimentTest, WhereTheLoadChangesNothingFollows) {
  for (const double load : {0.4, 2.2}) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      FakeNetwork network({.leaves = 4, .spines = 2, .queue_pairs = 1, .seed = seed});
      network.faults[FakeNetwork::Nic(1, 0)] = 20;
      const std::vector<Flow> slow = network.Slow();
      Bench bench(&network);
      const Experiment experiment = bench.Run(slow, [&](int, Experiment* running) {
        if (running->phase() == Experiment::Phase::kCarrying) network.load = load;
      });
      EXPECT_FALSE(experiment.learnt()) << seed << " " << Story(experiment);
      EXPECT_TRUE(bench.AllBack()) << seed << " " << Story(experiment);
    }
  }
}

// Two that are guilty: one of them may be named, an innocent one never.
TEST(ExperimentTest, OfTwoThatAreGuiltyNoInnocentOneIsNamed) {
  size_t learnt = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FakeNetwork network(
        {.leaves = 4, .spines = 2, .queue_pairs = 1 + static_cast<int>(seed % 3), .seed = seed});
    network.SlowCable(0, 0, seed % 2 == 0 ? 30 : 8);
    network.faults[FakeNetwork::Nic(0, 0)] = seed % 5 == 0 ? 30 : 8;
    const std::vector<Flow> slow = network.Slow();
    if (slow.empty()) continue;
    Bench bench(&network);
    const Experiment experiment = bench.Run(slow);
    if (!experiment.learnt()) continue;
    ++learnt;
    EXPECT_TRUE(Names(experiment, "leaf0-spine0") || Names(experiment, FakeNetwork::Nic(0, 0)))
        << seed << " " << Story(experiment);
  }
}

class WhatGoesWrongTest : public ::testing::Test {
 protected:
  FakeNetwork network_{{.leaves = 4, .spines = 2, .queue_pairs = 1, .seed = 3}};
  std::vector<Flow> Slow() {
    // Whatever seed 3 makes of it: the first queue pair's first link.
    const std::string link = network_.Look().front().links[1];
    network_.faults[link] = 30;
    return network_.Slow();
  }
};

TEST_F(WhatGoesWrongTest, ARefusalLeavesTheVerdictAsItWas) {
  const std::vector<Flow> slow = Slow();
  network_.refuses = "the operator forbids it";
  Bench bench(&network_);
  const Experiment experiment = bench.Run(slow);
  EXPECT_EQ(experiment.outcome(), "refused");
  EXPECT_THAT(experiment.lines(), Contains(HasSubstr("the operator forbids it")));
  EXPECT_THAT(experiment.evidence(), IsEmpty());
  EXPECT_EQ(network_.moved, 0);
}

TEST_F(WhatGoesWrongTest, WithoutAnAnswerC4pIsToldToMoveBack) {
  const std::vector<Flow> slow = Slow();
  network_.away = true;
  Bench bench(&network_);
  const Experiment experiment = bench.Run(slow);
  EXPECT_EQ(experiment.outcome(), "no answer");
  ASSERT_THAT(bench.orders, SizeIs(::testing::Ge(2)));
  EXPECT_EQ(bench.orders[1].kind, MoveOrder::Kind::kEnd);
  EXPECT_EQ(bench.orders[1].experiment, bench.orders[0].experiment);
  EXPECT_THAT(bench.orders[1].keep, IsEmpty());
}

TEST_F(WhatGoesWrongTest, AnAnswerThatNeverComesEndsItAsWell) {
  const std::vector<Flow> slow = Slow();
  Bench bench(&network_);
  bench.never_answers = true;
  EXPECT_EQ(bench.Run(slow).outcome(), "no answer");
}

TEST_F(WhatGoesWrongTest, QueuePairsThatDoNotGoOverAreMovedBack) {
  const std::vector<Flow> slow = Slow();
  network_.sticky = true;
  Bench bench(&network_);
  const Experiment experiment = bench.Run(slow);
  EXPECT_EQ(experiment.outcome(), "not moved") << Story(experiment);
  EXPECT_EQ(bench.orders.back().kind, MoveOrder::Kind::kEnd);
  EXPECT_THAT(bench.orders.back().keep, IsEmpty());
}

// The transport fenced them on the way, for instance.
TEST_F(WhatGoesWrongTest, QueuePairsThatWentAstrayAreMovedOnceMore) {
  const std::vector<Flow> slow = Slow();
  for (const int strays : {100, 1}) {
    network_.strays = strays;
    Bench bench(&network_);
    const Experiment experiment = bench.Run(slow);
    EXPECT_EQ(experiment.learnt(), strays == 1) << Story(experiment);
    EXPECT_THAT(experiment.lines(), Contains(HasSubstr("once more")));
    if (strays == 100) {
      EXPECT_EQ(experiment.outcome(), "not moved") << Story(experiment);
    }
    network_.strays = 0;
  }
}

TEST_F(WhatGoesWrongTest, WithoutASafeMomentNothingMoves) {
  const std::vector<Flow> slow = Slow();
  Bench bench(&network_);
  bench.unsafe = "rank 3 may hang";
  const Experiment experiment = bench.Run(slow);
  EXPECT_EQ(experiment.outcome(), "no safe moment");
  EXPECT_THAT(experiment.lines(), Contains(HasSubstr("rank 3 may hang")));
  EXPECT_THAT(bench.orders, IsEmpty());
}

TEST_F(WhatGoesWrongTest, WhateverElseHappensEndsItAndMovesBack) {
  for (const auto phase : {Experiment::Phase::kCarrying, Experiment::Phase::kMeasuring}) {
    FakeNetwork network({.leaves = 4, .spines = 2, .queue_pairs = 1, .seed = 3});
    network.faults[network.Look().front().links[1]] = 30;
    Bench bench(&network);
    const Experiment experiment = bench.Run(network.Slow(), [&](int, Experiment* running) {
      if (running->phase() == phase) bench.disturbed = "rank 2 is gone";
    });
    EXPECT_EQ(experiment.outcome(), "disturbed") << Story(experiment);
    EXPECT_TRUE(bench.AllBack());
  }
}

// At any moment, whatever goes wrong: nothing stays moved that is not said to be left.
TEST(ExperimentProperty, NothingStaysMovedThatIsNotSaidToBe) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    FakeNetwork network({.leaves = 4,
                         .spines = 2 + static_cast<int>(seed % 3),
                         .hosts_per_leaf = 1 + static_cast<int>(seed % 2),
                         .queue_pairs = 1 + static_cast<int>(seed % 4),
                         .seed = seed});
    network.SlowCable(static_cast<int>(random() % 4), 0, 30);
    if (seed % 3 == 0) network.faults[FakeNetwork::Nic(static_cast<int>(random() % 4), 0)] = 12;
    const std::vector<Flow> slow = network.Slow();
    if (slow.empty()) continue;
    Bench bench(&network);
    const int when = static_cast<int>(random() % 40);
    const Experiment experiment = bench.Run(slow, [&](int second, Experiment*) {
      if (second != when) return;
      if (random() % 2 == 0) network.faults.clear();
      if (random() % 3 == 0) network.load = 3;
      if (random() % 4 == 0) bench.disturbed = "rank 2 is gone";
    });
    if (experiment.left_off().empty()) {
      EXPECT_TRUE(bench.AllBack()) << seed << " " << Story(experiment);
    } else {
      EXPECT_TRUE(experiment.learnt()) << seed << " " << Story(experiment);
    }
    EXPECT_EQ(network.moved - network.moved_back >= 0, true);
    size_t there = 0;
    size_t back = 0;
    for (const MoveRecord& record : experiment.moves()) ++(record.back ? back : there);
    EXPECT_EQ(there, static_cast<size_t>(network.moved)) << "every move is written down";
    EXPECT_EQ(back, static_cast<size_t>(network.moved_back)) << "and every one back";
  }
}

}  // namespace
}  // namespace c4::c4d
