// Drains and flap damping, the budget of moves that have time, and the history: pure, in simulated time.
#include "c4p_master/link_holds.h"

#include <gmock/gmock.h>

#include "c4p_master/move_budget.h"
#include "c4p_master/path_history.h"

namespace c4::c4p {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr char kCable[] = "leaf0-spine1";

TEST(LinkHoldsTest, ACableIsDrainedByItsNameOrASwitchs) {
  LinkHolds holds({});
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "");
  ASSERT_TRUE(holds.Drain(kCable, "new optic").ok());
  EXPECT_EQ(holds.Drain(kCable, "").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "drained: new optic");
  EXPECT_EQ(holds.Why("leaf0", "spine0"), "");
  EXPECT_EQ(holds.Why("leaf1", "spine1"), "");
  ASSERT_TRUE(holds.Drain("spine1", "").ok());
  EXPECT_EQ(holds.Why("leaf1", "spine1"), "drained with spine1");
  ASSERT_TRUE(holds.Undrain(kCable).ok());
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "drained with spine1");
  EXPECT_THAT(std::string(holds.Undrain(kCable).message()), HasSubstr("undrain spine1"));
  ASSERT_TRUE(holds.Undrain("spine1").ok());
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "");
  EXPECT_EQ(holds.Undrain("spine1").code(), absl::StatusCode::kNotFound);
}

TEST(LinkHoldsTest, WhatFailsNowAndThenIsUsedAgainAtOnce) {
  LinkHolds holds({.half_life_ns = 120 * kSecondNs});
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_FALSE(holds.Failed(kCable, i * 600 * kSecondNs)) << i;
    EXPECT_EQ(holds.Why("leaf0", "spine1"), "");
  }
}

TEST(LinkHoldsTest, WhatComesAndGoesIsHeldUntilItHasBeenQuiet) {
  const FlapOptions options{.half_life_ns = 120 * kSecondNs};
  LinkHolds holds(options);
  EXPECT_FALSE(holds.Failed(kCable, 0));
  EXPECT_FALSE(holds.Failed(kCable, 10 * kSecondNs));
  EXPECT_TRUE(holds.Failed(kCable, 20 * kSecondNs)) << "the third within half a minute";
  EXPECT_FALSE(holds.Failed(kCable, 25 * kSecondNs)) << "it is held already";
  EXPECT_THAT(holds.Why("leaf0", "spine1"), HasSubstr("comes and goes"));
  EXPECT_EQ(holds.Why("leaf1", "spine1"), "");
  // 3.75 then; less than 0.75 after 2.3 half-lives.
  EXPECT_NEAR(holds.Flaps(kCable, 25 * kSecondNs), 3.754, 0.005);
  EXPECT_NEAR(holds.Flaps(kCable, 145 * kSecondNs), 1.877, 0.005);
  EXPECT_THAT(holds.Release((25 + 270) * kSecondNs), IsEmpty());
  EXPECT_NE(holds.Why("leaf0", "spine1"), "");
  EXPECT_THAT(holds.Release((25 + 280) * kSecondNs), ElementsAre(kCable));
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "");
  EXPECT_THAT(holds.Release((25 + 281) * kSecondNs), IsEmpty()) << "once";
  // What it did before still counts for something.
  EXPECT_FALSE(holds.Failed(kCable, 306 * kSecondNs));
  EXPECT_TRUE(holds.Failed(kCable, 307 * kSecondNs));
}

TEST(LinkHoldsTest, HoweverOftenItFailedFourHalfLivesAreEnough) {
  const FlapOptions options{.half_life_ns = 120 * kSecondNs};
  LinkHolds holds(options);
  for (int64_t i = 0; i < 1000; ++i) (void)holds.Failed(kCable, i * kSecondNs);
  EXPECT_THAT(holds.Release((999 + 4 * 120 + 1) * kSecondNs), ElementsAre(kCable));
}

TEST(LinkHoldsTest, WithoutAHalfLifeNothingIsHeldForFailing) {
  LinkHolds holds({.half_life_ns = 0});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(holds.Failed(kCable, i));
  EXPECT_EQ(holds.Why("leaf0", "spine1"), "");
  EXPECT_EQ(holds.Flaps(kCable, 100), 0);
}

TEST(MoveBudgetTest, ASecondsWorthAtOnceAndThenAsManyASecond) {
  MoveBudget budget(100);
  EXPECT_EQ(budget.Available(5 * kSecondNs), 100U);
  budget.Take(104);  // the last connection had more than were left
  EXPECT_EQ(budget.Available(5 * kSecondNs), 0U);
  EXPECT_EQ(budget.Available(5 * kSecondNs + kSecondNs / 2), 46U);
  budget.Take(46);
  EXPECT_EQ(budget.Available(60 * kSecondNs), 100U) << "what was not used is not saved up";
}

TEST(PathHistoryTest, TheNewestOfThoseAskedForOldestFirst) {
  PathHistory history;
  for (uint32_t i = 0; i < PathHistory::kMost + 3; ++i) {
    PathHistory::Event event;
    event.at_ns = i;
    event.kind = v1::PATH_EVENT_KIND_MOVE;
    event.job = i % 2 == 0 ? "even" : "odd";
    event.connection = "host0/1/2." + std::to_string(i % 10);
    event.queue_pair = i;
    event.from = {"a>b"};
    event.why = "reason " + std::to_string(i);
    history.Add(event);
  }
  v1::ListPathHistoryRequest request;
  v1::ListPathHistoryReply all = history.List(request, 20'000);
  ASSERT_EQ(static_cast<size_t>(all.events_size()), PathHistory::kMost);
  EXPECT_EQ(all.forgotten(), 3U);
  EXPECT_EQ(all.events(0).queue_pair(), 3U);
  EXPECT_EQ(all.events(0).age_ns(), 20'000 - 3);
  EXPECT_EQ(all.events(0).from_links(0), "a>b");
  EXPECT_EQ(all.events(0).why(), "reason 3");
  request.set_most(2);
  request.set_job("even");
  const v1::ListPathHistoryReply two = history.List(request, 20'000);
  ASSERT_EQ(two.events_size(), 2);
  EXPECT_EQ(two.events(0).queue_pair(), PathHistory::kMost);
  EXPECT_EQ(two.events(1).queue_pair(), PathHistory::kMost + 2);
  request.set_connection(".1");
  EXPECT_EQ(history.List(request, 20'000).events_size(), 0) << "that one is odd";
}

}  // namespace
}  // namespace c4::c4p
