// SMon in the real master: what an earlier master left in the store is shown, silences survive a restart,
// alerts reach a real webhook and a real command, and bad rules end the master at once.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "benchmarks/synthetic_job.h"
#include "c4d_master/alerts/alert_store.h"
#include "c4d_master/smon/profile_analysis.h"
#include "c4d_master/smon/smon_store.h"
#include "c4d_master/verdict_store.h"
#include "tests/service/harness.h"
#include "tests/support/webhook.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

class SmonTest : public testing::Test {
 protected:
  // An analysed session, as an earlier master would have left it.
  void LeaveASession() {
    benchmarks::SyntheticJob job;
    job.slow_dp = 2;
    job.slow_stage = 1;
    job.slow_factor = 1.5;
    c4d::ProfiledJob profile;
    profile.records = benchmarks::Execute(job).records;
    const auto report = c4d::AnalyseProfile(profile, 1);
    ASSERT_TRUE(report.ok()) << report.status();
    v1::ProfilingSession session = report->figures;
    session.set_number(4);
    session.set_job("job");
    session.set_state(v1::SESSION_STATE_ANALYSED);
    const int64_t now_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    session.set_begun_unix_ns(now_ns - 60'000'000'000);
    session.set_ended_unix_ns(now_ns - 50'000'000'000);
    session.set_report_kept(true);
    c4d::VerdictStore file(Store());
    c4d::SmonStore store(file.file(), "job");
    ASSERT_TRUE(store.SaveSession(session, report->json, report->text).ok());
    // That it fires was found out, and nobody told.
    v1::Alert alert;
    alert.set_rule("hook");
    alert.set_over(true);
    alert.set_firing(true);
    alert.set_since_unix_ns(session.ended_unix_ns());
    alert.set_id("hook");
    c4d::AlertStore::Change change;
    change.alerts.alerts = {alert};
    ASSERT_TRUE(c4d::AlertStore(file.file(), "job").Save(change).ok());
  }

  std::string Store() const { return scratch_.path() + "/c4d.db"; }

  std::string WriteRules(const std::string& rules) const {
    std::string path = scratch_.path() + "/alerts.json";
    std::ofstream(path) << rules;
    return path;
  }

  std::unique_ptr<Process> StartMaster(const std::string& rules) {
    auto master = std::make_unique<Process>(
        std::vector<std::string>{Binary("c4d_master"), "--job", "job", "--listen", "127.0.0.1:0",
                                 "--http-address", "127.0.0.1:0", "--directory", scratch_.path() + "/masters",
                                 "--store", Store(), "--c4p", "off", "--alerts", WriteRules(rules)},
        std::vector<std::string>{}, scratch_.path() + "/master");
    return master;
  }

  CommandResult Ask(const std::string& verb, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), verb);
    arguments.insert(arguments.end(), {"--run-dir", scratch_.path()});
    return RunC4(arguments);
  }
  CommandResult Smon(const std::vector<std::string>& arguments) const { return Ask("smon", arguments); }
  CommandResult Alerts(const std::vector<std::string>& arguments) const { return Ask("alerts", arguments); }

  void EndMaster(Process* master) {
    master->Signal(SIGTERM);
    ASSERT_TRUE(master->Wait(Seconds(10)));
    EXPECT_EQ(master->exit_code(), 0) << master->Errors();
  }

  // What the webhook was told so far.
  std::vector<Json> Told() {
    std::vector<Json> told;
    for (const auto& delivery : webhook_.deliveries()) {
      told.push_back(Json::parse(delivery.body, nullptr, /*allow_exceptions=*/false));
    }
    return told;
  }

  ScratchDir scratch_;
  test::Webhook webhook_;
};

TEST_F(SmonTest, FromStoreToAlertsAndBack) {
  ASSERT_NO_FATAL_FAILURE(LeaveASession());
  const std::string told = scratch_.path() + "/told";
  const std::string rules = R"({"rules": [
      {"name": "hook", "slowdown": 1.1, "allow_private": true, "webhook": ")" +
                            webhook_.Url() + R"("},
      {"name": "program", "cause": "worker", "share": 0.5,
       "command": ["/bin/sh", "-c", "cat > $0.new && mv $0.new $0", ")" +
                            told + R"("]},
      {"name": "broken", "slowdown": 1.1, "command": ["/bin/false"]}]})";
  std::unique_ptr<Process> master = StartMaster(rules);
  ASSERT_TRUE(Eventually(Seconds(15), [&] { return Smon({"list"}).exit_code == 0; })) << master->Errors();

  // What the store holds.
  CommandResult result = Smon({"list"});
  EXPECT_THAT(result.output, HasSubstr("worker"));
  result = Smon({"show", "--json", "--heatmap", scratch_.path() + "/map.svg"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const Json shown = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(shown["session"]["number"], 4);
  EXPECT_EQ(shown["session"]["figures"]["slowdown"], shown["report"]["slowdown"]);
  std::ifstream map(scratch_.path() + "/map.svg");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(map), {}), HasSubstr("rank "));
  result = Smon({"show", "4"});
  EXPECT_THAT(result.output, HasSubstr("\nStragglers waste")) << "a report has lines";
  EXPECT_THAT(result.output, HasSubstr("c4 verdicts names nobody in that time"));
  EXPECT_EQ(Smon({"show", "5"}).exit_code, 1);

  // What was not told is told now, once.
  ASSERT_TRUE(Eventually(Seconds(10), [&] { return !Told().empty(); })) << master->Errors();
  EXPECT_EQ(Told()[0]["what"], "firing");
  EXPECT_EQ(Told()[0]["session"]["number"], 4);

  // Tests of every way.
  EXPECT_EQ(Alerts({"test", "hook"}).exit_code, 0);
  EXPECT_EQ(Told().back()["test"], true);
  result = Alerts({"test", "program"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::ifstream file(told);
  const Json to_program = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(to_program["test"], true);
  result = Alerts({"test", "broken"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("/bin/false ended with 1"));
  result = Alerts({"test", "nobody"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("there are hook, program, broken"));

  // A silence survives the restart, and what was told is not told again.
  EXPECT_EQ(Alerts({"silence", "rule=hook", "--for", "3600"}).exit_code, 0);
  EndMaster(master.get());
  const size_t count = Told().size();
  master = StartMaster(rules);
  ASSERT_TRUE(Eventually(Seconds(15), [&] { return Smon({"list"}).exit_code == 0; })) << master->Errors();
  result = Alerts({});
  EXPECT_THAT(result.output, HasSubstr("FIRING  hook"));
  EXPECT_THAT(result.output, HasSubstr("muted by silence 1"));
  EXPECT_EQ(Told().size(), count);
  EndMaster(master.get());
}

TEST_F(SmonTest, BadRulesEndTheMasterAtOnce) {
  const std::unique_ptr<Process> master =
      StartMaster(R"({"rules": [{"name": "r", "slowdown": 1.2, "command": ["/no/such/program"]}]})");
  ASSERT_TRUE(master->Wait(Seconds(10)));
  EXPECT_EQ(master->exit_code(), 2);
  EXPECT_THAT(master->Errors(), HasSubstr("--alerts"));
  EXPECT_THAT(master->Errors(), HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace c4::service_test
