#include "analysis/mitigation/planner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::mitigation {
namespace {

constexpr size_t kNewest = 5;

std::string Seconds(double seconds) {
  return absl::StrFormat("%.3g s", seconds);
}

}  // namespace

const char* StrategyName(Strategy strategy) {
  switch (strategy) {
    case Strategy::kIgnore:
      return "S1";
    case Strategy::kMicroBatches:
      return "S2";
    case Strategy::kPlacement:
      return "S3";
    case Strategy::kRestart:
      return "S4";
  }
  return "";
}

const char* DecisionWord(Decision::Kind kind) {
  switch (kind) {
    case Decision::Kind::kAct:
      return "act";
    case Decision::Kind::kStepBack:
      return "step-back";
    case Decision::Kind::kSkip:
      return "skip";
    case Decision::Kind::kBrought:
      return "brought";
    case Decision::Kind::kFailed:
      return "failed";
    case Decision::Kind::kRelieved:
      return "relieved";
  }
  return "";
}

void CostBook::Measured(Strategy strategy, double cost_s) {
  std::vector<double>& costs = costs_[strategy];
  if (costs.size() == kNewest) costs.erase(costs.begin());
  costs.push_back(std::max(0.0, cost_s));
  ++times_[strategy];
}

std::optional<double> CostBook::Of(Strategy strategy) const {
  const auto at = costs_.find(strategy);
  if (at == costs_.end()) return std::nullopt;
  std::vector<double> sorted = at->second;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

size_t CostBook::Times(Strategy strategy) const {
  const auto at = times_.find(strategy);
  return at == times_.end() ? 0 : at->second;
}

double Planner::CostOf(const Offer& offer, bool* measured) const {
  const std::optional<double> known = costs_.Of(offer.strategy);
  *measured = known.has_value();
  return known.value_or(offer.estimate_s);
}

Strategy Planner::LevelOf(const std::string& event) const {
  const auto at = accounts_.find(event);
  if (at == accounts_.end() || at->second.applied.empty()) return Strategy::kIgnore;
  return at->second.applied.back().strategy;
}

bool Planner::IsInForce(const std::string& event, Strategy strategy) const {
  const auto at = accounts_.find(event);
  return at != accounts_.end() &&
         std::any_of(at->second.applied.begin(), at->second.applied.end(),
                     [strategy](const Applied& applied) { return applied.strategy == strategy; });
}

Decision Planner::Base(const Account& account, Decision::Kind kind, Strategy strategy, double now_s) const {
  Decision decision;
  decision.kind = kind;
  decision.at_s = now_s;
  decision.event = account.newest.id;
  decision.strategy = strategy;
  decision.account_s = account.newest.lost_s - account.since_lost_s;
  decision.healthy_s = account.newest.healthy_s;
  decision.iteration_s = account.newest.iteration_s;
  return decision;
}

void Planner::Skip(Account* account, Strategy strategy, const std::string& why, double now_s,
                   std::vector<Decision>* decisions) {
  const auto told = account->skipped.find(strategy);
  if (told != account->skipped.end() && told->second == why) return;
  account->skipped[strategy] = why;
  Decision decision = Base(*account, Decision::Kind::kSkip, strategy, now_s);
  decision.why = why;
  decisions->push_back(std::move(decision));
}

// What the action in force has brought, once some iterations have passed with it.
void Planner::Tell(Account* account, double now_s, std::vector<Decision>* decisions) {
  if (account->applied.empty()) return;
  Applied& applied = account->applied.back();
  const uint64_t passed = account->newest.iterations - applied.at_iterations;
  if (applied.told || passed < options_.measured_after) return;
  applied.told = true;
  Decision decision = Base(*account, Decision::Kind::kBrought, applied.strategy, now_s);
  const double a_iteration_s = (account->newest.lost_s - applied.at_lost_s) / static_cast<double>(passed);
  decision.iteration_s = account->newest.healthy_s + a_iteration_s;
  decision.cost_s = applied.cost_s;
  decision.cost_measured = true;
  decision.promised_s = applied.promised_s;
  decision.why =
      absl::StrCat("an iteration takes ", Seconds(decision.iteration_s), " with ",
                   StrategyName(applied.strategy), " in force; promised were ", Seconds(applied.promised_s));
  decisions->push_back(std::move(decision));
}

// True: nothing else is to be looked at.
bool Planner::StepBack(Account* account, double now_s, std::vector<Decision>* decisions) {
  const EventState& event = account->newest;
  const auto applied = std::find_if(account->applied.begin(), account->applied.end(), [](const Applied& one) {
    return one.strategy == Strategy::kMicroBatches;
  });
  if (event.part != Part::kWell || applied == account->applied.end()) {
    account->well_since.reset();
    return false;
  }
  if (!account->well_since.has_value()) {
    account->well_since = event.iterations;
    account->well_lost_s = event.lost_s;
  }
  if (event.iterations - *account->well_since < options_.well_iterations) return true;
  const Strategy level = applied->strategy;
  const double account_s = event.lost_s - account->well_lost_s;
  const double cost_s = costs_.Of(level).value_or(applied->cost_s);
  if (account_s < cost_s || acting_.has_value()) return true;
  Decision decision = Base(*account, Decision::Kind::kStepBack, level, now_s);
  decision.account_s = account_s;
  decision.cost_s = cost_s;
  decision.cost_measured = true;
  decision.promised_s = event.healthy_s;
  decision.why =
      absl::StrCat("the part that was slow has been well for ", event.iterations - *account->well_since,
                   " iterations; since then ", StrategyName(level), " has cost ", Seconds(account_s),
                   ", as much as taking it back does (", Seconds(cost_s), ")");
  acting_ = Acting{event.id, level, true, now_s, event.healthy_s};
  decisions->push_back(std::move(decision));
  return true;
}

void Planner::Choose(Account* account, const std::vector<Offer>& offers, double now_s,
                     std::vector<Decision>* decisions) {
  const EventState& event = account->newest;
  const double slow_s = event.iteration_s - event.healthy_s;
  if (slow_s <= (account->applied.empty() ? 0 : options_.rest_share * event.healthy_s)) return;
  const auto is_applied = [account](Strategy strategy) {
    return std::any_of(account->applied.begin(), account->applied.end(),
                       [strategy](const Applied& applied) { return applied.strategy == strategy; });
  };
  if (is_applied(Strategy::kRestart)) return;  // there is nothing beyond it
  const Offer* next = nullptr;
  double next_s = 0;
  bool next_measured = false;
  for (const Offer& offer : offers) {
    if (offer.strategy == Strategy::kIgnore || is_applied(offer.strategy)) continue;
    const char* const name = StrategyName(offer.strategy);
    const auto failed = account->skipped.find(offer.strategy);
    if (failed != account->skipped.end() && failed->second.starts_with("it was not taken")) continue;
    if (!offer.unavailable.empty()) {
      Skip(account, offer.strategy, offer.unavailable, now_s, decisions);
      continue;
    }
    bool measured = false;
    const double cost_s = CostOf(offer, &measured);
    if (cost_s <= 0 && !measured) {
      Skip(account, offer.strategy, absl::StrCat("nobody knows what ", name, " costs"), now_s, decisions);
      continue;
    }
    if (event.iteration_s - offer.promised_s < options_.least_share * slow_s) {
      Skip(account, offer.strategy,
           absl::StrFormat("it promises less than %.0f %% of the slow-down", 100 * options_.least_share),
           now_s, decisions);
      continue;
    }
    account->skipped.erase(offer.strategy);
    // Of two that cost the same the one that promises more; who costs more and promises no more comes later
    // by itself.
    const bool sooner =
        next == nullptr || cost_s < next_s || (cost_s == next_s && offer.promised_s < next->promised_s);
    if (!sooner) continue;
    next = &offer;
    next_s = cost_s;
    next_measured = measured;
  }
  const double account_s = event.lost_s - account->since_lost_s;
  if (next == nullptr || account_s < next_s || acting_.has_value()) return;
  Decision decision = Base(*account, Decision::Kind::kAct, next->strategy, now_s);
  decision.cost_s = next_s;
  decision.cost_measured = next_measured;
  decision.promised_s = next->promised_s;
  decision.why = absl::StrCat("since the last step ", Seconds(account_s), " were lost, as much as ",
                              StrategyName(next->strategy), " costs (", Seconds(next_s),
                              next_measured ? ", measured" : ", an estimate", "); an iteration takes ",
                              Seconds(event.iteration_s), " now, ", Seconds(event.healthy_s), " before, ",
                              Seconds(next->promised_s), " with it");
  acting_ = Acting{event.id, next->strategy, false, now_s, next->promised_s};
  decisions->push_back(std::move(decision));
}

std::vector<Decision> Planner::Observe(const EventState& event, const std::vector<Offer>& offers,
                                       double now_s) {
  std::vector<Decision> decisions;
  if (acting_.has_value() && acting_->strategy != Strategy::kRestart &&
      now_s - acting_->since_s > options_.answer_s) {
    decisions = Refused(
        absl::StrFormat("nobody has taken it in %.0f s: does the program ask for plans?", options_.answer_s),
        now_s);
  }
  Account& account = accounts_[event.id];
  account.newest = event;
  if (event.is_over) {
    if (acting_.has_value() && acting_->event == event.id) acting_.reset();
    Decision decision = Base(account, Decision::Kind::kRelieved, LevelOf(event.id), now_s);
    decision.why =
        absl::StrCat("it has cost ", Seconds(event.lost_s), " in ", event.iterations, " iterations");
    decisions.push_back(std::move(decision));
    accounts_.erase(event.id);
    return decisions;
  }
  Tell(&account, now_s, &decisions);
  if (!account.applied.empty() && StepBack(&account, now_s, &decisions)) return decisions;
  if (event.part != Part::kWell) Choose(&account, offers, now_s, &decisions);
  return decisions;
}

void Planner::Done(double cost_s, double now_s) {
  (void)now_s;
  if (!acting_.has_value()) return;
  const Acting acting = *acting_;
  acting_.reset();
  costs_.Measured(acting.strategy, cost_s);
  const auto at = accounts_.find(acting.event);
  if (at == accounts_.end()) return;
  Account& account = at->second;
  account.since_lost_s = account.newest.lost_s;
  account.well_since.reset();
  if (acting.back) {
    std::erase_if(account.applied,
                  [&acting](const Applied& applied) { return applied.strategy == acting.strategy; });
    return;
  }
  account.applied.push_back(
      {acting.strategy, acting.promised_s, cost_s, account.newest.iterations, account.newest.lost_s, false});
}

std::vector<Decision> Planner::Refused(const std::string& why, double now_s) {
  if (!acting_.has_value()) return {};
  const Acting acting = *acting_;
  acting_.reset();
  const auto at = accounts_.find(acting.event);
  if (at == accounts_.end()) return {};
  Decision decision = Base(at->second, Decision::Kind::kFailed, acting.strategy, now_s);
  decision.promised_s = acting.promised_s;
  decision.why = absl::StrCat("it was not taken: ", why);
  if (acting.back) {
    // What is in force stays in force; the account of its cost begins anew.
    at->second.well_since.reset();
  } else {
    at->second.skipped[acting.strategy] = decision.why;
  }
  return {std::move(decision)};
}

}  // namespace c4::mitigation
