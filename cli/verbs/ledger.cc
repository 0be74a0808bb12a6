#include "cli/verbs/ledger.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/mitigation.pb.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr double kNsPerS = 1e9;

double Seconds(int64_t unix_ns) {
  return static_cast<double>(unix_ns) / kNsPerS;
}

// A suspicion that went away told of nothing.
bool Counts(const v1::Verdict& verdict) {
  return verdict.has_fail_slow() && (verdict.cleared_unix_ns() == 0 || verdict.confirmed_unix_ns() != 0);
}

mitigation::LedgerEvent EventOf(const v1::Verdict& verdict) {
  const v1::FailSlow& fail_slow = verdict.fail_slow();
  mitigation::LedgerEvent event;
  event.id = verdict.id();
  event.culprit = service::VerdictHead(verdict);
  event.cause = std::string(service::FailSlowCauseWord(fail_slow.cause()));
  event.since_s = Seconds(verdict.since_unix_ns());
  const int64_t until_ns =
      fail_slow.relief_unix_ns() != 0 ? fail_slow.relief_unix_ns() : verdict.cleared_unix_ns();
  event.until_s = Seconds(until_ns);
  event.healthy_s = fail_slow.before_s();
  event.slow_s = fail_slow.after_s();
  event.iterations = fail_slow.iterations();
  event.lost_s = fail_slow.lost_s();
  event.lost_rank_s = fail_slow.lost_rank_s();
  return event;
}

constexpr mitigation::Decision::Kind kKinds[] = {
    mitigation::Decision::Kind::kAct,    mitigation::Decision::Kind::kStepBack,
    mitigation::Decision::Kind::kSkip,   mitigation::Decision::Kind::kBrought,
    mitigation::Decision::Kind::kFailed, mitigation::Decision::Kind::kRelieved,
};
constexpr mitigation::Strategy kStrategies[] = {
    mitigation::Strategy::kIgnore, mitigation::Strategy::kMicroBatches, mitigation::Strategy::kPlacement,
    mitigation::Strategy::kRestart};

// False: of a later release.
bool DecisionOf(const v1::MitigationDecision& from, mitigation::Decision* to) {
  const auto* const kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&from](auto one) {
    return from.kind() == mitigation::DecisionWord(one);
  });
  const auto* const strategy =
      std::find_if(std::begin(kStrategies), std::end(kStrategies),
                   [&from](auto one) { return from.strategy() == mitigation::StrategyName(one); });
  if (kind == std::end(kKinds) || strategy == std::end(kStrategies)) return false;
  to->kind = *kind;
  to->strategy = *strategy;
  to->at_s = Seconds(from.unix_ns());
  to->event = from.verdict();
  to->account_s = from.account_s();
  to->cost_s = from.cost_s();
  to->cost_measured = from.cost_measured();
  to->healthy_s = from.healthy_s();
  to->iteration_s = from.iteration_s();
  to->promised_s = from.promised_s();
  to->why = from.why();
  return true;
}

}  // namespace

mitigation::Ledger LedgerOf(const v1::ListVerdictsReply& reply, const v1::ListDecisionsReply& decisions) {
  std::vector<const v1::Verdict*> counted;
  for (const v1::Verdict& verdict : reply.verdicts()) {
    if (Counts(verdict)) counted.push_back(&verdict);
  }
  std::stable_sort(counted.begin(), counted.end(), [](const v1::Verdict* a, const v1::Verdict* b) {
    return a->since_unix_ns() < b->since_unix_ns();
  });
  mitigation::Ledger ledger;
  for (const v1::Verdict* verdict : counted) {
    const mitigation::LedgerEvent event = EventOf(*verdict);
    for (const v1::MitigationDecision& told : decisions.decisions()) {
      mitigation::Decision decision;
      if (told.verdict() != event.id || !DecisionOf(told, &decision)) continue;
      // As far as it had come by then: iterations since belong to what was in force.
      mitigation::LedgerEvent then = event;
      then.iterations = told.event_iterations();
      ledger.Observe(then);
      ledger.Note(decision);
    }
    ledger.Observe(event);
  }
  return ledger;
}

}  // namespace c4::cli
