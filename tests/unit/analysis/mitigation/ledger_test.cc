#include "analysis/mitigation/ledger.h"

#include <gtest/gtest.h>
#include <sstream>

#include <nlohmann/json.hpp>

#include "analysis/mitigation/report.h"

namespace c4::mitigation {
namespace {

LedgerEvent Event(const std::string& id, uint64_t iterations, double lost_s) {
  LedgerEvent event;
  event.id = id;
  event.culprit = "rank 3 on host1";
  event.cause = "computation";
  event.since_s = 100;
  event.healthy_s = 1;
  event.slow_s = 1.5;
  event.iterations = iterations;
  event.lost_s = lost_s;
  event.lost_rank_s = 8 * lost_s;
  return event;
}

Decision Of(Decision::Kind kind, Strategy strategy, double iteration_s, double cost_s) {
  Decision decision;
  decision.kind = kind;
  decision.event = "v1";
  decision.strategy = strategy;
  decision.at_s = 110;
  decision.iteration_s = iteration_s;
  decision.promised_s = 1.1;
  decision.cost_s = cost_s;
  decision.why = "a sentence";
  return decision;
}

TEST(Ledger, CountsWhatActionsBring) {
  Ledger ledger;
  ledger.Observe(Event("v1", 10, 5));
  ledger.Observe(Event("v2", 1, 45));
  EXPECT_NEAR(ledger.LostGpuHours(), 400.0 / 3600, 1e-12);
  ledger.Note(Of(Decision::Kind::kAct, Strategy::kMicroBatches, 1.5, 3));
  // Until it is measured nothing is said of what it brings.
  ledger.Observe(Event("v1", 20, 6));
  EXPECT_EQ(ledger.SavedGpuHours(), 0);
  ledger.Note(Of(Decision::Kind::kBrought, Strategy::kMicroBatches, 1.2, 2));
  ledger.Observe(Event("v1", 110, 20));
  ASSERT_EQ(ledger.events().size(), 2u);
  ASSERT_EQ(ledger.events()[0].actions.size(), 1u);
  const LedgerAction& action = ledger.events()[0].actions[0];
  EXPECT_EQ(action.iterations, 100u);
  EXPECT_NEAR(action.SavedS(), 100 * 0.3 - 2, 1e-9);
  EXPECT_TRUE(action.cost_measured);
  EXPECT_NEAR(ledger.SavedGpuHours(), 28 * 8 / 3600.0, 1e-9);
  // Taken back, it brings nothing any more.
  ledger.Note(Of(Decision::Kind::kStepBack, Strategy::kMicroBatches, 1.2, 2));
  ledger.Observe(Event("v1", 210, 20));
  EXPECT_EQ(ledger.events()[0].actions[0].iterations, 100u);
  EXPECT_EQ(ledger.events()[0].actions[0].back_at_s, 110);
}

TEST(Ledger, KnowsWhatWasNotTaken) {
  Ledger ledger;
  ledger.Observe(Event("v1", 10, 5));
  ledger.Note(Of(Decision::Kind::kAct, Strategy::kMicroBatches, 1.5, 3));
  ledger.Note(Of(Decision::Kind::kFailed, Strategy::kMicroBatches, 1.5, 3));
  EXPECT_EQ(ledger.events()[0].actions[0].failed, "a sentence");
  ledger.Observe(Event("v1", 20, 5));
  EXPECT_EQ(ledger.events()[0].actions[0].iterations, 0u);
  // A way back that was not taken: the action is in force.
  ledger.Note(Of(Decision::Kind::kAct, Strategy::kPlacement, 1.5, 3));
  ledger.Note(Of(Decision::Kind::kStepBack, Strategy::kPlacement, 1.5, 3));
  ledger.Note(Of(Decision::Kind::kFailed, Strategy::kPlacement, 1.5, 3));
  EXPECT_EQ(ledger.events()[0].actions[1].back_at_s, 0);
  EXPECT_EQ(ledger.events()[0].actions[1].failed, "");
  ledger.Observe(Event("v1", 30, 5));
  EXPECT_EQ(ledger.events()[0].actions[1].iterations, 10u);
  // Of an event that nobody told of, nothing is kept.
  Decision stray = Of(Decision::Kind::kAct, Strategy::kPlacement, 1.5, 3);
  stray.event = "v9";
  ledger.Note(stray);
  EXPECT_EQ(ledger.events().size(), 1u);
}

TEST(Ledger, IsToldAsTextAndJson) {
  Ledger ledger;
  const auto clock = [](double at_s) { return "at " + std::to_string(static_cast<int>(at_s)); };
  EXPECT_EQ(LedgerText("night", ledger, clock), "job night: no fail-slow is known\n");
  ledger.Observe(Event("v1", 10, 45));
  ledger.Note(Of(Decision::Kind::kAct, Strategy::kMicroBatches, 1.5, 3));
  const auto early = nlohmann::json::parse(LedgerJson("night", ledger));
  EXPECT_TRUE(early["events"][0]["actions"][0]["brought_s"].is_null());
  EXPECT_TRUE(early["events"][0]["until_unix_s"].is_null());
  ledger.Note(Of(Decision::Kind::kBrought, Strategy::kMicroBatches, 1.2, 2));
  LedgerEvent over = Event("v1", 110, 90);
  over.until_s = 300;
  ledger.Observe(over);
  EXPECT_EQ(LedgerText("night", ledger, clock),
            "job night: 1 fail-slow cost 0.2 GPU-hours\n"
            "\n"
            "v1: rank 3 on host1\n"
            "  at 100 to at 300; computation\n"
            "  1.5 s instead of 1 s in 110 iterations of 8 ranks: 0.2 GPU-hours\n"
            "  at 110 S2: promised 1.1 s, brought 1.2 s; cost 2 s\n"
            "    saved 0.0622 GPU-hours\n");
  const auto json = nlohmann::json::parse(LedgerJson("night", ledger));
  EXPECT_NEAR(json["lost_gpu_hours"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(json["events"][0]["actions"][0]["strategy"], "S2");
  EXPECT_EQ(json["events"][0]["actions"][0]["brought_s"], 1.2);
  EXPECT_EQ(json["events"][0]["until_unix_s"], 300);
  EXPECT_NEAR(json["saved_gpu_hours"].get<double>(), 28 * 8 / 3600.0, 1e-9);
}

}  // namespace
}  // namespace c4::mitigation
