// From a verdict to what is sent, and through the store to the next master, in simulated time.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "c4d_master/alerts/alert_center.h"
#include "c4d_master/verdict_store.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int64_t kUnixNs = 1'700'000'000 * kSecondNs;

Now At(double seconds) {
  const auto ns = static_cast<int64_t>(seconds * 1e9);
  return {ns + kSecondNs, kUnixNs + ns};
}

class FakeWork : public AlertWork {
 public:
  void Try(AlertAttempt attempt) override { tried.push_back(std::move(attempt)); }
  std::vector<AlertAttempted> Take() override { return std::exchange(results_, {}); }
  // The oldest attempt that is under way.
  void End(const absl::Status& outcome) {
    ASSERT_LT(ended_, tried.size());
    const AlertAttempt& attempt = tried[ended_++];
    results_.push_back({attempt.number, attempt.test, attempt.target.name, outcome});
  }

  size_t under_way() const { return tried.size() - ended_; }

  std::vector<AlertAttempt> tried;

 private:
  size_t ended_ = 0;
  std::vector<AlertAttempted> results_;
};

class AlertCenterTest : public testing::Test {
 protected:
  AlertCenterTest() { Begin(); }

  static AlertConfig Config(const std::string& targets = R"("ops": {"command": ["/bin/true"]})",
                            const std::string& rule = R"("to": ["ops"])") {
    auto config = ParseAlertConfig(R"({"targets": {)" + targets +
                                   R"(}, "rules": [{"name": "down", "verdict": {}, )" + rule + "}]}");
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  // A master, over what an earlier one left.
  void Begin(const AlertConfig& config = Config(), double at_s = 0) {
    center_.reset();
    store_.reset();
    file_.reset();
    metrics_ = std::make_unique<service::Metrics>();
    work_ = std::make_unique<FakeWork>();
    file_ = std::make_unique<VerdictStore>(directory_.File("c4d.db"));
    store_ = std::make_unique<AlertStore>(file_->file(), "j");
    center_ = std::make_unique<AlertCenter>("j", config, work_.get(), store_.get(), metrics_.get(), At(at_s));
  }

  void Tell(v1::VerdictState state, double at_s, const std::string& id = "v-1") {
    v1::Verdict verdict;
    verdict.set_id(id);
    verdict.set_job("j");
    verdict.set_syndrome(v1::SYNDROME_CRASH);
    verdict.set_state(state);
    center_->OnVerdict(verdict, At(at_s));
    center_->Tick(At(at_s));
  }

  std::string What(size_t i) const { return Json::parse(work_->tried.at(i).body)["what"]; }
  bool HasMetric(const std::string& line) const {
    return metrics_->Serialise().find(line + "\n") != std::string::npos;
  }
  v1::ListAlertsReply List(double at_s) const { return center_->List(true, At(at_s)); }

  const test::TemporaryDirectory directory_;
  std::unique_ptr<service::Metrics> metrics_;
  std::unique_ptr<FakeWork> work_;
  std::unique_ptr<VerdictStore> file_;
  std::unique_ptr<AlertStore> store_;
  std::unique_ptr<AlertCenter> center_;
};

TEST_F(AlertCenterTest, AVerdictIsToldOnceAndResolved) {
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  ASSERT_EQ(work_->tried.size(), 1U);
  EXPECT_EQ(What(0), "firing");
  EXPECT_TRUE(HasMetric("c4d_alerts_firing 1"));
  work_->End(absl::OkStatus());
  center_->Tick(At(1));
  EXPECT_TRUE(List(1).alerts(0).last_delivery().delivered());
  Tell(v1::VERDICT_STATE_CLEARED, 2);
  ASSERT_EQ(work_->tried.size(), 2U);
  EXPECT_EQ(What(1), "resolved");
  work_->End(absl::OkStatus());
  center_->Tick(At(3));
  center_->Tick(At(100));
  EXPECT_EQ(work_->tried.size(), 2U);
  EXPECT_TRUE(HasMetric("c4d_alerts_firing 0"));
  EXPECT_TRUE(HasMetric("c4d_alert_notifications_total{result=\"delivered\"} 2"));
}

TEST_F(AlertCenterTest, WhatFailsIsTriedAgainInItsOrderWhileTheReceiverIsAway) {
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  work_->End(absl::UnavailableError("no answer"));
  Tell(v1::VERDICT_STATE_CLEARED, 0.5);
  center_->Tick(At(0.9));
  EXPECT_EQ(work_->tried.size(), 1U);
  EXPECT_EQ(List(0.9).targets(0).waiting(), 2U);
  EXPECT_EQ(List(0.9).targets(0).trouble(), "no answer");
  center_->Tick(At(1.6));
  ASSERT_EQ(work_->tried.size(), 2U);
  EXPECT_EQ(work_->tried[1].number, work_->tried[0].number) << "the receiver can tell that it is the same";
  EXPECT_EQ(work_->tried[1].body, work_->tried[0].body);
  work_->End(absl::OkStatus());
  center_->Tick(At(1.7));
  ASSERT_EQ(work_->tried.size(), 3U);
  EXPECT_EQ(What(2), "resolved");
}

TEST_F(AlertCenterTest, NothingIsLostWhileTheStoreLives) {
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  Tell(v1::VERDICT_STATE_CLEARED, 1);
  const uint64_t first = work_->tried.at(0).number;
  ASSERT_TRUE(center_
                  ->AddSilence(
                      [] {
                        v1::AddSilenceRequest request;
                        request.add_matchers("host=x");
                        request.set_seconds(1000);
                        return request;
                      }(),
                      At(1))
                  .ok());
  Begin(Config(), 10);  // the attempt was cut off
  center_->OnAllOpen({}, At(10));
  center_->Tick(At(10));
  ASSERT_EQ(work_->tried.size(), 1U);
  EXPECT_EQ(work_->tried[0].number, first);
  EXPECT_EQ(What(0), "firing");
  work_->End(absl::OkStatus());
  center_->Tick(At(11));
  ASSERT_EQ(work_->tried.size(), 2U);
  EXPECT_EQ(What(1), "resolved");
  work_->End(absl::OkStatus());
  center_->Tick(At(12));
  EXPECT_EQ(List(12).silences_size(), 1);
  Begin(Config(), 20);
  center_->Tick(At(20));
  EXPECT_TRUE(work_->tried.empty()) << "what was delivered is not told again";
  Tell(v1::VERDICT_STATE_CONFIRMED, 21, "v-2");
  ASSERT_EQ(work_->tried.size(), 1U);
  EXPECT_GT(work_->tried[0].number, first + 1);
}

TEST_F(AlertCenterTest, WhatIsRefusedIsGivenUpAndSaid) {
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  work_->End(absl::FailedPreconditionError("answered with 403"));
  center_->Tick(At(1));
  EXPECT_EQ(List(1).targets(0).waiting(), 0U);
  EXPECT_FALSE(List(1).targets(0).last().delivered());
  EXPECT_THAT(List(1).alerts(0).last_delivery().text(), HasSubstr("403"));
  EXPECT_TRUE(HasMetric("c4d_alert_notifications_total{result=\"given up\"} 1"));
  Begin(Config(), 2);
  center_->Tick(At(2));
  EXPECT_TRUE(work_->tried.empty());
}

TEST_F(AlertCenterTest, AnotherFileIsInForceAtOnce) {
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  work_->End(absl::UnavailableError("no answer"));
  center_->Tick(At(0.1));
  center_->RefuseConfig(absl::InvalidArgumentError("alerts.json: no JSON"));
  EXPECT_THAT(List(0.2).config_fault(), HasSubstr("no JSON"));
  EXPECT_TRUE(HasMetric("c4d_alerts_refused 1"));
  // The target has moved: what waits goes there, without the pause.
  center_->SetConfig(Config(R"("ops": {"command": ["/bin/false"]})"), At(0.3));
  EXPECT_EQ(List(0.3).config_fault(), "");
  center_->Tick(At(0.3));
  ASSERT_EQ(work_->tried.size(), 2U);
  EXPECT_EQ(work_->tried[1].target.command[0], "/bin/false");
  work_->End(absl::UnavailableError("no answer"));
  center_->Tick(At(0.4));
  // It is no more: what waits for it is given up.
  center_->SetConfig(Config(R"("new": {"command": ["/bin/true"]})", R"("to": ["new"])"), At(0.5));
  EXPECT_TRUE(HasMetric("c4d_alert_notifications_total{result=\"given up\"} 1"));
  EXPECT_EQ(List(0.5).targets_size(), 1);
}

TEST_F(AlertCenterTest, AlertmanagerIsToldAgainUntilItIsOver) {
  Begin(Config(R"("ops": {"alertmanager": "http://127.0.0.1:9", "allow_private": true, "refresh_s": 60})"));
  Tell(v1::VERDICT_STATE_CONFIRMED, 0);
  for (double at_s = 0; at_s < 130; at_s += 1) {
    center_->Tick(At(at_s));
    while (work_->under_way() > 0) work_->End(absl::OkStatus());
  }
  center_->Tick(At(130));
  EXPECT_EQ(work_->tried.size(), 3U) << "firing, and twice again";
  Tell(v1::VERDICT_STATE_CLEARED, 131);
  ASSERT_EQ(work_->tried.size(), 4U);
  EXPECT_TRUE(Json::parse(work_->tried[3].body)[0].contains("endsAt"));
}

TEST_F(AlertCenterTest, Tests) {
  const auto begun = center_->Test("down", At(0));
  ASSERT_TRUE(begun.ok()) << begun.status();
  ASSERT_EQ(work_->tried.size(), 1U);
  EXPECT_TRUE(Json::parse(work_->tried[0].body)["test"]);
  work_->End(absl::UnavailableError("no answer"));
  center_->Tick(At(1));
  EXPECT_EQ(List(1).targets(0).last_test().number(), begun->delivery());
  EXPECT_EQ(List(1).targets(0).last_test().text(), "no answer");
  center_->Tick(At(100));
  EXPECT_EQ(work_->tried.size(), 1U) << "a test is tried once";
  EXPECT_THAT(std::string(center_->Test("x", At(2)).status().message()), HasSubstr("there are down, ops"));
}

// What a master of before left in smon_alert is taken over.
TEST_F(AlertCenterTest, AlertsOfBefore) {
  center_.reset();
  store_.reset();
  file_.reset();
  const std::string path = directory_.File("old.db");
  {
    auto old = service::Store::Open(
        path,
        {"CREATE TABLE smon_alert (job TEXT NOT NULL, rule TEXT NOT NULL, alert TEXT NOT NULL, PRIMARY KEY "
         "(job, rule)); CREATE TABLE verdict (id TEXT, job TEXT, state INTEGER, since_unix_ns INTEGER, "
         "verdict TEXT)",
         "CREATE TABLE x (y INTEGER)", "CREATE TABLE z (y INTEGER)"});
    ASSERT_TRUE(old.ok()) << old.status();
    const char json[] = R"({"rule":"slow","over":true,"firing":true,"toldFiring":true,"sinceUnixNs":"5"})";
    ASSERT_TRUE((*old)
                    ->Write({.sql = "INSERT INTO smon_alert VALUES (?, ?, ?)",
                             .parameters = {std::string("j"), std::string("slow"), std::string(json)}})
                    .ok());
  }
  VerdictStore file(path);
  AlertStore store(file.file(), "j");
  const auto kept = store.Load();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->alerts.size(), 1U);
  EXPECT_EQ(kept->alerts[0].id(), "slow");
  EXPECT_TRUE(kept->alerts[0].told_firing());
}

}  // namespace
}  // namespace c4::c4d
