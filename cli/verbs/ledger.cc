#include "cli/verbs/ledger.h"

#include <algorithm>
#include <vector>

#include "c4/v1/c4d.pb.h"
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

}  // namespace

mitigation::Ledger LedgerOf(const v1::ListVerdictsReply& reply) {
  std::vector<const v1::Verdict*> counted;
  for (const v1::Verdict& verdict : reply.verdicts()) {
    if (Counts(verdict)) counted.push_back(&verdict);
  }
  std::stable_sort(counted.begin(), counted.end(), [](const v1::Verdict* a, const v1::Verdict* b) {
    return a->since_unix_ns() < b->since_unix_ns();
  });
  mitigation::Ledger ledger;
  for (const v1::Verdict* verdict : counted) ledger.Observe(EventOf(*verdict));
  return ledger;
}

}  // namespace c4::cli
