#include "cli/demo_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/demo.h"

namespace c4::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

v1::Verdict Verdict(const std::string& id, int rank, v1::VerdictState state) {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_state(state);
  verdict.set_syndrome(v1::SYNDROME_NON_COMMUNICATION_HANG);
  v1::Culprit* culprit = verdict.mutable_culprit();
  culprit->set_kind(v1::CULPRIT_KIND_RANK);
  culprit->set_rank(rank);
  culprit->mutable_process()->set_pid(4711);
  culprit->mutable_process()->set_host("node7");
  culprit->set_state(v1::PROCESS_STATE_STOPPED);
  verdict.add_evidence()->set_text("it is stopped");
  return verdict;
}

class DemoJudgeTest : public testing::Test {
 protected:
  void Healthy(const std::vector<v1::Verdict>& seen = {}) {
    judge_.BeginPhase(DemoPhaseKind::kHealthy, "nothing", "no verdict", 0);
    judge_.Observe(seen, kSecond);
    judge_.EndPhase();
  }
  void Stopped() {
    judge_.BeginPhase(DemoPhaseKind::kStopped, "SIGSTOP", "hang", 10 * kSecond);
    judge_.Observe({}, 11 * kSecond);
    judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_SUSPECTED)}, 12 * kSecond);
    judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)}, 13 * kSecond);
    judge_.EndPhase();
  }
  void Resumed() {
    judge_.BeginPhase(DemoPhaseKind::kResumed, "SIGCONT", "cleared", 20 * kSecond);
    judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)}, 20 * kSecond + 1);
    judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CLEARED)}, 21 * kSecond);
    judge_.EndPhase();
  }
  // Plays kStopped with only these verdicts, seen after one second.
  const DemoPhase& StoppedWith(const std::vector<v1::Verdict>& seen) {
    judge_.BeginPhase(DemoPhaseKind::kStopped, "SIGSTOP", "hang", 10 * kSecond);
    judge_.Observe(seen, 11 * kSecond);
    judge_.EndPhase();
    return judge_.phases().back();
  }

  DemoJudge judge_{DemoCulprit{2, 4711, "node7"}, 5};
};

TEST_F(DemoJudgeTest, AllRight) {
  Healthy();
  EXPECT_FALSE(judge_.AllRight()) << "two phases are still to come";
  Stopped();
  Resumed();
  EXPECT_TRUE(judge_.AllRight());
  EXPECT_EQ(judge_.false_alarms(), 0);
  EXPECT_EQ(judge_.phases()[1].onset_to_verdict_s, 2.0);
  EXPECT_EQ(judge_.phases()[1].onset_to_confirmed_s, 3.0);
  EXPECT_EQ(judge_.phases()[2].onset_to_cleared_s, 1.0);
}

TEST_F(DemoJudgeTest, AVerdictWhileNothingIsWrongIsAFalseAlarmOfEveryState) {
  Healthy({Verdict("v0", 2, v1::VERDICT_STATE_CLEARED)});
  EXPECT_EQ(judge_.false_alarms(), 1);
  EXPECT_FALSE(judge_.phases()[0].correct());
  // It is still in the list in the next phases, and counted once.
  judge_.BeginPhase(DemoPhaseKind::kStopped, "SIGSTOP", "hang", 10 * kSecond);
  judge_.Observe({Verdict("v0", 2, v1::VERDICT_STATE_CLEARED), Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)},
                 11 * kSecond);
  judge_.EndPhase();
  EXPECT_TRUE(judge_.phases()[1].correct());
  EXPECT_EQ(judge_.false_alarms(), 1);
  Resumed();
  EXPECT_FALSE(judge_.AllRight());
}

TEST_F(DemoJudgeTest, AWaitingRankNamedIsAFalseAlarmAndNotTheVerdict) {
  const DemoPhase& phase = StoppedWith({Verdict("v1", 3, v1::VERDICT_STATE_CONFIRMED)});
  EXPECT_EQ(judge_.false_alarms(), 1);
  EXPECT_THAT(phase.faults, Contains(HasSubstr("no verdict named rank 2")));
  EXPECT_THAT(phase.faults, Contains(HasSubstr("false alarm")));
}

TEST_F(DemoJudgeTest, ASecondVerdictAboutTheSameFaultIsAFalseAlarm) {
  StoppedWith({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED), Verdict("v2", 2, v1::VERDICT_STATE_SUSPECTED)});
  EXPECT_EQ(judge_.false_alarms(), 1);
}

TEST_F(DemoJudgeTest, AnotherSyndromeIsAFalseAlarm) {
  v1::Verdict verdict = Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED);
  verdict.set_syndrome(v1::SYNDROME_COMMUNICATION_HANG);
  EXPECT_FALSE(StoppedWith({verdict}).correct());
  EXPECT_EQ(judge_.false_alarms(), 1);
}

TEST_F(DemoJudgeTest, ChecksProcessHostStateAndEvidence) {
  v1::Verdict verdict = Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED);
  verdict.mutable_culprit()->mutable_process()->set_pid(1);
  verdict.mutable_culprit()->mutable_process()->set_host("elsewhere");
  verdict.mutable_culprit()->set_state(v1::PROCESS_STATE_SLEEPING);
  verdict.clear_evidence();
  const DemoPhase& phase = StoppedWith({verdict});
  EXPECT_THAT(phase.faults, Contains(HasSubstr("pid 1 instead of 4711")));
  EXPECT_THAT(phase.faults, Contains(HasSubstr("host 'elsewhere'")));
  EXPECT_THAT(phase.faults, Contains(HasSubstr("stopped")));
  EXPECT_THAT(phase.faults, Contains(HasSubstr("evidence")));
  EXPECT_EQ(judge_.false_alarms(), 0);
}

TEST_F(DemoJudgeTest, SuspectedIsNotEnoughAndLateIsTooLate) {
  judge_.BeginPhase(DemoPhaseKind::kStopped, "SIGSTOP", "hang", 10 * kSecond);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_SUSPECTED)}, 16 * kSecond);
  judge_.EndPhase();
  EXPECT_THAT(judge_.phases()[0].faults, Contains(HasSubstr("took 6.0 s")));
  EXPECT_THAT(judge_.phases()[0].faults, Contains(HasSubstr("not confirmed")));
}

TEST_F(DemoJudgeTest, ClearedWhileStoppedIsWrong) {
  judge_.BeginPhase(DemoPhaseKind::kStopped, "SIGSTOP", "hang", 10 * kSecond);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)}, 11 * kSecond);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CLEARED)}, 12 * kSecond);
  judge_.EndPhase();
  EXPECT_THAT(judge_.phases()[0].faults, Contains(HasSubstr("cleared while")));
}

TEST_F(DemoJudgeTest, AVerdictThatStaysOrComesBackAfterTheFaultIsWrong) {
  Healthy();
  Stopped();
  judge_.BeginPhase(DemoPhaseKind::kResumed, "SIGCONT", "cleared", 20 * kSecond);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)}, 21 * kSecond);
  EXPECT_FALSE(judge_.cleared());
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CLEARED)}, 22 * kSecond);
  EXPECT_EQ(judge_.false_alarms(), 0);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_SUSPECTED)}, 23 * kSecond);
  EXPECT_EQ(judge_.false_alarms(), 1);
  judge_.EndPhase();
  EXPECT_FALSE(judge_.AllRight());
}

TEST_F(DemoJudgeTest, NotClearedIsWrong) {
  Healthy();
  Stopped();
  judge_.BeginPhase(DemoPhaseKind::kResumed, "SIGCONT", "cleared", 20 * kSecond);
  judge_.Observe({Verdict("v1", 2, v1::VERDICT_STATE_CONFIRMED)}, 29 * kSecond);
  judge_.EndPhase();
  EXPECT_THAT(judge_.phases()[2].faults, Contains(HasSubstr("not cleared")));
}

TEST_F(DemoJudgeTest, TheReportHoldsEveryPhase) {
  Healthy();
  Stopped();
  Resumed();
  const auto report = nlohmann::json::parse(DemoReportJson(judge_));
  EXPECT_EQ(report["false_alarms"], 0);
  ASSERT_EQ(report["phases"].size(), 3U);
  EXPECT_TRUE(report["phases"][0]["onset_to_verdict_s"].is_null());
  EXPECT_EQ(report["phases"][1]["onset_to_verdict_s"], 2.0);
  EXPECT_EQ(report["phases"][1]["correct"], true);
  EXPECT_EQ(report["phases"][1]["verdicts"][0]["culprit"]["rank"], 2);
  EXPECT_EQ(report["phases"][2]["verdicts"][0]["state"], "cleared");
  for (const auto& phase : report["phases"]) {
    EXPECT_TRUE(phase["injected"].is_string());
    EXPECT_TRUE(phase["expected"].is_string());
  }
}

}  // namespace
}  // namespace c4::cli
