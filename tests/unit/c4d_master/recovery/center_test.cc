// From verdicts to a driver and back, through the store to the next master, in simulated time; the file of
// recovery; the words that drivers speak.
#include <gmock/gmock.h>
#include <random>

#include <nlohmann/json.hpp>

#include "c4d_master/recovery/downtime.h"
#include "c4d_master/recovery/recovery_center.h"
#include "c4d_master/recovery/recovery_json.h"
#include "c4d_master/recovery/state_proto.h"
#include "c4d_master/verdict_store.h"
#include "tests/support/recovery_checker.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int64_t kUnixNs = 1'700'000'000 * kSecond;

Now At(double seconds) {
  const auto ns = static_cast<int64_t>(seconds * 1e9);
  return {ns + kSecond, kUnixNs + ns};
}

class FakeWork final : public RecoveryWork {
 public:
  void SetDriver(std::shared_ptr<Driver> driver) override { driver_ = std::move(driver); }
  void Run(const Command& command, absl::Duration) override {
    std::string text = std::string(VerbOf(command.kind)) + " " + command.node;
    for (const auto& [node, backup] : command.replace) text += node + ">" + backup;
    asked.push_back(text);
    ids.push_back(command.id);
  }
  void Look(uint64_t as_of_command, absl::Duration) override {
    results_.push_back(
        {.look = true, .command = as_of_command, .reply = {}, .inventory = Inventory{nodes, failed}});
  }
  std::vector<DriverResult> Take() override { return std::exchange(results_, {}); }

  void Answer(Event::Outcome outcome = Event::Outcome::kDone, int64_t checkpoint_ns = 0) {
    results_.push_back({.look = false,
                        .command = ids.back(),
                        .reply = {.outcome = outcome, .text = "said so", .checkpoint_ns = checkpoint_ns}});
  }

  std::vector<Event::Seen> nodes = {{"host0", Event::Sight::kFree, true},
                                    {"host1", Event::Sight::kFree, true},
                                    {"host2", Event::Sight::kFree, false}};
  std::optional<uint32_t> failed;
  std::vector<std::string> asked;
  std::vector<uint64_t> ids;

 private:
  std::shared_ptr<Driver> driver_;
  std::vector<DriverResult> results_;
};

class RecoveryCenterTest : public testing::Test {
 protected:
  RecoveryCenterTest() {
    auto file = ParseRecoveryFile(R"({"mode": "automatic", "driver": {"exec": ["/bin/true"]},
                                      "policies": {"crash": {"act": "isolate", "strikes": 1}}})");
    EXPECT_TRUE(file.ok()) << file.status();
    file_ = *file;
    Begin(0);
  }

  void Begin(double at_s) {
    center_.reset();
    store_.reset();
    verdicts_.reset();
    metrics_ = std::make_unique<service::Metrics>();
    work_ = std::make_unique<FakeWork>();
    verdicts_ = std::make_unique<VerdictStore>(directory_.File("c4d.db"));
    store_ = std::make_unique<RecoveryStore>(verdicts_->file(), "j");
    center_ =
        std::make_unique<RecoveryCenter>("j", file_, work_.get(), store_.get(), metrics_.get(), At(at_s));
  }

  void Tick(double at_s, uint32_t incarnation = 0, bool running = true) {
    center_->Tick({.seen = true, .incarnation = incarnation, .running = running, .hosts = {"host0", "host1"}},
                  At(at_s));
  }
  void Tell(double at_s, v1::VerdictState state = v1::VERDICT_STATE_CONFIRMED, const std::string& id = "v-1",
            double confirmed_s = -1) {
    v1::Verdict verdict;
    verdict.set_id(id);
    verdict.set_state(state);
    verdict.set_syndrome(v1::SYNDROME_CRASH);
    verdict.set_confidence(0.9);
    verdict.mutable_culprit()->set_host("host1");
    const double at = confirmed_s < 0 ? at_s : confirmed_s;
    verdict.set_confirmed_unix_ns(At(at).unix_ns);
    verdict.set_since_unix_ns(At(at).unix_ns - 2 * kSecond);
    center_->OnVerdict(verdict, 0, At(at_s));
  }

  const test::TemporaryDirectory directory_;
  RecoveryFile file_;
  std::unique_ptr<service::Metrics> metrics_;
  std::unique_ptr<FakeWork> work_;
  std::unique_ptr<VerdictStore> verdicts_;
  std::unique_ptr<RecoveryStore> store_;
  std::unique_ptr<RecoveryCenter> center_;
};

TEST_F(RecoveryCenterTest, FromAVerdictToAJobThatRunsAgainAndWhatItCost) {
  Tick(1);
  Tick(2);
  Tell(10);
  ASSERT_THAT(work_->asked, ElementsAre("isolate host1"));
  work_->Answer();
  Tick(11, 0, false);
  ASSERT_EQ(work_->asked.back(), "restart host1>host2");
  work_->Answer(Event::Outcome::kDone, At(3).unix_ns);
  Tick(12, 0, false);
  Tick(14, 1, true);
  const v1::RecoveryIncident incident = center_->state().incidents(0);
  EXPECT_EQ(incident.phase(), v1::RECOVERY_PHASE_RECOVERED);
  const Json json = Json::parse(IncidentsJson(center_->Get(0)))["incidents"][0]["downtime"];
  EXPECT_EQ(json["lost_work_s"], 5.0) << json;
  EXPECT_EQ(json["detection_s"], 2.0);
  EXPECT_EQ(json["diagnosis_and_isolation_s"], 1.0);
  EXPECT_EQ(json["re_initialisation_s"], 3.0);
  EXPECT_EQ(json["total_s"], 11.0);
  EXPECT_THAT(metrics_->Serialise(), HasSubstr("c4d_downtime_seconds_total{part=\"detection\"} 2\n"));
  EXPECT_THAT(metrics_->Serialise(), HasSubstr("c4d_recovery_incidents_total{result=\"recovered\"} 1\n"));
  // Why, with the evidence.
  const auto rows =
      verdicts_->file()->Query({.sql = "SELECT what, evidence FROM recovery_audit ORDER BY number"});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(service::StoreText((*rows)[0][0]), "proposed");
  EXPECT_THAT(service::StoreText((*rows)[0][1]), HasSubstr("v-1"));
}

TEST_F(RecoveryCenterTest, ANodeThatDiedWhileTheJobWasBroughtBack) {
  file_.rules.min_nodes = 2;
  Begin(0);
  work_->nodes.push_back({"host3", Event::Sight::kFree, false});
  const auto tick = [this](double at_s) {
    center_->Tick({.seen = true,
                   .incarnation = 1,
                   .hosts = {"host0", "host2"},
                   .heard_at_ns = {{"host0", At(9).monotonic_ns}, {"host2", At(at_s).monotonic_ns}}},
                  At(at_s));
  };
  Tick(1);
  Tick(2);
  Tell(10);
  work_->Answer();
  Tick(11, 0, false);
  work_->Answer();
  tick(12);
  tick(38);
  ASSERT_EQ(work_->asked.back(), "restart host1>host2");
  tick(43);
  EXPECT_EQ(work_->asked.back(), "isolate host0");
  work_->Answer();
  tick(44);
  // Somebody has put host1 back meanwhile, so that it is a backup like any other.
  EXPECT_EQ(work_->asked.back(), "restart host0>host1");
}

TEST_F(RecoveryCenterTest, AnotherMasterGoesOnWhereItWas) {
  Tick(1);
  Tick(2);
  Tell(10);
  const uint64_t number = work_->ids.at(0);
  Begin(20);
  EXPECT_THAT(work_->asked, ElementsAre("isolate host1"));
  EXPECT_EQ(work_->ids.at(0), number);
  work_->Answer();
  Tick(21, 0, false);
  EXPECT_EQ(work_->asked.back(), "restart host1>host2");
}

TEST_F(RecoveryCenterTest, WhatAMasterOfBeforeLeftIsNoReasonByItself) {
  Begin(7 * 86'400);
  const double now_s = 7 * 86'400;
  Tell(now_s, v1::VERDICT_STATE_CONFIRMED, "v-1", 0);
  Tick(now_s + 1, 0, false);
  Tick(now_s + 10, 0, false);
  EXPECT_TRUE(work_->asked.empty());
  // It is held, though agents have been heard for a while: it is true.
  Tick(now_s + 20, 0, false);
  EXPECT_THAT(work_->asked, ElementsAre("isolate host1"));
}

// S4 of mitigation: recovery knows of the fail-slow, and waits until the planner has decided for a restart.
TEST_F(RecoveryCenterTest, AFailSlowWaitsForItsPermit) {
  auto file = ParseRecoveryFile(R"({"mode": "automatic", "driver": {"exec": ["/bin/true"]},
                                    "policies": {"fail-slow": {"act": "isolate"}}})");
  ASSERT_TRUE(file.ok()) << file.status();
  file_ = *file;
  Begin(0);
  bool permitted = false;
  center_->SetPermit([&permitted](const v1::Verdict&) { return permitted; });
  EXPECT_EQ(center_->UsualRestartS(), std::nullopt);
  v1::Verdict verdict;
  verdict.set_id("slow-1");
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict.set_syndrome(v1::SYNDROME_FAIL_SLOW);
  verdict.set_confidence(0.9);
  verdict.set_confirmed_unix_ns(At(10).unix_ns);
  verdict.set_since_unix_ns(At(8).unix_ns);
  EXPECT_THAT(center_->WhyNot(verdict), HasSubstr("no node is to blame"));
  verdict.mutable_culprit()->set_host("host1");
  EXPECT_EQ(center_->WhyNot(verdict), "");
  Tick(9);
  center_->OnVerdict(verdict, 0, At(10));
  for (int s = 11; s < 40; ++s) Tick(s);
  EXPECT_TRUE(work_->asked.empty());
  EXPECT_EQ(center_->IncidentOf("slow-1"), nullptr);
  permitted = true;
  for (int s = 40; s < 46; ++s) Tick(s);
  ASSERT_THAT(work_->asked, ElementsAre("isolate host1"));
  ASSERT_NE(center_->IncidentOf("slow-1"), nullptr);
  work_->Answer();
  Tick(50, 0, false);
  work_->Answer(Event::Outcome::kDone, At(30).unix_ns);
  Tick(51, 0, false);
  Tick(60, 1, true);
  EXPECT_EQ(center_->IncidentOf("slow-1")->phase, Phase::kRecovered);
  // The work since the checkpoint, which it did while it waited for its permit, and the time until it ran.
  EXPECT_NEAR(center_->UsualRestartS().value_or(0), 30, 1);
}

TEST_F(RecoveryCenterTest, SaysWhyAFailSlowLeadsToNoRestart) {
  v1::Verdict verdict;
  verdict.set_syndrome(v1::SYNDROME_FAIL_SLOW);
  EXPECT_THAT(center_->WhyNot(verdict), HasSubstr(R"(policy for "fail-slow" is to do nothing)"));
  auto manual = ParseRecoveryFile(R"({"mode": "manual", "driver": {"exec": ["/bin/true"]},
                                      "policies": {"fail-slow": {"act": "restart", "min_confidence": 0.8}}})");
  ASSERT_TRUE(manual.ok()) << manual.status();
  file_ = *manual;
  Begin(0);
  EXPECT_THAT(center_->WhyNot(verdict), HasSubstr("restarts nothing by itself"));
  file_.rules.mode = Mode::kAutomatic;
  verdict.mutable_culprit()->set_host("host1");
  Begin(0);
  EXPECT_THAT(center_->WhyNot(verdict), HasSubstr("less certain"));
  verdict.set_confidence(0.8);
  EXPECT_EQ(center_->WhyNot(verdict), "");
  file_.driver = {};
  Begin(0);
  EXPECT_THAT(center_->WhyNot(verdict), HasSubstr("no driver"));
}

TEST_F(RecoveryCenterTest, WithoutADriverItProposes) {
  file_ = {.rules = DefaultRules()};
  file_.rules.policies[5].strikes = 1;
  Begin(0);
  Tick(1);
  Tell(10);
  EXPECT_TRUE(work_->asked.empty());
  const v1::GetRecoveryReply reply = center_->Get(10);
  EXPECT_EQ(reply.mode(), "dry-run");
  EXPECT_EQ(reply.state().incidents(0).hold(), v1::RECOVERY_HOLD_DRY_RUN);
  v1::DecideRecoveryRequest request;
  request.set_incident(1);
  EXPECT_THAT(std::string(center_->Approve(request, At(11)).message()), HasSubstr("no driver"));
  request.set_incident(9);
  EXPECT_THAT(std::string(center_->Deny(request, At(11)).message()), HasSubstr("those that do: 1"));
  request.set_incident(1);
  EXPECT_TRUE(center_->Deny(request, At(11)).ok());
  request.set_node("nowhere");
  EXPECT_TRUE(absl::IsNotFound(center_->Release(request, At(12))));
}

// Every state that a walk meets survives the store.
TEST(RecoveryStateTest, ThereAndBack) {
  State state;
  state.nodes["n1"] = {.state = NodeState::kOut,
                       .in_use = true,
                       .automated = true,
                       .held = true,
                       .wanted_back = true,
                       .checked = true,
                       .incident = 3,
                       .last_command = 4,
                       .since_ns = 5,
                       .immune_until_ns = 6,
                       .strikes_ns = {7, 8},
                       .why = "why"};
  state.incidents.push_back({.id = 1,
                             .verdicts = {"a", "b"},
                             .syndrome = 5,
                             .open = {"b"},
                             .nodes = {{"n1", true, true, "s1"}},
                             .phase = Phase::kWatching,
                             .hold = Hold::kRate,
                             .approved = true,
                             .by = "ann",
                             .reason = "r",
                             .from = 2,
                             .round = 3,
                             .deadline_ns = 4,
                             .last_seen_ns = 5,
                             .onset_ns = 6,
                             .confirmed_ns = 7,
                             .admitted_ns = 8,
                             .isolated_ns = 9,
                             .restarted_ns = 10,
                             .running_ns = 11,
                             .ended_ns = 12,
                             .checkpoint_ns = 13});
  state.in_flight = Command{.id = 9,
                            .kind = Command::Kind::kRestart,
                            .incident = 1,
                            .node = "",
                            .replace = {{"n1", "s1"}},
                            .exclude = {"n1"},
                            .from = 1,
                            .to = 2,
                            .reason = "r",
                            .attempt = 2,
                            .deadline_ns = 5};
  state.next_incident = 2;
  state.next_command = 10;
  state.incarnation = 1;
  state.highest_asked = 2;
  state.restarted_ns = 3;
  state.handled = {"a"};
  state.isolations_ns = {4};
  state.restarts_ns = {5, 6};
  EXPECT_EQ(FromProto(ToProto(state)), state);
}

TEST(RecoveryFileTest, WhatIsWrongIsSaidWithWhatToDo) {
  const auto why = [](const std::string& text) {
    const auto file = ParseRecoveryFile(text);
    return file.ok() ? "accepted" : std::string(file.status().message());
  };
  EXPECT_EQ(why("{}"), "accepted");
  EXPECT_THAT(why("[]"), HasSubstr("no object"));
  EXPECT_THAT(why(R"({"mode": "automatic"})"), HasSubstr("no \"driver\""));
  EXPECT_THAT(why(R"({"mode": "on"})"), HasSubstr("dry-run, manual, automatic"));
  EXPECT_THAT(why(R"({"driver": {}})"), HasSubstr("one of \"exec\""));
  EXPECT_THAT(why(R"({"driver": {"exec": ["true"]}})"), HasSubstr("whole path"));
  EXPECT_THAT(why(R"({"driver": {"local": "sock"}})"), HasSubstr("whole path"));
  EXPECT_THAT(why(R"({"driver": {"webhook": {"url": "http://h/"}}})"), HasSubstr("without TLS"));
  EXPECT_EQ(why(R"({"driver": {"webhook": {"url": "https://h/"}}})"), "accepted");
  EXPECT_EQ(why(R"({"driver": {"kubernetes": {"jobset": "big"}}})"), "accepted");
  EXPECT_THAT(why(R"({"driver": {"kubernetes": {"jobset": "big", "selector": "a=b"}}})"),
              HasSubstr("give one"));
  EXPECT_THAT(why(R"({"driver": {"kubernetes": {}, "slurm": {}}})"), HasSubstr("one of \"exec\""));
  EXPECT_THAT(why(R"({"policies": {"crsh": {}}})"), HasSubstr("no syndrome"));
  EXPECT_THAT(why(R"({"policies": {"crash": {"act": "reboot"}}})"), HasSubstr("none, restart, isolate"));
  EXPECT_THAT(why(R"({"limits": {"max_share": 2}})"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(why(R"({"times": {"running": 2}})"), HasSubstr("unknown key \"running\""));
}

TEST(DriverWordsTest, HalfAnAnswerIsNoAnswer) {
  EXPECT_EQ(ReadReply(R"({"outcome": "done", "checkpoint_unix_s": 5.5})").checkpoint_ns, 5'500'000'000);
  EXPECT_EQ(ReadReply(R"({"outcome": "refused", "text": "busy"})").outcome, Event::Outcome::kRefused);
  for (const char* bad : {"", "{", "[]", "{}", R"({"outcome": "maybe"})", R"({"outcome": "done", "more": 1})",
                          R"({"outcome": "done", "checkpoint_unix_s": "x"})", R"({"outcome": "do)"}) {
    EXPECT_EQ(ReadReply(bad).outcome, Event::Outcome::kUnknown) << bad;
  }
  const auto nodes = ReadInventory(R"({"nodes": [{"name": "a", "state": "free", "in_use": true},
                                             {"name": "b", "state": "other"}]})");
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_TRUE(nodes->nodes[0].in_use);
  EXPECT_FALSE(nodes->failed.has_value());
  EXPECT_EQ(ReadInventory(R"({"nodes": [], "failed": 3})")->failed, 3u);
  EXPECT_EQ(nodes->nodes[1].sight, Event::Sight::kOther);
  for (const char* bad :
       {"{}", R"({"nodes": {}})", R"({"nodes": [{"name": "a"}]})", R"({"nodes": [{"state": "free"}]})",
        R"({"nodes": [{"name": "a", "state": "up"}]})", R"({"nodes": [7]})",
        R"({"nodes": [], "failed": "yes"})", R"({"nodes": [], "failed": -1})"}) {
    EXPECT_FALSE(ReadInventory(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace c4::c4d::recovery
