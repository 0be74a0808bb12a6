#include "cli/verbs/ledger.h"

#include <gtest/gtest.h>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/mitigation.pb.h"

namespace c4::cli {
namespace {

v1::Verdict* Add(v1::ListVerdictsReply* reply, const std::string& id, int64_t since_s) {
  v1::Verdict* const verdict = reply->add_verdicts();
  verdict->set_id(id);
  verdict->set_syndrome(v1::SYNDROME_FAIL_SLOW);
  verdict->set_state(v1::VERDICT_STATE_CONFIRMED);
  verdict->set_since_unix_ns(since_s * 1'000'000'000);
  verdict->set_confirmed_unix_ns((since_s + 5) * 1'000'000'000);
  v1::FailSlow* const fail_slow = verdict->mutable_fail_slow();
  fail_slow->set_before_s(1);
  fail_slow->set_after_s(1.5);
  fail_slow->set_iterations(100);
  fail_slow->set_lost_s(50);
  fail_slow->set_lost_rank_s(400);
  fail_slow->set_cause(v1::FAIL_SLOW_CAUSE_COMPUTATION);
  return verdict;
}

TEST(Ledger, IsMadeOfFailSlowVerdicts) {
  v1::ListVerdictsReply reply;
  Add(&reply, "late", 2000);
  v1::Verdict* const over = Add(&reply, "early", 1000);
  over->set_state(v1::VERDICT_STATE_CLEARED);
  over->set_cleared_unix_ns(1'200'000'000'000);
  over->mutable_fail_slow()->set_relief_unix_ns(1'150'000'000'000);
  // A suspicion that went away, and what is no fail-slow.
  v1::Verdict* const nothing = Add(&reply, "nothing", 1500);
  nothing->set_confirmed_unix_ns(0);
  nothing->set_cleared_unix_ns(1'600'000'000'000);
  reply.add_verdicts()->set_id("hang");
  const mitigation::Ledger ledger = LedgerOf(reply, {});
  ASSERT_EQ(ledger.events().size(), 2u);
  const mitigation::LedgerEvent& event = ledger.events()[0];
  EXPECT_EQ(event.id, "early");
  EXPECT_EQ(event.since_s, 1000);
  EXPECT_NEAR(event.until_s, 1150, 1e-6);
  EXPECT_EQ(event.cause, "computation");
  EXPECT_EQ(event.iterations, 100u);
  EXPECT_EQ(event.Ranks(), 8);
  EXPECT_EQ(ledger.events()[1].id, "late");
  EXPECT_EQ(ledger.events()[1].until_s, 0);
  EXPECT_NEAR(ledger.LostGpuHours(), 800.0 / 3600, 1e-12);
}

v1::MitigationDecision* Decide(v1::ListDecisionsReply* reply, const char* kind, uint64_t iterations) {
  v1::MitigationDecision* const decision = reply->add_decisions();
  decision->set_unix_ns(1'010'000'000'000);
  decision->set_verdict("slow");
  decision->set_kind(kind);
  decision->set_strategy("S2");
  decision->set_event_iterations(iterations);
  return decision;
}

TEST(Ledger, TellsWhatWasDoneAndWhatItBrought) {
  v1::ListVerdictsReply verdicts;
  Add(&verdicts, "slow", 1000);
  v1::ListDecisionsReply decisions;
  v1::MitigationDecision* const act = Decide(&decisions, "act", 20);
  act->set_iteration_s(4);
  act->set_promised_s(3);
  act->set_cost_s(4);
  v1::MitigationDecision* const brought = Decide(&decisions, "brought", 40);
  brought->set_iteration_s(3.5);
  brought->set_cost_s(0.5);
  Decide(&decisions, "of a later release", 41);
  Decide(&decisions, "step-back", 60);
  const mitigation::Ledger ledger = LedgerOf(verdicts, decisions);
  ASSERT_EQ(ledger.events().size(), 1u);
  ASSERT_EQ(ledger.events()[0].actions.size(), 1u);
  const mitigation::LedgerAction& action = ledger.events()[0].actions[0];
  EXPECT_EQ(action.strategy, mitigation::Strategy::kMicroBatches);
  EXPECT_EQ(action.promised_s, 3);
  EXPECT_EQ(action.brought_s, 3.5);
  EXPECT_EQ(action.iterations, 40u);  // from the 20th to the 60th
  EXPECT_EQ(action.back_at_s, 1010);
  EXPECT_EQ(action.SavedS(), 40 * 0.5 - 0.5);
  EXPECT_EQ(ledger.events()[0].iterations, 100u);
}

}  // namespace
}  // namespace c4::cli
