// The mitigator against programs that are played here: when it acts, whom it tells, what it makes of answers.
#include "c4d_master/mitigation/mitigator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4d_master/mitigation/mitigation_store.h"
#include "c4d_master/verdict_store.h"

namespace c4::c4d {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A job of groups of `stages` workers, a host each, on which all processes have their place as pid.
class MitigatorTest : public testing::Test {
 protected:
  explicit MitigatorTest(bool enabled = true)
      : mitigator_(
            enabled, 100,
            [this](const std::string& host, const v1::ValidationToAgent& message) {
              for (const v1::PlanForProcess& plan : message.plans().plans()) told_[{host, plan.pid()}] = plan;
              return attends_;
            },
            [this](const v1::MitigationDecision& decision) { kept_.push_back(decision); },
            {.traffic = [this] { return Traffic(); },
             .matrix = [this](Now) { return matrix_; },
             .why_no_restart = [this](const v1::Verdict&) { return why_no_restart_; },
             .began_at_ns = [] { return 980 * kSecondNs; },
             .restart_s = [this] { return restart_s_; },
             .restart_progress = [this](const std::string&) { return restart_; }}) {}

  // Stages next to each other exchange a hundredth of what groups do.
  JobTraffic Traffic() const {
    JobTraffic traffic;
    for (uint32_t group = 0; group < times_s_.size(); ++group) {
      for (uint32_t stage = 0; stage < stages_; ++stage) {
        const HostPid self = {HostOf(group, stage), 10 * group + stage};
        traffic.ranks[self] = static_cast<int>(group * stages_ + stage);
        const uint32_t next = (group + 1) % static_cast<uint32_t>(times_s_.size());
        traffic.completed_bytes[{self, {HostOf(next, stage), 10 * next + stage}}] =
            static_cast<uint64_t>(step_) * 10'000'000;
        if (stage + 1 < stages_) {
          traffic.completed_bytes[{self, {HostOf(group, stage + 1), 10 * group + stage + 1}}] =
              static_cast<uint64_t>(step_) * 100'000;
        }
      }
    }
    return traffic;
  }
  // Between the hosts of the first two groups' first stages.
  void SlowLink() {
    v1::MatrixCell* const cell = matrix_.add_cells();
    cell->set_from_host(HostOf(0, 0));
    cell->set_to_host(HostOf(1, 0));
    cell->set_ratio(8);
    cell->set_slow(true);
  }

  void Pass(double seconds) {
    for (double left = seconds; left > 0; left -= 0.5) {
      now_.monotonic_ns += kSecondNs / 2;
      now_.unix_ns += kSecondNs / 2;
      if (reports_) Report();
      mitigator_.Tick(now_);
    }
  }
  void Report() {
    ++step_;
    for (uint32_t group = 0; group < times_s_.size(); ++group) {
      for (uint32_t stage = 0; stage < stages_; ++stage) {
        v1::AgentToValidation message;
        v1::PlanStep* const step = message.mutable_plan_step();
        step->set_pid(10 * group + stage);
        step->set_step(step_);
        step->set_micro_batch_ns(static_cast<uint64_t>(times_s_[group] * 1e9));
        step->set_micro_batches(16);
        step->set_group_micro_batches(static_cast<uint32_t>(dealt_[group]));
        step->mutable_worker()->set_dp_rank(group);
        step->mutable_worker()->set_stage(stage);
        step->mutable_worker()->set_dp_size(static_cast<uint32_t>(times_s_.size()));
        step->mutable_worker()->set_pp_size(stages_);
        step->mutable_worker()->set_tp_size(1);
        step->mutable_worker()->set_cp_size(1);
        mitigator_.Take(HostOf(group, stage), message, now_);
      }
    }
  }
  std::string HostOf(uint32_t group, uint32_t stage = 0) const {
    return "host" + std::to_string(group) + (host_each_ ? "-" + std::to_string(stage) : "");
  }
  // As the detector tells it: 4 micro-batches of 1 s before, of 2 s since.
  void SlowVerdict(double lost_s, bool cleared = false) {
    v1::Verdict verdict;
    verdict.set_id("job-1");
    verdict.set_state(cleared ? v1::VERDICT_STATE_CLEARED : v1::VERDICT_STATE_CONFIRMED);
    verdict.set_confirmed_unix_ns(1);
    v1::FailSlow* const slow = verdict.mutable_fail_slow();
    slow->set_before_s(4);
    slow->set_after_s(cleared ? 4 : 8);
    slow->set_iterations(static_cast<uint64_t>(lost_s / 4));
    slow->set_lost_s(lost_s);
    mitigator_.OnVerdict(verdict);
  }
  void Answer(uint32_t group, uint32_t stage, uint32_t state, uint32_t reason = 0) {
    const auto told = told_.find({HostOf(group, stage), 10 * group + stage});
    ASSERT_NE(told, told_.end());
    v1::AgentToValidation message;
    v1::PlanAnswer* const answer = message.mutable_plan_answer();
    answer->set_pid(10 * group + stage);
    answer->set_plan(told->second.plan());
    answer->set_state(state);
    answer->set_reason(reason);
    answer->set_cost_ns(2'000'000);
    mitigator_.Take(HostOf(group, stage), message, now_);
  }
  // All do as they are told.
  void Follow() {
    for (uint32_t group = 0; group < times_s_.size(); ++group) {
      dealt_[group] = told_[{HostOf(group), 10 * group}].group_micro_batches();
      for (uint32_t stage = 0; stage < stages_; ++stage) {
        Answer(group, stage, 1);
        Answer(group, stage, 2);
      }
    }
    told_.clear();
  }
  v1::MitigationDecision Newest(const std::string& kind) const {
    v1::MitigationDecision newest;
    for (const v1::MitigationDecision& decision : mitigator_.decisions()) {
      if (decision.kind() == kind) newest = decision;
    }
    return newest;
  }
  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const v1::MitigationDecision& decision : mitigator_.decisions()) {
      if (decision.kind() != "skip") kinds.push_back(decision.strategy() + " " + decision.kind());
    }
    return kinds;
  }

  std::vector<double> times_s_ = {1, 1, 2, 1};
  std::vector<uint32_t> dealt_ = {4, 4, 4, 4};
  uint32_t stages_ = 1;
  bool host_each_ = false;  // a worker has a host of its own
  bool reports_ = true;
  v1::GetMatrixReply matrix_;
  std::string why_no_restart_ = "there is no driver";
  std::optional<double> restart_s_;
  RestartProgress restart_;
  bool attends_ = true;
  int64_t step_ = 0;
  Now now_ = {.monotonic_ns = 1000 * kSecondNs, .unix_ns = 5000 * kSecondNs};
  std::map<std::pair<std::string, uint32_t>, v1::PlanForProcess> told_;
  std::vector<v1::MitigationDecision> kept_;
  Mitigator mitigator_;
};

TEST_F(MitigatorTest, ItActsWhenTheEventHasCostWhatTheActionDoes) {
  Pass(5);
  SlowVerdict(4);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_TRUE(told_.empty());
  SlowVerdict(12);  // more than an iteration, as which the cost is estimated
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act"));
  const v1::MitigationDecision& decision = mitigator_.decisions().back();
  EXPECT_THAT(decision.micro_batches(), ElementsAre(5, 5, 2, 4));
  EXPECT_EQ(decision.plan(), 100u);
  EXPECT_EQ(decision.promised_s(), 5);
  EXPECT_EQ(decision.event_iterations(), 3u);
  ASSERT_EQ(told_.size(), 4u);
  const v1::PlanForProcess& third = told_[{"host2", 20}];
  EXPECT_EQ(third.first_micro_batch(), 10u);
  EXPECT_EQ(third.group_micro_batches(), 2u);
  EXPECT_EQ(third.micro_batches(), 16u);
  EXPECT_EQ(third.now().dp_rank(), 2u);
  EXPECT_EQ(third.next().dp_rank(), 2u);

  Follow();
  SlowVerdict(4 * 20);
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 brought"));
  EXPECT_EQ(Newest("brought").cost_s(), 0.002);  // as it was measured
  EXPECT_EQ(kept_.size(), mitigator_.decisions().size());
}

TEST_F(MitigatorTest, WhatRefusesTakesThePlanBackFromAll) {
  Pass(5);
  SlowVerdict(12);
  Pass(1);
  Answer(0, 0, 1);
  const uint64_t plan = told_[{"host1", 10}].plan();
  told_.clear();
  told_[{"host2", 20}].set_plan(plan);
  Answer(2, 0, 3, 2);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 failed"));
  EXPECT_THAT(mitigator_.decisions().back().why(), HasSubstr("the job was laid out anew"));
  const v1::PlanForProcess& back = told_[{"host1", 10}];
  EXPECT_EQ(back.strategy(), 0u);
  EXPECT_EQ(back.plan(), plan);
  SlowVerdict(100);
  Pass(10);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 failed"));  // not again for this event
}

TEST_F(MitigatorTest, AProgramThatNeverPollsLosesThePlanAfterTwoMinutes) {
  Pass(5);
  SlowVerdict(12);
  Pass(119);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act"));
  told_.clear();
  Pass(3);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 failed"));
  EXPECT_EQ(told_.size(), 4u);  // it is taken back
}

TEST_F(MitigatorTest, AnAgentThatGoesTakesThePlanWithIt) {
  Pass(5);
  SlowVerdict(12);
  Pass(1);
  mitigator_.Lost("host3", now_);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 failed"));
  EXPECT_THAT(mitigator_.decisions().back().why(), HasSubstr("the agent of host3 is gone"));
}

TEST_F(MitigatorTest, WithoutReportsItSaysWhatIsMissing) {
  reports_ = false;
  SlowVerdict(12);
  Pass(1);
  EXPECT_THAT(Kinds(), IsEmpty());
  ASSERT_FALSE(mitigator_.decisions().empty());
  EXPECT_THAT(mitigator_.decisions().front().why(), HasSubstr("no program says what its steps take"));
}

TEST_F(MitigatorTest, EquallySlowGroupsAreLeftAlone) {
  times_s_ = {2, 2, 2, 2};
  Pass(5);
  SlowVerdict(1000);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_TRUE(told_.empty());
}

TEST_F(MitigatorTest, AWorkerThatDoesNotTellLeavesTheLayoutUnknown) {
  stages_ = 2;
  Pass(1);
  LayoutPace pace;
  std::string why;
  ASSERT_TRUE(mitigator_.Pace(now_, &pace, &why)) << why;
  EXPECT_EQ(pace.stages, 2);
  EXPECT_EQ(pace.groups[2].micro_batch_s, 2);
  mitigator_.Lost("host1", now_);
  EXPECT_FALSE(mitigator_.Pace(now_, &pace, &why));
  EXPECT_EQ(why, "6 of 8 workers tell of 12 of 16 micro-batches");
}

// The action has made iterations usual, so the verdict is cleared while the group is slow still.
TEST_F(MitigatorTest, ItIsTakenBackWhenTheGroupIsWellAgainThoughTheVerdictIsCleared) {
  Pass(5);
  SlowVerdict(12);
  Pass(1);
  Follow();
  SlowVerdict(60, true);
  Pass(30);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 brought"));
  EXPECT_TRUE(told_.empty());
  times_s_ = {1, 1, 1, 1};
  Pass(30);
  EXPECT_THAT(Kinds(), ElementsAre("S2 act", "S2 brought", "S2 step-back"));
  EXPECT_EQ((told_[{"host2", 20}].group_micro_batches()), 4u);
  Follow();
  Pass(5);
  EXPECT_EQ(Kinds().back(), "S1 relieved");
  Pass(30);
  EXPECT_EQ(Kinds().size(), 4u);
}

// Groups that compute alike, and a congested link between two of them.
class PlacesTest : public MitigatorTest {
 protected:
  PlacesTest() {
    times_s_ = {1, 1};
    dealt_ = {8, 8};
    stages_ = 2;
    host_each_ = true;
    SlowLink();
  }
};

TEST_F(PlacesTest, ACongestedLinkIsLeftByGradients) {
  Pass(5);
  SlowVerdict(4);
  Pass(10);  // in which twenty steps tell what one sends
  EXPECT_THAT(Kinds(), IsEmpty());
  SlowVerdict(40);
  Pass(1);
  ASSERT_THAT(Kinds(), ElementsAre("S3 act"));
  const v1::MitigationDecision decision = mitigator_.decisions().back();
  EXPECT_THAT(decision.why(), HasSubstr("stage 0 of group"));
  EXPECT_LT(decision.promised_s(), 5);
  EXPECT_GT(decision.cost_s(), 8);
  ASSERT_EQ(told_.size(), 4u);
  uint32_t moved = 0;
  for (const auto& [process, plan] : told_) {
    EXPECT_EQ(plan.plan(), decision.plan());
    EXPECT_EQ(plan.strategy(), 3u);
    EXPECT_EQ(plan.micro_batches(), 16u);
    EXPECT_EQ(plan.group_micro_batches(), 8u);
    EXPECT_EQ(plan.first_micro_batch(), 8 * plan.next().dp_rank());
    moved += plan.send_to() >= 0 ? 1 : 0;
  }
  EXPECT_GE(moved, 2u);

  Follow();
  Pass(12);  // a step every half second: faster than before it all
  EXPECT_THAT(Kinds(), ElementsAre("S3 act", "S3 brought"));
  SlowVerdict(44, true);
  Pass(1);
  EXPECT_EQ(Kinds().back(), "S3 relieved");
  EXPECT_EQ(Kinds().size(), 3u);  // it is not taken back
}

TEST_F(PlacesTest, NothingIsSaidOfPlacesBeforeItIsMeasuredWhatAStepSends) {
  reports_ = false;
  Report();
  SlowVerdict(1000);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  bool said = false;
  for (const v1::MitigationDecision& decision : mitigator_.decisions()) {
    said = said ||
           (decision.strategy() == "S3" && decision.why().find("is being measured") != std::string::npos);
  }
  EXPECT_TRUE(said);
}

// The plan goes to the agents before anybody knows; a rank that dies takes it from all.
TEST_F(PlacesTest, ARankThatDiesInASwapEndsItForAll) {
  Pass(5);
  SlowVerdict(4);
  Pass(10);
  SlowVerdict(40);
  Pass(1);
  ASSERT_THAT(Kinds(), ElementsAre("S3 act"));
  Answer(0, 0, 1);
  Answer(0, 1, 2);
  const auto sent = told_;
  told_.clear();
  v1::AgentToValidation message;
  message.mutable_plan_answer()->set_pid(11);
  message.mutable_plan_answer()->set_plan(mitigator_.decisions().back().plan());
  message.mutable_plan_answer()->set_gone(true);
  mitigator_.Take(HostOf(1, 1), message, now_);
  EXPECT_THAT(Kinds(), ElementsAre("S3 act", "S3 failed"));
  EXPECT_EQ(told_.size(), 3u);  // but for who has done it
  for (const auto& [process, plan] : told_) EXPECT_EQ(plan.strategy(), 0u);
}

TEST_F(PlacesTest, ReliefWhileNobodyHasHeardOfItTakesThePlanBack) {
  Pass(5);
  SlowVerdict(4);
  Pass(10);
  SlowVerdict(40);
  Pass(1);
  told_.clear();
  SlowVerdict(40, true);
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S3 act", "S1 relieved"));
  EXPECT_EQ(told_.size(), 4u);
}

TEST_F(PlacesTest, ReliefWhileItIsCarriedOutWaitsForItsEnd) {
  Pass(5);
  SlowVerdict(4);
  Pass(10);
  SlowVerdict(40);
  Pass(1);
  Answer(1, 0, 1);
  SlowVerdict(40, true);
  Pass(5);
  EXPECT_THAT(Kinds(), ElementsAre("S3 act"));
  Follow();
  Pass(15);
  EXPECT_THAT(Kinds(), ElementsAre("S3 act", "S3 brought", "S3 relieved"));
}

TEST_F(PlacesTest, ReliefWhileAHeardPlanHangsEndsWithItsTime) {
  Pass(5);
  SlowVerdict(4);
  Pass(10);
  SlowVerdict(40);
  Pass(1);
  Answer(1, 0, 1);
  SlowVerdict(40, true);
  told_.clear();
  Pass(125);
  EXPECT_THAT(Kinds(), ElementsAre("S3 act", "S3 failed", "S1 relieved"));
  EXPECT_EQ(told_.size(), 4u);
}

class RestartTest : public MitigatorTest {
 protected:
  RestartTest() {
    times_s_ = {2, 2};
    dealt_ = {8, 8};
    why_no_restart_ = "";
  }
  v1::Verdict Verdict() const {
    v1::Verdict verdict;
    verdict.set_id("job-1");
    verdict.mutable_fail_slow();
    return verdict;
  }
};

TEST_F(RestartTest, ARestartWaitsUntilTheEventHasCostWhatOneDoes) {
  restart_s_ = 60;
  Pass(5);
  SlowVerdict(40);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_FALSE(mitigator_.MayRestart(Verdict()));
  SlowVerdict(64);
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act"));
  EXPECT_EQ(mitigator_.decisions().back().cost_s(), 60);
  EXPECT_TRUE(mitigator_.MayRestart(Verdict()));
  EXPECT_TRUE(told_.empty());  // it is no plan
  restart_.state = RestartProgress::State::kUnderWay;
  SlowVerdict(64, true);  // its processes are gone
  Pass(300);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act"));
  restart_ = {.state = RestartProgress::State::kDone, .cost_s = 75, .why = ""};
  Pass(15);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act", "S4 brought", "S4 relieved"));
  EXPECT_EQ(mitigator_.decisions()[mitigator_.decisions().size() - 2].cost_s(), 75);
}

TEST_F(RestartTest, WithoutOneBeforeTheJobsStartSaysWhatItCosts) {
  Pass(5);  // its first step was told 20.5 s after its first process
  SlowVerdict(20);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  SlowVerdict(24);
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act"));
  EXPECT_EQ(mitigator_.decisions().back().cost_s(), 20.5);
}

TEST_F(RestartTest, AMasterThatCameLaterDoesNotKnowIt) {
  step_ = 500;
  Pass(5);
  SlowVerdict(1e6);
  Pass(5);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_THAT(mitigator_.decisions().back().why(), HasSubstr("nobody knows what S4 costs"));
}

TEST_F(RestartTest, OneThatRecoveryHoldsBackHasFailedAfterTwoMinutes) {
  restart_s_ = 10;
  restart_ = {.state = RestartProgress::State::kHeld, .cost_s = 0, .why = "recovery holds it: rate"};
  Pass(5);
  SlowVerdict(12);
  Pass(119);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act"));
  Pass(3);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act", "S4 failed"));
  EXPECT_THAT(Newest("failed").why(), HasSubstr("recovery holds it: rate"));
  EXPECT_FALSE(mitigator_.MayRestart(Verdict()));
}

TEST_F(RestartTest, OneThatRecoveryGivesUpHasFailed) {
  restart_s_ = 10;
  Pass(5);
  SlowVerdict(12);
  Pass(1);
  restart_ = {.state = RestartProgress::State::kFailed, .cost_s = 0, .why = "recovery has ended it"};
  Pass(1);
  EXPECT_THAT(Kinds(), ElementsAre("S4 act", "S4 failed"));
}

TEST_F(RestartTest, OtherVerdictsAreRecoverysOwn) {
  v1::Verdict crash;
  crash.set_id("job-2");
  EXPECT_TRUE(mitigator_.MayRestart(crash));
}

TEST(MitigatorOffTest, NothingIsDecidedUnlessTheJobAsksForIt) {
  bool sent = false;
  Mitigator mitigator(
      false, 1, [&sent](const std::string&, const v1::ValidationToAgent&) { return sent = true; }, nullptr);
  v1::Verdict verdict;
  verdict.set_id("a");
  verdict.set_confirmed_unix_ns(1);
  verdict.mutable_fail_slow()->set_lost_s(1e6);
  mitigator.OnVerdict(verdict);
  mitigator.Tick({.monotonic_ns = kSecondNs, .unix_ns = 0});
  EXPECT_FALSE(sent);
  EXPECT_TRUE(mitigator.decisions().empty());
}

TEST(MitigationStoreTest, DecisionsOfTheJobComeBackInTheirOrder) {
  VerdictStore store(":memory:");
  MitigationStore one(store.file(), "one");
  MitigationStore other(store.file(), "other");
  v1::MitigationDecision decision;
  decision.set_verdict("one-1");
  decision.set_kind("act");
  decision.add_micro_batches(3);
  ASSERT_TRUE(one.Add(decision).ok());
  decision.set_kind("brought");
  ASSERT_TRUE(one.Add(decision).ok());
  ASSERT_TRUE(other.Add(decision).ok());
  const auto loaded = one.Load();
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->size(), 2u);
  EXPECT_EQ((*loaded)[0].kind(), "act");
  EXPECT_THAT((*loaded)[0].micro_batches(), ElementsAre(3));
  EXPECT_EQ((*loaded)[1].kind(), "brought");
}

}  // namespace
}  // namespace c4::c4d
