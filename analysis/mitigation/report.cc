#include "analysis/mitigation/report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::mitigation {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 32;

std::string Seconds(double seconds) {
  return absl::StrFormat("%.4g s", seconds);
}

}  // namespace

std::string MicroBatchText(std::span<const double> times_s, const MicroBatchPlan& plan) {
  std::string text =
      absl::StrFormat("%5s %14s %14s %9s\n", "group", "micro-batch", "micro-batches", "weight");
  const size_t rows = std::min(times_s.size(), kMostRows);
  for (size_t group = 0; group < rows; ++group) {
    absl::StrAppendFormat(&text, "%5d %14s %14d %9.6f\n", group, Seconds(times_s[group]),
                          plan.micro_batches[group], plan.weights[group]);
  }
  if (rows < times_s.size()) {
    absl::StrAppend(&text, "... and ", times_s.size() - rows, " more groups; --json has them all\n");
  }
  absl::StrAppendFormat(&text, "\nan iteration computes for %s; dealt out evenly for %s",
                        Seconds(plan.iteration_s), Seconds(plan.even_s));
  if (plan.iteration_s < plan.even_s) {
    absl::StrAppendFormat(&text, " (%.1f %% less)\n", 100 * (1 - plan.iteration_s / plan.even_s));
  } else {
    absl::StrAppend(&text, ":\nit cannot be bettered\n");
  }
  absl::StrAppendFormat(&text, "in fractions of micro-batches it would be %s at the least\n",
                        Seconds(plan.ideal_s));
  return text;
}

std::string MicroBatchJson(const MicroBatchPlan& plan) {
  const Json json = {{"micro_batches", plan.micro_batches},
                     {"weights", plan.weights},
                     {"iteration_s", plan.iteration_s},
                     {"even_s", plan.even_s},
                     {"ideal_s", plan.ideal_s}};
  return json.dump();
}

std::string PlacementText(const PlacedJob& job, const PlacementPlan& plan) {
  std::string text = absl::StrFormat("an iteration in the model: %s; with nothing slow: %s\n",
                                     Seconds(plan.before_s), Seconds(plan.healthy_s));
  if (plan.before_s <= plan.healthy_s) {
    return absl::StrCat(text, "what is slow costs nothing where it is: nobody has to move\n");
  }
  if (plan.moves.empty()) return absl::StrCat(text, "no other placement is better: nobody has to move\n");
  absl::StrAppendFormat(&text, "placed anew: %s; %.1f %% of the slow-down go away\n\n", Seconds(plan.after_s),
                        100 * plan.Removed());
  absl::StrAppendFormat(&text, "%5s %5s %16s %16s\n", "stage", "group", "from place", "to place");
  const size_t rows = std::min(plan.moves.size(), kMostRows);
  const auto named = [&job](int place) {
    return absl::StrCat(place, " (node ", place / job.places_per_node, ")");
  };
  for (size_t i = 0; i < rows; ++i) {
    const Move& move = plan.moves[i];
    absl::StrAppendFormat(&text, "%5d %5d %16s %16s\n", move.stage, move.group, named(move.from_place),
                          named(move.to_place));
  }
  if (rows < plan.moves.size()) {
    absl::StrAppend(&text, "... and ", plan.moves.size() - rows, " more; --json has them all\n");
  }
  absl::StrAppendFormat(&text, "\ntheir state is exchanged in %s; %d placements were tried\n",
                        Seconds(plan.swap_s), plan.tried);
  return text;
}

std::string PlacementJson(const PlacedJob& job, const PlacementPlan& plan) {
  Json moves = Json::array();
  for (const Move& move : plan.moves) {
    moves.push_back({{"stage", move.stage},
                     {"group", move.group},
                     {"from_place", move.from_place},
                     {"to_place", move.to_place},
                     {"from_node", move.from_place / job.places_per_node},
                     {"to_node", move.to_place / job.places_per_node}});
  }
  const Json json = {{"before_s", plan.before_s},   {"after_s", plan.after_s}, {"healthy_s", plan.healthy_s},
                     {"removed", plan.Removed()},   {"swap_s", plan.swap_s},   {"moves", std::move(moves)},
                     {"placement", plan.placement}, {"tried", plan.tried}};
  return json.dump();
}

namespace {

std::string Hours(double hours) {
  return absl::StrFormat("%.3g GPU-hours", hours);
}

std::string ActionText(const LedgerAction& action, double ranks,
                       const std::function<std::string(double)>& clock) {
  std::string text = absl::StrCat("  ", clock(action.at_s), " ", StrategyName(action.strategy));
  if (!action.failed.empty()) return absl::StrCat(text, ": ", action.failed, "\n");
  absl::StrAppend(&text, ": promised ", Seconds(action.promised_s), ", brought ",
                  action.brought_s > 0 ? Seconds(action.brought_s) : "what is not measured yet", "; cost ",
                  Seconds(action.cost_s), action.cost_measured ? "" : " by an estimate");
  if (action.brought_s > 0) absl::StrAppend(&text, "\n    saved ", Hours(action.SavedS() * ranks / 3600));
  if (action.back_at_s != 0) absl::StrAppend(&text, "\n    taken back ", clock(action.back_at_s));
  return absl::StrCat(text, "\n");
}

Json ActionJson(const LedgerAction& action, double ranks) {
  Json json = {{"strategy", StrategyName(action.strategy)},
               {"at_unix_s", action.at_s},
               {"before_s", action.before_s},
               {"promised_s", action.promised_s},
               {"brought_s", nullptr},
               {"cost_s", action.cost_s},
               {"cost_measured", action.cost_measured},
               {"iterations", action.iterations},
               {"saved_gpu_hours", nullptr},
               {"taken_back_unix_s", nullptr},
               {"failed", action.failed}};
  if (action.brought_s > 0) {
    json["brought_s"] = action.brought_s;
    json["saved_gpu_hours"] = action.SavedS() * ranks / 3600;
  }
  if (action.back_at_s != 0) json["taken_back_unix_s"] = action.back_at_s;
  return json;
}

}  // namespace

std::string LedgerText(const std::string& job, const Ledger& ledger,
                       const std::function<std::string(double)>& clock) {
  if (ledger.events().empty()) return absl::StrCat("job ", job, ": no fail-slow is known\n");
  const size_t count = ledger.events().size();
  std::string text = absl::StrCat("job ", job, ": ", count, count == 1 ? " fail-slow" : " fail-slows",
                                  " cost ", Hours(ledger.LostGpuHours()), "\n");
  for (const LedgerEvent& event : ledger.events()) {
    absl::StrAppend(&text, "\n", event.id, ": ", event.culprit, "\n  ", clock(event.since_s), " to ",
                    event.until_s == 0 ? "now" : clock(event.until_s), "; ", event.cause, "\n");
    absl::StrAppend(&text, "  ", Seconds(event.slow_s), " instead of ", Seconds(event.healthy_s), " in ",
                    event.iterations, event.iterations == 1 ? " iteration" : " iterations", " of ",
                    absl::StrFormat("%.0f", event.Ranks()), " ranks: ", Hours(event.lost_gpu_h()), "\n");
    for (const LedgerAction& action : event.actions) {
      absl::StrAppend(&text, ActionText(action, event.Ranks(), clock));
    }
  }
  return text;
}

std::string LedgerJson(const std::string& job, const Ledger& ledger) {
  Json events = Json::array();
  for (const LedgerEvent& event : ledger.events()) {
    Json actions = Json::array();
    for (const LedgerAction& action : event.actions) actions.push_back(ActionJson(action, event.Ranks()));
    Json json = {{"id", event.id},
                 {"culprit", event.culprit},
                 {"cause", event.cause},
                 {"since_unix_s", event.since_s},
                 {"until_unix_s", nullptr},
                 {"before_s", event.healthy_s},
                 {"after_s", event.slow_s},
                 {"iterations", event.iterations},
                 {"lost_s", event.lost_s},
                 {"lost_gpu_hours", event.lost_gpu_h()},
                 {"actions", std::move(actions)}};
    if (event.until_s != 0) json["until_unix_s"] = event.until_s;
    events.push_back(std::move(json));
  }
  const Json json = {{"job", job},
                     {"lost_gpu_hours", ledger.LostGpuHours()},
                     {"saved_gpu_hours", ledger.SavedGpuHours()},
                     {"events", std::move(events)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace c4::mitigation
