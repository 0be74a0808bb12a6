// What SMon decides without a clock: when sessions begin and end, what is kept, which rules are accepted.
#include <random>

#include "c4d_master/smon/alert_rules.h"
#include "c4d_master/smon/retention.h"
#include "c4d_master/smon/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kUnixNs = 1'700'000'000 * kSecondNs;

Now At(int64_t seconds) {
  return {seconds * kSecondNs, kUnixNs + seconds * kSecondNs};
}

TEST(ScheduleTest, ASessionEveryPeriodAfterTheLastOne) {
  Schedule schedule(100 * kSecondNs);
  schedule.Start(At(1000), 0);
  EXPECT_FALSE(schedule.Due(At(1099)));
  EXPECT_TRUE(schedule.Due(At(1100)));
  schedule.Began(At(1150));  // late, or asked for
  EXPECT_FALSE(schedule.Due(At(1249)));
  EXPECT_TRUE(schedule.Due(At(1250)));
}

TEST(ScheduleTest, ARestartDoesNotBeginAnew) {
  Schedule schedule(100 * kSecondNs);
  schedule.Start(At(1000), kUnixNs + 940 * kSecondNs);
  EXPECT_FALSE(schedule.Due(At(1039)));
  EXPECT_TRUE(schedule.Due(At(1040)));
  // Long ago: at once. In the future, because the wall clock was set back: after one period.
  schedule.Start(At(1000), kUnixNs - 5000 * kSecondNs);
  EXPECT_TRUE(schedule.Due(At(1000)));
  schedule.Start(At(1000), kUnixNs + 99'000 * kSecondNs);
  EXPECT_FALSE(schedule.Due(At(1099)));
  EXPECT_TRUE(schedule.Due(At(1100)));
}

TEST(ScheduleTest, NoPeriodNoSession) {
  Schedule schedule(0);
  schedule.Start(At(1000), 0);
  EXPECT_FALSE(schedule.Due(At(1'000'000)));
}

TEST(SessionLimitsTest, StepsOrTime) {
  const SessionLimits limits = {.steps = 20, .at_most_ns = 60 * kSecondNs};
  EXPECT_FALSE(limits.Over(19, 100 * kSecondNs, At(159)));
  EXPECT_TRUE(limits.Over(20, 100 * kSecondNs, At(101)));
  EXPECT_TRUE(limits.Over(0, 100 * kSecondNs, At(160)));
}

TEST(RetentionTest, ByCountAndAge) {
  std::vector<KeptSession> sessions;
  for (uint64_t number = 1; number <= 6; ++number) {
    sessions.push_back({number, static_cast<int64_t>(number) * 10 * kSecondNs, number != 5});
  }
  const Retention by_count = {.reports = 2, .report_age_ns = 1000 * kSecondNs, .sessions = 5};
  Pruned pruned = Prune(sessions, by_count, 60 * kSecondNs);
  EXPECT_THAT(pruned.reports, ElementsAre(3, 2));  // 6 and 4 stay, 5 has none
  EXPECT_THAT(pruned.sessions, ElementsAre(1));
  const Retention by_age = {.reports = 10, .report_age_ns = 25 * kSecondNs, .sessions = 10};
  pruned = Prune(sessions, by_age, 60 * kSecondNs);
  EXPECT_THAT(pruned.reports, ElementsAre(3, 2, 1));
  EXPECT_THAT(pruned.sessions, IsEmpty());
  EXPECT_THAT(Prune({}, by_age, 0).reports, IsEmpty());
}

TEST(RetentionTest, WhateverThereIsTheBoundsHold) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<KeptSession> sessions(random() % 40);
    for (size_t i = 0; i < sessions.size(); ++i) {
      sessions[i] = {i + 1, static_cast<int64_t>(i * (random() % 10)), random() % 3 != 0};
    }
    const Retention retention = {random() % 10 + 1, static_cast<int64_t>(random() % 100), random() % 20 + 1};
    const int64_t now_ns = 200;
    const Pruned pruned = Prune(sessions, retention, now_ns);
    const auto is_in = [](const std::vector<uint64_t>& numbers, uint64_t number) {
      return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    };
    size_t kept = 0;
    size_t reports = 0;
    bool gone_before = true;  // only older ones than all that stay are gone
    for (const KeptSession& session : sessions) {
      if (is_in(pruned.sessions, session.number)) {
        EXPECT_TRUE(gone_before);
        continue;
      }
      gone_before = false;
      ++kept;
      if (!session.has_report || is_in(pruned.reports, session.number)) continue;
      ++reports;
      EXPECT_LE(now_ns - session.begun_unix_ns, retention.report_age_ns);
    }
    EXPECT_EQ(kept, std::min(sessions.size(), retention.sessions));
    EXPECT_LE(reports, retention.reports);
  }
}

std::string Refusal(const std::string& json) {
  const auto rules = ParseAlertRules(json);
  return rules.ok() ? "accepted" : std::string(rules.status().message());
}

std::string OneRule(const std::string& fields) {
  return R"({"rules": [{"name": "r", )" + fields + "}]}";
}

TEST(AlertRulesTest, BothKindsAndBothWays) {
  const auto rules = ParseAlertRules(R"({"rules": [
      {"name": "slow", "slowdown": 1.2, "for_s": 3600, "webhook": "http://127.0.0.1:9000/c4", "timeout_s": 2.5},
      {"name": "gc.pauses", "cause": "pauses", "share": 0.3, "command": ["/bin/true", "a b", ""]}]})");
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 2U);
  EXPECT_EQ((*rules)[0].slowdown, 1.2);
  EXPECT_EQ((*rules)[0].for_ns, 3600 * kSecondNs);
  EXPECT_EQ((*rules)[0].timeout_ns, 2'500'000'000);
  EXPECT_EQ(ConditionText((*rules)[0]), "slow-down 1.2 or more for 3600 s");
  EXPECT_EQ((*rules)[1].cause, "pauses");
  EXPECT_EQ((*rules)[1].for_ns, 0);
  EXPECT_EQ((*rules)[1].timeout_ns, 10 * kSecondNs);
  EXPECT_THAT((*rules)[1].command, ElementsAre("/bin/true", "a b", ""));
  EXPECT_EQ(ConditionText((*rules)[1]), "pauses takes 30 % or more of the lost time");
}

TEST(AlertRulesTest, WhatIsWrongIsSaidWithWhatToDo) {
  const std::string hook = R"("webhook": "http://h:1/")";
  EXPECT_THAT(Refusal(""), HasSubstr("no JSON"));
  EXPECT_THAT(Refusal("[]"), HasSubstr(R"({"rules": [...]})"));
  EXPECT_THAT(Refusal(R"({"rules": [], "more": 1})"), HasSubstr(R"({"rules": [...]})"));
  EXPECT_THAT(Refusal(R"({"rules": [7]})"), HasSubstr("number 1"));
  EXPECT_THAT(Refusal(R"({"rules": [{"slowdown": 2}]})"), HasSubstr("no \"name\""));
  EXPECT_THAT(Refusal(R"({"rules": [{"name": "a b", "slowdown": 2}]})"), HasSubstr("letters, digits"));
  EXPECT_THAT(Refusal(OneRule(hook)), HasSubstr("either \"slowdown\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "cause": "pauses", "share": 0.1, )" + hook)),
              HasSubstr("either"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1, )" + hook)), HasSubstr("from 1.001 to 1000"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": "1.2", )" + hook)), HasSubstr("\"slowdown\" is \"1.2\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "share": 0.1, )" + hook)),
              HasSubstr("needs the \"cause\""));
  EXPECT_THAT(Refusal(OneRule(R"("cause": "bad luck", "share": 0.1, )" + hook)),
              AllOf(HasSubstr("bad luck"), HasSubstr("stage imbalance")));
  EXPECT_THAT(Refusal(OneRule(R"("cause": "pauses", )" + hook)), HasSubstr("needs a \"share\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2)")), HasSubstr("either a \"webhook\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "webhook": "https://h/")")), HasSubstr("TLS"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "webhook": "h:1")")), HasSubstr("http://host:port/path"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "command": "/bin/true")")), HasSubstr("list of words"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "command": ["true"])")), HasSubstr("whole path"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "for_s": -1, )" + hook)), HasSubstr("\"for_s\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "timeout_s": 3600, )" + hook)),
              HasSubstr("from 0.1 to 60"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "treshold": 2, )" + hook)),
              HasSubstr("unknown key \"treshold\""));
  const std::string one = R"({"name": "r", "slowdown": 1.2, )" + hook + "}";
  EXPECT_THAT(Refusal(R"({"rules": [)" + one + "," + one + "]}"), HasSubstr("twice"));
}

TEST(AlertRulesTest, ACommandThatCannotRunIsRefusedAtOnce) {
  const test::TemporaryDirectory directory;
  const std::string text = OneRule(R"("slowdown": 1.2, "command": ["/no/such/program"])");
  const auto rules = LoadAlertRules(directory.Write("alerts.json", text));
  EXPECT_THAT(std::string(rules.status().message()),
              AllOf(HasSubstr("alerts.json"), HasSubstr("/no/such/program"), HasSubstr("install it")));
  EXPECT_TRUE(absl::IsNotFound(LoadAlertRules(directory.File("none.json")).status()));
  const std::string good = OneRule(R"("slowdown": 1.2, "command": ["/bin/true"])");
  EXPECT_TRUE(LoadAlertRules(directory.Write("good.json", good)).ok());
}

}  // namespace
}  // namespace c4::c4d
