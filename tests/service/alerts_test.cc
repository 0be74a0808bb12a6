// Alerts from end to end: a real job whose rank is stopped, the real master, a webhook that is away for a
// while, a real Alertmanager (Debian's package prometheus-alertmanager), and the verbs of `c4 alerts`.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <random>

#include "service/free_port.h"
#include "tests/service/harness.h"
#include "tests/support/webhook.h"

namespace c4::service_test {
namespace {

using ::testing::HasSubstr;

constexpr char kAlertmanager[] = "/usr/bin/prometheus-alertmanager";

int FreePort() {
  std::mt19937 random(std::random_device{}());
  return *service::FreePort(&random);
}

class AlertsTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_.path() + "/" + name) << text;
    return scratch_.path() + "/" + name;
  }

  CommandResult Alerts(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "alerts");
    arguments.insert(arguments.end(), {"--run-dir", job_->base_dir()});
    return RunC4(arguments);
  }
  Json List(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"list", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Json::parse(Alerts(arguments).output, nullptr, /*allow_exceptions=*/false);
  }

  void Start(const std::string& config) {
    job_ = std::make_unique<RunningJob>(
        2, std::vector<std::string>{},
        std::vector<std::string>{Binary("all_reduce_perf"), "-b", "1M", "-e", "1M", "-n", "1000000"},
        std::vector<std::string>{"C4D_ALERTS=" + Write("alerts.json", config)});
    ASSERT_TRUE(job_->AwaitAtWork(20, Seconds(30))) << job_->launcher().Errors();
  }

  void Stop() {
    stopped_ = job_->Counters(1).pid;
    ASSERT_GT(stopped_, 0);
    ASSERT_EQ(kill(stopped_, SIGSTOP), 0);
  }

  ScratchDir scratch_;
  std::unique_ptr<RunningJob> job_;
  pid_t stopped_ = 0;
};

TEST_F(AlertsTest, AWebhookThatIsAwayHearsEverythingInItsOrder) {
  const int port = FreePort();
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/hook";
  Start(R"({"targets": {"ops": {"webhook": ")" + url + R"(", "allow_private": true}},
            "rules": [{"name": "down", "verdict": {"syndrome": "*hang"}, "to": ["ops"]}],
            "windows": [{"name": "never", "begin": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z",
                         "match": ["rule=*"]}]})");
  ASSERT_NO_FATAL_FAILURE(Stop());
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return List()["targets"][0]["waiting"] == 1; }))
      << List().dump(2);
  EXPECT_THAT(Alerts({}).output, HasSubstr("FIRING  down/"));
  EXPECT_THAT(Alerts({}).output, HasSubstr("1 waiting"));
  EXPECT_EQ(Alerts({"test", "ops"}).exit_code, 1);
  EXPECT_THAT(Alerts({"windows"}).output, HasSubstr("never: 2020-01-01"));
  // The master is killed with what it has to tell, and its successor tells it.
  const pid_t master = job_->DaemonPid("c4d_master");
  ASSERT_GT(master, 0);
  kill(master, SIGKILL);
  kill(stopped_, SIGCONT);
  test::Webhook webhook(200, port);
  ASSERT_TRUE(Eventually(Seconds(40), [&] { return webhook.deliveries().size() >= 2; }))
      << List({"--all"}).dump(2);
  const Json first = Json::parse(webhook.deliveries()[0].body);
  const Json second = Json::parse(webhook.deliveries()[1].body);
  EXPECT_EQ(first["what"], "firing");
  EXPECT_EQ(first["verdict"]["culprit"]["rank"], 1);
  EXPECT_EQ(first["labels"]["syndrome"], "non-communication hang");
  EXPECT_EQ(second["what"], "resolved");
  EXPECT_EQ(second["id"], first["id"]);
  const CommandResult tested = Alerts({"test", "down"});
  EXPECT_EQ(tested.exit_code, 0) << tested.output;
  EXPECT_EQ(Alerts({"ack", "nothing"}).exit_code, 1);
}

TEST_F(AlertsTest, ACollectorOfLogsGetsThemWhereOtlpHasThem) {
  const int port = FreePort();
  test::Webhook collector(200, port, "/v1/logs");
  Start(R"({"targets": {"logs": {"otlp": "http://127.0.0.1:)" + std::to_string(port) +
        R"(/", "allow_private": true}},
            "rules": [{"name": "down", "verdict": {"syndrome": "*hang"}, "to": ["logs"]}]})");
  ASSERT_NO_FATAL_FAILURE(Stop());
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return !collector.deliveries().empty(); })) << List().dump(2);
  const auto first = collector.deliveries()[0];
  EXPECT_EQ(first.type, "application/json");
  const Json record = Json::parse(first.body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
  EXPECT_EQ(record["severityText"], "ERROR");
  EXPECT_THAT(record["body"]["stringValue"].get<std::string>(),
              HasSubstr("CONFIRMED non-communication hang: rank 1"));
  kill(stopped_, SIGCONT);
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return collector.deliveries().size() >= 2; })) << List().dump(2);
  EXPECT_THAT(collector.deliveries()[1].body, HasSubstr("resolved"));
}

TEST_F(AlertsTest, SilenceAndAcknowledge) {
  const std::string told = scratch_.path() + "/told";
  Start(R"({"rules": [{"name": "down", "verdict": {}, "repeat_s": 1,
                       "command": ["/bin/sh", "-c", "cat >> )" +
        told + R"("]}]})");
  const CommandResult silence =
      Alerts({"silence", "syndrome=*hang", "--for", "600", "--comment", "a test", "--json"});
  ASSERT_EQ(silence.exit_code, 0) << silence.errors;
  EXPECT_EQ(Json::parse(silence.output)["number"], 1);
  ASSERT_NO_FATAL_FAILURE(Stop());
  ASSERT_TRUE(Eventually(Seconds(20), [&] {
    const Json list = List();
    return !list["alerts"].empty() && list["alerts"][0]["muted_by"] == "silence 1";
  })) << List().dump(2);
  EXPECT_FALSE(std::filesystem::exists(told));
  ASSERT_EQ(Alerts({"unsilence", "1"}).exit_code, 0);
  const auto lines = [&] {
    std::ifstream file(told);
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  };
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return lines() >= 2; })) << "firing, and a reminder";
  const std::string id = List()["alerts"][0]["id"];
  ASSERT_EQ(Alerts({"ack", id, "--comment", "on it"}).exit_code, 0);
  EXPECT_THAT(Alerts({}).output, HasSubstr("on it"));
  kill(stopped_, SIGCONT);
}

TEST_F(AlertsTest, AlertmanagerHearsAndForgets) {
  if (!std::filesystem::exists(kAlertmanager))
    GTEST_SKIP() << "no Alertmanager: scripts/setup.sh alertmanager";
  const int port = FreePort();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const std::string config = Write("am.yml", "route: {receiver: none}\nreceivers: [{name: none}]\n");
  Process alertmanager({kAlertmanager, "--config.file=" + config, "--storage.path=" + scratch_.path() + "/am",
                        "--web.listen-address=" + address, "--cluster.listen-address="},
                       {}, scratch_.path() + "/alertmanager");
  httplib::Client client("127.0.0.1", port);
  const auto active = [&] {
    const auto reply = client.Get("/api/v2/alerts?active=true");
    return reply ? Json::parse(reply->body, nullptr, /*allow_exceptions=*/false) : Json();
  };
  ASSERT_TRUE(Eventually(Seconds(20), [&] { return active().is_array(); })) << alertmanager.Errors();
  Start(R"({"targets": {"am": {"alertmanager": "http://)" + address + R"(", "allow_private": true}},
            "rules": [{"name": "down", "verdict": {}, "severity": "page", "to": ["am"]}]})");
  ASSERT_EQ(Alerts({"test", "am"}).exit_code, 0) << Alerts({"test", "am"}).errors;
  ASSERT_NO_FATAL_FAILURE(Stop());
  Json alert;
  ASSERT_TRUE(Eventually(Seconds(20), [&] {
    for (const Json& one : active()) {
      if (one["labels"]["alertname"] == "down") alert = one;
    }
    return !alert.is_null();
  })) << active().dump(2);
  EXPECT_EQ(alert["labels"]["rank"], "1");
  EXPECT_EQ(alert["labels"]["severity"], "page");
  EXPECT_THAT(alert["annotations"]["summary"].get<std::string>(), HasSubstr("rank 1"));
  // Resolved when the verdict is cleared.
  kill(stopped_, SIGCONT);
  EXPECT_TRUE(Eventually(Seconds(30), [&] {
    for (const Json& one : active()) {
      if (one["labels"]["alertname"] == "down") return false;
    }
    return active().is_array();
  })) << active().dump(2);
}

}  // namespace
}  // namespace c4::service_test
