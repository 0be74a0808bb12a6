// The states of alerts in simulated time, and by chance.
#include "c4d_master/alerts/alerts.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Notification::Kind;

constexpr int64_t kBeginNs = 1'700'000'000 * kSecondNs;

AlertRule Slow(double slowdown, int64_t for_s) {
  AlertRule rule;
  rule.name = "slow";
  rule.about = AlertRule::About::kSlowdown;
  rule.slowdown = slowdown;
  rule.for_ns = for_s * kSecondNs;
  rule.to = {"ops"};
  return rule;
}

AlertRule Down(int64_t for_s = 0, int64_t repeat_s = 0) {
  AlertRule rule;
  rule.name = "down";
  rule.for_ns = for_s * kSecondNs;
  rule.repeat_ns = repeat_s * kSecondNs;
  rule.to = {"ops"};
  return rule;
}

AlertConfig Config(std::vector<AlertRule> rules) {
  AlertConfig config;
  config.targets.emplace_back().name = "ops";
  config.rules = std::move(rules);
  return config;
}

Alerts With(std::vector<AlertRule> rules) {
  Alerts alerts("j");
  alerts.SetConfig(Config(std::move(rules)));
  return alerts;
}

v1::ProfilingSession Session(int64_t at_s, double slowdown) {
  v1::ProfilingSession session;
  session.set_state(v1::SESSION_STATE_ANALYSED);
  session.set_ended_unix_ns(kBeginNs + at_s * kSecondNs);
  session.set_slowdown(slowdown);
  return session;
}

v1::Verdict Verdict(const std::string& id, v1::VerdictState state, const std::string& host = "host1") {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_job("j");
  verdict.set_syndrome(v1::SYNDROME_CRASH);
  verdict.set_state(state);
  verdict.set_confidence(0.9);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(3);
  verdict.mutable_culprit()->set_host(host);
  return verdict;
}

int64_t At(int64_t at_s) {
  return kBeginNs + at_s * kSecondNs;
}

std::vector<Kind> Told(Alerts* alerts, int64_t at_s) {
  std::vector<Kind> kinds;
  for (const Notification& notification : alerts->Tick(At(at_s))) kinds.push_back(notification.kind);
  return kinds;
}

v1::AddSilenceRequest SilenceOf(const std::string& matcher, double seconds) {
  v1::AddSilenceRequest request;
  request.add_matchers(matcher);
  request.set_seconds(seconds);
  return request;
}

v1::AcknowledgeAlertRequest Ack(const std::string& id) {
  v1::AcknowledgeAlertRequest request;
  request.set_id(id);
  request.set_by("ann");
  return request;
}

TEST(AlertsTest, SessionsInARowFireAndOneGoodOneResolves) {
  Alerts alerts = With({Slow(1.2, 600)});
  alerts.Observe(Session(0, 1.3));
  EXPECT_TRUE(alerts.Find("slow")->over());
  alerts.Observe(Session(300, 1.2));  // the threshold itself counts
  EXPECT_THAT(Told(&alerts, 300), IsEmpty());
  alerts.Observe(Session(600, 1.5));
  EXPECT_THAT(Told(&alerts, 600), ElementsAre(Kind::kFiring));
  EXPECT_EQ(alerts.Find("slow")->since_unix_ns(), At(0));
  EXPECT_EQ(alerts.CountFiring(), 1U);
  alerts.Observe(Session(900, 1.4));
  EXPECT_THAT(Told(&alerts, 900), IsEmpty());
  alerts.Observe(Session(1200, 1.19));
  EXPECT_THAT(Told(&alerts, 1200), ElementsAre(Kind::kResolved));
  EXPECT_THAT(Told(&alerts, 1300), IsEmpty());
}

TEST(AlertsTest, OneGoodSessionBeginsTheTimeAnewAndDoubtfulOnesSayNothing) {
  Alerts alerts = With({Slow(1.2, 600)});
  alerts.Observe(Session(0, 1.3));
  alerts.Observe(Session(300, 1.1));
  alerts.Observe(Session(600, 1.3));
  v1::ProfilingSession doubtful = Session(700, 1);
  doubtful.set_doubtful(true);
  alerts.Observe(doubtful);
  v1::ProfilingSession nothing = Session(800, 1);
  nothing.set_state(v1::SESSION_STATE_NOTHING_TO_ANALYSE);
  alerts.Observe(nothing);
  alerts.Observe(Session(900, 1.3));
  EXPECT_THAT(Told(&alerts, 900), IsEmpty());
  alerts.Observe(Session(1200, 1.3));
  EXPECT_THAT(Told(&alerts, 1200), SizeIs(1));
}

TEST(AlertsTest, ACausesShare) {
  AlertRule rule = Slow(0, 0);
  rule.about = AlertRule::About::kCause;
  rule.cause = "pauses";
  rule.share = 0.3;
  Alerts alerts = With({rule});
  v1::ProfilingSession session = Session(0, 1.5);
  v1::SuspectedCause* cause = session.add_causes();
  cause->set_cause("worker");
  cause->set_share(0.9);
  cause = session.add_causes();
  cause->set_cause("pauses");
  cause->set_share(0.29);
  alerts.Observe(session);
  EXPECT_THAT(Told(&alerts, 0), IsEmpty());
  cause->set_share(0.3);
  alerts.Observe(session);
  EXPECT_THAT(Told(&alerts, 0), SizeIs(1));
}

TEST(AlertsTest, AVerdictFiresAfterItsTimeAndIsOverWithIt) {
  Alerts alerts = With({Down(30)});
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_SUSPECTED), At(0));
  EXPECT_TRUE(alerts.List(true).empty()) << "a suspicion is no alarm";
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(10));
  EXPECT_THAT(Told(&alerts, 39), IsEmpty());
  EXPECT_THAT(Told(&alerts, 40), ElementsAre(Kind::kFiring));
  const v1::Alert* alert = alerts.Find("down/v-1");
  ASSERT_NE(alert, nullptr);
  EXPECT_EQ(alert->detail().labels().at("host"), "host1");
  EXPECT_EQ(alert->detail().labels().at("syndrome"), "crash");
  EXPECT_EQ(alert->detail().labels().at("rule"), "down");
  EXPECT_NE(alerts.VerdictOf("down/v-1"), nullptr);
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CLEARED), At(50));
  EXPECT_THAT(Told(&alerts, 50), ElementsAre(Kind::kResolved));
  EXPECT_TRUE(alerts.List(false).empty());
  EXPECT_EQ(alerts.List(true).size(), 1U);
}

TEST(AlertsTest, WhatIsOverBeforeItsTimeIsNeverTold) {
  Alerts alerts = With({Down(30)});
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(0));
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CLEARED), At(29));
  EXPECT_THAT(Told(&alerts, 100), IsEmpty());
}

TEST(AlertsTest, RemindersUntilSomebodyAcknowledges) {
  Alerts alerts = With({Down(0, 60)});
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(0));
  EXPECT_THAT(Told(&alerts, 0), ElementsAre(Kind::kFiring));
  EXPECT_THAT(Told(&alerts, 59), IsEmpty());
  EXPECT_THAT(Told(&alerts, 60), ElementsAre(Kind::kReminder));
  EXPECT_EQ(alerts.Acknowledge(Ack("v-1"), At(61))->size(), 1U) << "by the verdict's id";
  EXPECT_THAT(Told(&alerts, 500), IsEmpty());
  v1::AcknowledgeAlertRequest undo = Ack("down/v-1");
  undo.set_undo(true);
  EXPECT_TRUE(alerts.Acknowledge(undo, At(501)).ok());
  EXPECT_THAT(Told(&alerts, 501), ElementsAre(Kind::kReminder));
  EXPECT_THAT(std::string(alerts.Acknowledge(Ack("x"), At(502)).status().message()),
              HasSubstr("there are down/v-1"));
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CLEARED), At(510));
  EXPECT_TRUE(absl::IsNotFound(alerts.Acknowledge(Ack("v-1"), At(511)).status()));
}

TEST(AlertsTest, SilenceHoldsBackAndThenTellsWhatIs) {
  Alerts alerts = With({Down()});
  ASSERT_TRUE(alerts.AddSilence(SilenceOf("host=host1", 100), At(0)).ok());
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(10));
  alerts.Observe(Verdict("v-2", v1::VERDICT_STATE_CONFIRMED, "host2"), At(10));
  const std::vector<Notification> told = alerts.Tick(At(10));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].alert, "down/v-2");
  EXPECT_EQ(alerts.Find("down/v-1")->detail().muted_by(), "silence 1");
  EXPECT_EQ(alerts.CountMuted(), 1U);
  EXPECT_THAT(Told(&alerts, 99), IsEmpty());
  EXPECT_THAT(Told(&alerts, 100), ElementsAre(Kind::kFiring));
  // What came and went in silence is not told.
  const auto silence = alerts.AddSilence(SilenceOf("rule=d*", 1000), At(101));
  ASSERT_TRUE(silence.ok());
  alerts.Observe(Verdict("v-3", v1::VERDICT_STATE_CONFIRMED), At(110));
  EXPECT_THAT(Told(&alerts, 110), IsEmpty());
  alerts.Observe(Verdict("v-3", v1::VERDICT_STATE_CLEARED), At(120));
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CLEARED), At(120));
  EXPECT_THAT(Told(&alerts, 120), IsEmpty());
  ASSERT_TRUE(alerts.EndSilence(silence->number(), At(130)).ok());
  EXPECT_THAT(Told(&alerts, 130), ElementsAre(Kind::kResolved));  // v-1
  EXPECT_TRUE(absl::IsNotFound(alerts.EndSilence(silence->number(), At(131)).status()));
}

TEST(AlertsTest, BadSilences) {
  Alerts alerts = With({Down()});
  const auto why = [&alerts](const v1::AddSilenceRequest& request) {
    return std::string(alerts.AddSilence(request, At(0)).status().message());
  };
  EXPECT_THAT(why(v1::AddSilenceRequest()), HasSubstr("rule=*"));
  EXPECT_THAT(why(SilenceOf("host", 10)), HasSubstr("NAME=PATTERN"));
  EXPECT_THAT(why(SilenceOf("hots=x", 10)), HasSubstr("there are rule"));
  EXPECT_THAT(why(SilenceOf("host=x", 0)), HasSubstr("seconds"));
  EXPECT_THAT(why(SilenceOf("host=x", 1e9)), HasSubstr("seconds"));
  EXPECT_THAT(why(SilenceOf("host=x", std::nan(""))), HasSubstr("seconds"));
}

TEST(AlertsTest, AMaintenanceWindowMutes) {
  AlertConfig config = Config({Down()});
  TimeWindow window;
  window.name = "racks";
  window.matchers = *ParseMatchers({"host=host1"});
  window.begin_unix_ns = At(0);
  window.end_unix_ns = At(100);
  config.windows = {window};
  Alerts alerts("j");
  alerts.SetConfig(config);
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(10));
  EXPECT_THAT(Told(&alerts, 10), IsEmpty());
  EXPECT_TRUE(alerts.Windows(At(10))[0].open());
  EXPECT_THAT(Told(&alerts, 100), ElementsAre(Kind::kFiring));
  EXPECT_FALSE(alerts.Windows(At(100))[0].open());
}

// Through the store and into another master, whose rules have been edited.
TEST(AlertsTest, ARestartGoesOnWhereTheOtherEnded) {
  Alerts before = With({Slow(1.2, 600), Down(30, 0)});
  before.Observe(Session(0, 1.3));
  before.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(10));
  before.Observe(Verdict("v-2", v1::VERDICT_STATE_CONFIRMED), At(10));
  ASSERT_TRUE(before.AddSilence(SilenceOf("host=host9", 100), At(0)).ok());
  ASSERT_THAT(Told(&before, 40), SizeIs(2));
  const Alerts::Changes stored = before.TakeChanges();
  EXPECT_TRUE(before.TakeChanges().empty());

  Alerts after = With({Slow(1.25, 600), Down(30, 0)});
  std::vector<v1::Alert> alerts = stored.alerts;
  alerts.emplace_back(alerts[0]).set_id("gone/1");
  alerts.back().set_rule("gone");
  after.Restore(alerts, stored.silences);
  EXPECT_THAT(after.TakeChanges().forgotten, ElementsAre("gone/1"));
  EXPECT_THAT(after.Find("slow")->condition(), HasSubstr("1.25"));
  EXPECT_EQ(after.Silences(At(50)).size(), 1U);
  after.Reconcile({"v-1"}, At(50));
  EXPECT_THAT(Told(&after, 50), ElementsAre(Kind::kResolved)) << "v-2 was cleared while nobody looked";
  after.Observe(Session(600, 1.3));
  EXPECT_THAT(Told(&after, 600), ElementsAre(Kind::kFiring));
  EXPECT_EQ(after.AddSilence(SilenceOf("rule=*", 1), At(600))->number(), 2U);
}

TEST(AlertsTest, ARuleThatIsNoMoreTakesItsAlertsAlong) {
  Alerts alerts = With({Down()});
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(0));
  (void)Told(&alerts, 0);
  (void)alerts.TakeChanges();
  alerts.SetConfig(Config({Slow(1.2, 0)}));
  EXPECT_THAT(alerts.TakeChanges().forgotten, ElementsAre("down/v-1"));
  EXPECT_TRUE(alerts.List(true).empty());
}

TEST(AlertsTest, AClockThatWasSetBackFiresNoRuleEarly) {
  Alerts alerts = With({Slow(1.2, 600), Down(600)});
  alerts.Observe(Session(10'000, 1.3));
  alerts.Observe(Session(0, 1.3));
  alerts.Observe(Session(599, 1.3));
  EXPECT_FALSE(alerts.Find("slow")->firing());
  alerts.Observe(Session(600, 1.3));
  EXPECT_TRUE(alerts.Find("slow")->firing());
  alerts.Observe(Verdict("v-1", v1::VERDICT_STATE_CONFIRMED), At(20'000));
  (void)Told(&alerts, 0);
  (void)Told(&alerts, 599);
  EXPECT_FALSE(alerts.Find("down/v-1")->firing());
  (void)Told(&alerts, 600);
  EXPECT_TRUE(alerts.Find("down/v-1")->firing());
}

TEST(AlertsTest, OldOnesAreForgotten) {
  Alerts alerts = With({Down()});
  for (int i = 0; i < 300; ++i) {
    const std::string id = "v-" + std::to_string(i);
    alerts.Observe(Verdict(id, v1::VERDICT_STATE_CONFIRMED), At(i));
    (void)Told(&alerts, i);
    alerts.Observe(Verdict(id, v1::VERDICT_STATE_CLEARED), At(i));
    (void)Told(&alerts, i);
  }
  EXPECT_EQ(alerts.List(true).size(), 200U);
  EXPECT_EQ(alerts.Find("down/v-0"), nullptr);
  EXPECT_NE(alerts.Find("down/v-299"), nullptr);
}

// Whatever happens: who is told hears firing and resolved in turn, nothing in silence, and in the end what
// is.
TEST(AlertsTest, TheReceiverIsNeverToldWrong) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const int64_t for_s = static_cast<int64_t>(random() % 3) * 10;
    Alerts alerts = With({Down(for_s)});
    std::map<std::string, bool> told;
    std::map<std::string, bool> open;
    int64_t silent_until_s = 0;
    for (int64_t at_s = 0; at_s < 500; at_s += static_cast<int64_t>(random() % 5)) {
      const std::string id = "v-" + std::to_string(random() % 3);
      switch (random() % 8) {
        case 0:
          open[id] = true;
          alerts.Observe(Verdict(id, v1::VERDICT_STATE_CONFIRMED), At(at_s));
          break;
        case 1:
          open[id] = false;
          alerts.Observe(Verdict(id, v1::VERDICT_STATE_CLEARED), At(at_s));
          break;
        case 2:
          if (at_s < silent_until_s) break;
          silent_until_s = at_s + 20;
          ASSERT_TRUE(alerts.AddSilence(SilenceOf("rule=down", 20), At(at_s)).ok());
          break;
        case 3: {  // another master
          const Alerts::Changes stored = alerts.TakeChanges();
          std::vector<v1::Alert> all = alerts.List(true);
          const std::vector<v1::Silence> silences = alerts.Silences(At(at_s));
          alerts = With({Down(for_s)});
          alerts.Restore(all, silences);
          std::set<std::string> of_now;
          for (const auto& [one, is_open] : open) {
            if (is_open) of_now.insert(one);
          }
          alerts.Reconcile(of_now, At(at_s));
          break;
        }
        default:
          break;
      }
      for (const Notification& notification : alerts.Tick(At(at_s))) {
        EXPECT_GE(at_s, silent_until_s) << "in silence";
        const bool firing = notification.kind == Kind::kFiring;
        EXPECT_NE(told[notification.alert], firing) << notification.alert;
        told[notification.alert] = firing;
      }
    }
    for (const Notification& notification : alerts.Tick(At(2000))) {
      told[notification.alert] = notification.kind == Kind::kFiring;
    }
    for (const auto& [id, is_open] : open) EXPECT_EQ(told["down/" + id], is_open) << id;
  }
}

}  // namespace
}  // namespace c4::c4d
