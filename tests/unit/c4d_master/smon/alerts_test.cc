// The states of alert rules in simulated time, and by chance.
#include "c4d_master/smon/alerts.h"

#include <random>

#include "c4d_master/job_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Notification::Kind;

constexpr int64_t kBeginNs = 1'700'000'000 * kSecondNs;

AlertRule Slow(double slowdown, int64_t for_s) {
  AlertRule rule;
  rule.name = "slow";
  rule.slowdown = slowdown;
  rule.for_ns = for_s * kSecondNs;
  rule.webhook = "http://127.0.0.1:1/";
  return rule;
}

v1::ProfilingSession Session(int64_t at_s, double slowdown) {
  v1::ProfilingSession session;
  session.set_state(v1::SESSION_STATE_ANALYSED);
  session.set_ended_unix_ns(kBeginNs + at_s * kSecondNs);
  session.set_slowdown(slowdown);
  return session;
}

int64_t At(int64_t at_s) {
  return kBeginNs + at_s * kSecondNs;
}

// Whatever is due, delivered at once.
std::vector<Kind> Deliver(Alerts* alerts, int64_t at_s, const absl::Status& outcome = absl::OkStatus()) {
  std::vector<Kind> kinds;
  for (const Notification& notification : alerts->Due(At(at_s))) {
    kinds.push_back(notification.kind);
    alerts->Delivered(notification, At(at_s), outcome);
  }
  return kinds;
}

TEST(AlertsTest, FiresAfterItsDurationAndIsResolvedOnce) {
  Alerts alerts({Slow(1.2, 600)});
  alerts.Observe(Session(0, 1.3));
  EXPECT_TRUE(alerts.alert(0).over());
  alerts.Observe(Session(300, 1.2));  // the threshold itself counts
  EXPECT_THAT(Deliver(&alerts, 300), IsEmpty());
  alerts.Observe(Session(600, 1.5));
  EXPECT_EQ(Deliver(&alerts, 600), std::vector{Kind::kFiring});
  EXPECT_EQ(alerts.alert(0).since_unix_ns(), At(0));
  EXPECT_EQ(alerts.CountFiring(), 1U);
  alerts.Observe(Session(900, 1.4));
  EXPECT_THAT(Deliver(&alerts, 900), IsEmpty());
  alerts.Observe(Session(1200, 1.19));
  EXPECT_EQ(Deliver(&alerts, 1200), std::vector{Kind::kResolved});
  EXPECT_THAT(Deliver(&alerts, 1300), IsEmpty());
}

TEST(AlertsTest, OneGoodSessionBeginsTheTimeAnew) {
  Alerts alerts({Slow(1.2, 600)});
  alerts.Observe(Session(0, 1.3));
  alerts.Observe(Session(300, 1.1));
  alerts.Observe(Session(600, 1.3));
  alerts.Observe(Session(900, 1.3));
  EXPECT_THAT(Deliver(&alerts, 900), IsEmpty());
  alerts.Observe(Session(1200, 1.3));
  EXPECT_THAT(Deliver(&alerts, 1200), SizeIs(1));
}

TEST(AlertsTest, SessionsWithoutReliableFiguresSayNothing) {
  Alerts alerts({Slow(1.2, 0)});
  v1::ProfilingSession nothing = Session(0, 0);
  nothing.set_state(v1::SESSION_STATE_NOTHING_TO_ANALYSE);
  v1::ProfilingSession doubtful = Session(0, 5);
  doubtful.set_doubtful(true);
  EXPECT_FALSE(alerts.Observe(nothing));
  EXPECT_FALSE(alerts.Observe(doubtful));
  EXPECT_FALSE(alerts.alert(0).over());
  alerts.Observe(Session(10, 1.3));
  EXPECT_THAT(Deliver(&alerts, 10), SizeIs(1));
  alerts.Observe(nothing);  // nor do they resolve
  EXPECT_THAT(Deliver(&alerts, 20), IsEmpty());
}

TEST(AlertsTest, ACausesShare) {
  AlertRule rule = Slow(0, 0);
  rule.cause = "pauses";
  rule.share = 0.3;
  Alerts alerts({rule});
  v1::ProfilingSession session = Session(0, 1.5);
  v1::SuspectedCause* cause = session.add_causes();
  cause->set_cause("worker");
  cause->set_share(0.9);
  cause = session.add_causes();
  cause->set_cause("pauses");
  cause->set_share(0.29);
  alerts.Observe(session);
  EXPECT_THAT(Deliver(&alerts, 0), IsEmpty());
  cause->set_share(0.3);
  alerts.Observe(session);
  EXPECT_THAT(Deliver(&alerts, 0), SizeIs(1));
}

TEST(AlertsTest, SilenceHoldsBackAndThenTellsWhatIs) {
  Alerts alerts({Slow(1.2, 0)});
  ASSERT_TRUE(alerts.Silence("slow", At(100)).ok());
  alerts.Observe(Session(10, 1.3));
  EXPECT_THAT(Deliver(&alerts, 99), IsEmpty());
  EXPECT_EQ(Deliver(&alerts, 100), std::vector{Kind::kFiring});
  // What came and went in silence is not told.
  ASSERT_TRUE(alerts.Silence("slow", At(300)).ok());
  alerts.Observe(Session(110, 1));
  alerts.Observe(Session(120, 1.3));
  EXPECT_THAT(Deliver(&alerts, 400), IsEmpty());
  alerts.Observe(Session(410, 1));
  ASSERT_TRUE(alerts.Silence("slow", At(900)).ok());
  EXPECT_THAT(Deliver(&alerts, 420), IsEmpty());
  ASSERT_TRUE(alerts.Silence("slow", 0).ok());
  EXPECT_EQ(Deliver(&alerts, 421), std::vector{Kind::kResolved});
  EXPECT_THAT(std::string(alerts.Silence("other", 0).status().message()), HasSubstr("there are slow"));
}

TEST(AlertsTest, WhatCouldNotBeDeliveredIsTriedAgainAfterTheNextSession) {
  Alerts alerts({Slow(1.2, 0)});
  alerts.Observe(Session(0, 1.3));
  EXPECT_THAT(Deliver(&alerts, 0, absl::UnavailableError("no answer")), SizeIs(1));
  EXPECT_EQ(alerts.alert(0).last_delivery().text(), "no answer");
  EXPECT_FALSE(alerts.alert(0).last_delivery().delivered());
  EXPECT_THAT(Deliver(&alerts, 1), IsEmpty());
  alerts.Observe(Session(300, 1.3));
  EXPECT_EQ(Deliver(&alerts, 300), std::vector{Kind::kFiring});
  EXPECT_TRUE(alerts.alert(0).told_firing());
}

TEST(AlertsTest, NothingIsSentTwiceWhileItIsOnItsWay) {
  Alerts alerts({Slow(1.2, 0)});
  alerts.Observe(Session(0, 1.3));
  const std::vector<Notification> first = alerts.Due(At(0));
  ASSERT_THAT(first, SizeIs(1));
  alerts.Observe(Session(10, 1));  // resolved before the first was delivered
  EXPECT_THAT(alerts.Due(At(10)), IsEmpty());
  alerts.Delivered(first[0], At(20), absl::OkStatus());
  EXPECT_EQ(Deliver(&alerts, 20), std::vector{Kind::kResolved});
}

TEST(AlertsTest, ATestGoesOutInSilenceAndChangesNothing) {
  Alerts alerts({Slow(1.2, 0)});
  ASSERT_TRUE(alerts.Silence("slow", At(1000)).ok());
  const auto test = alerts.Test("slow");
  ASSERT_TRUE(test.ok());
  EXPECT_EQ(test->kind, Kind::kTest);
  EXPECT_TRUE(absl::IsFailedPrecondition(alerts.Test("slow").status()));
  EXPECT_TRUE(absl::IsNotFound(alerts.Test("other").status()));
  alerts.Delivered(*test, At(1), absl::OkStatus());
  EXPECT_EQ(alerts.alert(0).last_test().number(), test->number);
  EXPECT_FALSE(alerts.alert(0).has_last_delivery());
  EXPECT_FALSE(alerts.alert(0).told_firing());
  EXPECT_TRUE(alerts.Test("slow").ok());
}

TEST(AlertsTest, ARestartGoesOnWhereTheOtherEnded) {
  Alerts before({Slow(1.2, 600)});
  before.Observe(Session(0, 1.3));
  ASSERT_TRUE(before.Silence("slow", At(700)).ok());
  Alerts after({Slow(1.25, 600)});  // edited meanwhile
  v1::Alert gone = before.alert(0);
  gone.set_rule("gone");
  after.Restore({before.alert(0), gone});
  EXPECT_THAT(after.alert(0).condition(), HasSubstr("1.25"));
  after.Observe(Session(600, 1.3));
  EXPECT_TRUE(after.alert(0).firing());
  EXPECT_THAT(Deliver(&after, 600), IsEmpty());
  // On its way when the master ended: the next one sends it.
  EXPECT_THAT(after.Due(At(700)), SizeIs(1));
  Alerts last({Slow(1.25, 600)});
  last.Restore({after.alert(0)});
  EXPECT_EQ(Deliver(&last, 700), std::vector{Kind::kFiring});
}

TEST(AlertsTest, AClockThatWasSetBackFiresNoRuleEarly) {
  Alerts alerts({Slow(1.2, 600)});
  alerts.Observe(Session(10'000, 1.3));
  alerts.Observe(Session(0, 1.3));
  alerts.Observe(Session(599, 1.3));
  EXPECT_FALSE(alerts.alert(0).firing());
  alerts.Observe(Session(600, 1.3));
  EXPECT_TRUE(alerts.alert(0).firing());
}

// Whatever happens: what the receiver hears alternates, begins with firing, comes only when the rule holds
// and never in silence; and once all is delivered and nothing is silenced it knows what is.
TEST(AlertsTest, TheReceiverIsNeverToldWrong) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int64_t for_s = static_cast<int64_t>(random() % 3) * 50;
    Alerts alerts({Slow(1.2, for_s)});
    bool told = false;
    int64_t first_over_s = -1;
    int64_t silent_until_s = 0;
    std::vector<Notification> under_way;
    for (int64_t at_s = 0; at_s < 1000; at_s += 1 + static_cast<int64_t>(random() % 30)) {
      switch (random() % 6) {
        case 0:
          silent_until_s = at_s + static_cast<int64_t>(random() % 100);
          ASSERT_TRUE(alerts.Silence("slow", At(silent_until_s)).ok());
          break;
        case 1: {
          const std::vector<v1::Alert> stored = {alerts.alert(0)};
          if (!under_way.empty()) break;  // a receiver may then hear something twice
          alerts = Alerts({Slow(1.2, for_s)});
          alerts.Restore(stored);
          break;
        }
        default: {
          const double slowdown = random() % 2 == 0 ? 1.3 : 1.1;
          alerts.Observe(Session(at_s, slowdown));
          first_over_s = slowdown < 1.2 ? -1 : first_over_s < 0 ? at_s : first_over_s;
          break;
        }
      }
      for (const Notification& notification : alerts.Due(At(at_s))) {
        EXPECT_GE(at_s, silent_until_s);
        EXPECT_EQ(notification.kind == Kind::kFiring, alerts.alert(0).firing());
        EXPECT_TRUE(under_way.empty());
        if (notification.kind == Kind::kFiring) {
          ASSERT_GE(first_over_s, 0);
          EXPECT_GE(at_s - first_over_s, for_s);
        }
        under_way.push_back(notification);
      }
      if (under_way.empty() || random() % 3 == 0) continue;
      const bool delivered = random() % 3 != 0;
      const bool firing = under_way[0].kind == Kind::kFiring;
      if (delivered) {
        EXPECT_NE(firing, told);
        told = firing;
      }
      alerts.Delivered(under_way[0], At(at_s), delivered ? absl::OkStatus() : absl::UnavailableError("away"));
      under_way.clear();
    }
    for (const Notification& notification : under_way) {
      alerts.Delivered(notification, At(2000), absl::OkStatus());
      told = notification.kind == Kind::kFiring;
    }
    alerts.Observe(Session(3000, random() % 2 == 0 ? 1.3 : 1.1));
    for (const Kind kind : Deliver(&alerts, 3000)) told = kind == Kind::kFiring;
    EXPECT_EQ(told, alerts.alert(0).firing());
  }
}

}  // namespace
}  // namespace c4::c4d
