// The judge of injected faults: what it takes for right, for missed, for late, and for a false alarm.
#include "cli/demonstration/fault_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kA[] = "10.0.0.2:4000";
constexpr char kB[] = "10.0.0.2:4001";
constexpr char kC[] = "10.0.0.2:4002";
constexpr char kTo[] = "10.1.0.2:500";

v1::Verdict Verdict(const std::string& id, v1::Syndrome syndrome, v1::VerdictState state) {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_syndrome(syndrome);
  verdict.set_state(state);
  if (state == v1::VERDICT_STATE_CONFIRMED) verdict.set_confirmed_unix_ns(1);
  return verdict;
}

v1::Verdict OfRank(const std::string& id, int rank, v1::VerdictState state) {
  v1::Verdict verdict = Verdict(id, v1::SYNDROME_NON_COMMUNICATION_HANG, state);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(rank);
  verdict.mutable_culprit()->mutable_process()->set_host("host" + std::to_string(rank));
  return verdict;
}

v1::Verdict OfFlows(const std::string& id, const std::vector<std::string>& locals) {
  v1::Verdict verdict = Verdict(id, v1::SYNDROME_COMMUNICATION_SLOW, v1::VERDICT_STATE_CONFIRMED);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_CONNECTION);
  for (const std::string& local : locals) {
    v1::ConnectionRef* connection = verdict.mutable_culprit()->add_connections();
    connection->set_local(local);
    connection->set_remote(kTo);
  }
  return verdict;
}

std::vector<std::string> Sentences(const FaultJudge& judge) {
  std::vector<std::string> sentences;
  for (const FalseAlarm& alarm : judge.false_alarms()) sentences.push_back(alarm.sentence);
  return sentences;
}

v1::Verdict Cleared(v1::Verdict verdict) {
  verdict.set_state(v1::VERDICT_STATE_CLEARED);
  return verdict;
}

ExpectedVerdict StoppedRank2() {
  ExpectedVerdict expected;
  expected.fault = "stop rank 2";
  expected.syndrome = v1::SYNDROME_NON_COMMUNICATION_HANG;
  expected.kind = v1::CULPRIT_KIND_RANK;
  expected.rank = 2;
  expected.host = "host2";
  return expected;
}

ExpectedVerdict SlowLink() {
  ExpectedVerdict expected;
  expected.fault = "slow-link leaf0-spine1";
  expected.syndrome = v1::SYNDROME_COMMUNICATION_SLOW;
  expected.kind = v1::CULPRIT_KIND_CONNECTION;
  expected.must = {{kA, kTo}, {kB, kTo}};
  expected.may = {{kC, kTo}};
  expected.limit_s = 10;
  return expected;
}

TEST(FaultJudge, TheRightRankInTimeAndClearedIsRight) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({}, 11);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_SUSPECTED)}, 12);
  EXPECT_TRUE(judge.suspected());
  EXPECT_FALSE(judge.confirmed());
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 13);
  judge.Healed(14);
  judge.Observe({Cleared(OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED))}, 15);
  judge.End(40);
  EXPECT_TRUE(judge.AllRight());
  ASSERT_THAT(judge.judged(), SizeIs(1));
  EXPECT_DOUBLE_EQ(*judge.judged()[0].suspected_after_s, 2);
  EXPECT_DOUBLE_EQ(*judge.judged()[0].confirmed_after_s, 3);
  EXPECT_DOUBLE_EQ(*judge.judged()[0].cleared_after_s, 1);
}

TEST(FaultJudge, AnotherRankIsAFalseAlarmAndCountedOnce) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 3, v1::VERDICT_STATE_CONFIRMED)}, 12);
  judge.Observe({OfRank("1", 3, v1::VERDICT_STATE_CONFIRMED)}, 13);
  judge.Healed(14);
  judge.End(40);
  EXPECT_THAT(Sentences(judge), ElementsAre(HasSubstr("it blames rank 3")));
  EXPECT_THAT(judge.judged()[0].faults, ElementsAre(HasSubstr("false alarm"), "no verdict named it"));
}

TEST(FaultJudge, ASuspicionIsNoAlarmAndNoVerdict) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 3, v1::VERDICT_STATE_SUSPECTED), OfRank("2", 2, v1::VERDICT_STATE_SUSPECTED)},
                12);
  judge.Healed(20);
  judge.End(40);
  EXPECT_THAT(Sentences(judge), IsEmpty());
  EXPECT_THAT(judge.judged()[0].faults, ElementsAre("no more than suspected"));
}

TEST(FaultJudge, LateIsNotRight) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 15.5);
  judge.Healed(16);
  judge.Observe({Cleared(OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED))}, 17);
  judge.End(40);
  EXPECT_THAT(judge.judged()[0].faults, ElementsAre(HasSubstr("after 5.5 s, more than 5 s")));
}

TEST(FaultJudge, WhatComesLongAfterHealingIsAFalseAlarm) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 12);
  judge.Healed(14);
  judge.Observe({Cleared(OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED))}, 15);
  judge.Observe({OfRank("2", 2, v1::VERDICT_STATE_CONFIRMED)}, 14 + kAfterHealS + 1);
  judge.End(60);
  EXPECT_THAT(Sentences(judge), ElementsAre(HasSubstr("nothing was wrong")));
}

TEST(FaultJudge, ASecondVerdictAboutTheSameFaultIsAFalseAlarm) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 12);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED), OfRank("2", 2, v1::VERDICT_STATE_CONFIRMED)},
                13);
  EXPECT_THAT(Sentences(judge), ElementsAre(HasSubstr("a second verdict")));
}

TEST(FaultJudge, EveryConnectionOnTheLinkHasToBeNamedInTheEnd) {
  FaultJudge judge;
  judge.Injected(SlowLink(), 0);
  judge.Observe({OfFlows("1", {kA})}, 6);
  judge.Observe({OfFlows("1", {kA, kB, kC})}, 8);
  judge.Healed(9);
  judge.Observe({Cleared(OfFlows("1", {kA, kB, kC}))}, 12);
  judge.End(40);
  EXPECT_TRUE(judge.AllRight());

  FaultJudge missing;
  missing.Injected(SlowLink(), 0);
  missing.Observe({OfFlows("1", {kA})}, 6);
  missing.Healed(9);
  EXPECT_THAT(missing.judged()[0].faults,
              ElementsAre(HasSubstr("1 of 2 queue pairs on the link are not named")));
}

TEST(FaultJudge, AConnectionThatDoesNotTakeTheLinkIsWrongAlsoWhenItIsNamedLater) {
  FaultJudge judge;
  judge.Injected(SlowLink(), 0);
  judge.Observe({OfFlows("1", {kA, kB})}, 6);
  judge.Observe({OfFlows("1", {kA, kB, "10.9.9.9:1"})}, 7);
  judge.Healed(9);
  judge.End(40);
  EXPECT_THAT(Sentences(judge), ElementsAre(HasSubstr("10.9.9.9:1")));
  EXPECT_FALSE(judge.AllRight());
}

TEST(FaultJudge, NoVerdictMayComeWhereNoneIsExpected) {
  ExpectedVerdict none;
  none.fault = "jitter";
  FaultJudge quiet;
  quiet.Injected(none, 0);
  quiet.Observe({OfRank("1", 1, v1::VERDICT_STATE_SUSPECTED)}, 3);
  quiet.Healed(10);
  quiet.End(40);
  EXPECT_TRUE(quiet.AllRight());
  FaultJudge loud;
  loud.Injected(none, 0);
  loud.Observe({OfRank("1", 1, v1::VERDICT_STATE_CONFIRMED)}, 3);
  EXPECT_FALSE(loud.AllRight());
}

TEST(FaultJudge, AVerdictThatIsNotClearedAfterHealingIsNotRight) {
  FaultJudge judge;
  judge.Injected(StoppedRank2(), 10);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 12);
  judge.Healed(14);
  judge.Observe({OfRank("1", 2, v1::VERDICT_STATE_CONFIRMED)}, 39);
  judge.End(40);
  EXPECT_THAT(judge.judged()[0].faults, ElementsAre("the verdict was not cleared after healing"));
}

v1::Verdict OfLink(v1::CulpritKind kind, const std::string& cable, const std::vector<std::string>& links) {
  v1::Verdict verdict;
  verdict.set_id("1");
  verdict.set_syndrome(v1::SYNDROME_COMMUNICATION_SLOW);
  verdict.set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict.set_confirmed_unix_ns(1);
  verdict.mutable_culprit()->set_kind(kind);
  verdict.mutable_culprit()->set_cable(cable);
  verdict.mutable_culprit()->mutable_links()->Assign(links.begin(), links.end());
  return verdict;
}

// With paths known: the link, or one of several that nothing tells from it; the connections do not do.
TEST(FaultJudge, ALinkIsNamedAsThatLink) {
  ExpectedVerdict expected = SlowLink();
  expected.kind = v1::CULPRIT_KIND_LINK;
  expected.cable = "leaf0-spine1";
  expected.shared = {"leaf2-spine1"};
  const auto told = [&](const v1::Verdict& verdict) {
    FaultJudge judge;
    judge.Injected(expected, 10);
    judge.Observe({verdict}, 12);
    judge.Healed(14);
    return judge.false_alarms().empty() ? std::string("right") : judge.false_alarms()[0].sentence;
  };
  EXPECT_EQ(told(OfLink(v1::CULPRIT_KIND_LINK, "leaf0-spine1", {"leaf0>spine1"})), "right");
  EXPECT_EQ(told(OfLink(v1::CULPRIT_KIND_AMBIGUOUS, "", {"leaf0>spine1", "leaf2<spine1"})), "right");
  EXPECT_THAT(told(OfLink(v1::CULPRIT_KIND_LINK, "leaf2-spine1", {})),
              HasSubstr("it blames link leaf2-spine1"));
  EXPECT_THAT(told(OfLink(v1::CULPRIT_KIND_AMBIGUOUS, "", {"leaf0>spine1", "leaf3<spine1"})),
              HasSubstr("though not all that is bad takes leaf3-spine1"));
  EXPECT_THAT(told(OfLink(v1::CULPRIT_KIND_AMBIGUOUS, "", {"leaf2<spine1"})),
              HasSubstr("it does not name leaf0-spine1"));
  EXPECT_THAT(told(OfLink(v1::CULPRIT_KIND_CONNECTION, "", {})), HasSubstr("it blames 0 queue pairs"));
}

// A job that something slows down has longer iterations: no second alarm, unless it blames somebody else.
TEST(FaultJudge, AFailSlowFollowsFromWhatIsSlow) {
  ExpectedVerdict slow = StoppedRank2();
  slow.fault = "slow-rank host2";
  slow.syndrome = v1::SYNDROME_NON_COMMUNICATION_SLOW;
  v1::Verdict right = OfRank("a", 2, v1::VERDICT_STATE_CONFIRMED);
  right.set_syndrome(v1::SYNDROME_NON_COMMUNICATION_SLOW);
  v1::Verdict known = OfRank("b", 2, v1::VERDICT_STATE_CONFIRMED);
  known.set_syndrome(v1::SYNDROME_FAIL_SLOW);
  known.mutable_fail_slow()->set_known_from("c4d");
  v1::Verdict nobody = Verdict("c", v1::SYNDROME_FAIL_SLOW, v1::VERDICT_STATE_CONFIRMED);
  v1::Verdict wrong = OfRank("d", 5, v1::VERDICT_STATE_CONFIRMED);
  wrong.set_syndrome(v1::SYNDROME_FAIL_SLOW);
  wrong.mutable_fail_slow()->set_known_from("c4d");
  FaultJudge judge;
  judge.Injected(slow, 10);
  judge.Observe({right, known, nobody}, 12);
  EXPECT_THAT(judge.false_alarms(), IsEmpty());
  judge.Observe({wrong}, 12);
  EXPECT_THAT(Sentences(judge), ElementsAre(HasSubstr("fail-slow, rank 5")));
  // What stops a job does not do that, nor is it right where nothing is wrong.
  FaultJudge stopped;
  stopped.Injected(StoppedRank2(), 10);
  stopped.Observe({nobody}, 12);
  EXPECT_THAT(stopped.false_alarms(), SizeIs(1));
  FaultJudge none;
  none.Observe({nobody}, 12);
  EXPECT_THAT(none.false_alarms(), SizeIs(1));
}

}  // namespace
}  // namespace c4::cli
