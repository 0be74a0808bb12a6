#include "analysis/mitigation/planner.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace c4::mitigation {
namespace {

constexpr double kHealthyS = 1;

Offer Offered(Strategy strategy, double cost_s, double promised_s) {
  return {.strategy = strategy, .unavailable = "", .estimate_s = cost_s, .promised_s = promised_s};
}

// A job with one event, iteration by iteration. Costs and promises come true.
struct World {
  Planner planner;
  EventState event;
  double now_s = 0;
  double paid_s = 0;  // for actions
  std::vector<Decision> decisions;

  explicit World(const PlannerOptions& options = {}) : planner(options) {
    event.id = "v1";
    event.healthy_s = kHealthyS;
  }

  std::vector<Decision> Iterate(double iteration_s, const std::vector<Offer>& offers) {
    now_s += iteration_s;
    event.iteration_s = iteration_s;
    ++event.iterations;
    event.lost_s += iteration_s - kHealthyS;
    std::vector<Decision> made = planner.Observe(event, offers, now_s);
    decisions.insert(decisions.end(), made.begin(), made.end());
    return made;
  }

  // Until nothing is lost any more or so many iterations are over; returns what was lost and paid.
  double Run(double slow_s, const std::vector<Offer>& offers, int iterations) {
    double iteration_s = slow_s;
    for (int i = 0; i < iterations; ++i) {
      for (const Decision& decision : Iterate(iteration_s, offers)) {
        if (decision.kind != Decision::Kind::kAct) continue;
        const auto offer = std::find_if(offers.begin(), offers.end(),
                                        [&](const Offer& one) { return one.strategy == decision.strategy; });
        planner.Done(offer->estimate_s, now_s);
        paid_s += offer->estimate_s;
        iteration_s = std::min(iteration_s, offer->promised_s);
      }
    }
    return event.lost_s + paid_s;
  }

  std::vector<Strategy> Acts() const {
    std::vector<Strategy> acts;
    for (const Decision& decision : decisions) {
      if (decision.kind == Decision::Kind::kAct) acts.push_back(decision.strategy);
    }
    return acts;
  }
};

const std::vector<Offer>& Usual() {
  static const std::vector<Offer> offers = {Offered(Strategy::kMicroBatches, 2, 1.4),
                                            Offered(Strategy::kPlacement, 20, 1.2),
                                            Offered(Strategy::kRestart, 600, 1)};
  return offers;
}

TEST(Planner, GoesFromStrategyToStrategyWhenTheirCostIsLost) {
  World world;
  // 0.5 s an iteration: 2 s after 4 iterations.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(world.Iterate(1.5, Usual()).empty());
  const std::vector<Decision> made = world.Iterate(1.5, Usual());
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].kind, Decision::Kind::kAct);
  EXPECT_EQ(made[0].strategy, Strategy::kMicroBatches);
  EXPECT_EQ(made[0].account_s, 2);
  EXPECT_EQ(made[0].cost_s, 2);
  EXPECT_FALSE(made[0].cost_measured);
  EXPECT_EQ(made[0].promised_s, 1.4);
  EXPECT_EQ(made[0].why,
            "since the last step 2 s were lost, as much as S2 costs (2 s, an estimate); an iteration takes "
            "1.5 s now, 1 s before, 1.4 s with it");
  // Nothing else while it is under way.
  EXPECT_TRUE(world.Iterate(1.5, Usual()).empty());
  world.planner.Done(3, world.now_s);
  EXPECT_EQ(world.planner.LevelOf("v1"), Strategy::kMicroBatches);
  // The account begins anew, with what is lost now: 20 s take 50 iterations of 0.4 s.
  for (int i = 0; i < 49; ++i) {
    for (const Decision& decision : world.Iterate(1.4, Usual())) {
      EXPECT_EQ(decision.kind, Decision::Kind::kBrought);
      EXPECT_NEAR(decision.iteration_s, 1.4, 1e-9);
      EXPECT_EQ(decision.cost_s, 3);
    }
  }
  world.event.lost_s += 1e-9;  // rounding
  const std::vector<Decision> third = world.Iterate(1.4, Usual());
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].strategy, Strategy::kPlacement);
}

TEST(Planner, MeasuredCostsComeBeforeEstimates) {
  World world;
  for (const double cost_s : {9.0, 5.0, 7.0}) world.planner.costs().Measured(Strategy::kMicroBatches, cost_s);
  EXPECT_EQ(world.planner.costs().Of(Strategy::kMicroBatches), 7);
  for (int i = 0; i < 13; ++i) EXPECT_TRUE(world.Iterate(1.5, Usual()).empty()) << i;
  const std::vector<Decision> made = world.Iterate(1.5, Usual());
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].cost_s, 7);
  EXPECT_TRUE(made[0].cost_measured);
  // The newest five count.
  for (int i = 0; i < 5; ++i) world.planner.costs().Measured(Strategy::kMicroBatches, 1);
  EXPECT_EQ(world.planner.costs().Of(Strategy::kMicroBatches), 1);
  EXPECT_EQ(world.planner.costs().Times(Strategy::kMicroBatches), 8u);
  EXPECT_EQ(world.planner.costs().Of(Strategy::kRestart), std::nullopt);
}

TEST(Planner, LeavesOutWhatDoesNotHelpAndSaysWhyOnce) {
  World world;
  std::vector<Offer> offers = Usual();
  offers[0].promised_s = 1.5;  // all nodes are equally slow
  offers[1].unavailable = "no framework asks for plans";
  offers[2].estimate_s = 0;  // no restart of this job was measured
  for (int i = 0; i < 100; ++i) world.Iterate(1.5, offers);
  ASSERT_EQ(world.decisions.size(), 3u);
  EXPECT_EQ(world.decisions[0].why, "it promises less than 5 % of the slow-down");
  EXPECT_EQ(world.decisions[1].why, "no framework asks for plans");
  EXPECT_EQ(world.decisions[2].why, "nobody knows what S4 costs");
  for (const Decision& decision : world.decisions) EXPECT_EQ(decision.kind, Decision::Kind::kSkip);
  // What comes to be possible is done.
  offers[1].unavailable.clear();
  world.Iterate(1.5, offers);
  EXPECT_EQ(world.Acts(), (std::vector<Strategy>{Strategy::kPlacement}));
}

TEST(Planner, AFrameworkThatNeverAsksIsNotWaitedFor) {
  World world;
  for (int i = 0; i < 4; ++i) world.Iterate(1.5, Usual());
  ASSERT_TRUE(world.planner.acting());
  while (world.planner.acting() && world.now_s < 1000) world.Iterate(1.5, Usual());
  // S2 has failed, and S3, whose cost is lost long since, is next.
  ASSERT_GE(world.decisions.size(), 2u);
  EXPECT_EQ(world.decisions[1].kind, Decision::Kind::kFailed);
  EXPECT_NE(world.decisions[1].why.find("does the program ask for plans?"), std::string::npos);
  EXPECT_GT(world.decisions[1].at_s, 120);
  EXPECT_LT(world.decisions[1].at_s, 130);
  for (int i = 0; i < 1500; ++i) world.Iterate(1.5, Usual());
  const std::vector<Strategy> once = {Strategy::kMicroBatches, Strategy::kPlacement, Strategy::kRestart};
  EXPECT_EQ(world.Acts(), once);
}

TEST(Planner, OneActionAtATimeInAJob) {
  World world;
  EventState other = world.event;
  other.id = "v2";
  other.iteration_s = 1.5;
  other.iterations = 100;
  other.lost_s = 50;
  for (int i = 0; i < 4; ++i) world.Iterate(1.5, Usual());
  ASSERT_TRUE(world.planner.acting());
  EXPECT_TRUE(world.planner.Observe(other, Usual(), world.now_s).empty());
  world.planner.Done(2, world.now_s);
  // It has an account of its own.
  const std::vector<Decision> made = world.planner.Observe(other, Usual(), world.now_s);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].event, "v2");
  EXPECT_EQ(made[0].account_s, 50);
  EXPECT_EQ(world.planner.LevelOf("v1"), Strategy::kMicroBatches);
  EXPECT_EQ(world.planner.LevelOf("v2"), Strategy::kIgnore);
}

TEST(Planner, ReliefTakesAStepBackWhenThatPays) {
  World world;
  const std::vector<Offer> offers = {Usual().front()};
  for (int i = 0; i < 4; ++i) world.Iterate(1.5, offers);
  world.planner.Done(2, world.now_s);
  for (int i = 0; i < 20; ++i) world.Iterate(1.3, offers);
  // Well again; what was dealt out for a slow group makes an iteration 1/8 s longer: 2 s in 16.
  world.event.part = Part::kWell;
  world.decisions.clear();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(world.Iterate(1.125, offers).empty()) << i;
  // A moment of weakness begins the account anew.
  world.event.part = Part::kSlow;
  world.Iterate(1.125, offers);
  world.event.part = Part::kWell;
  int waited = 0;
  while (world.Acts().empty() && world.decisions.empty() && waited < 100) {
    world.Iterate(1.125, offers);
    ++waited;
  }
  ASSERT_EQ(world.decisions.size(), 1u);
  EXPECT_EQ(world.decisions[0].kind, Decision::Kind::kStepBack);
  EXPECT_EQ(world.decisions[0].strategy, Strategy::kMicroBatches);
  EXPECT_EQ(waited, 17);
  EXPECT_NEAR(world.decisions[0].account_s, 2, 1e-9);
  world.planner.Done(1, world.now_s);
  EXPECT_EQ(world.planner.LevelOf("v1"), Strategy::kIgnore);
  world.event.is_over = true;
  const std::vector<Decision> over = world.Iterate(1.0, offers);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].kind, Decision::Kind::kRelieved);
}

TEST(Planner, ReliefThatLeavesNothingToGainChangesNothing) {
  World world;
  for (int i = 0; i < 4; ++i) world.Iterate(1.5, Usual());
  world.planner.Done(2, world.now_s);
  world.event.part = Part::kWell;
  world.decisions.clear();
  for (int i = 0; i < 1000; ++i) {
    for (const Decision& decision : world.Iterate(1.0, Usual())) {
      EXPECT_EQ(decision.kind, Decision::Kind::kBrought);
    }
  }
  EXPECT_EQ(world.planner.LevelOf("v1"), Strategy::kMicroBatches);
}

TEST(Planner, ARestartEndsTheList) {
  World world;
  world.Run(3, {Offered(Strategy::kRestart, 10, 1.5), Offered(Strategy::kPlacement, 50, 1.0)}, 500);
  EXPECT_EQ(world.Acts(), (std::vector<Strategy>{Strategy::kRestart}));
}

TEST(Planner, TheEndOfAJobEndsWhatIsUnderWay) {
  World world;
  for (int i = 0; i < 4; ++i) world.Iterate(1.5, Usual());
  ASSERT_TRUE(world.planner.acting());
  world.event.is_over = true;
  world.Iterate(1.5, Usual());
  EXPECT_FALSE(world.planner.acting());
  world.planner.Done(5, world.now_s);  // nobody waits for it
  EXPECT_TRUE(world.planner.Refused("late", world.now_s).empty());
}

// Against who knows from the start how long the event will last, and takes the one strategy that is best
// then. The bound: each step loses once and pays once what it costs, and the last account is open. Who knows
// better still pays the last cost, or lost as much.
TEST(Planner, IsNeverWorseThanItsBound) {
  double worst = 0;
  double sum = 0;
  constexpr int kSeeds = 800;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    std::uniform_real_distribution<> unit(0, 1);
    const double slow_s = kHealthyS * (1.1 + 2 * unit(random));
    std::vector<Offer> offers;
    double left = 1;
    double cost_s = 0.2 + 5 * unit(random);
    for (const Strategy strategy : {Strategy::kMicroBatches, Strategy::kPlacement, Strategy::kRestart}) {
      left *= strategy == Strategy::kRestart ? 0 : 0.1 + 0.8 * unit(random);
      offers.push_back(Offered(strategy, cost_s, kHealthyS + left * (slow_s - kHealthyS)));
      cost_s *= 1 + 20 * unit(random);
    }
    if (seed % 3 == 0) offers.erase(offers.begin() + static_cast<std::ptrdiff_t>(random() % 3));
    std::shuffle(offers.begin(), offers.end(), random);
    const int iterations = static_cast<int>(std::pow(10, 3.7 * unit(random)));
    World world({.rest_share = 0});
    const double total_s = world.Run(slow_s, offers, iterations);
    double best_s = iterations * (slow_s - kHealthyS);
    double costs_s = 0;
    double last_s = 0;
    for (const Offer& offer : offers) {
      best_s = std::min(best_s, offer.estimate_s + iterations * (offer.promised_s - kHealthyS));
    }
    for (const Strategy strategy : world.Acts()) {
      for (const Offer& offer : offers) {
        if (offer.strategy != strategy) continue;
        costs_s += offer.estimate_s;
        last_s = std::max(last_s, offer.estimate_s);
      }
    }
    const double bound = last_s > 0 ? 2 * costs_s / last_s + 1 : 1;
    // An iteration is the grain: each step may come one too late.
    const double grain_s = 4 * (slow_s - kHealthyS);
    ASSERT_LE(total_s, bound * best_s + grain_s + 1e-9) << "seed " << seed;
    worst = std::max(worst, (total_s - grain_s) / best_s);
    sum += total_s / best_s;
  }
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("mean", std::to_string(sum / kSeeds));
  EXPECT_LT(sum / kSeeds, 2.5);
  // The bound is met, hence it says something.
  EXPECT_GT(worst, 1.5);
}

// The classic: one strategy that takes everything away. Never more than twice.
TEST(Planner, WithOneStrategyItIsTwiceTheBestAtMost) {
  for (int iterations = 1; iterations < 400; ++iterations) {
    World world;
    const double total_s = world.Run(1.25, {Offered(Strategy::kRestart, 25, 1)}, iterations);
    const double best_s = std::min(0.25 * iterations, 25.0);
    ASSERT_LE(total_s, 2 * best_s + 0.25) << iterations;
    if (iterations < 100) {
      ASSERT_EQ(total_s, best_s);
    }
  }
}

// Other places cost nothing once they are taken; micro-batches that were dealt out anew are put back all the
// same, though places were changed after them.
TEST(Planner, PlacesStayAndMicroBatchesGoBack) {
  World world;
  const std::vector<Offer> offers = {Offered(Strategy::kMicroBatches, 1, 1.3),
                                     Offered(Strategy::kPlacement, 5, 1.15)};
  world.Run(1.5, offers, 60);
  ASSERT_EQ(world.Acts(), (std::vector<Strategy>{Strategy::kMicroBatches, Strategy::kPlacement}));
  world.event.part = Part::kWell;
  std::vector<Decision> backs;
  for (int i = 0; i < 60 && backs.empty(); ++i) {
    for (const Decision& decision : world.Iterate(1.15, offers)) {
      if (decision.kind == Decision::Kind::kStepBack) backs.push_back(decision);
    }
  }
  ASSERT_EQ(backs.size(), 1u);
  EXPECT_EQ(backs[0].strategy, Strategy::kMicroBatches);
  world.planner.Done(1, world.now_s);
  EXPECT_FALSE(world.planner.IsInForce("v1", Strategy::kMicroBatches));
  EXPECT_TRUE(world.planner.IsInForce("v1", Strategy::kPlacement));
  for (int i = 0; i < 60; ++i) {
    for (const Decision& decision : world.Iterate(1.15, offers)) {
      EXPECT_NE(decision.kind, Decision::Kind::kStepBack);
    }
  }
}

TEST(Planner, ALittleThatIsLeftIsLeftAlone) {
  World world;
  const std::vector<Offer> offers = {Offered(Strategy::kPlacement, 2, 1.08),
                                     Offered(Strategy::kRestart, 4, 1)};
  world.Run(1.5, offers, 500);
  EXPECT_EQ(world.Acts(), std::vector<Strategy>{Strategy::kPlacement});
}

// Plans are given two minutes; a restart takes what it takes, and whoever does it says when it has failed.
TEST(Planner, ARestartIsNotGivenUpByTheClock) {
  World world;
  const std::vector<Offer> offers = {Offered(Strategy::kRestart, 1, 1)};
  for (int i = 0; i < 3; ++i) world.Iterate(1.5, offers);
  ASSERT_EQ(world.planner.ActingOn("v1"), Strategy::kRestart);
  EXPECT_EQ(world.planner.ActingOn("v2"), Strategy::kIgnore);
  world.now_s += 1000;
  EXPECT_TRUE(world.Iterate(1.5, offers).empty());
  EXPECT_EQ(world.planner.ActingOn("v1"), Strategy::kRestart);
}

}  // namespace
}  // namespace c4::mitigation
