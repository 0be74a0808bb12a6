// Which files of alerts are accepted, what they mean, and what is said of those that are wrong.
#include "c4d_master/alerts/rules.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::string& json) {
  const auto config = ParseAlertConfig(json);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

std::string OneRule(const std::string& fields) {
  return R"({"rules": [{"name": "r", )" + fields + "}]}";
}

std::string OneTarget(const std::string& fields) {
  return R"({"targets": {"t": {)" + fields + R"(}}, "rules": []})";
}

std::string OneWindow(const std::string& fields) {
  return R"({"rules": [], "windows": [{"name": "w", )" + fields + "}]}";
}

TEST(AlertRulesTest, AllKindsAndAllWays) {
  const auto config = ParseAlertConfig(R"({
    "targets": {"ops": {"webhook": "https://h.example/c4?key=1", "timeout_s": 2.5, "retry_for_s": 60},
                "am": {"alertmanager": "http://127.0.0.1:9093/", "allow_private": true}},
    "rules": [
      {"name": "down", "verdict": {"syndrome": ["crash", "*hang"], "confidence": 0.8, "state": "suspected",
                                   "culprit": "rank", "host": "r7*"},
       "severity": "page", "for_s": 30, "repeat_s": 600, "to": ["ops", "am"]},
      {"name": "slow", "slowdown": 1.2, "for_s": 3600, "webhook": "http://127.0.0.1:9000/c4", "allow_private": true},
      {"name": "gc.pauses", "cause": "pauses", "share": 0.3, "command": ["/bin/true", "a b", ""]}]})");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->rules.size(), 3U);
  const AlertRule& down = config->rules[0];
  EXPECT_EQ(down.for_ns, 30 * kSecondNs);
  EXPECT_EQ(down.repeat_ns, 600 * kSecondNs);
  EXPECT_THAT(down.to, ElementsAre("ops", "am"));
  EXPECT_EQ(
      ConditionText(down),
      "verdict: crash or *hang, suspected or confirmed, of a rank, on r7*, confidence 0.8 or more for 30 s");
  EXPECT_EQ(ConditionText(config->rules[1]), "slow-down 1.2 or more for 3600 s");
  EXPECT_THAT(config->rules[1].to, ElementsAre("slow"));
  EXPECT_EQ(ConditionText(config->rules[2]), "pauses takes 30 % or more of the lost time");
  ASSERT_EQ(config->targets.size(), 4U);  // two of their own
  EXPECT_EQ(config->targets[1].timeout_ns, 2'500'000'000);
  EXPECT_EQ(WayText(config->targets[1]), "https://h.example/c4") << "what follows may be a secret";
  EXPECT_EQ(WayText(config->targets[0]), "Alertmanager at http://127.0.0.1:9093/");
  EXPECT_THAT(config->targets[3].command, ElementsAre("/bin/true", "a b", ""));
}

TEST(AlertRulesTest, ToWhichVerdictsARuleApplies) {
  v1::Verdict verdict;
  verdict.set_syndrome(v1::SYNDROME_COMMUNICATION_HANG);
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict.set_confidence(0.7);
  verdict.set_job("j");
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_NIC);
  verdict.mutable_culprit()->set_host("node7");
  EXPECT_TRUE(Applies({}, verdict));
  EXPECT_TRUE(Applies({.syndromes = {"crash", "*hang"}, .hosts = {"node*"}, .jobs = {"j"}, .confidence = 0.7},
                      verdict));
  EXPECT_FALSE(Applies({.syndromes = {"crash"}}, verdict));
  EXPECT_FALSE(Applies({.culprits = {"rank"}}, verdict));
  EXPECT_FALSE(Applies({.hosts = {"node"}}, verdict));
  EXPECT_FALSE(Applies({.jobs = {"k*"}}, verdict));
  EXPECT_FALSE(Applies({.confidence = 0.71}, verdict));
  verdict.set_state(v1::VERDICT_STATE_SUSPECTED);
  EXPECT_FALSE(Applies({}, verdict));
  EXPECT_TRUE(Applies({.suspected = true}, verdict));
  verdict.set_state(v1::VERDICT_STATE_CLEARED);
  EXPECT_FALSE(Applies({.suspected = true}, verdict));
}

TEST(AlertRulesTest, WhatIsWrongIsSaidWithWhatToDo) {
  const std::string hook = R"("webhook": "https://h:1/")";
  EXPECT_THAT(Refusal(""), HasSubstr("no JSON"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("no object"));
  EXPECT_THAT(Refusal("{}"), HasSubstr(R"({"rules": [...]})"));
  EXPECT_THAT(Refusal(R"({"rules": [], "more": 1})"), HasSubstr("unknown key \"more\""));
  EXPECT_THAT(Refusal(R"({"rules": [7]})"), HasSubstr("number 1"));
  EXPECT_THAT(Refusal(R"({"rules": [{"slowdown": 2}]})"), HasSubstr("no \"name\""));
  EXPECT_THAT(Refusal(R"({"rules": [{"name": "a b", "slowdown": 2}]})"), HasSubstr("letters, digits"));
  EXPECT_THAT(Refusal(OneRule(hook)), HasSubstr("one of \"verdict\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "cause": "pauses", "share": 0.1, )" + hook)),
              HasSubstr("one of \"verdict\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1, )" + hook)), HasSubstr("from 1.001 to 1000"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": "1.2", )" + hook)), HasSubstr("\"slowdown\" is \"1.2\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "share": 0.1, )" + hook)),
              HasSubstr("needs the \"cause\""));
  EXPECT_THAT(Refusal(OneRule(R"("cause": "bad luck", "share": 0.1, )" + hook)),
              AllOf(HasSubstr("bad luck"), HasSubstr("stage imbalance")));
  EXPECT_THAT(Refusal(OneRule(R"("cause": "pauses", )" + hook)), HasSubstr("needs a \"share\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2)")), HasSubstr("nobody would be told"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "to": ["ops"])")), HasSubstr("target \"ops\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "for_s": -1, )" + hook)), HasSubstr("\"for_s\""));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "timeout_s": 3600, )" + hook)),
              HasSubstr("from 0.1 to 60"));
  EXPECT_THAT(Refusal(OneRule(R"("slowdown": 1.2, "treshold": 2, )" + hook)),
              HasSubstr("unknown key \"treshold\""));
  EXPECT_THAT(Refusal(OneRule(R"("verdict": {"syndrom": "crash"}, )" + hook)),
              HasSubstr("unknown key \"syndrom\""));
  EXPECT_THAT(Refusal(OneRule(R"("verdict": {"syndrome": "hnag"}, )" + hook)), HasSubstr("fits none of"));
  EXPECT_THAT(Refusal(OneRule(R"("verdict": {"state": "cleared"}, )" + hook)),
              HasSubstr("suspected, confirmed"));
  EXPECT_THAT(Refusal(OneRule(R"("verdict": 1, )" + hook)), HasSubstr("give an object"));
  const std::string one = R"({"name": "r", "slowdown": 1.2, )" + hook + "}";
  EXPECT_THAT(Refusal(R"({"rules": [)" + one + "," + one + "]}"), HasSubstr("twice"));
  EXPECT_THAT(Refusal(R"({"targets": {"r": {"command": ["/bin/true"]}}, "rules": [)" + one + "]}"),
              HasSubstr("rename one"));
}

TEST(AlertRulesTest, WrongTargets) {
  EXPECT_THAT(Refusal(OneTarget("")), HasSubstr("one of \"webhook\""));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "https://h/", "command": ["/bin/true"])")),
              HasSubstr("one of"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "h:1")")), HasSubstr("https://host:port/path"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "http://h/")")), HasSubstr("without TLS"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "https://127.0.0.1/")")), HasSubstr("allow_private"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "https://169.254.169.254/latest")")),
              HasSubstr("allow_private"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "https://[::ffff:10.0.0.1]/")")), HasSubstr("allow_private"));
  EXPECT_THAT(Refusal(OneTarget(R"("webhook": "http://8.8.8.8/", "allow_private": true)")),
              HasSubstr("in clear"));
  EXPECT_THAT(Refusal(OneTarget(R"("command": "true")")), HasSubstr("whole path"));
  EXPECT_THAT(Refusal(OneTarget(R"("command": [])")), HasSubstr("list of words"));
  EXPECT_THAT(Refusal(OneTarget(R"("command": ["/bin/true"], "secret_file": "/x")")),
              HasSubstr("over the network"));
  EXPECT_THAT(Refusal(OneTarget(R"("alertmanager": "https://h/", "secret_file": "/x")")),
              HasSubstr("no signatures"));
  EXPECT_THAT(Refusal(OneTarget(R"("otlp": "https://h/", "secret_file": "/x")")), HasSubstr("OTLP knows no"));
  EXPECT_THAT(Refusal(OneTarget(R"("otlp": "http://h/")")), HasSubstr("\"otlp\": "));
  EXPECT_THAT(Refusal(OneTarget(R"("otlp": "https://h/", "alertmanager": "https://h/")")),
              HasSubstr("one of"));
  EXPECT_THAT(Refusal(R"({"targets": {"a b": {"command": ["/bin/true"]}}, "rules": []})"),
              HasSubstr("letters"));
}

TEST(AlertRulesTest, WhatTheMachineLacksIsSaidAtOnce) {
  const test::TemporaryDirectory directory;
  const auto why = [&](const std::string& text) {
    return std::string(LoadAlertConfig(directory.Write("alerts.json", text)).status().message());
  };
  EXPECT_THAT(why(OneTarget(R"("command": ["/no/such/program"])")),
              AllOf(HasSubstr("alerts.json"), HasSubstr("/no/such/program"), HasSubstr("install it")));
  EXPECT_THAT(why(OneTarget(R"("webhook": "https://h/", "ca_file": "/no/ca")")), HasSubstr("/no/ca"));
  const std::string secret = directory.Write("secret", "short\n");
  const std::string signed_hook = OneTarget(R"("webhook": "https://h/", "secret_file": ")" + secret + "\"");
  chmod(secret.c_str(), 0644);
  EXPECT_THAT(why(signed_hook), HasSubstr("chmod 600"));
  chmod(secret.c_str(), 0600);
  EXPECT_THAT(why(signed_hook), HasSubstr("shorter than 16"));
  directory.Write("secret", "0123456789abcdef\n");
  const auto config = LoadAlertConfig(directory.Write("alerts.json", signed_hook));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->targets[0].secret, "0123456789abcdef");
  EXPECT_TRUE(absl::IsNotFound(LoadAlertConfig(directory.File("none.json")).status()));
}

int64_t Moment(const std::string& text) {
  absl::Time moment;
  std::string why;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &moment, &why)) << why;
  return absl::ToUnixNanos(moment);
}

TimeWindow Window(const std::string& fields) {
  const auto config = ParseAlertConfig(OneWindow(fields));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->windows.at(0) : TimeWindow();
}

TEST(TimeWindowTest, Once) {
  const TimeWindow window =
      Window(R"("begin": "2026-12-01T02:00:00Z", "end": "2026-12-01T05:00:00+01:00", "match": "host=a*")");
  EXPECT_FALSE(window.OpenUntil(Moment("2026-12-01T01:59:59Z")).has_value());
  EXPECT_EQ(window.OpenUntil(Moment("2026-12-01T02:00:00Z")), Moment("2026-12-01T04:00:00Z"));
  EXPECT_FALSE(window.OpenUntil(Moment("2026-12-01T04:00:00Z")).has_value());
  EXPECT_EQ(window.Text(), "2026-12-01T02:00:00Z to 2026-12-01T04:00:00Z");
}

TEST(TimeWindowTest, OnDaysOfTheWeekAndPastMidnight) {
  const TimeWindow window = Window(R"("days": ["sat"], "from": "22:00", "to": "04:00", "match": "rule=*")");
  EXPECT_EQ(window.Text(), "sat 22:00 to 04:00 UTC");
  // 2026-11-28 is a Saturday.
  EXPECT_FALSE(window.OpenUntil(Moment("2026-11-28T03:00:00Z")).has_value()) << "of Friday there is none";
  EXPECT_FALSE(window.OpenUntil(Moment("2026-11-28T21:59:59Z")).has_value());
  EXPECT_EQ(window.OpenUntil(Moment("2026-11-28T22:00:00Z")), Moment("2026-11-29T04:00:00Z"));
  EXPECT_EQ(window.OpenUntil(Moment("2026-11-29T03:59:59Z")), Moment("2026-11-29T04:00:00Z"));
  EXPECT_FALSE(window.OpenUntil(Moment("2026-11-29T04:00:00Z")).has_value());
  EXPECT_FALSE(window.OpenUntil(Moment("2026-11-29T22:30:00Z")).has_value());
}

TEST(TimeWindowTest, EveryDayByTheClockOfAZone) {
  const TimeWindow window = Window(R"("from": "00:00", "to": "24:00", "match": "rule=*")");
  EXPECT_EQ(window.Text(), "every day 00:00 to 24:00 UTC");
  EXPECT_EQ(window.OpenUntil(Moment("2026-11-29T12:00:00Z")), Moment("2026-11-30T00:00:00Z"));
  absl::TimeZone zone;
  if (!absl::LoadTimeZone("Europe/Berlin", &zone)) GTEST_SKIP() << "no time zones on this machine";
  const TimeWindow berlin =
      Window(R"("from": "02:00", "to": "04:00", "zone": "Europe/Berlin", "match": "rule=*")");
  EXPECT_TRUE(berlin.OpenUntil(Moment("2026-12-01T01:30:00Z")).has_value());
  EXPECT_FALSE(berlin.OpenUntil(Moment("2026-12-01T03:30:00Z")).has_value());
  EXPECT_TRUE(berlin.OpenUntil(Moment("2026-07-01T00:30:00Z")).has_value()) << "in summer an hour earlier";
}

TEST(TimeWindowTest, WhatIsWrongIsSaid) {
  const std::string match = R"(, "match": "rule=*")";
  EXPECT_THAT(Refusal(OneWindow(R"("match": "rule=*")")), HasSubstr("either \"begin\""));
  EXPECT_THAT(Refusal(OneWindow(R"("begin": "2026-12-01T02:00:00Z", "from": "02:00")" + match)),
              HasSubstr("either \"begin\""));
  EXPECT_THAT(Refusal(OneWindow(R"("begin": "tomorrow", "end": "2026-12-01T02:00:00Z")" + match)),
              HasSubstr("2026-12-01T02:00:00Z"));
  EXPECT_THAT(Refusal(OneWindow(R"("begin": "2026-12-01T02:00:00Z", "end": "2026-12-01T02:00:00Z")" + match)),
              HasSubstr("not after"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "2:00", "to": "04:00")" + match)), HasSubstr("02:00"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "02:00", "to": "02:00")" + match)), HasSubstr("02:00"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "02:60", "to": "04:00")" + match)), HasSubstr("02:00"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "02:00", "to": "04:00", "days": ["saturday"])" + match)),
              HasSubstr("mon, tue"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "02:00", "to": "04:00", "zone": "Mars/Base")" + match)),
              HasSubstr("Mars/Base"));
  EXPECT_THAT(Refusal(OneWindow(R"("from": "02:00", "to": "04:00")")), HasSubstr("NAME=PATTERN"));
}

TEST(LabelsTest, Patterns) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("node*7", "node17"));
  EXPECT_TRUE(MatchesPattern("*hang", "communication hang"));
  EXPECT_TRUE(MatchesPattern("a*b*c", "aXbXbYc"));
  EXPECT_FALSE(MatchesPattern("a*b*c", "aXcXb"));
  EXPECT_FALSE(MatchesPattern("node", "node1"));
  EXPECT_FALSE(MatchesPattern("", "x"));
  // In time that grows with the text, whatever the pattern.
  EXPECT_FALSE(MatchesPattern("*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(100'000, 'a')));
  EXPECT_TRUE(Matches(*ParseMatchers({"host!=a", "rank="}), {{"host", "b"}}));
  EXPECT_FALSE(Matches(*ParseMatchers({"host!=b"}), {{"host", "b"}}));
}

}  // namespace
}  // namespace c4::c4d
